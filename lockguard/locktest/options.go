package locktest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/lockguard"
)

// minHold: a release before its end puts the end off, and nothing that bears the
// token can put it off further.
func (s *suite) minHold(t *testing.T, b lockguard.Backend) {
	a, next := s.attempt(s.key()), s.attempt("")
	next.Key = a.Key
	ref := lockguard.Ref{Key: a.Key, Token: a.Token}
	const keep = 4 * time.Second
	kept := func(want lockguard.Release, keep time.Duration) {
		t.Helper()
		if got, err := b.Release(t.Context(), ref, keep); got != want || err != nil {
			t.Errorf("Release that keeps %v: %v, %v, want %v", keep, got, err, want)
		}
	}
	began := time.Now()
	g := acquire(t, b, a)
	kept(lockguard.Kept, keep)
	kept(lockguard.Kept, keep) // its answer was lost
	for name, h := range map[string]lockguard.Holder{
		"Read": holder(t, b, a.Key), "BusyError": refused(t, b, next).Holder,
	} {
		if h.Left <= 0 || h.Left > keep || !h.Kept || !h.Held || h.TaskID != a.TaskID || h.Fence != g.Fence {
			t.Errorf("%s of a kept lock: %+v", name, h)
		}
	}
	diff(t, "renewal", []lockguard.RenewResult{{State: lockguard.RenewLost, Reason: lockguard.ReasonTaken}},
		b.Renew(t.Context(), []lockguard.Renewal{renewal(a)}))
	refused(t, b, a) // a late request of its own
	release(t, b, next, lockguard.NotHeld)
	var second lockguard.Grant
	eventually(t, keep+time.Second, func() bool {
		var err error
		second, err = b.TryAcquire(t.Context(), next)
		return err == nil
	}, "the next one gets the lock")
	if d := time.Since(began); d < keep-20*time.Millisecond {
		t.Errorf("got after %v, min hold %v", d, keep)
	}
	if s.Fence != lockguard.NoFence && second.Fence <= g.Fence {
		t.Errorf("fence %d after %d", second.Fence, g.Fence)
	}
	kept(lockguard.NotHeld, keep)
	if h := holder(t, b, a.Key); !h.Held || h.Kept {
		t.Errorf("holder %+v", h)
	}
	release(t, b, next, lockguard.Released)

	// Once it is over, a release frees the lock.
	a.Token = s.attempt("").Token
	ref.Token = a.Token
	acquire(t, b, a)
	<-time.After(30 * time.Millisecond)
	kept(lockguard.Released, 10*time.Millisecond)
	kept(lockguard.NotHeld, keep)
	// Kept, and then freed after all.
	acquire(t, b, next)
	ref.Token = next.Token
	kept(lockguard.Kept, time.Minute)
	kept(lockguard.Released, 0)
	if holder(t, b, a.Key).Held {
		t.Error("still held")
	}
}

// byForce frees whatever lock is there, and the fence goes on growing.
func (s *suite) byForce(t *testing.T, b lockguard.Backend) {
	a := s.attempt(s.key())
	force := func() lockguard.Holder {
		t.Helper()
		h, err := b.ForceRelease(t.Context(), a.Key)
		if err != nil {
			t.Fatalf("ForceRelease: %v", err)
		}
		if holder(t, b, a.Key).Held {
			t.Fatal("still held")
		}
		return h
	}
	diff(t, "of a free lock", lockguard.Holder{Key: a.Key}, force())
	g := acquire(t, b, a)
	if h := force(); h.TaskID != a.TaskID || h.Fence != g.Fence || h.Since.IsZero() || h.Left <= 0 {
		t.Errorf("freed %+v", h)
	}
	release(t, b, a, lockguard.NotHeld)
	next := s.attempt(a.Key)
	if second := acquire(t, b, next); s.Fence != lockguard.NoFence && second.Fence <= g.Fence {
		t.Errorf("fence %d after %d", second.Fence, g.Fence)
	}
	if got, err := b.Release(t.Context(), lockguard.Ref{Key: next.Key, Token: next.Token}, time.Minute); got != lockguard.Kept || err != nil {
		t.Errorf("Release: %v, %v", got, err)
	}
	if h := force(); !h.Kept {
		t.Errorf("freed %+v", h)
	}
	s.Take(t, a.Key, time.Minute)
	if h := force(); !h.Foreign || !h.Held {
		t.Errorf("freed %+v", h)
	}
}

// inOrder: of those that wait in one process each gets the lock after the one
// that came before it, and a release costs the store few attempts.
func (s *suite) inOrder(t *testing.T) {
	key := s.key()
	g, _ := newGuard(t, s.Backend(t))
	other, _ := newGuard(t, s.Backend(t))
	first, err := other.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []int
	var wg sync.WaitGroup
	const n = 8
	for i := range n {
		wg.Go(func() {
			err := g.Do(t.Context(), key, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, i)
				return nil
			}, lockguard.WithWait(time.Minute))
			if err != nil {
				t.Errorf("Do: %v", err)
			}
		})
		<-time.After(10 * time.Millisecond)
	}
	_, _ = first.Release(t.Context())
	wg.Wait()
	if len(got) != n || !slices.IsSorted(got) {
		t.Errorf("served in the order %v", got)
	}
}

func (s *suite) minHoldKeeps(t *testing.T) {
	key := s.key()
	g, _ := newGuard(t, s.Backend(t))
	rival, _ := newGuard(t, s.Backend(t))
	const keep = 600 * time.Millisecond
	began := time.Now()
	h, err := g.TryAcquire(t.Context(), key, lockguard.WithMinHold(keep))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Release(t.Context()); got != lockguard.Kept || err != nil {
		t.Errorf("Release: %v, %v", got, err)
	}
	next, err := rival.Acquire(t.Context(), key, lockguard.WithWait(time.Minute), lockguard.WithMinHold(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < keep-20*time.Millisecond || d > keep+time.Second {
		t.Errorf("the next one got it after %v, min hold %v", d, keep)
	}
	if got, err := next.GiveBack(t.Context()); got != lockguard.Released || err != nil {
		t.Errorf("GiveBack: %v, %v", got, err)
	}
}

func (s *suite) forceIsNoticed(t *testing.T) {
	s.loss(t, func(key string) {
		admin, _ := newGuard(t, s.Backend(t))
		if h, err := admin.ForceRelease(t.Context(), key, "it hangs"); err != nil || !h.Held {
			t.Errorf("ForceRelease: %+v, %v", h, err)
		}
	}, lockguard.ReasonGone)
}

func (s *suite) forceWakes(t *testing.T) {
	key := s.key()
	s.Take(t, key, time.Hour)
	g, _ := newGuard(t, s.Backend(t))
	forced := make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() {
		defer close(forced)
		if _, err := g.ForceRelease(context.Background(), key, "test"); err != nil {
			t.Errorf("ForceRelease: %v", err)
		}
	})
	h, err := g.Acquire(t.Context(), key, lockguard.WithWait(10*time.Second))
	<-forced // its answer may come after the waiter's
	if err != nil {
		t.Fatal(err)
	}
	_, _ = h.Release(t.Context())
}
