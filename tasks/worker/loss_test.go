package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// A record that was taken over decides, whatever the run returned and whatever
// has ended it, also where only the end of the record finds it out: the message
// waits like any second copy, no loss is counted, no attempt, no failure.
func TestTakenOverDecidesWhateverWasReturned(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, cancel context.CancelCauseFunc) (json.RawMessage, error){
		"result": func(context.Context, context.CancelCauseFunc) (json.RawMessage, error) {
			return json.RawMessage(`1`), nil
		},
		"error": func(context.Context, context.CancelCauseFunc) (json.RawMessage, error) { return nil, errors.New("x") },
		"retry": func(context.Context, context.CancelCauseFunc) (json.RawMessage, error) {
			return nil, tasks.Retry(nil, 0, 9)
		},
		"permanent": func(context.Context, context.CancelCauseFunc) (json.RawMessage, error) {
			return nil, tasks.Permanent(errors.New("x"))
		},
		"panic": func(context.Context, context.CancelCauseFunc) (json.RawMessage, error) { panic("x") },
		"shutdown": func(ctx context.Context, cancel context.CancelCauseFunc) (json.RawMessage, error) {
			cancel(tasks.ErrShutdown)
			return nil, context.Cause(ctx)
		},
		"fenced": func(context.Context, context.CancelCauseFunc) (json.RawMessage, error) {
			return nil, lockguard.ErrFenced
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
				b.forget("report")
				return end(ctx, cancel)
			})
			out := b.chain.Run(ctx, b.delivery("id", "report", jobGuard(lockOf("k", tasks.OnBusySkip), "r"), func(d *tasks.Delivery) { d.Losses = 9 }))
			if out.Kind != tasks.Parked || out.Park.Reason != tasks.ParkRecord || out.Reason != "taken_over" || out.Lost || !out.Begun {
				t.Errorf("%s %s %+v, lost %v, begun %v: %v", out.Kind, out.Reason, out.Park, out.Lost, out.Begun, out.Err)
			}
			if b.client.Exists(t.Context(), "k").Val() != 0 {
				t.Error("the lock is still held")
			}
		})
	}
}

// What has ended a run that returns an error decides whether it has failed. Its
// record is free again for the next run in each case, and so is its lock where
// it is still its own.
func TestWhatIsNoFailureOfARun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cause  error
		err    error
		losses int
		kind   tasks.Kind
		reason tasks.Reason
		lost   bool
	}{
		"shutdown":                   {tasks.ErrShutdown, nil, 0, tasks.Returned, "shutdown", false},
		"shutdown, however often":    {tasks.ErrShutdown, nil, 99, tasks.Returned, "shutdown", false},
		"shutdown, another error":    {tasks.ErrShutdown, errors.New("interrupted"), 0, tasks.Returned, "shutdown", false},
		"shutdown, a retry":          {tasks.ErrShutdown, tasks.Retry(nil, 0, 0), 0, tasks.Returned, "shutdown", false},
		"shutdown, permanent":        {tasks.ErrShutdown, tasks.Permanent(errors.New("never")), 0, tasks.Failed, "permanent", false},
		"buried":                     {tasks.ErrBuried, nil, 0, tasks.Returned, "shutdown", false},
		"guard closed":               {lockguard.ErrClosed, nil, 0, tasks.Returned, "shutdown", false},
		"lock lost":                  {&lockguard.LostError{Key: "k"}, nil, 0, tasks.Returned, "lost", true},
		"lock lost the third time":   {&lockguard.LostError{Key: "k"}, nil, 2, tasks.Failed, "LockLost", false},
		"lock lost, permanent":       {&lockguard.LostError{Key: "k"}, tasks.Permanent(errors.New("never")), 2, tasks.Failed, "permanent", false},
		"lease lost":                 {fmt.Errorf("%w: expired", idempotency.ErrLeaseLost), nil, 0, tasks.Returned, "lost", true},
		"record vanished":            {idempotency.ErrRecordLost, nil, 0, tasks.Returned, "lost", true},
		"fenced off":                 {nil, fmt.Errorf("write: %w", lockguard.ErrFenced), 0, tasks.Returned, "lost", true},
		"fenced off the third time":  {nil, lockguard.ErrFenced, 2, tasks.Failed, "LockLost", false},
		"max_hold":                   {lockguard.ErrMaxHold, nil, 0, tasks.Retried, "error", false},
		"max_hold of the record":     {idempotency.ErrMaxHold, nil, 0, tasks.Retried, "error", false},
		"an error of its own":        {nil, errors.New("x"), 9, tasks.Retried, "error", false},
		"a context of its own ended": {nil, context.DeadlineExceeded, 0, tasks.Retried, "error", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
				if tc.cause != nil {
					cancel(tc.cause)
					<-ctx.Done()
				}
				if tc.err != nil {
					return nil, tc.err
				}
				return nil, ctx.Err()
			})
			out := b.chain.Run(ctx, b.delivery("id", "report", jobGuard(lockOf("k", tasks.OnBusySkip), "r"), func(d *tasks.Delivery) { d.Losses = tc.losses }))
			if out.Kind != tc.kind || out.Reason != tc.reason || out.Lost != tc.lost {
				t.Errorf("%s %s, lost %v: %v", out.Kind, out.Reason, out.Lost, out.Err)
			}
			want := idempotency.Released
			if tc.reason == "permanent" {
				want = idempotency.Failed
			}
			if rec := b.record("report"); rec.State != want {
				t.Errorf("the record is %s, want %s", rec.State, want)
			}
			if b.client.Exists(t.Context(), "k").Val() != 0 {
				t.Error("the lock is still held")
			}
		})
	}
}

// A run that returns a result has succeeded, whatever has ended its context.
func TestAResultStands(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{
		"shutdown": tasks.ErrShutdown, "buried": tasks.ErrBuried, "lost": &lockguard.LostError{Key: "k"}, "max_hold": lockguard.ErrMaxHold,
	} {
		b := newBench(t, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) {
			cancel(cause)
			return json.RawMessage(`"formed"`), nil
		})
		out := b.chain.Run(ctx, b.delivery("id", "report", jobGuard(lockOf("k", tasks.OnBusySkip), "r")))
		if out.Kind != tasks.Succeeded || string(out.Result) != `"formed"` {
			t.Errorf("%s: %s %s", name, out.Kind, out.Result)
		}
		if rec := b.record("report"); rec.State != idempotency.Completed {
			t.Errorf("%s: the record is %s", name, rec.State)
		}
	}
}

// A record that the store has lost in mid-run is made anew by its completion,
// so that the next message of the key is answered.
func TestVanishedRecordIsMadeAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	runs := 0
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) {
		runs++
		b.client.FlushAll(context.Background())
		return json.RawMessage(`1`), nil
	})
	g := jobGuard(nil, "r")
	wantKind(t, b.run(b.delivery("a", "report", g)), tasks.Succeeded)
	wantKind(t, b.run(b.delivery("b", "report", g)), tasks.Succeeded)
	if rec := b.record("report"); runs != 1 || !rec.Lost {
		t.Errorf("%d runs, record %+v", runs, rec)
	}
}

// Without a lock the record is what keeps a rival out: a run whose record has
// vanished is cancelled, and its error is a loss.
func TestVanishedRecordIsALossWithoutALock(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		b.client.FlushAll(context.Background())
		<-ctx.Done() // the renewal at a third of the lease of 30 s finds it out
		return nil, ctx.Err()
	})
	out := b.run(b.delivery("a", "report", jobGuard(nil, "r")))
	if out.Kind != tasks.Returned || !out.Lost || !errors.Is(out.Err, idempotency.ErrRecordLost) {
		t.Errorf("%s %s, lost %v: %v", out.Kind, out.Reason, out.Lost, out.Err)
	}
}

// The store is away when the effect has happened, for longer than one end of a
// record is tried: nothing is told before the record says so, and the next
// message of the key is answered, not run.
func TestCompletionWaitsForItsStore(t *testing.T) {
	t.Parallel()
	broker, store := testkit.Redis(t), testkit.Redis(t)
	b := newBenchOf(t, setup{
		redis: broker, locksAt: store.Addr,
		records: idempotency.Config{CallTimeout: 100 * time.Millisecond, EndTimeout: 200 * time.Millisecond},
	})
	runs := 0
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) {
		runs++
		store.Pause()
		return json.RawMessage(`1`), nil
	})
	g := jobGuard(nil, "r")
	done := make(chan tasks.Outcome, 1)
	go func() { done <- b.run(b.delivery("a", "report", g)) }()
	select {
	case out := <-done:
		t.Errorf("told %s while the record could not be", out.Kind)
	case <-time.After(time.Second):
	}
	store.Continue()
	wantKind(t, <-done, tasks.Succeeded)
	wantKind(t, b.run(b.delivery("b", "report", g)), tasks.Succeeded)
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

// A replica that must end does not wait for the store: the result stands.
func TestCompletionEndsWithTheReplica(t *testing.T) {
	t.Parallel()
	broker, store := testkit.Redis(t), testkit.Redis(t)
	b := newBenchOf(t, setup{
		redis: broker, locksAt: store.Addr,
		records: idempotency.Config{CallTimeout: 100 * time.Millisecond, EndTimeout: 200 * time.Millisecond},
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) {
		store.Pause()
		time.AfterFunc(500*time.Millisecond, func() { cancel(tasks.ErrShutdown) })
		return json.RawMessage(`1`), nil
	})
	defer store.Continue()
	begin := time.Now()
	wantKind(t, b.chain.Run(ctx, b.delivery("a", "report", jobGuard(nil, "r"))), tasks.Succeeded)
	if took := time.Since(begin); took < 500*time.Millisecond || took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A panic in a middleware, or in the chain itself, leaves neither lock nor
// record behind: both would be renewed for as long as the process lives.
func TestPanicsLeaveNoGuardBehind(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"when it is made":   {wrap: []tasks.Middleware{func(tasks.Handler) tasks.Handler { panic("made") }}},
		"when it is called": {wrap: []tasks.Middleware{func(tasks.Handler) tasks.Handler { return nil }}},
		"in the chain":      {started: func(worker.Run) { panic("in an observer") }},
	} {
		b := newBenchOf(t, s)
		b.handle("report", ok)
		g := jobGuard(lockOf("k", tasks.OnBusySkip), "r")
		g.Retries = &tasks.RetryPolicy{}
		out := b.run(b.delivery("a", "report", g))
		if out.Kind != tasks.Failed || out.Traceback == "" {
			t.Errorf("%s: %s %s, traceback %q", name, out.Kind, out.Reason, out.Traceback)
		}
		if rec := b.record("report"); rec.State != idempotency.Released {
			t.Errorf("%s: the record is %s", name, rec.State)
		}
		if b.client.Exists(t.Context(), "k").Val() != 0 {
			t.Errorf("%s: the lock is still held", name)
		}
	}
}

// Lines are brought forward after both lock and record are free: who came for
// the record would else meet the lock.
func TestLinesMoveAfterTheRelease(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	var held []int64
	b.chain.SetWakers(wakerFunc(func(line string) {
		held = append(held, b.client.Exists(context.Background(), "k").Val())
		b.Wake(context.Background(), line)
	}))
	wantKind(t, b.run(b.delivery("a", "report", jobGuard(lockOf("k", tasks.OnBusySkip), "r"))), tasks.Succeeded)
	if len(b.woken) != 2 || b.woken[0] != "record:report|r" || b.woken[1] != "k" || held[0]+held[1] != 0 {
		t.Errorf("woken %v, lock held meanwhile: %v", b.woken, held)
	}
}

type wakerFunc func(string)

func (f wakerFunc) Wake(_ context.Context, key string) { f(key) }
