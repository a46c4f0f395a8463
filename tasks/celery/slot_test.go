package celery

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// While runs ask stores and tell them of their end, others have the slots; the
// handlers at a time are never more than the slots.
func TestSlotsAreFreeWhileStoresAreAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 12
	var handlers, most, ended atomic.Int64
	told := make(chan struct{})
	w := r.start(Config{Concurrency: 2}, nil, func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		d.Slot.Leave()
		if err := d.Slot.Enter(ctx); err != nil {
			return tasks.Outcome{Kind: tasks.Returned, Err: err}
		}
		most.Store(max(most.Load(), handlers.Add(1)))
		handlers.Add(-1)
		d.Slot.Done()
		if ended.Add(1) == n { // all handlers have returned and no store was told
			close(told)
		}
		<-told
		return succeed("1")
	})
	var ids []string
	for range n {
		ids = append(ids, r.enqueue("t.slot"))
	}
	for _, id := range ids {
		r.wait(id, 20*time.Second)
	}
	if most.Load() > 2 {
		t.Errorf("%d handlers ran at a time in 2 slots", most.Load())
	}
	if w.Active() != 0 {
		t.Errorf("%d slots are taken at the end", w.Active())
	}
	r.empty()
}

// What has its lock and no slot when the worker stops goes back at once, and has
// not begun: here after a rush of short tasks, for which many are begun ahead.
func TestStopGivesBackWhatWaitsForASlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 4000
	release := make(chan struct{})
	var ran, running, waiting atomic.Int64
	w := r.start(Config{Concurrency: 2}, func(e *Engine) { e.tune.hoard = time.Minute }, func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		d.Slot.Leave()
		<-time.After(time.Millisecond) // a store far away
		waiting.Add(1)
		err := d.Slot.Enter(ctx)
		waiting.Add(-1)
		if err != nil {
			return tasks.Outcome{Kind: tasks.Returned, Err: err}
		}
		ran.Add(1)
		if waiting.Load() > 0 && ran.Load() > n/2 {
			running.Add(1)
			<-release
		}
		d.Slot.Done()
		return succeed("1")
	})
	for range n {
		r.push(r.prepare("t.slot"))
	}
	testkit.Poll(t, 20*time.Second, time.Millisecond, func() bool { return running.Load() == 2 && waiting.Load() > 0 }, "two run, others wait for a slot")
	go func() { _ = w.stop() }()
	ctx := context.Background()
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return w.held.len() == 2 }, "all others are back")
	close(release)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	back, err := r.rdb.LRange(ctx, "celery", 0, -1).Result()
	if err != nil || len(back)+int(ran.Load()) != n || running.Load() != 2 {
		t.Fatalf("%d are back (%v) and %d ran, %d of them at the end", len(back), err, ran.Load(), running.Load())
	}
	for _, raw := range back {
		if m, err := wire.Decode([]byte(raw)); err != nil || m.Redelivered {
			t.Errorf("came back as %+v (%v), want it as it was", m, err)
		}
	}
}
