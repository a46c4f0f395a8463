package lockguard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/locktest"
)

func TestLostReplies(t *testing.T) {
	// loseNext loses the reply to the next n calls of an operation.
	loseNext := func(w *world, op string, n int) {
		w.Fail(func(o, _ string) error {
			if o == op && n > 0 {
				n--
				return locktest.ErrReplyLost
			}
			return nil
		})
	}
	t.Run("acquire", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			loseNext(w, "acquire", 1)
			h, err := w.guard.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatalf("locked out by its own lost reply: %v", err)
			}
			if f, _ := h.Fence(); f != 1 {
				t.Errorf("fence %d, want the first grant's", f)
			}
			_, _ = h.Release(t.Context())
		})
	})
	t.Run("acquire, twice", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			loseNext(w, "acquire", 2)
			if _, err := w.guard.TryAcquire(t.Context(), "k", named); !errors.Is(err, lockguard.ErrStoreUnavailable) {
				t.Fatalf("TryAcquire: %v", err)
			}
			synctest.Wait()
			if w.Held("k") {
				t.Error("what was granted without our knowing is still held")
			}
			w.watch.want(t, "0s error L memory", "0s cleanup L memory released")
		})
	})
	t.Run("release", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			h, err := w.guard.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			loseNext(w, "release", 1)
			if got, err := h.Release(t.Context()); got != lockguard.ReleaseUnknown || err != nil {
				t.Errorf("Release: %v, %v; want unknown: only our own second request found nothing", got, err)
			}
			if w.Held("k") {
				t.Error("still held")
			}
		})
	})
	t.Run("renew", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			h, err := w.guard.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			loseNext(w, "renew", 1)
			time.Sleep(2 * time.Minute)
			if err := h.Check(); err != nil {
				t.Errorf("Check: %v", err)
			}
			_, _ = h.Release(t.Context())
		})
	})
}

func TestCancelDuringAcquireLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Fail(func(op, _ string) error {
			if op == "acquire" {
				time.Sleep(2 * time.Second) // the reply comes late, the grant does not
				return locktest.ErrReplyLost
			}
			return nil
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("shutting down")
		time.AfterFunc(time.Second, func() { cancel(why) })
		_, err := w.guard.Acquire(ctx, "k", named, lockguard.WithWait(time.Minute))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("Acquire: %v, want the context's error and its cause", err)
		}
		time.Sleep(time.Minute)
		if w.Held("k") || w.Calls("release") != 4 {
			t.Errorf("held %v, %d releases by token, want 4", w.Held("k"), w.Calls("release"))
		}
		w.watch.want(t, "1s cancelled L memory", "2.25s cleanup L memory not_held")
	})
}

// late is a store that carries out a request some time after its caller has
// given up, as Redis does with what stands in a closed connection.
type late struct {
	*locktest.Memory
	by time.Duration
}

func (l *late) TryAcquire(ctx context.Context, a lockguard.Attempt) (lockguard.Grant, error) {
	<-ctx.Done()
	time.AfterFunc(l.by, func() { _, _ = l.Memory.TryAcquire(context.WithoutCancel(ctx), a) })
	return lockguard.Grant{}, ctx.Err()
}

func TestAcquireThatComesAfterItsRelease(t *testing.T) {
	for _, by := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := &locktest.Memory{}
			g, err := lockguard.New(lockguard.Config{Backend: &late{Memory: m, by: by}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := g.TryAcquire(ctx, "k", lockguard.WithTTL(time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryAcquire: %v", err)
			}
			time.Sleep(3 * time.Second)
			if m.Held("k") {
				t.Errorf("%v late: the lock is left to its TTL", by)
			}
			if err := g.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTooSlow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Fail(func(op, _ string) error {
			if op == "acquire" {
				time.Sleep(990 * time.Millisecond)
			}
			return nil
		})
		_, err := w.guard.TryAcquire(t.Context(), "k", lockguard.WithTTL(time.Second))
		if !errors.Is(err, lockguard.ErrTooSlow) {
			t.Errorf("TryAcquire: %v, want ErrTooSlow", err)
		}
		time.Sleep(time.Minute)
		if w.Held("k") || w.Calls("release") != 4 {
			t.Errorf("held %v, %d releases by token, want 4", w.Held("k"), w.Calls("release"))
		}
	})
}

func TestLossReachesTheCode(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *world)
		want lockguard.Reason
		told []string
	}{
		"gone": {
			do: func(w *world) { w.Delete("k") }, want: lockguard.ReasonGone,
			told: []string{"10s lost L gone", "10s end L 10s 0.33", "10s expired L", "10s renewed L memory rejected", "10s released L memory not_held"},
		},
		"taken": {
			do: func(w *world) { w.Take("k", time.Hour) }, want: lockguard.ReasonTaken,
			told: []string{"10s lost L taken", "10s end L 10s 0.33", "10s expired L", "10s renewed L memory rejected", "10s released L memory not_held"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				h, err := w.guard.TryAcquire(t.Context(), "k", named)
				if err != nil {
					t.Fatal(err)
				}
				w.watch.take()
				c.do(w)
				<-h.Context().Done()
				var lost *lockguard.LostError
				cause := context.Cause(h.Context())
				if !errors.As(cause, &lost) || !errors.Is(cause, lockguard.ErrLost) {
					t.Fatalf("cause %v, want *LostError", cause)
				}
				if lost.Reason != c.want || lost.Fence != 1 || lost.Key != "k" {
					t.Errorf("cause %+v, want reason %s", lost, c.want)
				}
				if err := h.Check(); !errors.Is(err, lockguard.ErrLost) {
					t.Errorf("Check: %v", err)
				}
				synctest.Wait()
				n := w.Calls("release")
				if got, err := h.Release(t.Context()); got != lockguard.NotHeld || err != nil {
					t.Errorf("Release: %v, %v", got, err)
				}
				if w.Calls("release") != n {
					t.Error("a release was sent for a lock that the store says is not ours")
				}
				if name == "taken" && !w.Held("k") {
					t.Error("the new holder's lock was freed")
				}
				w.watch.want(t, c.told...)
			})
		})
	}
	t.Run("renew_deadline", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			h, err := w.guard.TryAcquire(t.Context(), "k", named)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			w.Fail(func(string, string) error { time.Sleep(time.Hour); return nil })
			<-h.Context().Done()
			if got := time.Since(began); got != 28500*time.Millisecond {
				t.Errorf("context ended after %v, want TTL − margin", got)
			}
			var lost *lockguard.LostError
			if !errors.As(h.Check(), &lost) || lost.Reason != lockguard.ReasonRenewDeadline {
				t.Errorf("Check: %v", h.Check())
			}
			w.Fail(nil)
			if got, err := h.Release(t.Context()); got != lockguard.Released || err != nil {
				t.Errorf("Release of a lock that may still be ours: %v, %v", got, err)
			}
			time.Sleep(time.Hour)
		})
	})
}

func TestM12_Outlived(t *testing.T) {
	t.Run("M12 renewed", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			h, err := w.guard.TryAcquire(t.Context(), "k", named, lockguard.WithTTL(6*time.Second), lockguard.WithExpect(7*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Second)
			synctest.Wait()
			if d := cmp.Diff("7s outlived L", last(w.watch.take())); d != "" {
				t.Errorf("7 s into the run (-want +got):\n%s", d)
			}
			if err := h.Check(); err != nil {
				t.Errorf("Check: %v: to outlive is not to lose", err)
			}
			_, _ = h.Release(t.Context())
		})
	})
	t.Run("M12 not renewed", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			h, err := w.guard.TryAcquire(t.Context(), "k", named, lockguard.WithTTL(6*time.Second), lockguard.WithExpect(7*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			w.Fail(func(op, _ string) error { return locktest.ErrDown })
			time.Sleep(12 * time.Second)
			w.Fail(nil)
			var outlived, expired, lost int
			for _, l := range w.watch.take() {
				switch l {
				case "7s outlived L":
					outlived++
				case "6s expired L":
					expired++
				case "5.7s lost L renew_deadline":
					lost++
				}
			}
			if outlived != 1 || expired != 1 || lost != 1 {
				t.Errorf("outlived %d, expired while held %d, lost %d; want 1 each", outlived, expired, lost)
			}
			_, _ = h.Release(t.Context())
		})
	})
}

func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

func TestL16_MaxHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		began := time.Now()
		var inside error
		err := w.guard.Do(t.Context(), "k", func(ctx context.Context) error {
			<-ctx.Done()
			if d := time.Since(began); d != 10*time.Second {
				t.Errorf("context ended after %v, want 10s", d)
			}
			h, _ := lockguard.FromContext(ctx)
			inside = h.Check()
			if !w.Held("k") {
				t.Error("released under a running function")
			}
			time.Sleep(5 * time.Second) // it takes no notice
			if w.Held("k") {
				t.Error("still renewed after max hold")
			}
			return context.Cause(ctx)
		}, named, lockguard.WithTTL(3*time.Second), lockguard.WithMaxHold(10*time.Second))
		if !errors.Is(err, lockguard.ErrMaxHold) || errors.Is(err, lockguard.ErrLost) {
			t.Errorf("Do: %v, want ErrMaxHold and no loss", err)
		}
		if !errors.Is(inside, lockguard.ErrMaxHold) {
			t.Errorf("Check after max hold: %v", inside)
		}
		var told []string
		for _, l := range w.watch.take() {
			if l == "10s max_hold L" || l == "12s expired L" || l == "13s expired L" || l == "15s released L memory not_held" {
				told = append(told, l)
			}
		}
		if len(told) != 3 {
			t.Errorf("told %v", told)
		}
	})
}

func TestVerify(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h, err := w.guard.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Verify(t.Context()); err != nil {
			t.Errorf("Verify: %v", err)
		}
		w.Fail(func(string, string) error { return locktest.ErrDown })
		if err := h.Verify(t.Context()); !errors.Is(err, lockguard.ErrStoreUnavailable) {
			t.Errorf("Verify with the store down: %v", err)
		}
		if err := h.Check(); err != nil {
			t.Errorf("Check after that: %v", err)
		}
		w.Fail(nil)
		w.Delete("k")
		if err := h.Verify(t.Context()); !errors.Is(err, lockguard.ErrLost) {
			t.Errorf("Verify of a deleted lock: %v", err)
		}
		if h.Context().Err() == nil {
			t.Error("context still runs")
		}
		_, _ = h.Release(t.Context())
	})
}
