package lease

import (
	"testing"
	"testing/synctest"
	"time"
)

// A lease that is due sooner than what the keeper waits for wakes it: a short one
// beside a long one is renewed in its own time, and its deadline holds.
func TestAShortLeaseBesideALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		long := hold(t, k, "long", Spec{TTL: 10 * time.Minute})
		defer long.Remove()
		synctest.Wait() // the goroutines wait for it, for minutes
		short := hold(t, k, "short", Spec{TTL: 3 * time.Second})
		defer short.Remove()
		time.Sleep(9500 * time.Millisecond)
		if n, err := len(s.times()), short.Context().Err(); n != 9 || err != nil {
			t.Errorf("%d renewals of the short one, want 9; %v", n, err)
		}
		s.set(failing)
		began := time.Now()
		last := hold(t, k, "last", Spec{TTL: time.Second})
		defer last.Remove()
		if got := ended(last, began); got != 950*time.Millisecond {
			t.Errorf("lost after %v, want 950ms", got)
		}
	})
}
