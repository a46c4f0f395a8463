package idemtest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/solobeat/solobeat/idempotency"
)

func testClaim(s *suite) {
	before := time.Now().Add(-time.Minute)
	o := options(long, "t1")
	o.Fingerprint = strings.Repeat("ab", 32)
	c, rec := s.claim(key("a"), o, idempotency.Run)
	if c.Attempt != 1 || c.Takeover || c.Key != key("a") || c.Options.TaskID != "t1" {
		s.Fatalf("claim %+v", c)
	}
	peeked := s.peek(key("a"))
	for _, r := range []idempotency.Record{rec, peeked} {
		if r.State != idempotency.InProgress || r.Key != key("a") || r.Owner != c.Owner || r.Fence != c.Fence ||
			r.TaskID != "t1" || r.Instance != "instance-of-t1" || r.Fingerprint != o.Fingerprint || r.Attempt != 1 {
			s.Errorf("record %+v", r)
		}
		if r.LeaseLeft <= long-time.Minute || r.LeaseLeft > long {
			s.Errorf("lease left %v", r.LeaseLeft)
		}
		if r.Created.Before(before) || !r.Done.IsZero() || r.Expires.Before(time.Now().Add(6*24*time.Hour)) {
			s.Errorf("times %v, %v, %v", r.Created, r.Done, r.Expires)
		}
	}
	if _, found, err := s.Store.Peek(s.ctx, key("other")); found || err != nil {
		s.Errorf("peek of an absent key: %v, %v", found, err)
	}
}

func testOptions(s *suite) {
	for name, o := range map[string]idempotency.ClaimOptions{
		"lease":       {Lease: time.Microsecond},
		"hold":        {Lease: time.Minute, Hold: time.Second},
		"fence":       {MinFence: idempotency.MaxFence + 1},
		"fingerprint": {Fingerprint: "abc"},
	} {
		_, _, _, err := s.Store.Claim(s.ctx, key("o"), idempotency.NewOwner(), o)
		if !errors.Is(err, idempotency.ErrBadOptions) {
			s.Errorf("%s: %v", name, err)
		}
	}
}

func testSameOwner(s *suite) {
	owner := idempotency.NewOwner()
	_, first, _, err := s.Store.Claim(s.ctx, key("a"), owner, options(time.Minute, "t1"))
	s.ok(err)
	v, second, rec, err := s.Store.Claim(s.ctx, key("a"), owner, options(long, "t1"))
	s.ok(err)
	if v != idempotency.Run || second.Fence != first.Fence || second.Attempt != 1 {
		s.Fatalf("%v, %+v after %+v", v, second, first)
	}
	if rec.LeaseLeft <= time.Minute {
		s.Fatalf("lease was not started anew: %v left", rec.LeaseLeft)
	}
	s.claim(key("a"), options(long, "t2"), idempotency.Busy)
}

func testLostReply(s *suite) {
	// Each call once before, so that the lost reply is not the one that asks
	// for a script's text.
	s.ok(s.complete(s.won(key("warm"), long, "t1"), "1"))
	s.ok(s.release(s.won(key("warm 2"), long, "t1"), 0))

	owner := idempotency.NewOwner()
	s.LoseReply()
	if _, _, _, err := s.Lossy.Claim(s.ctx, key("a"), owner, options(long, "t1")); !errors.Is(err, idempotency.ErrStoreUnavailable) {
		s.Fatalf("a lost reply gave %v", err)
	}
	done := s.peek(key("a"))
	if done.Owner != owner {
		s.Fatalf("the server was never asked: %+v", done)
	}
	v, c, _, err := s.Lossy.Claim(s.ctx, key("a"), owner, options(long, "t1"))
	s.ok(err)
	if v != idempotency.Run || c.Attempt != 1 || c.Fence != done.Fence {
		s.Fatalf("the claimant is locked out by itself: %v, %+v", v, c)
	}
	for _, step := range []struct {
		name string
		want idempotency.State
		call func() error
	}{
		{"complete", idempotency.Completed, func() error { return s.Lossy.Complete(s.ctx, c, idempotency.NewResult([]byte("1")), long) }},
		{"release", idempotency.Released, func() error { return s.Lossy.Release(s.ctx, c, idempotency.Failure{}, 0) }},
		{"fail", idempotency.Failed, func() error { return s.Lossy.Fail(s.ctx, c, idempotency.Failure{Code: "E"}, long) }},
	} {
		c = s.won(key(step.name), long, "t1")
		s.LoseReply()
		s.is(step.call(), idempotency.ErrStoreUnavailable)
		if got := s.peek(c.Key).State; got != step.want {
			s.Errorf("%s with a lost reply left %v", step.name, got)
		}
		if err := step.call(); err != nil {
			s.Errorf("%s again after a lost reply: %v", step.name, err)
		}
	}
}

func testTakeover(s *suite) {
	first := s.won(key("a"), soon, "t1")
	_, rec := s.claim(key("a"), options(long, "t2"), idempotency.Busy)
	if rec.LeaseLeft <= 0 || rec.LeaseLeft > soon || rec.TaskID != "t1" || rec.Instance != "instance-of-t1" {
		s.Fatalf("busy record %+v", rec)
	}
	s.leaseOver(key("a"))
	second := s.won(key("a"), long, "t2")
	if !second.Takeover || second.Attempt != 2 || second.Fence <= first.Fence {
		s.Fatalf("takeover %+v after %+v", second, first)
	}
	v, again, _, err := s.Store.Claim(s.ctx, key("a"), second.Owner, second.Options)
	s.ok(err)
	if v != idempotency.Run || !again.Takeover || again.Fence != second.Fence {
		s.Fatalf("the same takeover again: %v, %+v", v, again)
	}
}

func testRenew(s *suite) {
	a := s.won(key("a"), short, "t1")
	s.ok(s.renew(a))
	done := s.won(key("done"), long, "t1")
	s.ok(s.complete(done, "1"))
	gone := idempotency.Claim{Key: key("gone"), Owner: idempotency.NewOwner(), Fence: 1, Options: a.Options}
	b := s.won(key("b"), short, "t1")
	other := b
	other.Owner = idempotency.NewOwner()
	fence := b
	fence.Fence--
	a.Options.Lease = long
	items := []idempotency.RenewItem{{Claim: a}, {Claim: done}, {Claim: gone}, {Claim: other}, {Claim: fence}, {Claim: b}}
	want := []error{nil, idempotency.ErrStale, idempotency.ErrRecordLost, idempotency.ErrStale, idempotency.ErrStale, nil}
	got := s.Store.Renew(s.ctx, items)
	if len(got) != len(items) {
		s.Fatalf("%d results for %d items", len(got), len(items))
	}
	for i := range want {
		if !errors.Is(got[i].Err, want[i]) {
			s.Errorf("item %d: %v, want %v", i, got[i].Err, want[i])
		}
	}
	if left := s.peek(key("a")).LeaseLeft; left <= short {
		s.Errorf("lease left after renewal: %v", left)
	}
	if r := s.Store.Renew(s.ctx, nil); len(r) != 0 {
		s.Errorf("renewal of nothing: %v", r)
	}
}

func testComplete(s *suite) {
	c := s.won(key("a"), long, "t1")
	s.ok(s.complete(c, `{"n":9007199254740993}`))
	_, rec := s.claim(key("a"), options(long, "t2"), idempotency.Replay)
	if rec.State != idempotency.Completed || string(rec.Result.Data) != `{"n":9007199254740993}` || rec.TaskID != "t1" || rec.Fence != c.Fence || rec.Lost {
		s.Fatalf("record %+v", rec)
	}
	if rec.Done.IsZero() || rec.LeaseLeft != 0 {
		s.Fatalf("done %v, lease %v", rec.Done, rec.LeaseLeft)
	}
	s.ok(s.complete(c, `"again"`))
	if got := string(s.peek(key("a")).Result.Data); got != `{"n":9007199254740993}` {
		s.Fatalf("a repeated completion changed the result to %s", got)
	}
	s.is(s.release(c, 0), idempotency.ErrStale)
	s.is(s.fail(c), idempotency.ErrStale)
	s.is(s.renew(c), idempotency.ErrStale)
}

// testLateComplete: the lease is not tested, the owner is.
func testLateComplete(s *suite) {
	c := s.won(key("a"), short, "t1")
	s.leaseOver(key("a"))
	s.ok(s.complete(c, "1"))
	s.claim(key("a"), options(long, "t2"), idempotency.Replay)

	c = s.won(key("b"), short, "t1")
	s.leaseOver(key("b"))
	d := s.won(key("b"), long, "t2")
	s.is(s.complete(c, "1"), idempotency.ErrStale)
	s.ok(s.complete(d, "2"))
	if got := string(s.peek(key("b")).Result.Data); got != "2" {
		s.Fatalf("the zombie's result stands: %s", got)
	}
}

func testResults(s *suite) {
	for _, n := range []int{0, 1, 64, 65, 66_000, idempotency.MaxResult} {
		text := bytes.Repeat([]byte("7"), n)
		k := key("size " + string(rune('a'+n%26)) + time.Duration(n).String())
		s.ok(s.complete(s.won(k, long, "t1"), string(text)))
		want := idempotency.ResultInline
		if n == 0 {
			want = idempotency.ResultNone
		}
		if r := s.peek(k).Result; r.Kind != want || !bytes.Equal(r.Data, text) {
			s.Errorf("%d bytes: %v, %d bytes", n, r.Kind, len(r.Data))
		}
		_, rec := s.claim(k, options(long, "t2"), idempotency.Replay)
		if !bytes.Equal(rec.Result.Data, text) {
			s.Errorf("%d bytes: replay has %d bytes", n, len(rec.Result.Data))
		}
	}
	s.ok(s.complete(s.won(key("large"), long, "t1"), strings.Repeat("7", idempotency.MaxResult+1)))
	_, rec := s.claim(key("large"), options(long, "t2"), idempotency.Replay)
	if rec.Result.Kind != idempotency.ResultOmitted || len(rec.Result.Data) != 0 {
		s.Errorf("above the limit: %v, %d bytes", rec.Result.Kind, len(rec.Result.Data))
	}
	binary := "\x00\xff\r\n" + strings.Repeat("\x80", 100)
	s.ok(s.complete(s.won(key("bytes"), long, "t1"), binary))
	if got := string(s.peek(key("bytes")).Result.Data); got != binary {
		s.Errorf("bytes changed: %q", got)
	}
}

func testRelease(s *suite) {
	c := s.won(key("a"), long, "t1")
	s.ok(s.release(c, soon))
	_, rec := s.claim(key("a"), options(long, "t2"), idempotency.Backoff)
	if rec.State != idempotency.Released || rec.BackoffLeft <= 0 || rec.BackoffLeft > soon || rec.ErrMsg != "boom" || rec.TaskID != "t1" {
		s.Fatalf("record %+v", rec)
	}
	s.ok(s.release(c, soon))
	s.is(s.renew(c), idempotency.ErrStale)
	s.is(s.complete(c, "1"), idempotency.ErrStale)
	s.eventually("back-off passes", func() bool { return s.peek(key("a")).BackoffLeft == 0 })
	d := s.won(key("a"), long, "t2")
	if d.Takeover || d.Attempt != 2 || d.Fence <= c.Fence {
		s.Fatalf("claim after release %+v, before %+v", d, c)
	}
	if rec := s.peek(key("a")); rec.ErrMsg != "" || rec.TaskID != "t2" || !rec.Done.IsZero() {
		s.Fatalf("record %+v", rec)
	}
	s.ok(s.release(d, 0))
	s.won(key("a"), long, "t3")
}

func testFail(s *suite) {
	c := s.won(key("a"), long, "t1")
	s.ok(s.fail(c))
	s.ok(s.fail(c))
	_, rec := s.claim(key("a"), options(long, "t2"), idempotency.PermanentlyFailed)
	if rec.State != idempotency.Failed || rec.ErrMsg != "card declined" || rec.ErrCode == "" || rec.Result.Kind != idempotency.ResultNone {
		s.Fatalf("record %+v", rec)
	}
	s.is(s.complete(c, "1"), idempotency.ErrStale)
}

func testForget(s *suite) {
	_, err := s.Store.Forget(s.ctx, key("absent"), true, "why")
	s.is(err, idempotency.ErrNotFound)

	c := s.won(key("done"), long, "t1")
	s.ok(s.complete(c, strings.Repeat("9", 100)))
	s.forgotten(c, false, idempotency.Completed)
	c = s.won(key("failed"), long, "t1")
	s.ok(s.fail(c))
	s.forgotten(c, false, idempotency.Failed)
	c = s.won(key("released"), long, "t1")
	s.ok(s.release(c, long))
	s.forgotten(c, false, idempotency.Released)
	c = s.won(key("running"), long, "t1")
	rec, err := s.Store.Forget(s.ctx, c.Key, false, "why")
	s.is(err, idempotency.ErrInProgress)
	if rec.TaskID != "t1" || rec.LeaseLeft <= 0 {
		s.Fatalf("the refusal tells %+v", rec)
	}
	s.ok(s.renew(c))
	s.forgotten(c, true, idempotency.InProgress)
}

// forgotten forgets a record and sees that whoever ran under it is stale.
func (s *suite) forgotten(zombie idempotency.Claim, force bool, was idempotency.State) {
	s.Helper()
	rec, err := s.Store.Forget(s.ctx, zombie.Key, force, "paid twice")
	s.ok(err)
	if rec.State != was || rec.Fence != zombie.Fence {
		s.Errorf("%v: forget returned %+v", was, rec)
	}
	now := s.peek(zombie.Key)
	if now.State != idempotency.Released || now.Fence <= zombie.Fence || now.Attempt != 0 || now.Owner != (idempotency.Owner{}) ||
		now.ErrMsg != "paid twice" || now.Result.Kind != idempotency.ResultNone || now.BackoffLeft != 0 || now.Fingerprint != "" {
		s.Errorf("%v: after forget %+v", was, now)
	}
	for name, err := range map[string]error{
		"renew": s.renew(zombie), "complete": s.complete(zombie, "1"), "release": s.release(zombie, 0), "fail": s.fail(zombie),
		"abandon": s.Store.Abandon(s.ctx, zombie.Key, zombie.Owner),
	} {
		if !errors.Is(err, idempotency.ErrStale) {
			s.Errorf("%v: %s by the zombie: %v", was, name, err)
		}
	}
	next := s.won(zombie.Key, long, "t2")
	if next.Attempt != 1 || next.Takeover || next.Fence <= now.Fence {
		s.Errorf("%v: claim after forget %+v", was, next)
	}
	s.is(s.complete(zombie, "1"), idempotency.ErrStale)
}

func testRetention(s *suite) {
	big := strings.Repeat("8", 100)
	c := s.won(key("done"), long, "t1")
	s.ok(s.Store.Complete(s.ctx, c, idempotency.NewResult([]byte(big)), short))
	f := s.won(key("failed"), long, "t1")
	s.ok(s.Store.Fail(s.ctx, f, idempotency.Failure{Code: "E", Msg: "m"}, short))
	for _, k := range []idempotency.Key{c.Key, f.Key} {
		s.eventually("retention ends", func() bool {
			_, found, err := s.Store.Peek(s.ctx, k)
			s.ok(err)
			return !found
		})
		if n := s.won(k, long, "t2"); n.Attempt != 1 {
			s.Errorf("a dropped record is new: %+v", n)
		}
		if r := s.peek(k).Result; r.Kind != idempotency.ResultNone {
			s.Errorf("the old result is still there: %+v", r)
		}
	}
}

func testVanished(s *suite) {
	o := options(long, "t1")
	o.Fingerprint = strings.Repeat("cd", 32)
	c, _ := s.claim(key("a"), o, idempotency.Run)
	f := s.won(key("f"), long, "t1")
	r := s.won(key("r"), long, "t1")
	s.Wipe()
	s.is(s.renew(c), idempotency.ErrRecordLost)
	s.is(s.fail(f), idempotency.ErrRecordLost)
	s.is(s.release(r, 0), idempotency.ErrRecordLost)
	s.is(s.complete(c, strings.Repeat("5", 80)), idempotency.ErrRecordLost)
	s.is(s.complete(c, "1"), idempotency.ErrRecordLost) // as after a lost reply
	_, rec := s.claim(key("a"), options(long, "t2"), idempotency.Replay)
	if !rec.Lost || string(rec.Result.Data) != strings.Repeat("5", 80) || rec.Key != c.Key || rec.Fence != c.Fence ||
		rec.TaskID != "t1" || rec.Fingerprint != o.Fingerprint || rec.Attempt != 1 || rec.Expires.IsZero() {
		s.Fatalf("record %+v", rec)
	}
	o.Fingerprint = strings.Repeat("ef", 32)
	s.claim(key("a"), o, idempotency.Mismatch)
	// Vanished and claimed by another meanwhile: that one's it is.
	z := s.won(key("z"), long, "t1")
	s.Wipe()
	s.won(key("z"), long, "t2")
	s.is(s.complete(z, "1"), idempotency.ErrStale)
}

// cancelled contexts give an answer at once, not a verdict.
func (s *suite) cancelled() context.Context {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	return ctx
}
