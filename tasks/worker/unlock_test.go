package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

func unlocks(d *tasks.Delivery) { d.Unlocks = true }

// A run leaves its lock to an engine that frees it with the message, where the
// message ends by that; else the lock is free before its outcome is acted on.
func TestRunLeavesItsLockToTheEngine(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("t", func(_ context.Context, t *tasks.Task) (json.RawMessage, error) {
		switch t.ID {
		case "permanent":
			return nil, tasks.Permanent(errors.New("no"))
		case "again":
			return nil, errors.New("not yet")
		case "panic":
			panic("no")
		}
		return json.RawMessage("1"), nil
	})
	kept := lockOf("kept", tasks.OnBusySkip)
	kept.MinHoldMS = 60_000
	for _, tc := range []struct {
		id, key, record string
		lock            *tasks.LockGuard
		offer, left     bool
	}{
		{id: "success", key: "a", offer: true, left: true},
		{id: "no offer", key: "b"},
		{id: "permanent", key: "c", offer: true, left: true},
		{id: "again", key: "d", offer: true},
		{id: "panic", key: "e", offer: true},
		{id: "record", key: "f", record: "r", offer: true, left: true},
		{id: "kept", key: "kept", lock: kept, offer: true},
		{id: "waited for", key: "w", lock: lockOf("w", tasks.OnBusyWait), offer: true},
	} {
		t.Run(tc.id, func(t *testing.T) {
			if tc.lock == nil {
				tc.lock = lockOf(tc.key, tasks.OnBusySkip)
			}
			g := jobGuard(tc.lock, tc.record)
			g.Retries = &tasks.RetryPolicy{Max: 3}
			d := b.delivery(tc.id, "t", g)
			d.Unlocks = tc.offer
			b.woken = nil
			out := b.run(d)
			if left := out.Unlock != nil; left != tc.left {
				t.Fatalf("the lock is left: %v, want %v (%+v)", left, tc.left, out)
			}
			if !tc.left {
				if h, err := b.locks.Inspect(t.Context(), tc.key); err != nil || h.Held != (tc.lock == kept) {
					t.Errorf("after the run: %+v, %v", h, err)
				}
				if !slices.Contains(b.woken, tc.key) {
					t.Errorf("woken: %q", b.woken)
				}
				return
			}
			u := out.Unlock
			if value := b.client.Get(t.Context(), u.Key).Val(); u.Key != tc.key || u.Token == "" || value != u.Token || u.Channel == "" {
				t.Errorf("lock %q is %q; told: %+v", tc.key, value, u)
			}
			if len(b.woken) > 0 || !b.locks.Occupied(tc.key) {
				t.Errorf("before the lock is free: woken %q, occupied %v", b.woken, b.locks.Occupied(tc.key))
			}
			if !slices.Contains(u.Lines, tc.key) || tc.record != "" && len(u.Lines) != 2 {
				t.Errorf("lines: %q", u.Lines)
			}
			b.client.Del(t.Context(), u.Key)
			u.Ended(nil, tasks.UnlockFreed)
			if b.locks.Occupied(tc.key) || !slices.Contains(b.woken, tc.key) {
				t.Errorf("after it: woken %q, occupied %v", b.woken, b.locks.Occupied(tc.key))
			}
		})
	}
}

// An engine that has brought its own line forward is not told to; the others are.
func TestUnlockWakesTheOtherEngines(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("t", func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, nil })
	var others []string
	other := &waker{func(line string) { others = append(others, line) }}
	b.chain.SetWakers(b, other)
	out := b.run(b.delivery("id", "t", jobGuard(lockOf("k", tasks.OnBusySkip), ""), unlocks))
	out.Unlock.Ended(b, tasks.UnlockFreed)
	if len(b.woken) > 0 || !slices.Equal(others, []string{"k"}) {
		t.Errorf("woken: %q and %q", b.woken, others)
	}
}

type waker struct{ wake func(line string) }

func (w *waker) Wake(_ context.Context, line string) { w.wake(line) }

// Where the engine did not come to it, the run's own release frees the lock.
func TestUnlockIsReleasedByTheRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("t", func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, nil })
	out := b.run(b.delivery("id", "t", jobGuard(lockOf("k", tasks.OnBusySkip), ""), unlocks))
	out.Unlock.Ended(b, tasks.UnlockLeft)
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Equal(b.woken, []string{"k"})
	}, "the line is woken")
	if h, err := b.locks.Inspect(t.Context(), "k"); err != nil || h.Held || b.locks.Occupied("k") {
		t.Errorf("the lock: %+v, %v; occupied %v", h, err, b.locks.Occupied("k"))
	}
	// The key is not kept off this process.
	h, err := b.locks.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Release(t.Context()); got != lockguard.Released {
		t.Errorf("%v, %v", got, err)
	}
}
