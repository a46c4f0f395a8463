package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/lease"
	"github.com/solobeat/solobeat/lockguard"
)

// network exercises a Guard behind a bad network.
func (s *suite) network(t *testing.T) {
	if s.Network == nil {
		t.Fatal("Harness.Network is required")
	}
	run := func(name string, f func(t *testing.T, b lockguard.Backend, n Network)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, n := s.Network(t)
			if _, err := b.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			warm := s.attempt(s.key()) // so that scripts are loaded and a connection is open
			acquire(t, b, warm)
			b.Renew(t.Context(), []lockguard.Renewal{renewal(warm)})
			release(t, b, warm, lockguard.Released)
			f(t, b, n)
		})
	}
	run("reply to acquire is lost", s.acquireReplyLost)
	run("reply to renewal is lost", s.renewReplyLost)
	run("reply to release is lost", s.releaseReplyLost)
	run("holder is cut off in silence", s.cutOff)
	run("L08 cut off in silence, under a run", s.cutOffRun)
	run("L06 renewal goes on after an outage", s.afterOutage)
	run("extended, then cut off", s.extended)
	run("reply comes too late", s.lateReply)
	run("acquire on a dead line leaves nothing", s.deadLine)
}

func (s *suite) acquireReplyLost(t *testing.T, b lockguard.Backend, n Network) {
	g, _ := newGuard(t, b)
	key := s.key()
	n.DropReply()
	h, err := g.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatalf("locked out by its own lost reply: %v", err)
	}
	if at := holder(t, s.Backend(t), key); !at.Held || at.Foreign {
		t.Errorf("holder: %+v", at)
	} else if f, _ := h.Fence(); at.Fence != f {
		t.Errorf("the handle's fence is %d, the store's %d", f, at.Fence)
	}
	if got, err := h.Release(t.Context()); got != lockguard.Released || err != nil {
		t.Errorf("Release: %v, %v", got, err)
	}
}

func (s *suite) renewReplyLost(t *testing.T, b lockguard.Backend, n Network) {
	g, told := newGuard(t, b)
	h, err := g.TryAcquire(t.Context(), s.key(), lockguard.WithTTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	n.DropReply()
	eventually(t, 5*time.Second, func() bool {
		r, _, _ := told.get()
		return r[lockguard.RenewFailed] >= 1 && r[lockguard.RenewOK] >= 2
	}, "renewals go on after a lost reply")
	if err := h.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
	_, _ = h.Release(t.Context())
}

func (s *suite) releaseReplyLost(t *testing.T, b lockguard.Backend, n Network) {
	g, _ := newGuard(t, b)
	key := s.key()
	h, err := g.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	n.DropReply()
	got, err := h.Release(t.Context())
	if got == lockguard.NotHeld || err != nil {
		t.Errorf("Release: %v, %v; our own second request is no theft", got, err)
	}
	if holder(t, s.Backend(t), key).Held {
		t.Error("still held")
	}
}

// cutOff: the holder alone loses the network. It must know before anybody else
// can get the lock.
func (s *suite) cutOff(t *testing.T, b lockguard.Backend, n Network) {
	const ttl = 3 * time.Second
	g, told := newGuard(t, b)
	key := s.key()
	h, err := g.TryAcquire(t.Context(), key, lockguard.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	stalled := stalls(t)
	n.Swallow()
	lostAt := make(chan time.Time, 1)
	context.AfterFunc(h.Context(), func() { lostAt <- time.Now() })
	rival, _ := newGuard(t, s.Backend(t))
	next, err := rival.Acquire(t.Context(), key, lockguard.WithWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	wonAt := time.Now()
	select {
	case at := <-lostAt:
		t.Logf("known lost %v before the rival has won", wonAt.Sub(at))
		if late, stall := at.Sub(wonAt), stalled(); late > stall {
			t.Errorf("the holder's context ran on for %v after the rival had won (timers here are up to %v late): two holders", late, stall)
		}
	case <-time.After(ttl):
		t.Error("the rival has won, the holder's context still runs: two holders")
	}
	if err := h.Check(); !errors.Is(err, lockguard.ErrLost) {
		t.Errorf("Check: %v", err)
	}
	if old, ok := h.Fence(); ok {
		if fresh, _ := next.Fence(); fresh <= old {
			t.Errorf("fence %d after %d", fresh, old)
		}
	}
	if _, lost, _ := told.get(); len(lost) != 1 || lost[0] != lockguard.ReasonRenewDeadline {
		t.Errorf("losses told: %v", lost)
	}
	n.Pass()
	_, _ = h.Release(t.Context())
	if err := next.Verify(t.Context()); err != nil {
		t.Errorf("the old holder's release has harmed the new one: %v", err)
	}
	_, _ = next.Release(t.Context())
}

// cutOffRun: what runs is told, by the cause of its context, before the
// validity's own end, though the store answers nothing; and the lock is still
// there at that instant.
func (s *suite) cutOffRun(t *testing.T, b lockguard.Backend, n Network) {
	const ttl = 6 * time.Second
	g, _ := newGuard(t, b)
	key, other := s.key(), s.Backend(t)
	stalled := stalls(t)
	err := g.Do(t.Context(), key, func(ctx context.Context) error {
		<-time.After(ttl / 2) // renewed once by now, and not about to be
		n.Swallow()
		defer n.Pass()
		h, _ := lockguard.FromContext(ctx)
		deadline, ok := h.Deadline()
		if !ok {
			t.Error("no deadline under a hold")
		}
		<-ctx.Done()
		late := time.Since(deadline)
		if late > 20*time.Millisecond+stalled() {
			t.Errorf("told %v after the local deadline", late)
		}
		if at := holder(t, other, key); (!at.Held || at.Foreign) && late < lease.Margin(ttl)/2 {
			t.Errorf("told when the lock had gone: %+v", at)
		}
		var lost *lockguard.LostError
		if cause := context.Cause(ctx); !errors.As(cause, &lost) || lost.Reason != lockguard.ReasonRenewDeadline {
			t.Errorf("cause %v", cause)
		}
		return ctx.Err()
	}, lockguard.WithTTL(ttl))
	if !errors.Is(err, lockguard.ErrLost) || !errors.Is(err, context.Canceled) {
		t.Errorf("Do: %v", err)
	}
}

// afterOutage: an outage longer than the TTL costs the hold that meets it, and
// no other: the next one on the same key is renewed as ever.
func (s *suite) afterOutage(t *testing.T, b lockguard.Backend, n Network) {
	const ttl = 2 * time.Second
	g, told := newGuard(t, b)
	key := s.key()
	h, err := g.TryAcquire(t.Context(), key, lockguard.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	n.Swallow()
	<-h.Context().Done()
	_, _ = h.Release(t.Context())
	n.Pass()
	before, _, _ := told.get()
	h, err = g.Acquire(t.Context(), key, lockguard.WithTTL(ttl), lockguard.WithWait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for began, smallest := time.Now(), ttl; time.Since(began) < 3*ttl; smallest = min(smallest, h.Remaining()) {
		if err := h.Check(); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		<-time.After(20 * time.Millisecond)
		if smallest == 0 {
			t.Fatal("nothing of the validity was left")
		}
	}
	after, lost, _ := told.get()
	if ok := after[lockguard.RenewOK] - before[lockguard.RenewOK]; ok < 7 || after[lockguard.RenewFailed] > before[lockguard.RenewFailed] || len(lost) != 1 {
		t.Errorf("%d renewals in 3 TTLs, then %v, before %v; lost %v", ok, after, before, lost)
	}
	_, _ = h.Release(t.Context())
}

// extended: the lock outlasts an outage that is longer than its TTL, here and
// in the store.
func (s *suite) extended(t *testing.T, b lockguard.Backend, n Network) {
	g, _ := newGuard(t, b)
	key, other := s.key(), s.Backend(t)
	h, err := g.TryAcquire(t.Context(), key, lockguard.WithTTL(shortTTL), lockguard.WithMaxHold(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Extend(t.Context(), time.Hour); !errors.Is(err, lockguard.ErrConfig) {
		t.Errorf("beyond max hold: %v", err)
	}
	if err := h.Extend(t.Context(), 0); !errors.Is(err, lockguard.ErrConfig) {
		t.Errorf("by nothing: %v", err)
	}
	if err := h.Extend(t.Context(), 3*shortTTL); err != nil {
		t.Fatal(err)
	}
	n.Swallow()
	for began := time.Now(); time.Since(began) < 2*shortTTL+shortTTL/2; {
		if err := h.Check(); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		refused(t, other, s.attempt(key))
		<-time.After(50 * time.Millisecond)
	}
	n.Pass()
	eventually(t, 5*shortTTL, func() bool { return holder(t, other, key).Left <= shortTTL }, "the TTL is the usual one again")
	if err := h.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
	_, _ = h.Release(t.Context())
}

func (s *suite) lateReply(t *testing.T, b lockguard.Backend, n Network) {
	g, told := newGuard(t, b)
	key := s.key()
	n.Delay(600 * time.Millisecond) // there and back: beyond a TTL of 1 s
	_, err := g.TryAcquire(t.Context(), key, lockguard.WithTTL(shortTTL))
	if !errors.Is(err, lockguard.ErrTooSlow) {
		t.Errorf("TryAcquire: %v, want ErrTooSlow", err)
	}
	n.Pass()
	eventually(t, 3*time.Second, func() bool { _, _, c := told.get(); return len(c) == 1 }, "the late grant is given back")
	eventually(t, 2*time.Second, func() bool { return !holder(t, s.Backend(t), key).Held }, "the lock is free")
}

func (s *suite) deadLine(t *testing.T, b lockguard.Backend, n Network) {
	g, told := newGuard(t, b)
	key := s.key()
	n.Swallow()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := g.TryAcquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TryAcquire: %v", err)
	}
	n.Pass()
	eventually(t, 3*time.Second, func() bool { _, _, c := told.get(); return len(c) == 1 }, "a release by token is sent")
	if holder(t, s.Backend(t), key).Held {
		t.Error("still held")
	}
}

// alone exercises what interferes with the whole store.
func (s *suite) alone(t *testing.T, newHarness func(t *testing.T) Harness) {
	run := func(name string, f func(t *testing.T, s *suite)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, &suite{Harness: newHarness(t)})
		})
	}
	run("scripts are forgotten", forgotten)
	run("data are lost", dataLost)
	run("server stands still for less than the validity", shortPause)
	run("server stands still for longer", longPause)
}

func forgotten(t *testing.T, s *suite) {
	if s.ForgetScripts == nil {
		return
	}
	g, told := newGuard(t, s.Backend(t))
	h, err := g.TryAcquire(t.Context(), s.key(), lockguard.WithTTL(shortTTL))
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 2*shortTTL; {
		s.ForgetScripts(t)
		<-time.After(20 * time.Millisecond)
	}
	if err := h.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
	if r, _, _ := told.get(); r[lockguard.RenewFailed] != 0 {
		t.Errorf("renewals: %v", r)
	}
	s.ForgetScripts(t)
	if got, err := h.Release(t.Context()); got != lockguard.Released || err != nil {
		t.Errorf("Release: %v, %v", got, err)
	}
}

func dataLost(t *testing.T, s *suite) {
	if s.Flush == nil {
		return
	}
	g, _ := newGuard(t, s.Backend(t))
	other, _ := newGuard(t, s.Backend(t))
	key := s.key()
	h, err := g.TryAcquire(t.Context(), key, lockguard.WithTTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	s.Flush(t)
	next, err := other.TryAcquire(t.Context(), key) // the double grant that no such store can exclude
	if err != nil {
		t.Fatal(err)
	}
	if old, ok := h.Fence(); ok {
		if fresh, _ := next.Fence(); fresh <= old {
			t.Errorf("fence %d after %d: the old holder's writes would be taken", fresh, old)
		}
	}
	<-h.Context().Done()
	if err := h.Check(); !errors.Is(err, lockguard.ErrLost) {
		t.Errorf("Check: %v", err)
	}
	_, _ = h.Release(t.Context())
	if err := next.Verify(t.Context()); err != nil {
		t.Errorf("the old holder's release has harmed the new one: %v", err)
	}
	_, _ = next.Release(t.Context())
}

func shortPause(t *testing.T, s *suite) {
	if s.Pause == nil {
		return
	}
	g, told := newGuard(t, s.Backend(t))
	h, err := g.TryAcquire(t.Context(), s.key(), lockguard.WithTTL(6*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	resume := s.Pause(t)
	<-time.After(3500 * time.Millisecond) // a renewal was due at 2 s
	resume()
	eventually(t, 3*time.Second, func() bool { r, _, _ := told.get(); return r[lockguard.RenewOK] > 0 }, "the renewer recovers")
	if _, lost, _ := told.get(); len(lost) != 0 || h.Check() != nil {
		t.Errorf("lost %v, Check: %v", lost, h.Check())
	}
	_, _ = h.Release(t.Context())
}

func longPause(t *testing.T, s *suite) {
	if s.Pause == nil {
		return
	}
	g, told := newGuard(t, s.Backend(t))
	const ttl = 3 * time.Second
	key := s.key()
	began := time.Now()
	h, err := g.TryAcquire(t.Context(), key, lockguard.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	resume := s.Pause(t)
	<-h.Context().Done()
	if d := time.Since(began); d > ttl {
		t.Errorf("context ended %v after the grant, TTL %v", d, ttl)
	}
	resume()
	if _, lost, _ := told.get(); len(lost) > 1 {
		t.Errorf("losses told: %v", lost)
	}
	_, _ = h.Release(t.Context())
	// The next hold on the same key is renewed as if nothing had been.
	h, err = g.Acquire(t.Context(), key, lockguard.WithTTL(shortTTL), lockguard.WithWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * shortTTL)
	if err := h.Check(); err != nil {
		t.Errorf("the next hold: %v", err)
	}
	_, _ = h.Release(t.Context())
}
