package lockguard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/locktest"
)

func ExampleGuard_Do() {
	// locktest.Memory stands in for lockredis.New(client, lockredis.Options{}).
	guard, err := lockguard.New(lockguard.Config{Backend: &locktest.Memory{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = guard.Close(ctx) }()

	err = guard.Do(ctx, "report:lock", func(ctx context.Context) error {
		h, _ := lockguard.FromContext(ctx)
		for _, part := range []string{"orders", "totals"} {
			// The context ends when the lock is lost; Check says so at once,
			// also to code that does not look at the context.
			if err := h.Check(); err != nil {
				return err
			}
			fmt.Println("writing", part)
		}
		return nil
	}, lockguard.WithTTL(30*time.Second), lockguard.WithExpect(10*time.Minute))
	fmt.Println(err)
	// Output:
	// writing orders
	// writing totals
	// <nil>
}

func ExampleGuard_TryAcquire() {
	guard, err := lockguard.New(lockguard.Config{Backend: &locktest.Memory{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = guard.Close(ctx) }()

	h, err := guard.TryAcquire(ctx, "report:lock", lockguard.WithTaskID("4f1c"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = guard.TryAcquire(ctx, "report:lock")
	var busy *lockguard.BusyError
	if errors.As(err, &busy) {
		fmt.Println("held by task", busy.Holder.TaskID)
	}
	result, err := h.Release(ctx)
	fmt.Println(result, err)
	// Output:
	// held by task 4f1c
	// released <nil>
}

// A table can refuse a stale fence by one condition: the row keeps the largest
// fence that has written, and an update with a smaller one changes no row.
func ExampleHandle_Fence() {
	const update = `UPDATE reports SET body = $1, fence = $2 WHERE day = $3 AND fence <= $2`

	guard, err := lockguard.New(lockguard.Config{Backend: &locktest.Memory{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = guard.Close(ctx) }()

	row := table{}
	for range 2 {
		err = guard.Do(ctx, "report:lock", func(ctx context.Context) error {
			h, _ := lockguard.FromContext(ctx)
			fence, _ := h.Fence()
			// With database/sql: res, err := db.ExecContext(ctx, update, body, fence, day)
			if rows := row.exec(update, fence); rows == 0 {
				h.NoteFenced() // counted by the Observer
				return lockguard.ErrFenced
			}
			return nil
		})
		fmt.Println("written by fence", row.fence, err)
	}
	fmt.Println("rows changed by fence 1:", row.exec(update, 1))
	// Output:
	// written by fence 1 <nil>
	// written by fence 2 <nil>
	// rows changed by fence 1: 0
}

// table is one row of a database.
type table struct{ fence lockguard.Fence }

func (t *table) exec(_ string, fence lockguard.Fence) int {
	if t.fence > fence {
		return 0
	}
	t.fence = fence
	return 1
}
