package lease

import (
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
