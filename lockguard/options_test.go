package lockguard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/locktest"
	"github.com/solobeat/solobeat/tasks"
)

func TestObservedLoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		err := w.guard.Do(t.Context(), "k", func(ctx context.Context) error {
			w.Take("k", time.Hour)
			time.Sleep(time.Minute)
			if err := ctx.Err(); err != nil {
				t.Errorf("the context has ended: %v", err)
			}
			h, _ := lockguard.FromContext(ctx)
			if err := h.Check(); !errors.Is(err, lockguard.ErrLost) {
				t.Errorf("Check: %v", err)
			}
			return nil
		}, named, lockguard.WithOnLost(tasks.OnLostObserve))
		if err != nil {
			t.Errorf("Do: %v", err)
		}
		if told := w.watch.take(); !slices.Contains(told, "10s lost L taken") || !slices.Contains(told, "10s expired L") {
			t.Errorf("told: %v", told)
		}
		if calls := w.Calls("release"); calls != 0 {
			t.Errorf("%d releases of another's lock", calls)
		}
	})
}

func TestStalled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		err := w.guard.Do(t.Context(), "k", func(ctx context.Context) error {
			h, _ := lockguard.FromContext(ctx)
			for range 30 {
				time.Sleep(10 * time.Second)
				h.Heartbeat()
			}
			if err := h.Check(); err != nil {
				t.Errorf("Check: %v", err)
			}
			<-ctx.Done()
			return ctx.Err()
		}, named, lockguard.WithStallAfter(15*time.Second))
		var lost *lockguard.LostError
		if !errors.As(err, &lost) || lost.Reason != lockguard.ReasonStalled {
			t.Errorf("Do: %v", err)
		}
	})
}

func TestWaitStop(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Take("k", time.Hour)
		stop := make(chan struct{})
		began := time.Now()
		time.AfterFunc(5*time.Second, func() { close(stop) })
		done := make(chan error)
		for range 3 { // the oldest, and two that stand behind it
			go func() {
				_, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(time.Minute), lockguard.WithWaitStop(stop))
				done <- err
			}()
			synctest.Wait()
		}
		for range 3 {
			if err := <-done; !errors.Is(err, lockguard.ErrBusy) {
				t.Errorf("Acquire: %v", err)
			}
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("stopped after %v", d)
		}
		// Whoever comes then is served: nobody is left in line.
		w.Delete("k")
		h, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(time.Minute))
		if err != nil || time.Since(began) != 5*time.Second {
			t.Fatalf("Acquire: %v after %v", err, time.Since(began))
		}
		_, _ = h.Release(t.Context())
	})
}

// The oldest that gives up lets the next one ask, and one release costs the
// store one attempt, however many wait here.
func TestLine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Take("k", time.Hour)
		got := make(chan int)
		for i := range 50 {
			wait := time.Hour
			if i == 0 {
				wait = 3 * time.Second
			}
			go func() {
				h, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(wait))
				if (err != nil) != (i == 0) {
					t.Errorf("Acquire %d: %v", i, err)
				}
				got <- i
				if err == nil {
					_, _ = h.Release(t.Context())
				}
			}()
			synctest.Wait()
		}
		if n := w.Calls("acquire"); n != 2 { // before and after it listens
			t.Errorf("%d attempts for 50 that wait", n)
		}
		if i := <-got; i != 0 {
			t.Errorf("%d came first", i)
		}
		w.Delete("k")
		for i := 1; i < 50; i++ {
			if j := <-got; j != i {
				t.Errorf("%d came in the place of %d", j, i)
			}
		}
	})
}

func TestForceReleaseErrors(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		if h, err := w.guard.ForceRelease(t.Context(), "k", "why"); err != nil || h.Held {
			t.Errorf("of a free lock: %+v, %v", h, err)
		}
		w.Fail(func(string, string) error { return locktest.ErrDown })
		if _, err := w.guard.ForceRelease(t.Context(), "k", "why"); !errors.Is(err, lockguard.ErrStoreUnavailable) {
			t.Errorf("with the store away: %v", err)
		}
		w.Fail(nil)
	})
}

func TestNumbersOfOptions(t *testing.T) {
	for name, n := range map[string]lockguard.Numbers{
		"min_hold": {MinHold: -1}, "stall_after": {StallAfter: time.Millisecond}, "stall_after -": {StallAfter: -time.Second},
	} {
		n.TTL = time.Minute
		what, _, _ := strings.Cut(name, " ")
		if _, err := n.Check(); !errors.Is(err, lockguard.ErrConfig) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
