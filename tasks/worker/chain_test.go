package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

func ok(context.Context, *tasks.Task) (json.RawMessage, error) { return json.RawMessage(`"done"`), nil }

func wantKind(t *testing.T, out tasks.Outcome, want tasks.Kind) {
	t.Helper()
	if out.Kind != want {
		t.Fatalf("outcome %s (reason %q, error %v), want %s", out.Kind, out.Reason, out.Err, want)
	}
}

// A second message of the same tick is answered from the record, after the
// lock is free again: the lock alone would let it run.
func TestL15_RecordOutlivesTheLock(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	runs := 0
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { runs++; return json.RawMessage(`42`), nil })
	g := jobGuard(lockOf("report:lock", tasks.OnBusySkip), "tick-1")
	first := b.run(b.delivery("id-1", "report", g))
	wantKind(t, first, tasks.Succeeded)
	second := b.run(b.delivery("id-2", "report", g))
	wantKind(t, second, tasks.Succeeded)
	if runs != 1 || string(second.Result) != "42" || second.Note == nil || second.Note.Outcome != "replayed" {
		t.Errorf("%d runs, second outcome %+v (note %+v), want one run and a replay of 42", runs, second, second.Note)
	}
	control := b.run(b.delivery("id-3", "report", jobGuard(lockOf("report:lock", tasks.OnBusySkip), "")))
	wantKind(t, control, tasks.Succeeded)
	if runs != 2 {
		t.Error("the control without a record did not run twice: this test could not fail")
	}
}

// A skip is final only for a message that has not begun, while another task
// holds the lock; everything else waits.
func TestSkipIsFinalOnlyWhereNothingIsLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	h, err := b.locks.TryAcquire(t.Context(), "report:lock", lockguard.WithTTL(30*time.Second), lockguard.WithTaskID("holder-id"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = h.Release(context.Background()) }()
	skip := jobGuard(lockOf("report:lock", tasks.OnBusySkip), "")
	for name, tc := range map[string]struct {
		change func(*tasks.Delivery)
		want   tasks.Kind
	}{
		"fresh":       {func(*tasks.Delivery) {}, tasks.Succeeded},
		"redelivered": {func(d *tasks.Delivery) { d.Task.Redelivered = true }, tasks.Parked},
		"retry":       {func(d *tasks.Delivery) { d.Task.Attempt = 2 }, tasks.Parked},
		"follow-ups":  {func(d *tasks.Delivery) { d.FollowUps = true }, tasks.Parked},
		"same id":     {func(d *tasks.Delivery) { d.Task.ID = "holder-id" }, tasks.Parked},
	} {
		out := b.run(b.delivery("id-"+name, "report", skip, tc.change))
		if out.Kind != tc.want {
			t.Errorf("%s: %s (%s), want %s", name, out.Kind, out.Reason, tc.want)
		}
		if out.Kind == tasks.Succeeded && (out.Note == nil || out.Note.Holder != "holder-id" || out.Result != nil) {
			t.Errorf("%s: note %+v, result %s", name, out.Note, out.Result)
		}
		if out.Kind == tasks.Parked && (out.Park.Key != "report:lock" || out.Park.Left <= 0) {
			t.Errorf("%s: park %+v", name, out.Park)
		}
	}
}

// L25: a store that is out of reach never lets a guarded task run.
func TestL25_StoreDownFailsClosed(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]*tasks.Guard{
		"lock skip":  jobGuard(lockOf("k", tasks.OnBusySkip), ""),
		"lock retry": jobGuard(lockOf("k", tasks.OnBusyRetry), ""),
		"record":     jobGuard(nil, "r"),
		"both":       jobGuard(lockOf("k", tasks.OnBusyRetry), "r"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			ran := false
			b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { ran = true; return nil, nil })
			b.redis.Pause()
			defer b.redis.Continue()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			out := b.chain.Run(ctx, b.delivery("id", "report", g))
			if ran || out.Kind != tasks.Parked || out.Park.Reason != tasks.ParkStore {
				t.Errorf("ran %v, outcome %s %+v: %v", ran, out.Kind, out.Park, out.Err)
			}
		})
	}
}

// A panic is a failed run with its stack; record and lock are free again.
func TestPanicIsAFailedRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { panic("boom") })
	g := jobGuard(lockOf("k", tasks.OnBusyRetry), "r")
	g.Retries = &tasks.RetryPolicy{}
	out := b.run(b.delivery("id", "report", g))
	wantKind(t, out, tasks.Failed)
	if !strings.Contains(out.Traceback, "chain_test.go") || !strings.Contains(out.Err.Error(), "boom") {
		t.Errorf("error %v, traceback %.200s", out.Err, out.Traceback)
	}
	if held := b.client.Exists(t.Context(), "k").Val(); held != 0 {
		t.Error("the lock is still held")
	}
}

// I12: a failed run is not done: another task id may try the key again; an
// explicit permanent error is done, and is answered with that error.
func TestI12_FailedIsNotDone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	fail := errors.New("no paper")
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, fail })
	g := jobGuard(nil, "r")
	g.Retries = &tasks.RetryPolicy{Max: 1}
	first := b.run(b.delivery("id-1", "report", g))
	wantKind(t, first, tasks.Retried)
	if first.After != 10*time.Second {
		t.Errorf("first retry after %s, want 10s", first.After)
	}
	wantKind(t, b.run(b.delivery("id-1", "report", g, func(d *tasks.Delivery) { d.Task.Attempt = 2 })), tasks.Failed)
	fail = tasks.Permanent(&tasks.Exception{Type: "NoPaper", Args: []any{"out"}})
	wantKind(t, b.run(b.delivery("id-2", "report", g)), tasks.Failed)
	fail = nil
	last := b.run(b.delivery("id-3", "report", g))
	wantKind(t, last, tasks.Failed)
	if last.Reason != "failed_before" || last.Err.Error() == "" {
		t.Errorf("after a permanent error: %+v", last)
	}
}

// I09: one key, another payload: never run, never another's answer.
func TestI09_Mismatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, payments(t))
	charges := 0
	b.handle("payments.charge", func(context.Context, *tasks.Task) (json.RawMessage, error) { charges++; return nil, nil })
	pay := func(id, amount string) tasks.Outcome {
		return b.run(b.delivery(id, "payments.charge", nil, func(d *tasks.Delivery) {
			d.Task.Args = []json.RawMessage{json.RawMessage(`"7"`), json.RawMessage(amount)}
		}))
	}
	wantKind(t, pay("a", "10"), tasks.Succeeded)
	wantKind(t, pay("b", "10"), tasks.Succeeded)
	out := pay("c", "20")
	wantKind(t, out, tasks.Failed)
	if out.Reason != "mismatch" || out.DeadLetter || charges != 1 {
		t.Errorf("reason %q, dead letter %v, %d charges", out.Reason, out.DeadLetter, charges)
	}
}

// I05: two messages with different task ids and one payment id: the second
// waits while the first runs, then returns its outcome.
func TestI05_SecondWaitsThenReplays(t *testing.T) {
	t.Parallel()
	b := newBench(t, payments(t))
	started, finish := make(chan struct{}), make(chan struct{})
	b.handle("payments.charge", func(context.Context, *tasks.Task) (json.RawMessage, error) {
		close(started)
		<-finish
		return json.RawMessage(`"charged"`), nil
	})
	args := func(d *tasks.Delivery) {
		d.Task.Args = []json.RawMessage{json.RawMessage(`"7"`), json.RawMessage(`10`)}
	}
	done := make(chan tasks.Outcome, 1)
	go func() { done <- b.run(b.delivery("a", "payments.charge", nil, args)) }()
	<-started
	wantKind(t, b.run(b.delivery("b", "payments.charge", nil, args)), tasks.Parked)
	close(finish)
	wantKind(t, <-done, tasks.Succeeded)
	out := b.run(b.delivery("b", "payments.charge", nil, args))
	wantKind(t, out, tasks.Succeeded)
	if string(out.Result) != `"charged"` {
		t.Errorf("result %s", out.Result)
	}
}

// A missing key part fails the task; it is never a constant key.
func TestI04_MissingKeyPartFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, payments(t))
	b.handle("payments.charge", ok)
	out := b.run(b.delivery("a", "payments.charge", nil))
	wantKind(t, out, tasks.Failed)
	if out.Reason != "KeyMissing" || !strings.Contains(out.Err.Error(), "payment_id") {
		t.Errorf("reason %q, error %v", out.Reason, out.Err)
	}
}

// The lock is lost in mid-run: an error is no failed run, a result stands.
func TestLostLock(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	steal := func(ctx context.Context) {
		b.client.Set(context.Background(), "k", "somebody else's token", 0)
		<-ctx.Done()
	}
	b.handle("error", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		steal(ctx)
		return nil, context.Cause(ctx)
	})
	b.handle("result", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		steal(ctx)
		return json.RawMessage(`1`), nil
	})
	g := jobGuard(lockOf("k", tasks.OnBusyRetry), "r")
	out := b.run(b.delivery("a", "error", g))
	wantKind(t, out, tasks.Returned)
	if !out.Lost || !errors.Is(out.Err, lockguard.ErrLost) {
		t.Errorf("lost %v, error %v", out.Lost, out.Err)
	}
	if v := b.client.Get(t.Context(), "k").Val(); v != "somebody else's token" {
		t.Errorf("the new holder's lock was touched: %q", v)
	}
	b.client.Del(t.Context(), "k")
	out = b.run(b.delivery("a", "error", g, func(d *tasks.Delivery) { d.Losses = 2; d.Task.Redelivered = true }))
	wantKind(t, out, tasks.Failed)
	if out.Reason != "LockLost" {
		t.Errorf("reason %q after the third loss", out.Reason)
	}
	b.client.Del(t.Context(), "k")
	wantKind(t, b.run(b.delivery("b", "result", g)), tasks.Succeeded)
}

// A shutdown is no failure, however often.
func TestShutdownIsNoFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(tasks.ErrShutdown) })
	out := b.chain.Run(ctx, b.delivery("a", "report", jobGuard(lockOf("k", tasks.OnBusyRetry), "r"), func(d *tasks.Delivery) { d.Losses = 9 }))
	wantKind(t, out, tasks.Returned)
	if out.Lost {
		t.Error("a shutdown was counted as a loss")
	}
	if b.client.Exists(t.Context(), "k").Val() != 0 {
		t.Error("the lock is still held")
	}
}

// A run that has not begun by its deadline is revoked; one that has begun is
// not; one that was parked for a lock failed for it.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	g := jobGuard(lockOf("k", tasks.OnBusyRetry), "r")
	g.BeginBy = time.Now().Add(-time.Second).UnixMilli()
	out := b.run(b.delivery("a", "report", g))
	wantKind(t, out, tasks.Revoked)
	if out.Reason != "missed" {
		t.Errorf("reason %q", out.Reason)
	}
	out = b.run(b.delivery("b", "report", g, func(d *tasks.Delivery) { d.FirstPark = time.Now().Add(-time.Minute) }))
	wantKind(t, out, tasks.Failed)
	if out.Reason != "LockBusy" {
		t.Errorf("reason %q", out.Reason)
	}
	wantKind(t, b.run(b.delivery("c", "report", g, func(d *tasks.Delivery) { d.Task.Redelivered = true })), tasks.Succeeded)
	// The record names this id: it has begun, though nothing else says so.
	wantKind(t, b.run(b.delivery("c", "report", g)), tasks.Succeeded)
}

// A run's timeout is a failed run, also for max_hold.
func TestTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	out := b.run(b.delivery("a", "report", &tasks.Guard{TimeoutMS: 50}))
	wantKind(t, out, tasks.Failed)
	var ex *tasks.Exception
	if !errors.As(out.Err, &ex) || ex.Type != "TimeLimitExceeded" {
		t.Errorf("error %v", out.Err)
	}
	lock := lockOf("k", tasks.OnBusyRetry)
	lock.MaxHoldMS = 300
	out = b.run(b.delivery("b", "report", &tasks.Guard{Lock: lock}))
	wantKind(t, out, tasks.Failed)
}

// A guard of a later version waits; a broken one is a dead letter.
func TestGuardErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	out := b.run(b.delivery("a", "report", nil, func(d *tasks.Delivery) { d.GuardError = tasks.ErrGuardVersion }))
	wantKind(t, out, tasks.Parked)
	if out.Park.Reason != tasks.ParkGuard {
		t.Errorf("park %+v", out.Park)
	}
	out = b.run(b.delivery("a", "report", nil, func(d *tasks.Delivery) { d.GuardError = errors.New("bad") }))
	wantKind(t, out, tasks.Failed)
	if !out.DeadLetter {
		t.Error("a broken guard is no dead letter")
	}
	_, bad := tasks.DecodeGuard(json.RawMessage(`{"v": "one"}`)) // a type of encoding/json
	out = b.run(b.delivery("b", "report", nil, func(d *tasks.Delivery) { d.GuardError = bad }))
	if exc, ok := errors.AsType[*tasks.Exception](out.Err); !ok || exc.Type != "BadGuard" || exc.Module != "" || !errors.Is(out.Err, bad) {
		t.Errorf("exception %#v, want a BadGuard of no module", out.Err)
	}
}

// The record of a stalled run is taken over: its late result is dropped, its
// message waits and is answered from the record.
func TestTakenOverRunIsAnsweredFromTheRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	slow := make(chan struct{})
	b.handle("report", func(_ context.Context, task *tasks.Task) (json.RawMessage, error) {
		if task.ID == "a" && !task.Redelivered {
			<-slow
			return json.RawMessage(`"late"`), nil
		}
		return json.RawMessage(`"new"`), nil
	})
	g := jobGuard(nil, "r")
	done := make(chan tasks.Outcome, 1)
	go func() { done <- b.run(b.delivery("a", "report", g)) }()
	recordKey(t, b)
	// Another replica takes over: forget makes the first run's claim stale.
	b.forget("report")
	out := b.run(b.delivery("a", "report", g, func(d *tasks.Delivery) { d.Task.Redelivered = true }))
	wantKind(t, out, tasks.Succeeded)
	close(slow)
	late := <-done
	wantKind(t, late, tasks.Parked)
	if late.Park.Reason != tasks.ParkRecord {
		t.Errorf("park %+v", late.Park)
	}
	again := b.run(b.delivery("a", "report", g, func(d *tasks.Delivery) { d.Task.Redelivered = true }))
	if string(again.Result) != `"new"` {
		t.Errorf("answered with %s, want the record's \"new\"", again.Result)
	}
}

func recordKey(t *testing.T, b *bench) {
	t.Helper()
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool {
		return len(b.client.Keys(t.Context(), "solobeat:default:record:*").Val()) > 0
	}, "no record was claimed")
}

func payments(t *testing.T) map[string]worker.TaskConfig {
	t.Helper()
	return map[string]worker.TaskConfig{"payments.charge": {
		Params: []string{"payment_id", "amount"},
		Record: &worker.RecordConfig{Key: "{{ .Params.payment_id }}", Fingerprint: []string{"amount"}},
	}}
}
