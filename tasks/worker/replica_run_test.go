package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// An orderly stop in mid-run: lock and record are given back, the message is
// the next one that is taken, and another replica runs it at once, as the same
// attempt.
func TestStopGivesLockRecordAndMessageBack(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	first := newReplica(t, setup{redis: srv}, func(c *celery.Config) { c.Grace, c.Concurrency = 200*time.Millisecond, 1 })
	begun := make(chan struct{})
	first.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	first.start()
	g := withGuard(jobGuard(lockOf("k", tasks.OnBusySkip), "r"))
	first.send("report", "id", g)
	<-begun
	first.send("report", "behind", withGuard(nil))
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	if n := first.client.Exists(t.Context(), "k").Val(); n != 0 {
		t.Error("the lock is still held")
	}
	if rec := first.record("report"); rec.State != idempotency.Released {
		t.Errorf("the record is %s", rec.State)
	}
	next, err := wire.Decode([]byte(first.client.LIndex(t.Context(), "celery", -1).Val()))
	if err != nil || next.ID != "id" || !next.Redelivered {
		t.Errorf("next to be taken: %+v %v", next, err)
	}
	second := newReplica(t, setup{redis: srv, instance: "replica-2"}, func(c *celery.Config) { c.Concurrency = 1 })
	seen := make(chan *tasks.Task, 2)
	second.handle("report", func(_ context.Context, task *tasks.Task) (json.RawMessage, error) {
		seen <- task
		return json.RawMessage(`"formed"`), nil
	})
	begin := time.Now()
	second.start()
	if res := second.result("id", 5*time.Second); res.State != wire.StateSuccess || string(res.Value) != `"formed"` {
		t.Errorf("%+v", res)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it waited %v", took)
	}
	if task := <-seen; task.ID != "id" || task.Attempt != 1 || !task.Redelivered {
		t.Errorf("first seen by the second replica: %+v", task)
	}
}

// A run that loses its lock each time comes back each time, marked, and fails
// after the third loss; a retry in between is none.
func TestLossesAreCountedInTheMessage(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, nil)
	var runs atomic.Int64
	r.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		runs.Add(1)
		r.client.Del(context.Background(), "k")
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r.start()
	lock := lockOf("k", tasks.OnBusySkip)
	lock.TTLMS = 1000
	r.send("report", "id", withGuard(jobGuard(lock, "r")))
	res := r.result("id", 20*time.Second)
	if res.State != wire.StateFailure || res.Exception.Type != "LockLost" || runs.Load() != 3 {
		t.Errorf("%s %+v after %d runs", res.State, res.Exception, runs.Load())
	}
	r.idle()
}

// The record is taken over while the message is still its own: what the run
// returns is dropped, and the message is answered by the one that took over.
func TestOvertakenRunIsAnsweredByItsSuccessor(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, nil)
	var runs atomic.Int64
	r.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		runs.Add(1)
		r.forget("report")
		h, err := r.records.Claim(ctx, idempotency.Key{Namespace: "report", Text: "r"}, idempotency.WithRun("", "report", "successor"))
		if err != nil {
			return nil, err
		}
		return json.RawMessage(`"mine"`), h.Complete(ctx, json.RawMessage(`"theirs"`))
	})
	r.start()
	g := jobGuard(lockOf("k", tasks.OnBusySkip), "r")
	r.send("report", "id", withGuard(g), tasks.WithExpires(time.Now().Add(time.Second)))
	res := r.result("id", 10*time.Second)
	if res.State != wire.StateSuccess || string(res.Value) != `"theirs"` || runs.Load() != 1 {
		t.Errorf("%s %s after %d runs", res.State, res.Value, runs.Load())
	}
	r.idle()
}

// One task sent twice: it runs once, both copies end, and at no instant does
// its result say that it was skipped.
func TestSecondCopyNeverAnswersForTheFirst(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, nil)
	var runs atomic.Int64
	finish := make(chan struct{})
	r.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) {
		runs.Add(1)
		<-finish
		return json.RawMessage(`"formed"`), nil
	})
	sub := r.client.Subscribe(t.Context(), wire.ResultKey("id"))
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.start()
	g := withGuard(jobGuard(lockOf("k", tasks.OnBusySkip), "r"))
	r.send("report", "id", g)
	r.send("report", "id", g)
	r.inLine("k", 1)
	close(finish)
	m, err := sub.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	res, err := wire.DecodeResult([]byte(m.Payload))
	if err != nil || string(res.Value) != `"formed"` || res.Solobeat != nil {
		t.Errorf("first result %+v %v", res, err)
	}
	r.idle()
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// A guard of a later version waits, 10 s and again, is counted each time, and
// is never run without its guard.
func TestGuardOfALaterVersionWaits(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, nil)
	var runs atomic.Int64
	r.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { runs.Add(1); return nil, nil })
	r.start()
	req, err := tasks.NewRequest("report", tasks.WithID("id"), withGuard(jobGuard(lockOf("k", tasks.OnBusySkip), "r")))
	if err != nil {
		t.Fatal(err)
	}
	list, msg, err := r.sender.Prepare(req)
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(msg, []byte(`"v": 1`), []byte(`"v": 99`), 1)
	if bytes.Equal(msg, later) {
		t.Fatalf("no version in %s", msg)
	}
	r.client.LPush(t.Context(), list, later)
	told := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(slices.DeleteFunc(slices.Clone(r.parked), func(s string) bool { return s != "guard" }))
	}
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return told() == 1 }, "parked and counted")
	due := time.UnixMicro(int64(r.client.ZRangeWithScores(t.Context(), "solobeat:default:parked", 0, 0).Val()[0].Score))
	if left := time.Until(due); left < 6*time.Second || left > 13*time.Second {
		t.Errorf("it looks again in %v", left)
	}
	r.client.ZAdd(t.Context(), "solobeat:default:parked", zAt(time.Now(), r.client.ZRange(t.Context(), "solobeat:default:parked", 0, 0).Val()[0]))
	testkit.Poll(t, 8*time.Second, 10*time.Millisecond, func() bool { return told() == 2 }, "parked and counted again")
	if runs.Load() != 0 {
		t.Error("it ran")
	}
}

// What an app wrote of retries is heeded; a job's message runs under its own
// guards on a worker that knows no schedule.
func TestAppsRetriesAndJobsGuards(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, nil)
	var attempts []int // one run at a time: a retry comes after its run
	r.handle("app", func(_ context.Context, task *tasks.Task) (json.RawMessage, error) {
		attempts = append(attempts, task.Attempt)
		return nil, errors.New("no paper")
	})
	var runs atomic.Int64
	r.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) {
		runs.Add(1)
		return json.RawMessage(`1`), nil
	})
	r.start()
	r.send("app", "app", tasks.WithRetries(tasks.RetryPolicy{Max: 2, BaseMS: 50, MaxDelayMS: 100}))
	if res := r.result("app", 10*time.Second); res.State != wire.StateFailure || res.Exception.Text() != "no paper" {
		t.Errorf("%+v", res)
	}
	if d := cmp.Diff([]int{1, 2, 3}, attempts); d != "" {
		t.Error(d)
	}
	g := withGuard(jobGuard(lockOf("k", tasks.OnBusySkip), "r"))
	r.send("report", "tick", g)
	r.result("tick", 5*time.Second)
	r.send("report", "again", g)
	if res := r.result("again", 5*time.Second); string(res.Value) != "1" || runs.Load() != 1 {
		t.Errorf("%s after %d runs", res.Value, runs.Load())
	}
	r.idle()
}
