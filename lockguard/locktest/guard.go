package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/lockguard"
)

// guard exercises Guards on a store that is well.
func (s *suite) guard(t *testing.T) {
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t)
		})
	}
	run("no update is lost", s.noUpdateIsLost)
	run("renewed as long as it runs", s.renewedWhileItRuns)
	run("deletion is noticed at the next renewal", s.deletionIsNoticed)
	run("taken lock is noticed, and left alone", s.takenIsNoticed)
	run("waiter is woken", s.waiterIsWoken)
	run("waiter looks when the lock runs out", s.waiterLooks)
	run("nothing is left", s.nothingIsLeft)
	run("Verify", s.verify)
	run("waiters of a process are served in their order", s.inOrder)
	run("min hold keeps the next one out", s.minHoldKeeps)
	run("release by force is noticed", s.forceIsNoticed)
	run("waiter of a lock that is released by force", s.forceWakes)
}

// noUpdateIsLost is a read, a pause and a write under the lock, by replicas that
// share nothing but the store.
func (s *suite) noUpdateIsLost(t *testing.T) {
	const replicas, rounds = 4, 12
	keys := []string{s.key(), s.key()}
	var counts [2]struct {
		sync.Mutex
		n int
	}
	var wg sync.WaitGroup
	for range replicas {
		g, _ := newGuard(t, s.Backend(t))
		wg.Go(func() {
			for i := range rounds {
				err := g.Do(t.Context(), keys[i%2], func(context.Context) error {
					c := &counts[i%2]
					c.Lock()
					n := c.n
					c.Unlock()
					<-time.After(time.Duration(rand.IntN(3)) * time.Millisecond)
					c.Lock()
					c.n = n + 1
					c.Unlock()
					return nil
				}, lockguard.WithWait(time.Minute))
				if err != nil {
					t.Errorf("Do: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for i := range counts {
		if want := replicas * rounds / 2; counts[i].n != want {
			t.Errorf("%d updates of %d are there", counts[i].n, want)
		}
	}
}

func (s *suite) renewedWhileItRuns(t *testing.T) {
	key := s.key()
	g, told := newGuard(t, s.Backend(t))
	rival, _ := newGuard(t, s.Backend(t))
	err := g.Do(t.Context(), key, func(ctx context.Context) error {
		for began := time.Now(); time.Since(began) < 2*shortTTL+shortTTL/2; {
			if _, err := rival.TryAcquire(ctx, key, lockguard.WithTTL(shortTTL)); !errors.Is(err, lockguard.ErrBusy) {
				t.Errorf("a rival after %v: %v", time.Since(began), err)
			}
			<-time.After(100 * time.Millisecond)
		}
		h, _ := lockguard.FromContext(ctx)
		if h.Renewals() < 4 {
			t.Errorf("%d renewals in 2.5 TTLs", h.Renewals())
		}
		return h.Check()
	}, lockguard.WithTTL(shortTTL))
	if err != nil {
		t.Errorf("Do: %v", err)
	}
	if _, lost, _ := told.get(); len(lost) != 0 {
		t.Errorf("lost: %v", lost)
	}
	h, err := rival.TryAcquire(t.Context(), key, lockguard.WithTTL(shortTTL))
	if err != nil {
		t.Fatalf("a rival afterwards: %v", err)
	}
	_, _ = h.Release(t.Context())
}

func (s *suite) loss(t *testing.T, harm func(key string), want lockguard.Reason) {
	key := s.key()
	g, told := newGuard(t, s.Backend(t))
	h, err := g.TryAcquire(t.Context(), key, lockguard.WithTTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	harm(key)
	began := time.Now()
	<-h.Context().Done()
	if d := time.Since(began); d > 1500*time.Millisecond {
		t.Errorf("noticed after %v, want at the next renewal (1 s)", d)
	}
	var lost *lockguard.LostError
	if !errors.As(context.Cause(h.Context()), &lost) || lost.Reason != want {
		t.Errorf("cause %v, want reason %s", context.Cause(h.Context()), want)
	}
	if err := h.Check(); !errors.Is(err, lockguard.ErrLost) {
		t.Errorf("Check: %v", err)
	}
	eventually(t, time.Second, func() bool { _, lost, _ := told.get(); return len(lost) == 1 && lost[0] == want }, "the loss is told")
	if got, err := h.Release(t.Context()); got != lockguard.NotHeld || err != nil {
		t.Errorf("Release: %v, %v", got, err)
	}
}

func (s *suite) deletionIsNoticed(t *testing.T) {
	s.loss(t, func(key string) { s.Delete(t, key) }, lockguard.ReasonGone)
}

func (s *suite) takenIsNoticed(t *testing.T) {
	var key string
	s.loss(t, func(k string) { key = k; s.Take(t, k, time.Minute) }, lockguard.ReasonTaken)
	if h := holder(t, s.Backend(t), key); !h.Held || !h.Foreign {
		t.Errorf("the new holder's lock: %+v", h)
	}
}

func (s *suite) waiterIsWoken(t *testing.T) {
	if _, ok := s.Backend(t).(lockguard.Waker); !ok {
		return
	}
	key := s.key()
	g, _ := newGuard(t, s.Backend(t))
	rival, _ := newGuard(t, s.Backend(t))
	best := time.Hour
	for range 3 { // one of them not disturbed by other tests
		h, err := g.TryAcquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		freed := make(chan time.Time, 1)
		time.AfterFunc(150*time.Millisecond, func() {
			now := time.Now()
			_, _ = h.Release(context.Background())
			freed <- now
		})
		got, err := rival.Acquire(t.Context(), key, lockguard.WithWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		woken := time.Now()
		_, _ = got.Release(t.Context())
		best = min(best, woken.Sub(<-freed))
	}
	if best > 300*time.Millisecond {
		t.Errorf("woken %v after the release", best)
	}
}

func (s *suite) waiterLooks(t *testing.T) {
	key := s.key()
	s.Take(t, key, 300*time.Millisecond)
	g, _ := newGuard(t, s.Backend(t))
	began := time.Now()
	h, err := g.Acquire(t.Context(), key, lockguard.WithWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 1200*time.Millisecond {
		t.Errorf("got it %v after it was to run out in 300 ms", d)
	}
	_, _ = h.Release(t.Context())
}

// nothingIsLeft: random cancels leave no lock behind.
func (s *suite) nothingIsLeft(t *testing.T) {
	base := s.key()
	b := s.Backend(t)
	g, _ := newGuard(t, b)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(40))*time.Millisecond)
			defer cancel()
			_ = g.Do(ctx, base+strconv.Itoa(i%20), func(ctx context.Context) error {
				<-time.After(time.Duration(rand.IntN(5)) * time.Millisecond)
				return ctx.Err()
			}, lockguard.WithWait(time.Second))
		})
	}
	wg.Wait()
	for i := range 20 {
		key := base + strconv.Itoa(i)
		eventually(t, 10*time.Second, func() bool { return !holder(t, b, key).Held }, "%s is free", key) // long before its TTL
	}
}

func (s *suite) verify(t *testing.T) {
	key := s.key()
	g, _ := newGuard(t, s.Backend(t))
	h, err := g.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Verify(t.Context()); err != nil {
		t.Errorf("Verify: %v", err)
	}
	s.Delete(t, key)
	if err := h.Check(); err != nil {
		t.Errorf("Check does I/O? %v", err)
	}
	if err := h.Verify(t.Context()); !errors.Is(err, lockguard.ErrLost) {
		t.Errorf("Verify of a deleted lock: %v", err)
	}
	_, _ = h.Release(t.Context())
}
