package asynqengine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

func zAt(at time.Time, member string) redis.Z {
	return redis.Z{Score: float64(at.Unix()), Member: member}
}

// A busy lock and skip: SUCCESS with a note, nothing was run.
func TestBusyAndSkip(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	r.handle("x", func(_ context.Context, task *tasks.Task) (any, error) { seen.saw(task); return nil, nil })
	r.hold("k", "somebody")
	r.start(setup{})
	id := r.send("x", lockOf("k", tasks.OnBusySkip))
	res := r.wait(id)
	if res.State != wire.StateSuccess || !strings.Contains(string(res.Solobeat), `"skipped"`) || !strings.Contains(string(res.Solobeat), "somebody") {
		t.Errorf("result %+v, note %s", res, res.Solobeat)
	}
	if seen.of(id) != 0 {
		t.Error("it was run")
	}
}

// A busy lock and retry: parked without an attempt, and run as soon as the lock
// is released, not when a timer ends.
func TestBusyAndRetry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first, free := make(chan struct{}), make(chan struct{})
	ran := make(chan time.Time, 2)
	r.handle("x", func(_ context.Context, task *tasks.Task) (any, error) {
		if string(task.Kwargs["n"]) == "1" {
			close(first)
			<-free
			return nil, nil
		}
		ran <- time.Now()
		return task.Attempt, nil
	})
	parked := make(chan string, 100)
	r.start(setup{cfg: Config{Concurrency: 4, Observer: Observer{Parked: func(_, reason string) { parked <- reason }}}})
	one := r.send("x", lockOf("k", tasks.OnBusyRetry), tasks.WithKwargs(map[string]int{"n": 1}))
	<-first
	two := r.send("x", lockOf("k", tasks.OnBusyRetry), tasks.WithKwargs(map[string]int{"n": 2}))
	for range 4 { // by then its own timer is 8 s
		if reason := <-parked; reason != "lock" {
			t.Fatalf("parked for %q", reason)
		}
	}
	r.becomes(two, "retry")
	released := time.Now()
	close(free)
	if res := r.wait(two); string(res.Value) != "1" {
		t.Errorf("attempt %s, want 1: %+v", res.Value, res)
	}
	if d := (<-ran).Sub(released); d > 2*time.Second {
		t.Errorf("it ran %s after the release", d)
	}
	r.wait(one)
	info, err := r.inspect.GetTaskInfo(DefaultQueue, two)
	if err == nil && info.Retried != 0 {
		t.Errorf("asynq counts %d retries of a task that only waited", info.Retried)
	}
}

// Many on one key: each runs, one at a time, and only the oldest has a timer.
// Nothing is left of the line.
func TestALineIsNoHerd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var now, most atomic.Int64
	var seen witness
	r.handle("x", func(_ context.Context, task *tasks.Task) (any, error) {
		most.Store(max(most.Load(), now.Add(1)))
		seen.saw(task)
		timer := time.NewTimer(5 * time.Millisecond)
		<-timer.C
		now.Add(-1)
		return nil, nil
	})
	h := r.hold("k", "somebody")
	var parks atomic.Int64
	obs := Observer{Parked: func(string, string) { parks.Add(1) }}
	r.start(setup{cfg: Config{Concurrency: 8, Servers: 2, Observer: obs}})
	r.start(setup{cfg: Config{Concurrency: 8, Observer: obs}})
	const n = 40
	var ids []string
	for range n {
		ids = append(ids, r.send("x", lockOf("k", tasks.OnBusyRetry)))
	}
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool {
		return r.rdb.ZCard(t.Context(), "solobeat:default:asynq:line:k").Val() == n
	}, "all wait")
	for _, id := range ids {
		r.becomes(id, "retry")
	}
	soon := 0
	tasksInRetry, err := r.inspect.ListRetryTasks(DefaultQueue, asynq.PageSize(100))
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range tasksInRetry {
		if time.Until(info.NextProcessAt) < time.Minute {
			soon++
		}
	}
	if soon > 3 { // those that were parked before an older one came
		t.Errorf("%d of %d have a timer", soon, n)
	}
	if _, err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if res := r.waitFor(id, 60*time.Second); res.State != wire.StateSuccess {
			t.Errorf("%s: %+v", id, res)
		}
		if seen.of(id) != 1 {
			t.Errorf("%s: %d runs", id, seen.of(id))
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d runs at once", most.Load())
	}
	testkit.Poll(t, 10*time.Second, 20*time.Millisecond, func() bool {
		return r.rdb.Exists(t.Context(), "solobeat:default:asynq:line:k", "solobeat:default:asynq:lines").Val() == 0
	}, "the line is gone")
	if p := parks.Load(); p > 4*n {
		t.Errorf("%d parks for %d tasks", p, n)
	}
}

// The oldest of a line is deleted or archived by hand: the others do not wait
// for their timers of a day.
func TestALineOutlivesItsOldest(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*asynq.Inspector, string) error{
		"deleted":  func(i *asynq.Inspector, id string) error { return i.DeleteTask(DefaultQueue, id) },
		"archived": func(i *asynq.Inspector, id string) error { return i.ArchiveTask(DefaultQueue, id) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			aLineOutlivesItsOldest(t, end)
		})
	}
}

func aLineOutlivesItsOldest(t *testing.T, end func(*asynq.Inspector, string) error) {
	t.Helper()
	r := newRig(t)
	r.handle("x", func(context.Context, *tasks.Task) (any, error) { return nil, nil })
	h := r.hold("k", "somebody")
	r.start(setup{})
	first := r.send("x", lockOf("k", tasks.OnBusyRetry))
	r.becomes(first, "retry")
	second := r.send("x", lockOf("k", tasks.OnBusyRetry))
	r.becomes(second, "retry")
	testkit.Eventually(t, 10*time.Second, func() error { return end(r.inspect, first) })
	if _, err := h.Release(t.Context()); err != nil { // another program's, which wakes nobody
		t.Fatal(err)
	}
	r.wait(second)
}

// A completed record answers; one in progress is waited for; other arguments
// are refused; a failed one answers with its failure.
func TestRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	entered, free := make(chan struct{}, 1), make(chan struct{})
	r.handle("x", func(_ context.Context, task *tasks.Task) (any, error) {
		seen.saw(task)
		entered <- struct{}{}
		<-free
		return "charged", nil
	})
	r.handle("bad", func(context.Context, *tasks.Task) (any, error) {
		return nil, tasks.Permanent(&tasks.Exception{Type: "Declined", Args: []any{"no money"}})
	})
	r.start(setup{cfg: Config{Concurrency: 4}})
	one := r.send("x", recordOf("pay-1"))
	<-entered
	two := r.send("x", recordOf("pay-1"))
	r.becomes(two, "retry")
	close(free)
	if res := r.wait(one); string(res.Value) != `"charged"` {
		t.Errorf("first: %+v", res)
	}
	three := r.send("x", recordOf("pay-1"))
	for _, id := range []string{two, three} {
		res := r.wait(id)
		if string(res.Value) != `"charged"` || !strings.Contains(string(res.Solobeat), "replayed") {
			t.Errorf("answered from the record: %+v, note %s", res, res.Solobeat)
		}
	}
	if n := len(seen.all()); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	if r.rdb.Exists(t.Context(), "solobeat:default:begun:"+one).Val() != 0 {
		t.Error("a record says by itself that its run has begun")
	}
	for range 2 {
		if res := r.wait(r.send("bad", recordOf("pay-2"))); res.State != wire.StateFailure || res.Exception.Type != "Declined" {
			t.Errorf("failed before: %+v", res)
		}
	}
}

// A lock that is lost in mid-run: the run is not failed but comes again, three
// times at most.
func TestLostLocks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	r.handle("x", func(ctx context.Context, task *tasks.Task) (any, error) {
		seen.saw(task)
		if seen.of(task.ID) > 1 && string(task.Kwargs["ever"]) == "false" {
			return "second", nil
		}
		r.rdb.Set(ctx, string(task.Kwargs["key"][1:3]), "stolen", time.Second)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), lockguard.ErrLost) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		return nil, ctx.Err()
	})
	r.start(setup{cfg: Config{Concurrency: 2}})
	guard := func(key string) *tasks.Guard {
		return &tasks.Guard{Lock: &tasks.LockGuard{Key: key, TTLMS: 1000, RenewMS: 200, OnBusy: tasks.OnBusyRetry}}
	}
	once := r.send("x", guard("k1"), tasks.WithKwargs(map[string]any{"ever": false, "key": "k1"}))
	ever := r.send("x", guard("k2"), tasks.WithKwargs(map[string]any{"ever": true, "key": "k2"}))
	if res := r.wait(once); string(res.Value) != `"second"` {
		t.Errorf("lost once: %+v", res)
	}
	if res := r.waitFor(ever, 60*time.Second); res.Exception == nil || res.Exception.Type != "LockLost" || seen.of(ever) != 3 {
		t.Errorf("lost ever: %+v after %d runs", res, seen.of(ever))
	}
	for _, task := range seen.all() {
		if task.Attempt != 1 {
			t.Errorf("attempt %d", task.Attempt)
		}
	}
}

// asynq ends a task that has used MaxRetry, also one that only waits for a
// lock: then the result says so, instead of a caller that waits for ever.
func TestParkWithoutRetriesLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.handle("x", func(context.Context, *tasks.Task) (any, error) { return nil, nil })
	r.hold("k", "somebody")
	r.start(setup{})
	text, err := lockOf("k", tasks.OnBusyRetry).Encode()
	if err != nil {
		t.Fatal(err)
	}
	task := asynq.NewTaskWithHeaders("x", nil, map[string]string{tasks.GuardHeader: string(text)})
	info, err := asynq.NewClientFromRedisClient(r.rdb).EnqueueContext(t.Context(), task, asynq.Queue(DefaultQueue), asynq.MaxRetry(0))
	if err != nil {
		t.Fatal(err)
	}
	if res := r.wait(info.ID); res.Exception == nil || res.Exception.Type != "MaxRetriesExceededError" {
		t.Errorf("result %+v", res)
	}
	// What we enqueue always has room.
	id := r.send("x", lockOf("k", tasks.OnBusyRetry))
	r.becomes(id, "retry")
	if info, err := r.inspect.GetTaskInfo(DefaultQueue, id); err != nil || info.MaxRetry < 1 {
		t.Errorf("MaxRetry %d: %v", info.MaxRetry, err)
	}
}

// The store of the locks is away: parked, no attempt counted, run when it is
// back.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.handle("x", func(_ context.Context, task *tasks.Task) (any, error) { return task.Attempt, nil })
	var down atomic.Bool
	down.Store(true)
	parked := make(chan string, 100)
	r.start(setup{
		cfg: Config{Observer: Observer{Parked: func(_, reason string) { parked <- reason }}},
		runner: func(run tasks.Runner) tasks.Runner {
			return func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
				if down.Load() {
					return tasks.Outcome{Kind: tasks.Parked, Reason: "store", Err: fmt.Errorf("away"), Park: tasks.Park{Reason: tasks.ParkStore}}
				}
				return run(ctx, d)
			}
		},
	})
	id := r.send("x", nil)
	if reason := <-parked; reason != "store" {
		t.Errorf("parked for %q", reason)
	}
	down.Store(false)
	if res := r.wait(id); string(res.Value) != "1" {
		t.Errorf("attempt %s", res.Value)
	}
}

// What could not begin for want of resources waits as for a store; no attempt
// is counted, and its lock is free meanwhile.
func TestShortage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var short atomic.Bool
	short.Store(true)
	r.handle("x", func(_ context.Context, task *tasks.Task) (any, error) {
		if short.Load() {
			return nil, fmt.Errorf("no more files: %w", tasks.ErrShortage)
		}
		return task.Attempt, nil
	})
	parked := make(chan string, 100)
	r.start(setup{cfg: Config{Observer: Observer{Parked: func(_, reason string) { parked <- reason }}}})
	id := r.send("x", lockOf("k", tasks.OnBusyRetry))
	if reason := <-parked; reason != string(tasks.ParkShortage) {
		t.Errorf("parked for %q", reason)
	}
	r.becomes(id, "retry")
	short.Store(false)
	if res := r.wait(r.send("x", lockOf("k", tasks.OnBusyRetry))); string(res.Value) != "1" {
		t.Errorf("the lock's next: attempt %s", res.Value)
	}
	if res := r.wait(id); string(res.Value) != "1" {
		t.Errorf("attempt %s", res.Value)
	}
}
