package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
)

func parkedSince(at time.Time) func(*tasks.Delivery) {
	return func(d *tasks.Delivery) { d.FirstPark = at }
}

func expires(at time.Time) func(*tasks.Delivery) {
	return func(d *tasks.Delivery) { d.Task.Expires = at }
}

// What may no longer begin is revoked, or fails for its lock if it has waited
// for one; what has begun, by its message or by its record, runs, but waits for
// a lock no longer than 24 h.
func TestWhatMayStillBegin(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	b.handle("flaky", func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, errors.New("no paper") })
	now := time.Now()
	past, recent, longAgo := now.Add(-time.Minute), now.Add(-time.Hour), now.Add(-25*time.Hour)
	guard := func(record string, beginBy time.Time) *tasks.Guard {
		g := jobGuard(lockOf("k", tasks.OnBusyRetry), record)
		if !beginBy.IsZero() {
			g.BeginBy = beginBy.UnixMilli()
		}
		return g
	}
	type changes = []func(*tasks.Delivery)
	for _, tc := range []struct {
		name    string
		guard   *tasks.Guard
		changes changes
		kind    tasks.Kind
		reason  tasks.Reason
	}{
		{"in time", guard("1", now.Add(time.Hour)), changes{expires(now.Add(time.Hour))}, tasks.Succeeded, ""},
		{"deadline passed", guard("2", past), nil, tasks.Revoked, "missed"},
		{"expired", guard("3", time.Time{}), changes{expires(past)}, tasks.Revoked, "expired"},
		{"expired, no guard at all", nil, changes{expires(past)}, tasks.Revoked, "expired"},
		{"the earlier one names the reason", guard("4", past), changes{expires(past.Add(-time.Second))}, tasks.Revoked, "expired"},
		{"deadline passed in the line", guard("5", past), changes{parkedSince(recent)}, tasks.Failed, "LockBusy"},
		{"expired in the line", guard("6", time.Time{}), changes{parkedSince(recent), expires(past)}, tasks.Failed, "LockBusy"},
		{"24 h in the line", guard("7", time.Time{}), changes{parkedSince(longAgo)}, tasks.Failed, "LockBusy"},
		{"redelivered", guard("8", past), changes{redelivered, expires(past)}, tasks.Succeeded, ""},
		{"a retry", guard("9", past), changes{attempt(2), expires(past)}, tasks.Succeeded, ""},
		{"redelivered, 24 h in the line", guard("10", past), changes{redelivered, parkedSince(longAgo)}, tasks.Failed, "LockBusy"},
		{"redelivered, an hour in the line", guard("11", past), changes{redelivered, parkedSince(recent)}, tasks.Succeeded, ""},
	} {
		out := b.run(b.delivery("id-"+tc.name, "report", tc.guard, tc.changes...))
		if out.Kind != tc.kind || tc.reason != "" && out.Reason != tc.reason || out.DeadLetter {
			t.Errorf("%s: %s %s (%v)", tc.name, out.Kind, out.Reason, out.Err)
		}
	}
	// The record alone knows that this task has begun.
	begun := guard("known", past)
	first := b.run(b.delivery("known", "flaky", begun, redelivered))
	wantKind(t, first, tasks.Retried)
	again := b.run(b.delivery("known", "flaky", begun, expires(past)))
	wantKind(t, again, tasks.Retried)
	wantKind(t, b.run(b.delivery("another", "flaky", begun)), tasks.Revoked)
	out := b.run(b.delivery("known", "flaky", begun, parkedSince(longAgo)))
	wantKind(t, out, tasks.Failed)
	if out.Reason != "LockBusy" {
		t.Errorf("24 h in the line, begun by its record: %s", out.Reason)
	}
}

// The end of a wait that the chain names: what has begun waits on past its
// expiry, whoever knows of the beginning. A wait that ended in the past would
// bring the message back at once, without end.
func TestEndOfAWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, errors.New("no paper") })
	b.hold("held", "somebody")
	now := time.Now().Truncate(time.Millisecond)
	soon, later, parked := now.Add(time.Minute), now.Add(time.Hour), now.Add(-time.Hour)
	g := jobGuard(lockOf("held", tasks.OnBusyRetry), "r")
	g.BeginBy = later.UnixMilli()
	check := func(what string, d *tasks.Delivery, want time.Time) {
		t.Helper()
		out := b.run(d)
		wantKind(t, out, tasks.Parked)
		if !out.Park.Deadline.Equal(want) {
			t.Errorf("%s: the wait ends %v, want %v", what, out.Park.Deadline, want)
		}
	}
	check("fresh", b.delivery("a", "report", g), later)
	check("expires sooner", b.delivery("a", "report", g, expires(soon)), soon)
	check("24 h are sooner", b.delivery("a", "report", g, parkedSince(later.Add(-24*time.Hour).Add(-time.Minute))), later.Add(-time.Minute))
	check("begun, first park", b.delivery("a", "report", g, redelivered, expires(soon)), time.Time{})
	check("begun", b.delivery("a", "report", g, redelivered, expires(soon), parkedSince(parked)), parked.Add(24*time.Hour))
	// Now the record names a, and its deadline is long past.
	free := jobGuard(nil, "r")
	wantKind(t, b.run(b.delivery("a", "report", free)), tasks.Retried)
	g.BeginBy = now.Add(-time.Hour).UnixMilli()
	check("begun by the record", b.delivery("a", "report", g, expires(soon), parkedSince(parked)), parked.Add(24*time.Hour))
	// In progress under its own id.
	key := idempotency.Key{Namespace: "report", Text: "r"}
	if _, err := b.records.Claim(t.Context(), key, idempotency.WithRun("", "report", "a")); err != nil {
		t.Fatal(err)
	}
	free.BeginBy = g.BeginBy
	check("in progress under its own id", b.delivery("a", "report", free, parkedSince(parked)), parked.Add(24*time.Hour))
}

// Whether a late message has begun cannot be known while the store is away, so
// it waits instead of being revoked.
func TestLateAndTheStoreIsAway(t *testing.T) {
	t.Parallel()
	srv, store := testkit.Redis(t), testkit.Redis(t)
	b := newBenchOf(t, setup{redis: srv, locksAt: store.Addr})
	b.handle("report", ok)
	store.Stop()
	g := jobGuard(nil, "r")
	g.BeginBy = time.Now().Add(-time.Minute).UnixMilli()
	out := b.run(b.delivery("id", "report", g))
	if out.Kind != tasks.Parked || out.Park.Reason != tasks.ParkStore {
		t.Errorf("%s %s %+v", out.Kind, out.Reason, out.Park)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(tasks.ErrShutdown)
	wantKind(t, b.chain.Run(ctx, b.delivery("id", "report", g)), tasks.Returned)
}

// A message taken in time that waited in this process for its turn is judged by
// the store's clock at that moment, not by the local one.
func TestLateIsJudgedByTheStoresClock(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	hours := 5 * time.Hour // the store's clock is ahead by so much
	ahead := func(waited time.Duration) func(*tasks.Delivery) {
		return func(d *tasks.Delivery) {
			d.TakenAt, d.Taken = time.Now().Add(hours-waited), time.Now().Add(-waited)
		}
	}
	at := expires(time.Now().Add(hours + 10*time.Second))
	wantKind(t, b.run(b.delivery("a", "report", nil, at, ahead(time.Minute))), tasks.Succeeded)
	at = expires(time.Now().Add(hours - 10*time.Second))
	wantKind(t, b.run(b.delivery("b", "report", nil, at, ahead(time.Minute))), tasks.Revoked)
}

// The first park's time is dropped when the lock, or where there is none the
// record, was won.
func TestWonIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, errors.New("again") })
	b.hold("held", "somebody")
	for name, tc := range map[string]struct {
		guard *tasks.Guard
		want  bool
	}{
		"lock":        {jobGuard(lockOf("k", tasks.OnBusyRetry), ""), true},
		"record":      {jobGuard(nil, "r1"), true},
		"both":        {jobGuard(lockOf("k2", tasks.OnBusyRetry), "r2"), true},
		"held lock":   {jobGuard(lockOf("held", tasks.OnBusyRetry), "r3"), false},
		"no guard":    {nil, false},
		"only a job":  {jobGuard(nil, ""), false},
		"held record": {jobGuard(nil, "busy"), false},
	} {
		if name == "held record" {
			if _, err := b.records.Claim(t.Context(), idempotency.Key{Namespace: "report", Text: "busy"}); err != nil {
				t.Fatal(err)
			}
		}
		if out := b.run(b.delivery("id "+name, "report", tc.guard)); out.WonLock != tc.want {
			t.Errorf("%s: won %v", name, out.WonLock)
		}
	}
}

// A delivery that the engine gives up before its run began is handed back, and
// not as one that has begun.
func TestGivenUpBeforeItBegan(t *testing.T) {
	t.Parallel()
	broker, store := testkit.Redis(t), testkit.Redis(t)
	b := newBenchOf(t, setup{redis: broker, locksAt: store.Addr, records: idempotency.Config{CallTimeout: 200 * time.Millisecond}})
	ran := false
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { ran = true; return nil, nil })
	store.Pause()
	defer store.Continue()
	for name, g := range map[string]*tasks.Guard{
		"lock": jobGuard(lockOf("k", tasks.OnBusySkip), ""), "record": jobGuard(nil, "r"),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(tasks.ErrShutdown) })
		out := b.chain.Run(ctx, b.delivery("id-"+name, "report", g))
		if out.Kind != tasks.Returned || out.Begun || out.Lost || ran {
			t.Errorf("%s: %s %s, begun %v, ran %v: %v", name, out.Kind, out.Reason, out.Begun, ran, out.Err)
		}
	}
}
