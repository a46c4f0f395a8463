package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// A run that meets nobody costs four requests: acquire, claim, complete,
// release. A look at the record before each of them would be a fifth.
func TestFreePathIsFourRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	wantKind(t, b.run(b.delivery("warm", "report", jobGuard(lockOf("k", tasks.OnBusySkip), "warm"))), tasks.Succeeded)
	b.guarded.take() // scripts are loaded now
	wantKind(t, b.run(b.delivery("id", "report", jobGuard(lockOf("k", tasks.OnBusySkip), "r"))), tasks.Succeeded)
	if d := cmp.Diff([]string{"evalsha", "evalsha", "evalsha", "evalsha"}, b.guarded.take()); d != "" {
		t.Errorf("requests of one run: %s", d)
	}
	wantKind(t, b.run(b.delivery("plain", "report", nil)), tasks.Succeeded)
	if got := b.guarded.take(); len(got) > 0 {
		t.Errorf("a run without guards sent %v", got)
	}
}

// A completed record answers at once, whoever holds the lock, and whatever the
// policy: an app's second message would else be skipped with null.
func TestCompletedRecordAnswersUnderAHeldLock(t *testing.T) {
	t.Parallel()
	for _, busy := range []tasks.OnBusy{tasks.OnBusySkip, tasks.OnBusyRetry} {
		b := newBench(t, nil)
		b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return json.RawMessage(`7`), nil })
		g := jobGuard(lockOf("k", busy), "r")
		wantKind(t, b.run(b.delivery("first", "report", g)), tasks.Succeeded)
		b.hold("k", "somebody")
		out := b.run(b.delivery("second", "report", g))
		wantKind(t, out, tasks.Succeeded)
		if string(out.Result) != "7" || out.Note == nil || out.Note.Outcome != "replayed" || out.Note.Holder != "first" {
			t.Errorf("%s: result %s, note %+v", busy, out.Result, out.Note)
		}
	}
}

// A completed record answers the copies that something waits for too.
func TestReplayServesFollowUps(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return json.RawMessage(`7`), nil })
	g := jobGuard(lockOf("k", tasks.OnBusySkip), "r")
	wantKind(t, b.run(b.delivery("first", "report", g)), tasks.Succeeded)
	out := b.run(b.delivery("second", "report", g, func(d *tasks.Delivery) { d.FollowUps = true }))
	wantKind(t, out, tasks.Succeeded)
	if string(out.Result) != "7" {
		t.Errorf("result %s", out.Result)
	}
}

// What is known of a lock's last holder counts only while its token is the
// lock's value: after it comes somebody who left no data.
func TestSkipForAHolderWithoutData(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	b.hold("k", "id") // of this very task, and then lost to redis-py
	b.client.Set(t.Context(), "k", "a token of redis-py", time.Minute)
	out := b.run(b.delivery("id", "report", jobGuard(lockOf("k", tasks.OnBusySkip), "")))
	wantKind(t, out, tasks.Succeeded)
	if out.Note == nil || out.Note.Outcome != "skipped" || out.Note.Holder != "unknown" {
		t.Errorf("note %+v", out.Note)
	}
}

// The record names this task: it has begun, though its message does not say so,
// and is not skipped for another one's lock.
func TestNoSkipForWhatTheRecordKnows(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, errors.New("no paper") })
	g := jobGuard(lockOf("k", tasks.OnBusySkip), "r")
	wantKind(t, b.run(b.delivery("id", "report", g)), tasks.Retried)
	b.hold("k", "somebody")
	out := b.run(b.delivery("id", "report", g))
	wantKind(t, out, tasks.Parked)
	if !out.Begun {
		t.Error("the park does not tell that the task has begun")
	}
	wantKind(t, b.run(b.delivery("other", "report", g)), tasks.Succeeded)
}

// Two copies of one task at the same moment in one process: the second one
// meets an attempt whose holder is not known yet, and must not end the task
// with null under the first one's id.
func TestNoSkipWhileTheLockIsOnlyAskedFor(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	proxy := testkit.NewProxy(t, srv.Addr)
	b := newBenchOf(t, setup{redis: srv, locksAt: proxy.Addr})
	b.handle("report", ok)
	g := jobGuard(lockOf("k", tasks.OnBusySkip), "")
	wantKind(t, b.run(b.delivery("warm", "report", g)), tasks.Succeeded)
	held := proxy.HoldRequest("evalsha")
	done := make(chan tasks.Outcome, 1)
	go func() { done <- b.run(b.delivery("id", "report", g)) }()
	<-held.Seen
	second := b.run(b.delivery("id", "report", g))
	held.Release()
	wantKind(t, second, tasks.Parked)
	wantKind(t, <-done, tasks.Succeeded)
}

// A redelivery whose own dead run has the record in progress waits for its
// lease, then takes over with a larger fence.
func TestRedeliveryWaitsForItsOwnDeadRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	var fences []uint64
	b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		f, _ := tasks.Fence(ctx)
		fences = append(fences, f)
		return nil, nil
	})
	g := jobGuard(lockOf("k", tasks.OnBusySkip), "r")
	dead, claim, _, err := b.records.Store().Claim(t.Context(), idempotency.Key{Namespace: "report", Text: "r"}, idempotency.NewOwner(),
		idempotency.ClaimOptions{TaskID: "id", Lease: 1500 * time.Millisecond})
	if err != nil || dead != idempotency.Run {
		t.Fatal(dead, err)
	}
	out := b.run(b.delivery("id", "report", g, redelivered))
	wantKind(t, out, tasks.Parked)
	if out.Reason != "in_progress" || out.Park.Left <= 0 || out.Park.Left > 1500*time.Millisecond {
		t.Errorf("reason %s, park %+v", out.Reason, out.Park)
	}
	if b.client.Exists(t.Context(), "k").Val() != 0 {
		t.Error("it waits with the lock in its hand")
	}
	testkit.Poll(t, 5*time.Second, 50*time.Millisecond, func() bool {
		out = b.run(b.delivery("id", "report", g, redelivered))
		return out.Kind != tasks.Parked
	}, "the lease never passed")
	wantKind(t, out, tasks.Succeeded)
	if len(fences) != 1 || fences[0] <= claim.Fence || !b.runs[len(b.runs)-1].Takeover {
		t.Errorf("fences %v after %d, run %+v", fences, claim.Fence, b.runs[len(b.runs)-1])
	}
}

// A record that somebody released with a back-off is waited for.
func TestBackoffOfARecordIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	key := idempotency.Key{Namespace: "report", Text: "r"}
	h, err := b.records.Claim(t.Context(), key, idempotency.WithRun("", "report", "other"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(t.Context(), errors.New("later"), time.Minute); err != nil {
		t.Fatal(err)
	}
	out := b.run(b.delivery("id", "report", jobGuard(nil, "r")))
	wantKind(t, out, tasks.Parked)
	if out.Reason != "backoff" || out.Park.Left < 50*time.Second {
		t.Errorf("reason %s, park %+v", out.Reason, out.Park)
	}
	// Nothing but its own timer may bring it back: it would come at once, again
	// and again.
	if b.chain.Free(t.Context(), out.Park) {
		t.Error("a record in its back-off counts as free")
	}
}

// I09: other arguments under one key are an error in whatever state the record
// is, and whoever holds the lock.
func TestI09_MismatchInEachState(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	key := idempotency.Key{Namespace: "report", Text: "r"}
	fp := func(c byte) string { return string(slices.Repeat([]byte{c}, 64)) }
	guard := func(lock *tasks.LockGuard, payload string) *tasks.Guard {
		g := jobGuard(lock, "r")
		g.Record.Fingerprint = payload
		return g
	}
	claim := func() *idempotency.Hold {
		t.Helper()
		h, err := b.records.Claim(t.Context(), key, idempotency.WithRun("", "report", "first"), idempotency.WithFingerprint(fp('a')))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	mustEnd := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(state string) {
		t.Helper()
		for _, lock := range []*tasks.LockGuard{nil, lockOf("free", tasks.OnBusySkip), lockOf("held", tasks.OnBusySkip)} {
			out := b.run(b.delivery("second", "report", guard(lock, fp('b'))))
			if out.Kind != tasks.Failed || out.Reason != "mismatch" || out.DeadLetter {
				t.Errorf("%s, lock %+v: %s %s", state, lock, out.Kind, out.Reason)
			}
		}
	}
	b.hold("held", "somebody")
	h := claim()
	check("in_progress")
	mustEnd(h.Release(t.Context(), nil, 0))
	check("released")
	mustEnd(claim().Fail(t.Context(), errors.New("never")))
	check("failed")
	if _, err := b.records.Store().Forget(t.Context(), key, true, "test"); err != nil {
		t.Fatal(err)
	}
	mustEnd(claim().Complete(t.Context(), nil))
	check("completed")
}

// A fence is the record's, never below the lock's; the lock's where there is no
// record; and none where there is neither.
func TestFence(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	var fence uint64
	var lock lockguard.Fence
	b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		fence, _ = tasks.Fence(ctx)
		lock = 0
		if h, ok := lockguard.FromContext(ctx); ok {
			lock, _ = h.Fence()
		}
		return nil, nil
	})
	key := idempotency.Key{Namespace: "report", Text: "high"}
	if _, _, _, err := b.records.Store().Claim(t.Context(), key, idempotency.NewOwner(),
		idempotency.ClaimOptions{TaskID: "x", Lease: time.Millisecond, MinFence: 1 << 52}); err != nil {
		t.Fatal(err)
	}
	based := lockOf("based", tasks.OnBusySkip)
	based.FenceBase = 1 << 51
	for _, tc := range []struct {
		name  string
		guard *tasks.Guard
		want  func() bool
	}{
		{"lock alone", jobGuard(lockOf("k", tasks.OnBusySkip), ""), func() bool { return fence == uint64(lock) && lock > 0 }},
		{"fresh record under a lock", jobGuard(lockOf("k", tasks.OnBusySkip), "fresh"), func() bool { return fence == uint64(lock) && lock > 0 }},
		{"older record with a larger fence", jobGuard(lockOf("k", tasks.OnBusySkip), "high"), func() bool { return fence == 1<<52+1 && uint64(lock) < fence }},
		{"record alone", jobGuard(nil, "alone"), func() bool { return fence > 1e15 }},
		{"base of the lock", jobGuard(based, "based"), func() bool { return fence > 1<<51 && fence == uint64(lock) }},
		{"neither", nil, func() bool { return fence == 0 }},
	} {
		fence = 0
		out := b.run(b.delivery(tc.name, "report", tc.guard))
		if out.Kind == tasks.Parked { // the lease of 1 ms may not have passed
			<-time.After(5 * time.Millisecond)
			out = b.run(b.delivery(tc.name, "report", tc.guard))
		}
		wantKind(t, out, tasks.Succeeded)
		if !tc.want() {
			t.Errorf("%s: fence %d, lock's %d", tc.name, fence, lock)
		}
	}
}

// Guards that can never be fulfilled end the task; they are not mistaken for a
// store that is down, for which a message would wait for ever.
func TestBadGuardsEndTheTask(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ran := false
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { ran = true; return nil, nil })
	b.client.LPush(t.Context(), "a list", "x")
	slow := lockOf("slow", tasks.OnBusyRetry)
	slow.RenewMS = 1900
	huge := lockOf("huge", tasks.OnBusyRetry)
	huge.FenceBase = 1 << 60
	for name, tc := range map[string]struct {
		guard  *tasks.Guard
		reason tasks.Reason
		dead   bool
	}{
		"foreign key":          {jobGuard(lockOf("a list", tasks.OnBusySkip), ""), "LockConfig", true},
		"renewed too late":     {jobGuard(slow, ""), "LockConfig", true},
		"fence base too large": {jobGuard(huge, "huge"), "LockConfig", true},
		"key is no text":       {jobGuard(nil, "\xff"), "KeyMissing", false},
		"key is too long":      {jobGuard(nil, string(slices.Repeat([]byte("x"), 2000))), "KeyMissing", false},
		"bad fingerprint":      {&tasks.Guard{Record: &tasks.RecordGuard{Key: "f", Fingerprint: "zz"}}, "RecordConfig", true},
		"negative timeout is":  {&tasks.Guard{TimeoutMS: -1}, "", false},
	} {
		ran = false
		out := b.run(b.delivery("id "+name, "report", tc.guard))
		if tc.reason == "" { // taken for none
			wantKind(t, out, tasks.Succeeded)
			continue
		}
		if out.Kind != tasks.Failed || out.Reason != tc.reason || out.DeadLetter != tc.dead || ran {
			t.Errorf("%s: %s %s (%v), dead letter %v, ran %v", name, out.Kind, out.Reason, out.Err, out.DeadLetter, ran)
		}
	}
	if n := b.client.Exists(t.Context(), "huge").Val(); n != 0 {
		t.Error("the lock is still held")
	}
}

// A guard that names a store of another replica waits for one that has it.
func TestUnknownStoreWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ran := false
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { ran = true; return nil, nil })
	lock := lockOf("k", tasks.OnBusySkip)
	lock.Backend = "elsewhere"
	record := jobGuard(nil, "r")
	record.Record.Store = "elsewhere"
	for _, g := range []*tasks.Guard{jobGuard(lock, ""), record} {
		out := b.run(b.delivery("id", "report", g))
		if out.Kind != tasks.Parked || out.Park.Reason != tasks.ParkGuard || ran {
			t.Errorf("%s %+v, ran %v: %v", out.Kind, out.Park, ran, out.Err)
		}
	}
}

// Stood aside is counted once per replica and tick, however often the message
// comes; decisions once per claim.
func TestCountedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", ok)
	g := jobGuard(lockOf("k", tasks.OnBusyRetry), "r")
	h := b.hold("k", "somebody")
	for range 3 {
		wantKind(t, b.run(b.delivery("tick-1", "report", g)), tasks.Parked)
	}
	wantKind(t, b.run(b.delivery("tick-2", "report", jobGuard(lockOf("k", tasks.OnBusySkip), "r2"))), tasks.Succeeded)
	if _, err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantKind(t, b.run(b.delivery("tick-1", "report", g)), tasks.Succeeded)
	for range 2 {
		wantKind(t, b.run(b.delivery("tick-3", "report", g)), tasks.Succeeded) // answered from the record
	}
	wantKind(t, b.run(b.delivery("tick-1", "report", g, redelivered)), tasks.Succeeded)
	if d := cmp.Diff([]string{"lock", "lock", "record"}, b.aside); d != "" {
		t.Errorf("stood aside: %s", d)
	}
	if d := cmp.Diff([]string{"claimed", "completed", "completed", "completed"}, b.decisions); d != "" {
		t.Errorf("decisions: %s", d)
	}
	if len(b.runs) != 8 {
		t.Errorf("%d deliveries were told as finished, want 8", len(b.runs))
	}
}

// What is parked for a lock that this process itself keeps its attempts off is
// not free, whatever the store says: it would come back at once, again and
// again, as long as a function ignores the loss of its lock.
func TestLostLockOfARunningFunctionIsNotFree(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	finish := make(chan struct{})
	lost := make(chan struct{})
	b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		b.client.Del(context.Background(), "k")
		<-ctx.Done()
		close(lost)
		<-finish // deaf
		return nil, nil
	})
	g := jobGuard(lockOf("k", tasks.OnBusySkip), "")
	done := make(chan tasks.Outcome, 1)
	go func() { done <- b.run(b.delivery("deaf", "report", g)) }()
	<-lost
	// The lock has ended, so the next tick is not skipped for it: another
	// replica may run it.
	out := b.run(b.delivery("next", "report", g))
	wantKind(t, out, tasks.Parked)
	if b.chain.Free(t.Context(), out.Park) {
		t.Error("the lock counts as free while its function goes on in this process")
	}
	other := newBenchOf(t, setup{redis: b.redis, instance: "replica-2"})
	if !other.chain.Free(t.Context(), out.Park) {
		t.Error("the lock is not free to another replica")
	}
	close(finish)
	wantKind(t, <-done, tasks.Succeeded)
	if d := cmp.Diff([]string{"k"}, b.woken); d != "" {
		t.Errorf("brought forward: %s", d)
	}
}

// The look after a park: free, held, held by a foreigner, no lock at all, and
// the store being away.
func TestFree(t *testing.T) {
	t.Parallel()
	broker, store := testkit.Redis(t), testkit.Redis(t)
	b := newBenchOf(t, setup{redis: broker, locksAt: store.Addr})
	at := store.Client(t)
	free := func(reason tasks.ParkReason, key string) bool {
		return b.chain.Free(t.Context(), tasks.Park{Reason: reason, Key: key})
	}
	if !free(tasks.ParkLock, "k") || free(tasks.ParkStore, "k") {
		t.Error("a free lock is not free, or a store is")
	}
	b.client.Set(t.Context(), "k", "on the broker's server", 0)
	if !free(tasks.ParkLock, "k") {
		t.Error("the key of another server was looked at")
	}
	at.Set(t.Context(), "k", "redis-py", 0)
	at.LPush(t.Context(), "list", "x")
	if free(tasks.ParkLock, "k") || free(tasks.ParkLock, "list") {
		t.Error("a foreign lock, or a list, is free")
	}
	hold, err := b.records.Claim(t.Context(), idempotency.Key{Namespace: "a|b", Text: "c|d"})
	if err != nil {
		t.Fatal(err)
	}
	_ = hold.Release(t.Context(), nil, 0)
	if !free(tasks.ParkRecord, "record:report|r") || free(tasks.ParkRecord, "no line") {
		t.Error("an absent record is not free")
	}
	store.Stop()
	if free(tasks.ParkLock, "other") || free(tasks.ParkRecord, "record:report|r") {
		t.Error("free without an answer")
	}
}

// Lock and record of tasks: replace the message's whole, and its timeout and
// retries go first; what it does not name stays the message's.
func TestEntryOfTheWorkerGoesFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, map[string]worker.TaskConfig{
		"report": {
			Lock:    &worker.LockConfig{Key: "own:{{ .Task.Name }}", OnBusy: tasks.OnBusySkip},
			Timeout: time.Hour, Retries: &tasks.RetryPolicy{Max: 7, BaseMS: 1000},
		},
		"bare": {Params: []string{"day"}},
	})
	type seen struct {
		lock     string
		deadline time.Duration
	}
	var last seen
	look := func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		last = seen{}
		if h, ok := lockguard.FromContext(ctx); ok {
			last.lock = h.Key()
		}
		if at, ok := ctx.Deadline(); ok {
			last.deadline = time.Until(at).Round(time.Minute)
		}
		return nil, errors.New("again")
	}
	b.handle("report", look)
	b.handle("bare", look)
	g := jobGuard(lockOf("message's", tasks.OnBusyRetry), "r")
	g.TimeoutMS, g.Retries = (10 * time.Minute).Milliseconds(), &tasks.RetryPolicy{Max: 1, BaseMS: 60_000}
	out := b.run(b.delivery("a", "report", g, attempt(5)))
	wantKind(t, out, tasks.Retried)
	if last.lock != "own:report" || last.deadline != time.Hour || out.After != 16*time.Second {
		t.Errorf("%+v, retry after %v", last, out.After)
	}
	if b.record("report").TaskID != "a" {
		t.Error("the message's record was dropped with its lock")
	}
	out = b.run(b.delivery("b", "bare", g))
	wantKind(t, out, tasks.Retried)
	if last.lock != "message's" || last.deadline != 10*time.Minute || out.After != time.Minute {
		t.Errorf("%+v, retry after %v", last, out.After)
	}
	wantKind(t, b.run(b.delivery("c", "bare", g, attempt(2))), tasks.Failed)
	b.hold("own:report", "somebody")
	wantKind(t, b.run(b.delivery("d", "report", g)), tasks.Succeeded) // skipped, not parked
}
