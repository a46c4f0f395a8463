package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Leases that are taken and given back at once do not wake the keeper's
// goroutines each time, and its deadlines hold all the same.
func TestGivenBackAtOnceWakesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		clock := func() (time.Time, time.Time) { looks.Add(1); return systemClock() }
		s := newStore()
		k := NewKeeper(s.renew, Options{Clock: clock})
		defer k.Close()
		take := func() *Entry[string] { return hold(t, k, "a", Spec{TTL: 30 * time.Second}) }
		take().Remove()
		synctest.Wait() // the goroutines have looked, and found nothing
		before := looks.Load()
		take().Remove()
		own := looks.Load() - before // what a pair itself looks
		before = looks.Load()
		const pairs = 100
		for range pairs {
			take().Remove()
			synctest.Wait()
		}
		if n := looks.Load() - before - pairs*own; n > 4 {
			t.Errorf("%d looks of the keeper at %d leases that were given back at once", n, pairs)
		}
		began := time.Now()
		s.set(failing)
		e := take()
		if got := ended(e, began); got != 28500*time.Millisecond {
			t.Errorf("lost after %v, want 28.5s", got)
		}
		e.Remove()
	})
}

// A lease whose answer is not there in time ends its context, and can not be
// confirmed any more; one that is granted or removed before does not notice.
func TestAnswerBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeeper(newStore().renew, Options{})
		defer k.Close()
		began := time.Now()
		spec := Spec{TTL: 30 * time.Second, AnswerBy: began.Add(5 * time.Second)}
		add := func(name string) *Entry[string] {
			e, err := k.Add(t.Context(), name, spec)
			if err != nil {
				t.Fatal(err)
			}
			e.Sending()
			return e
		}
		late, granted, removed := add("late"), add("granted"), add("removed")
		if !granted.Confirm() {
			t.Error("the answer in time is refused")
		}
		removed.Remove()
		if got := ended(late, began); got != 5*time.Second {
			t.Errorf("context ended after %v, want 5s", got)
		}
		if got := context.Cause(late.Context()); !errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("cause %v", got)
		}
		if late.Confirm() {
			t.Error("confirmed after its end")
		}
		if err := late.Check(); !errors.Is(err, ErrPending) {
			t.Errorf("Check: %v", err)
		}
		late.Remove()
		time.Sleep(time.Minute)
		if err := granted.Check(); err != nil {
			t.Errorf("the one that was granted: %v", err)
		}
		granted.Remove()
		time.Sleep(time.Minute)
	})
}
