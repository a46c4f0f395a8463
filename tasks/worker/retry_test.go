package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// Which errors are tried again, how often and when, and by what name a client
// sees the last one.
func TestRetries(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	var err error
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, err })
	job := &tasks.Guard{Job: "hourly"}
	app := (*tasks.Guard)(nil)
	sent := &tasks.Guard{Retries: &tasks.RetryPolicy{Max: 1, BaseMS: 500}} // what an app's WithRetries writes
	cause := &tasks.Exception{Type: "NoPaper", Args: []any{"out"}}
	for _, tc := range []struct {
		name    string
		guard   *tasks.Guard
		err     error
		attempt int
		after   time.Duration // 0: not tried again
		seen    string        // exception of the last one
	}{
		{"a job's plain error", job, errors.New("x"), 1, 10 * time.Second, ""},
		{"a job's third retry", job, errors.New("x"), 3, 40 * time.Second, ""},
		{"a job's retries are done", job, cause, 4, 0, "NoPaper"},
		{"an app's plain error", app, cause, 1, 0, "NoPaper"},
		{"an app's own policy", sent, cause, 1, 500 * time.Millisecond, ""},
		{"an app's own policy is done", sent, cause, 2, 0, "NoPaper"},
		{"asked for, max unset", app, tasks.Retry(cause, 0, 0), 3, 40 * time.Second, ""},
		{"asked for, max unset, done", app, tasks.Retry(cause, 0, 0), 4, 0, "NoPaper"},
		{"asked for with a wait", app, tasks.Retry(cause, time.Minute, 9), 9, time.Minute, ""},
		{"asked for, done", app, tasks.Retry(cause, time.Minute, 9), 10, 0, "NoPaper"},
		{"asked for without a cause, done", app, tasks.Retry(nil, 0, 1), 2, 0, "MaxRetriesExceededError"},
		{"its own max goes before the policy's", job, tasks.Retry(cause, 0, 1), 2, 0, "NoPaper"},
		{"its own max goes beyond the policy's", job, tasks.Retry(cause, 0, 8), 8, 600 * time.Second, ""},
		{"a wait, and the policy's max", job, tasks.Retry(cause, time.Minute, tasks.OwnRetries), 3, time.Minute, ""},
		{"a wait, and the policy's max, done", job, tasks.Retry(cause, time.Minute, tasks.OwnRetries), 4, 0, "NoPaper"},
		{"a wait, and no retries", app, tasks.Retry(cause, time.Minute, tasks.OwnRetries), 1, 0, "NoPaper"},
		{"permanent", job, tasks.Permanent(cause), 1, 0, "NoPaper"},
		{"permanent of nothing", job, tasks.Permanent(nil), 1, 0, ""},
		{"permanent in a retry", job, tasks.Retry(tasks.Permanent(cause), 0, 5), 1, 0, "NoPaper"},
	} {
		err = tc.err
		out := b.run(b.delivery("id", "report", tc.guard, attempt(tc.attempt)))
		want := tasks.Failed
		if tc.after > 0 {
			want = tasks.Retried
		}
		if out.Kind != want || out.After != tc.after {
			t.Errorf("%s: %s after %v, want %s after %v (%v)", tc.name, out.Kind, out.After, want, tc.after, out.Err)
		}
		var exc *tasks.Exception
		if tc.seen != "" && (!errors.As(out.Err, &exc) || exc.Type != tc.seen) {
			t.Errorf("%s: seen as %v, want %s", tc.name, out.Err, tc.seen)
		}
	}
}

// The limits of a run have names, also where the handler returns the cause.
func TestLimitsAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("err", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() })
	b.handle("cause", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	b.handle("own", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, &tasks.Exception{Type: "HalfDone", Args: []any{"3 of 7"}}
	})
	held := lockOf("k", tasks.OnBusyRetry)
	held.MaxHoldMS = 300
	hold := &tasks.Guard{Lock: held}
	short := &tasks.Guard{TimeoutMS: 100}
	for _, tc := range []struct {
		task  string
		guard *tasks.Guard
		want  string
		cause error
	}{
		{"err", short, "TimeLimitExceeded", tasks.ErrTimeout},
		{"cause", short, "TimeLimitExceeded", tasks.ErrTimeout},
		{"own", short, "HalfDone", nil},
		{"err", hold, "MaxHoldExceeded", lockguard.ErrMaxHold},
		{"cause", hold, "MaxHoldExceeded", lockguard.ErrMaxHold},
	} {
		out := b.run(b.delivery("id", tc.task, tc.guard))
		var exc *tasks.Exception
		if out.Kind != tasks.Failed || !errors.As(out.Err, &exc) || exc.Type != tc.want || tc.cause != nil && !errors.Is(out.Err, tc.cause) {
			t.Errorf("%s: %s %v, want %s", tc.task, out.Kind, out.Err, tc.want)
		}
	}
}

// A panic that is tried again shows its stack too.
func TestPanicIsTriedAgainWithItsStack(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { panic("boom") })
	out := b.run(b.delivery("id", "report", &tasks.Guard{Job: "hourly"}))
	wantKind(t, out, tasks.Retried)
	if !strings.Contains(out.Traceback, "retry_test.go") {
		t.Errorf("traceback %q", out.Traceback)
	}
}

// What could not begin for want of resources waits; it has used up no attempt,
// and its record is free for whoever can.
func TestShortageIsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	short := true
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) {
		if short {
			return nil, &tasks.Exception{Type: "CommandError", Cause: fmt.Errorf("no more files: %w", tasks.ErrShortage)}
		}
		return nil, nil
	})
	g := jobGuard(nil, "r")
	g.Retries = &tasks.RetryPolicy{}
	out := b.run(b.delivery("id", "report", g))
	wantKind(t, out, tasks.Parked)
	if out.Park.Reason != tasks.ParkShortage || out.Reason != tasks.ReasonShortage {
		t.Errorf("parked for %s, reason %s", out.Park.Reason, out.Reason)
	}
	short = false
	wantKind(t, b.run(b.delivery("other", "report", g)), tasks.Succeeded)
}

// What is no JSON fails, and so does each replay: a completed record with it
// would answer every later message with an error nobody can explain.
func TestResultThatIsNoJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return json.RawMessage(`{"a":`), nil })
	g := jobGuard(nil, "r")
	for _, id := range []string{"a", "b"} {
		out := b.run(b.delivery(id, "report", g))
		var exc *tasks.Exception
		if out.Kind != tasks.Failed || !errors.As(out.Err, &exc) || exc.Type != "EncodeError" {
			t.Errorf("%s: %s %v", id, out.Kind, out.Err)
		}
	}
}

// A task without a handler never gets a record: a failed one would keep every
// later message of the key from running.
func TestUnknownTaskTouchesNoGuard(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.guarded.take()
	out := b.run(b.delivery("id", "nobody", jobGuard(lockOf("k", tasks.OnBusySkip), "r")))
	if out.Kind != tasks.Failed || out.Reason != "NotRegistered" || !out.DeadLetter || len(b.guarded.take()) != 0 {
		t.Errorf("%s %s, dead letter %v", out.Kind, out.Reason, out.DeadLetter)
	}
}

// The wait from an ETA to the start, by the store's clock.
func TestWaitedIsToldToTheObserver(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	wantKind(t, b.run(b.delivery("id", "report", nil, func(d *tasks.Delivery) { d.Task.ETA = d.TakenAt.Add(-3 * time.Second) })), tasks.Succeeded)
	if w := b.runs[0].Waited; w < 3*time.Second || w > 10*time.Second {
		t.Errorf("waited %v", w)
	}
}
