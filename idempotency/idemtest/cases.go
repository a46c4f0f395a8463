package idemtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/solobeat/solobeat/idempotency"
)

// testLeaseApart: a crash leaves the record in progress. Before the lease has
// passed a second delivery is deferred, not failed; after it, it takes over; and
// the record is kept long after the lease, so that the fence and the attempts
// are not forgotten (powertools-lambda-python#1038).
func testLeaseApart(s *suite) {
	crashed := s.won(key("pay-42"), soon, "t1")
	_, rec := s.claim(key("pay-42"), options(long, "t1"), idempotency.Busy)
	if kept := time.Until(rec.Expires); kept < 24*time.Hour {
		s.Fatalf("kept for %v only", kept)
	}
	s.leaseOver(key("pay-42"))
	taken := s.won(key("pay-42"), short, "t1")
	if !taken.Takeover || taken.Attempt != 2 || taken.Fence <= crashed.Fence {
		s.Fatalf("takeover %+v", taken)
	}
	s.ok(s.complete(taken, "1"))
	if kept := time.Until(s.peek(key("pay-42")).Expires); kept < long/2 {
		s.Fatalf("completed, and kept for %v only", kept)
	}
}

// testOtherTask: two messages with different ids for one payment; the second
// waits while the first runs and gets its outcome when it is done.
func testOtherTask(s *suite) {
	c := s.won(key("payment 7"), long, "t1")
	s.claim(key("payment 7"), options(long, "t2"), idempotency.Busy)
	s.ok(s.complete(c, `{"charge":"ch_1"}`))
	_, rec := s.claim(key("payment 7"), options(long, "t2"), idempotency.Replay)
	if string(rec.Result.Data) != `{"charge":"ch_1"}` {
		s.Fatalf("replay %s", rec.Result.Data)
	}
}

const crowd = 200

// race runs f crowd times at once and returns how often it was true.
func race(f func(i int) bool) int {
	var wg sync.WaitGroup
	start := make(chan struct{})
	won := make([]bool, crowd)
	for i := range crowd {
		wg.Go(func() {
			<-start
			won[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	n := 0
	for _, w := range won {
		if w {
			n++
		}
	}
	return n
}

func (s *suite) rival(k idempotency.Key) func(int) bool {
	return func(i int) bool {
		v, _, _, err := s.Store.Claim(s.ctx, k, idempotency.NewOwner(), options(long, fmt.Sprint("t", i)))
		if err != nil {
			s.Errorf("claim %d: %v", i, err)
		}
		return v == idempotency.Run
	}
}

func testOneWinner(s *suite) {
	if n := race(s.rival(key("a"))); n != 1 {
		s.Fatalf("%d of %d concurrent claims won", n, crowd)
	}
}

func testOneTakeover(s *suite) {
	s.won(key("a"), short, "t0")
	s.leaseOver(key("a"))
	if n := race(s.rival(key("a"))); n != 1 {
		s.Fatalf("%d of %d concurrent takeovers won", n, crowd)
	}
}

// testCrashAfterEffect: the effect has happened, its completion has not. The
// next run gets the same key, to pass on to where the effect is deduplicated,
// and a larger fence.
func testCrashAfterEffect(s *suite) {
	first := s.won(key("order-1"), short, "t1")
	s.leaseOver(key("order-1"))
	second := s.won(key("order-1"), long, "t1")
	if second.Key != first.Key || second.Fence <= first.Fence || !second.Takeover {
		s.Fatalf("%+v after %+v", second, first)
	}
}

func testMismatch(s *suite) {
	ten, twenty := options(long, "t1"), options(long, "t2")
	ten.Fingerprint, twenty.Fingerprint = strings.Repeat("10", 32), strings.Repeat("20", 32)
	refused := func(state string) {
		s.Helper()
		_, rec := s.claim(key("payment 7"), twenty, idempotency.Mismatch)
		if rec.TaskID != "t1" || rec.Fingerprint != ten.Fingerprint {
			s.Errorf("%s: record %+v", state, rec)
		}
	}
	c, _ := s.claim(key("payment 7"), ten, idempotency.Run)
	refused("in progress")
	s.ok(s.release(c, 0))
	refused("released")
	c, _ = s.claim(key("payment 7"), ten, idempotency.Run)
	s.ok(s.complete(c, "1"))
	refused("completed")
	s.claim(key("payment 7"), ten, idempotency.Replay)
	s.claim(key("payment 7"), options(long, "t3"), idempotency.Replay)

	c, _ = s.claim(key("payment 8"), ten, idempotency.Run)
	s.ok(s.fail(c))
	_, rec := s.claim(key("payment 8"), twenty, idempotency.Mismatch)
	if rec.State != idempotency.Failed {
		s.Errorf("failed: record %+v", rec)
	}
	ten.Lease = short
	s.claim(key("payment 9"), ten, idempotency.Run)
	s.leaseOver(key("payment 9"))
	s.claim(key("payment 9"), twenty, idempotency.Mismatch)
}

// testFailedNotDone: three attempts fail and give the record back; then a run
// by hand, with another id, runs and succeeds; only that is done.
func testFailedNotDone(s *suite) {
	for i := range 3 {
		c := s.won(key("export 2026-10-25"), long, "t1")
		if c.Attempt != i+1 {
			s.Fatalf("attempt %d is counted as %d", i+1, c.Attempt)
		}
		s.ok(s.release(c, 0))
	}
	s.ok(s.complete(s.won(key("export 2026-10-25"), long, "by hand"), "1"))
	s.claim(key("export 2026-10-25"), options(long, "t2"), idempotency.Replay)
}

// testRedelivered: the ack was lost after success; the redelivered message is
// answered from the record, which it does not touch.
func testRedelivered(s *suite) {
	s.ok(s.complete(s.won(key("a"), long, "t1"), `"out"`))
	before := s.peek(key("a"))
	_, rec := s.claim(key("a"), options(long, "t1"), idempotency.Replay)
	after := s.peek(key("a"))
	if string(rec.Result.Data) != `"out"` || after.Fence != before.Fence || !after.Done.Equal(before.Done) || after.Attempt != before.Attempt {
		s.Fatalf("%+v, then %+v", before, after)
	}
}

func testFence(s *suite) {
	micros := func(t time.Time) uint64 { return uint64(t.UnixMicro()) }
	c := s.won(key("a"), long, "t1")
	if c.Fence < micros(time.Now().Add(-time.Minute)) || c.Fence > micros(time.Now().Add(time.Minute)) {
		s.Fatalf("fence %d is not the store's clock in µs", c.Fence)
	}
	last := c.Fence
	for range 20 {
		s.ok(s.release(c, 0))
		c = s.won(key("a"), long, "t1")
		if c.Fence <= last {
			s.Fatalf("fence %d after %d", c.Fence, last)
		}
		last = c.Fence
	}
	s.Wipe()
	if c = s.won(key("a"), long, "t1"); c.Fence <= last {
		s.Fatalf("fence %d after the store lost its data, %d before", c.Fence, last)
	}
	// Under a lock the record's fence is the lock's, or the next after its own.
	o := options(long, "t1")
	o.MinFence = 7
	d, _ := s.claim(key("locked"), o, idempotency.Run)
	if d.Fence != 7 {
		s.Fatalf("fence %d under a lock with fence 7", d.Fence)
	}
	s.ok(s.release(d, 0))
	if d, _ = s.claim(key("locked"), o, idempotency.Run); d.Fence != 8 {
		s.Fatalf("fence %d at the second claim under one lock with fence 7", d.Fence)
	}
	s.ok(s.release(d, 0))
	o.MinFence = idempotency.MaxFence - 1
	if d, _ = s.claim(key("locked"), o, idempotency.Run); d.Fence != idempotency.MaxFence-1 {
		s.Fatalf("fence %d, want %d: digits were lost", d.Fence, uint64(idempotency.MaxFence-1))
	}
	if got := s.peek(key("locked")).Fence; got != idempotency.MaxFence-1 {
		s.Fatalf("stored fence %d", got)
	}
	s.ok(s.renew(d))
	s.ok(s.complete(d, "1"))
}

func testStaleOwner(s *suite) {
	zombie := s.won(key("a"), short, "t1")
	s.leaseOver(key("a"))
	holder := s.won(key("a"), long, "t2")
	half := zombie // the right owner with another's fence, and the reverse
	half.Fence = holder.Fence
	other := holder
	other.Fence = zombie.Fence
	for _, c := range []idempotency.Claim{zombie, half, other} {
		s.is(s.renew(c), idempotency.ErrStale)
		s.is(s.release(c, 0), idempotency.ErrStale)
		s.is(s.complete(c, "1"), idempotency.ErrStale)
		s.is(s.fail(c), idempotency.ErrStale)
	}
	s.is(s.Store.Abandon(s.ctx, key("a"), zombie.Owner), idempotency.ErrStale)
	rec := s.peek(key("a"))
	if rec.State != idempotency.InProgress || rec.Owner != holder.Owner || rec.Fence != holder.Fence {
		s.Fatalf("the zombie changed the record: %+v", rec)
	}
	s.ok(s.complete(holder, "2"))
}

func testAbandon(s *suite) {
	s.is(s.Store.Abandon(s.ctx, key("a"), idempotency.NewOwner()), idempotency.ErrRecordLost)
	c := s.won(key("a"), long, "t1")
	s.is(s.Store.Abandon(s.ctx, key("a"), idempotency.NewOwner()), idempotency.ErrStale)
	s.ok(s.Store.Abandon(s.ctx, key("a"), c.Owner))
	s.ok(s.Store.Abandon(s.ctx, key("a"), c.Owner))
	if rec, _, err := s.Store.Peek(s.ctx, key("a")); err != nil || rec.TaskID != "" {
		s.Fatalf("no task has begun, and the record names %q: %v", rec.TaskID, err)
	}
	if n := s.won(key("a"), long, "t2"); n.Attempt != 1 {
		s.Fatalf("an abandoned claim counts as an attempt: %+v", n)
	}
	if _, _, _, err := s.Store.Claim(s.cancelled(), key("b"), idempotency.NewOwner(), options(long, "t1")); !errors.Is(err, idempotency.ErrStoreUnavailable) {
		s.Fatalf("claim with a cancelled context: %v", err)
	}
}

func testList(s *suite) {
	want := map[string]idempotency.State{}
	for i := range 550 {
		k := key(fmt.Sprintf("k%04d", i))
		c := s.won(k, long, "t1")
		want[k.Text] = idempotency.InProgress
		if i%3 == 0 {
			s.ok(s.complete(c, strings.Repeat("1", 30+i%100)))
			want[k.Text] = idempotency.Completed
		}
	}
	seen := map[string]bool{}
	for rec, err := range s.Store.List(s.ctx) {
		s.ok(err)
		if seen[rec.Key.Text] || want[rec.Key.Text] != rec.State || rec.Key.Namespace != key("").Namespace {
			s.Fatalf("listed %+v, again: %v", rec, seen[rec.Key.Text])
		}
		if inline := rec.Result.Kind == idempotency.ResultInline; inline != (rec.State == idempotency.Completed) || rec.Result.Data != nil {
			s.Fatalf("listed result %+v", rec.Result)
		}
		seen[rec.Key.Text] = true
	}
	if len(seen) != len(want) {
		s.Fatalf("listed %d of %d", len(seen), len(want))
	}
	for _, err := range s.Store.List(s.ctx) {
		s.ok(err)
		break // a reader that stops early
	}
	rec, err := s.Store.Get(s.ctx, key("k0003").Hash())
	if err != nil || rec.Key != key("k0003") || len(rec.Result.Data) != 33 {
		s.Fatalf("get: %+v, %v", rec, err)
	}
	_, err = s.Store.Get(s.ctx, key("absent").Hash())
	s.is(err, idempotency.ErrNotFound)
}

func testKeys(s *suite) {
	a, b := idempotency.Key{Namespace: "a", Text: "b:c"}, idempotency.Key{Namespace: "a:b", Text: "c"}
	s.won(a, long, "t1")
	s.won(b, long, "t1")
	s.won(idempotency.Key{Text: "b:c"}, long, "t1")
	odd := idempotency.Key{Namespace: "ns", Text: "ü\x00\n{}*?[" + strings.Repeat("x", 400)}
	s.won(odd, long, "t1")
	if got := s.peek(odd).Key; got != odd {
		s.Errorf("key %q came back as %q", odd, got)
	}
	for k, want := range map[idempotency.Key]error{
		{Namespace: "n"}: idempotency.ErrKeyMissing,
		{Namespace: "n", Text: strings.Repeat("x", 513)}: idempotency.ErrKeyTooLong,
		{Namespace: strings.Repeat("n", 201), Text: "x"}: idempotency.ErrKeyTooLong,
		{Namespace: "n", Text: "\xff"}:                   idempotency.ErrKeyText,
	} {
		_, _, _, err := s.Store.Claim(s.ctx, k, idempotency.NewOwner(), options(long, "t1"))
		s.is(err, want)
		_, _, err = s.Store.Peek(s.ctx, k)
		s.is(err, want)
		_, err = s.Store.Forget(s.ctx, k, true, "")
		s.is(err, want)
	}
}
