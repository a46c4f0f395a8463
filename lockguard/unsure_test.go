package lockguard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/solobeat/solobeat/lockguard"
)

// A refusal that this process gives itself says whether the lock is really held:
// it is while its holder is trusted, but a function that goes on after its max
// hold keeps out nobody else.
func TestBusyOfOwnProcessSaysWhetherItIsSure(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h, err := w.guard.TryAcquire(t.Context(), "k", named, lockguard.WithMaxHold(40*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		refused := func() *lockguard.BusyError {
			t.Helper()
			var busy *lockguard.BusyError
			if _, err := w.guard.TryAcquire(t.Context(), "k", named); !errors.As(err, &busy) {
				t.Fatalf("second acquire: %v, want *BusyError", err)
			}
			return busy
		}
		if refused().Unsure || !w.guard.Occupied("k") || w.guard.Occupied("other") {
			t.Error("a trusted hold is not sure, or occupies the wrong key")
		}
		<-h.Context().Done()
		<-time.After(time.Minute) // the function goes on, its lock has run out
		if !refused().Unsure || !w.guard.Occupied("k") {
			t.Error("sure of a lock that has run out")
		}
		other := w.newGuard(t)
		theirs, err := other.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Errorf("another replica: %v", err)
		} else {
			_, _ = theirs.Release(t.Context())
		}
		_, _ = h.Release(t.Context())
		if w.guard.Occupied("k") {
			t.Error("still occupied after the release")
		}
		_ = other.Close(t.Context())
	})
}

// While an attempt is under way nobody knows who holds the lock.
func TestBusyWhileAnAttemptIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		asked := false
		w.Fail(func(op, _ string) error {
			if op != "acquire" || asked {
				return nil
			}
			asked = true
			var busy *lockguard.BusyError
			if _, err := w.guard.TryAcquire(t.Context(), "k", named, lockguard.WithTaskID("t1")); !errors.As(err, &busy) || !busy.Unsure || busy.Holder.TaskID != "" {
				t.Errorf("in the middle of an attempt: %v (%+v)", err, busy)
			}
			return nil
		})
		h, err := w.guard.TryAcquire(t.Context(), "k", named, lockguard.WithTaskID("t1"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = h.Release(t.Context())
	})
}
