package celery

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

func TestRunsATaskAndStoresItsResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.start(Config{Concurrency: 2}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		return succeed(string(d.Task.Args[0]))
	})
	id := r.enqueue("t.echo", tasks.WithArgs(9007199254740993))
	res := r.wait(id, 5*time.Second)
	if res.State != wire.StateSuccess || string(res.Value) != "9007199254740993" {
		t.Errorf("result %s %s", res.State, res.Value)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	r.empty()
	if n := r.number(r.rdb.ZCard(context.Background(), w.keys.replicas())); n != 0 {
		t.Errorf("%d replicas are registered after an orderly end", n)
	}
}

func TestRunsManyFast(t *testing.T) {
	r := newRig(t)
	const n = 10_000
	ctx := context.Background()
	for from := 0; from < n; from += 1000 {
		_, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := from; i < from+1000; i++ {
				req, err := tasks.NewRequest("t.noop", tasks.WithID(fmt.Sprint("id", i)), tasks.WithArgs(i, "some text", 1.5))
				if err != nil {
					return err
				}
				list, msg, err := r.client.Prepare(req)
				if err != nil {
					return err
				}
				p.LPush(ctx, list, msg)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := newWitness()
	begin := time.Now()
	r.start(Config{Concurrency: 16}, nil, seen.runner())
	testkit.Poll(t, 20*time.Second, time.Millisecond, func() bool { return seen.distinct() == n }, "all ran")
	took := time.Since(begin)
	t.Logf("%d messages in %v: %.0f/s", n, took, n/took.Seconds())
	r.empty()
}
