package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestExtend(t *testing.T) {
	t.Run("lasts without a renewal, and shrinks back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			k := NewKeeper(s.renew, Options{})
			defer k.Close()
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second})
			if err := e.Extend(t.Context(), 100*time.Second); err != nil {
				t.Fatal(err)
			}
			if got := e.Remaining(); got < 100*time.Second || got > 105*time.Second {
				t.Errorf("Remaining %v, want 100s or a little more", got)
			}
			time.Sleep(95 * time.Second)
			synctest.Wait()
			ttls, last := s.ttls, 110*time.Second
			for i, ttl := range ttls {
				if ttl > last || ttl < 30*time.Second {
					t.Errorf("renewal %d asks for %v after %v", i, ttl, last)
				}
				last = ttl
			}
			if last != 30*time.Second {
				t.Errorf("the last renewal asks for %v: a holder that dies now keeps others out for so long", last)
			}
			// Without any renewal it lasts as long as was asked for.
			began := time.Now()
			if err := e.Extend(t.Context(), 2*time.Minute); err != nil {
				t.Fatal(err)
			}
			s.set(failing)
			if got := ended(e, began); got < 2*time.Minute || got > 2*time.Minute+5*time.Second {
				t.Errorf("lost after %v, want 2m or a little more", got)
			}
			e.Remove()
		})
	})
	t.Run("waits for a renewal under way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			k := NewKeeper(s.renew, Options{})
			defer k.Close()
			s.set(func(context.Context, string) Result {
				time.Sleep(3 * time.Second)
				return Result{State: Renewed}
			})
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second})
			time.Sleep(11 * time.Second) // its renewal is on the way, with the plain TTL
			if err := e.Extend(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]time.Duration{10 * time.Second, 13 * time.Second}, s.times()); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
			e.Remove()
		})
	})
	t.Run("what fails leaves it as it was", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			k := NewKeeper(s.renew, Options{})
			defer k.Close()
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second, MaxHold: time.Hour})
			if err := e.Extend(t.Context(), 2*time.Hour); !errors.Is(err, ErrTooLong) {
				t.Errorf("beyond max hold: %v", err)
			}
			s.set(failing)
			if err := e.Extend(t.Context(), time.Minute); err == nil || errors.Is(err, ErrLost) {
				t.Errorf("with the store away: %v", err)
			}
			s.set(renewed)
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if ttl := s.ttls[len(s.ttls)-1]; ttl != 30*time.Second || e.Remaining() > 28500*time.Millisecond {
				t.Errorf("the next renewal asks for %v, %v are left", ttl, e.Remaining())
			}
			s.set(func(context.Context, string) Result { return Result{State: Lost} })
			if err := e.Extend(t.Context(), time.Minute); !errors.Is(err, ErrLost) {
				t.Errorf("of a lost lease: %v", err)
			}
			e.Remove()
			if err := e.Extend(t.Context(), time.Minute); !errors.Is(err, ErrRemoved) {
				t.Errorf("after Remove: %v", err)
			}
		})
	})
}

func TestStall(t *testing.T) {
	t.Run("no heartbeat, no renewal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			k := NewKeeper(s.renew, Options{})
			defer k.Close()
			began := time.Now()
			var lost Reason
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second, StallAfter: time.Minute, Owner: owner{onLost: func(r Reason) { lost = r }}})
			// Renewals come at 10 s to 50 s; that of 60 s finds it stalled.
			if got, want := ended(e, began), 50*time.Second+28500*time.Millisecond; got != want {
				t.Errorf("context ended after %v, want %v", got, want)
			}
			synctest.Wait()
			if lost != Stalled || len(s.times()) != 5 {
				t.Errorf("reason %q after %d renewals", lost, len(s.times()))
			}
			e.Remove()
		})
	})
	t.Run("heartbeats keep it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			k := NewKeeper(s.renew, Options{})
			defer k.Close()
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second, StallAfter: 5 * time.Second})
			for range 1000 {
				time.Sleep(4 * time.Second)
				e.Heartbeat()
			}
			if err := e.Check(); err != nil {
				t.Errorf("Check: %v", err)
			}
			e.Remove()
		})
	})
	t.Run("a late heartbeat renews at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			k := NewKeeper(s.renew, Options{})
			defer k.Close()
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second, StallAfter: 5 * time.Second})
			time.Sleep(28 * time.Second)
			synctest.Wait()
			if n := len(s.times()); n != 0 {
				t.Errorf("%d renewals of a stalled lease", n)
			}
			e.Heartbeat()
			synctest.Wait()
			if got, want := e.Remaining(), 28500*time.Millisecond; got != want {
				t.Errorf("Remaining %v, want %v", got, want)
			}
			// What is renewed late and fails then has not stalled.
			s.set(failing)
			for range 7 {
				time.Sleep(4 * time.Second)
				e.Heartbeat()
			}
			<-e.Context().Done()
			if err := context.Cause(e.Context()); !errors.Is(err, ErrLost) || err.Error() != "lease: lost: renew_deadline" {
				t.Errorf("cause %v", err)
			}
			e.Remove()
		})
	})
}

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		s.set(failing)
		var lost, expired []time.Duration
		began := time.Now()
		spec := Spec{
			TTL: 30 * time.Second, MaxHold: time.Hour, Observe: true,
			Owner: owner{
				onLost:    func(Reason) { lost = append(lost, time.Since(began)) },
				onExpired: func() { expired = append(expired, time.Since(began)) },
			},
		}
		e := hold(t, k, "a", spec)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if err := e.Check(); !errors.Is(err, ErrLost) {
			t.Errorf("Check: %v", err)
		}
		if err := e.Context().Err(); err != nil {
			t.Errorf("the context has ended: %v", err)
		}
		if len(lost) != 1 || lost[0] != 28500*time.Millisecond || len(expired) != 1 || expired[0] != 30*time.Second {
			t.Errorf("lost at %v, expired at %v", lost, expired)
		}
		e.Remove()
		// The end of max hold is no loss.
		s.set(renewed)
		spec.MaxHold = time.Minute
		began = time.Now()
		e = hold(t, k, "a", spec)
		if got := ended(e, began); got != time.Minute {
			t.Errorf("max hold ended it after %v", got)
		}
		e.Remove()
	})
}
