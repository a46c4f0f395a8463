package lockguard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/locktest"
)

// watch records what an Observer is told, as lines.
type watch struct {
	mu    sync.Mutex
	lines []string
	began time.Time
}

func (w *watch) add(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf("%v ", time.Since(w.began).Round(time.Millisecond))+fmt.Sprintf(format, a...))
}

// take returns the lines since the last take.
func (w *watch) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

func (w *watch) observer() lockguard.Observer {
	w.began = time.Now()
	return lockguard.Observer{
		Acquired:         func(l lockguard.Labels, b string, wait time.Duration) { w.add("acquired %s %s %v", l.Lock, b, wait) },
		Busy:             func(l lockguard.Labels, b string) { w.add("busy %s %s", l.Lock, b) },
		AcquireError:     func(l lockguard.Labels, b string, _ error) { w.add("error %s %s", l.Lock, b) },
		AcquireCancelled: func(l lockguard.Labels, b string) { w.add("cancelled %s %s", l.Lock, b) },
		Renewed: func(l lockguard.Labels, b string, o lockguard.RenewOutcome, _ time.Duration) {
			w.add("renewed %s %s %s", l.Lock, b, o)
		},
		Lost:             func(l lockguard.Labels, r lockguard.Reason) { w.add("lost %s %s", l.Lock, r) },
		ExpiredWhileHeld: func(l lockguard.Labels) { w.add("expired %s", l.Lock) },
		MaxHold:          func(l lockguard.Labels) { w.add("max_hold %s", l.Lock) },
		Outlived:         func(l lockguard.Labels) { w.add("outlived %s", l.Lock) },
		Released:         func(l lockguard.Labels, b string, r lockguard.Release) { w.add("released %s %s %s", l.Lock, b, r) },
		Cleanup:          func(l lockguard.Labels, b string, r lockguard.Release) { w.add("cleanup %s %s %s", l.Lock, b, r) },
		HeldStart:        func(l lockguard.Labels, _ time.Time) { w.add("start %s", l.Lock) },
		HeldEnd: func(l lockguard.Labels, d time.Duration, ratio float64) {
			w.add("end %s %v %.2f", l.Lock, d.Round(time.Millisecond), ratio)
		},
		Fence:  func(l lockguard.Labels, f lockguard.Fence) { w.add("fence %s %d", l.Lock, f) },
		Fenced: func(l lockguard.Labels) { w.add("fenced %s", l.Lock) },
	}
}

// want compares without regard to the order, since what happens at one instant
// is told by several goroutines.
func (w *watch) want(t *testing.T, lines ...string) {
	t.Helper()
	got := w.take()
	slices.Sort(lines)
	slices.Sort(got)
	if d := cmp.Diff(lines, got); d != "" {
		t.Errorf("told to the observer (-want +got):\n%s", d)
	}
}

type world struct {
	*locktest.Memory
	watch watch
	guard *lockguard.Guard
}

// bubble runs a test in a synctest bubble with one guard, which must be idle at
// the end.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{Memory: &locktest.Memory{}}
		w.guard = w.newGuard(t)
		f(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := w.guard.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// newGuard is another replica on the same store.
func (w *world) newGuard(t *testing.T) *lockguard.Guard {
	t.Helper()
	g, err := lockguard.New(lockguard.Config{Backend: w.Memory, Instance: "i1", Observer: w.watch.observer()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

var named = lockguard.WithLabels(lockguard.Labels{Lock: "L"})

func TestDo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		err := w.guard.Do(t.Context(), "k", func(ctx context.Context) error {
			h, ok := lockguard.FromContext(ctx)
			if !ok || h.Key() != "k" || h.Check() != nil {
				t.Errorf("no trusted handle in the context: %v, %v", h, ok)
			}
			if f, ok := h.Fence(); !ok || f != 101 {
				t.Errorf("fence %d, %v, want 101", f, ok)
			}
			holder, err := w.guard.Inspect(ctx, "k")
			want := lockguard.Holder{Key: "k", Held: true, TaskID: "t1", Instance: "i1", Fence: 101, Since: time.Now(), Left: 30 * time.Second}
			if d := cmp.Diff(want, holder); d != "" || err != nil {
				t.Errorf("Inspect: %v (-want +got):\n%s", err, d)
			}
			time.Sleep(12 * time.Second)
			return nil
		}, named, lockguard.WithTaskID("t1"), lockguard.WithFenceBase(100))
		if err != nil {
			t.Errorf("Do: %v", err)
		}
		if w.Held("k") {
			t.Error("still held after Do")
		}
		w.watch.want(t, "0s acquired L memory 0s", "0s fence L 101", "0s start L", "10s renewed L memory ok",
			"12s end L 12s 0.40", "12s released L memory released")
	})
}

func TestDoReleasesOnPanicAndPanicsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					t.Errorf("recovered %v, want the function's own panic", r)
				}
			}()
			_ = w.guard.Do(t.Context(), "k", func(context.Context) error { panic("boom") })
		}()
		if w.Held("k") {
			t.Error("still held after a panic")
		}
	})
}

func TestDoErrors(t *testing.T) {
	own := errors.New("own error")
	for name, c := range map[string]struct {
		ret   error
		want  []error
		isNil bool
	}{
		"error and loss are joined":         {ret: own, want: []error{own, lockguard.ErrLost}},
		"a result stays a result":           {ret: nil, isNil: true},
		"the loss itself is not told twice": {ret: lockguard.ErrLost, want: []error{lockguard.ErrLost}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				err := w.guard.Do(t.Context(), "k", func(ctx context.Context) error {
					w.Delete("k")
					<-ctx.Done()
					return c.ret
				})
				if c.isNil && err != nil {
					t.Errorf("Do: %v, want nil", err)
				}
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("Do: %v, want %v in it", err, want)
					}
				}
			})
		})
	}
}

func TestInProcessExclusionIsWithoutIO(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h, err := w.guard.TryAcquire(t.Context(), "k", named, lockguard.WithTaskID("t1"))
		if err != nil {
			t.Fatal(err)
		}
		w.watch.take()
		n := w.Calls("acquire")
		_, err = w.guard.TryAcquire(h.Context(), "k", named) // no re-entrancy
		var busy *lockguard.BusyError
		if !errors.As(err, &busy) || !errors.Is(err, lockguard.ErrBusy) {
			t.Fatalf("second acquire: %v, want *BusyError", err)
		}
		if busy.Holder.TaskID != "t1" || busy.Holder.Fence != 1 || busy.RetryAfter != 30*time.Second {
			t.Errorf("holder %+v, retry after %v", busy.Holder, busy.RetryAfter)
		}
		if w.Calls("acquire") != n {
			t.Error("the store was asked for a key that this process holds")
		}
		w.watch.want(t, "0s busy L memory")
		if _, err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestF02_NumbersAreChecked(t *testing.T) {
	for name, opts := range map[string][]lockguard.Option{
		"S08 ttl 0":               {lockguard.WithTTL(0)},
		"F02 ttl below 1s":        {lockguard.WithTTL(999 * time.Millisecond)},
		"F02 ttl negative":        {lockguard.WithTTL(-time.Second)},
		"F02 ttl 15 and renew 60": {lockguard.WithTTL(15 * time.Second), lockguard.WithRenewEvery(time.Minute)},
		"F02 renew above 2/3":     {lockguard.WithTTL(45 * time.Second), lockguard.WithRenewEvery(31 * time.Second)},
		"F02 renew negative":      {lockguard.WithRenewEvery(-1)},
		"F02 max_hold negative":   {lockguard.WithMaxHold(-1)},
		"F02 expect negative":     {lockguard.WithExpect(-1)},
		"F02 wait negative":       {lockguard.WithWait(-1)},
		"F02 fence base":          {lockguard.WithFenceBase(1 << 63)},
		"F02 empty key":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				key := "k"
				if opts == nil {
					key = ""
				}
				if _, err := w.guard.TryAcquire(t.Context(), key, opts...); !errors.Is(err, lockguard.ErrConfig) {
					t.Errorf("TryAcquire: %v, want ErrConfig", err)
				}
				if _, err := w.guard.Acquire(t.Context(), key, opts...); !errors.Is(err, lockguard.ErrConfig) {
					t.Errorf("Acquire: %v, want ErrConfig", err)
				}
				ran := false
				err := w.guard.Do(t.Context(), key, func(context.Context) error { ran = true; return nil }, opts...)
				if !errors.Is(err, lockguard.ErrConfig) || ran {
					t.Errorf("Do: %v, ran %v", err, ran)
				}
				if w.Calls("acquire") != 0 {
					t.Error("the store was asked")
				}
			})
		})
	}
	t.Run("F02 ttl 45 and renew 30 is a warning", func(t *testing.T) {
		warning, err := lockguard.Numbers{TTL: 45 * time.Second, RenewEvery: 30 * time.Second}.Check()
		if warning == "" || err != nil {
			t.Errorf("warning %q, error %v", warning, err)
		}
		warning, err = lockguard.Numbers{TTL: 45 * time.Second, RenewEvery: 15 * time.Second}.Check()
		if warning != "" || err != nil {
			t.Errorf("a third: warning %q, error %v", warning, err)
		}
	})
}

func TestL25_StoreErrorRunsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Fail(func(op, _ string) error {
			if op == "acquire" {
				return locktest.ErrDown
			}
			return nil
		})
		for mode, opts := range map[string][]lockguard.Option{"skip": nil, "wait": {lockguard.WithWait(3 * time.Second)}} {
			began := time.Now()
			err := w.guard.Do(t.Context(), "k", func(context.Context) error {
				t.Errorf("%s: ran without a lock", mode)
				return nil
			}, opts...)
			if !errors.Is(err, lockguard.ErrStoreUnavailable) || !errors.Is(err, locktest.ErrDown) || errors.Is(err, lockguard.ErrBusy) {
				t.Errorf("%s: %v, want ErrStoreUnavailable around the cause", mode, err)
			}
			if mode == "wait" && time.Since(began) != 3*time.Second {
				t.Errorf("waited %v for the store, want 3s", time.Since(began))
			}
		}
		if _, err := w.guard.TryAcquire(t.Context(), "k"); !errors.Is(err, lockguard.ErrStoreUnavailable) {
			t.Errorf("TryAcquire: %v", err)
		}
	})
}

func TestWaitOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Fail(func(string, string) error { return locktest.ErrDown })
		time.AfterFunc(2*time.Second, func() { w.Fail(nil) })
		h, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = h.Release(t.Context())
	})
}

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
		if w.Held("k") || w.Calls("release") != 1 {
			t.Errorf("held %v, %d releases by token, want 1", w.Held("k"), w.Calls("release"))
		}
		w.watch.want(t, "1s cancelled L memory", "1s cleanup L memory not_held")
	})
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
		if w.Held("k") || w.Calls("release") != 1 {
			t.Errorf("held %v, %d releases by token, want 1", w.Held("k"), w.Calls("release"))
		}
	})
}

func TestL13_ReleaseOnItsOwnContext(t *testing.T) {
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": context.WithCancel,
		"timeout": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
	} {
		t.Run("L13 "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				ctx, cancel := end(t.Context())
				time.AfterFunc(time.Second, cancel)
				began := time.Now()
				err := w.guard.Do(ctx, "k", func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				}, lockguard.WithTTL(time.Minute))
				if err == nil {
					t.Error("the function's error is gone")
				}
				if w.Held("k") || time.Since(began) > 2*time.Second {
					t.Errorf("held %v after %v", w.Held("k"), time.Since(began))
				}
			})
		})
	}
}

func TestL05_LockIsTakenAtTheStart(t *testing.T) {
	// A lock belongs to a run, not to a message: what waits in a queue for
	// longer than any TTL holds nothing, and two that come due at once exclude
	// each other, each for as long as it runs.
	bubble(t, func(t *testing.T, w *world) {
		other := w.newGuard(t)
		ttl := lockguard.WithTTL(5 * time.Second)
		time.Sleep(12 * time.Second) // the ETA
		h, err := w.guard.TryAcquire(t.Context(), "k", ttl)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 { // the run takes 20 s, four TTLs
			time.Sleep(time.Second)
			if _, err := other.TryAcquire(t.Context(), "k", ttl); !errors.Is(err, lockguard.ErrBusy) {
				t.Fatalf("second copy: %v, want busy", err)
			}
		}
		if _, err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		h2, err := other.TryAcquire(t.Context(), "k", ttl)
		if err != nil {
			t.Fatalf("after the first is done: %v", err)
		}
		_, _ = h2.Release(t.Context())
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
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

func TestReleaseIsIdempotent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h, err := w.guard.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		w.Fail(func(op, _ string) error { return locktest.ErrDown })
		if got, err := h.Release(t.Context()); got != lockguard.ReleaseUnknown || !errors.Is(err, lockguard.ErrStoreUnavailable) {
			t.Errorf("Release with the store down: %v, %v", got, err)
		}
		w.Fail(nil)
		for range 3 {
			// The token is kept until the answer is definite.
			if got, err := h.Release(t.Context()); got != lockguard.Released || err != nil {
				t.Errorf("Release again: %v, %v", got, err)
			}
		}
		if w.Held("k") {
			t.Error("still held")
		}
		if err := h.Check(); !errors.Is(err, lockguard.ErrNotHeld) {
			t.Errorf("Check after Release: %v", err)
		}
		if err := h.Verify(t.Context()); !errors.Is(err, lockguard.ErrNotHeld) {
			t.Errorf("Verify after Release: %v", err)
		}
		if !errors.Is(context.Cause(h.Context()), lockguard.ErrNotHeld) {
			t.Errorf("cause after Release: %v", context.Cause(h.Context()))
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

func TestWaiting(t *testing.T) {
	t.Run("woken by a release elsewhere", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			other := w.newGuard(t)
			h, err := other.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			time.AfterFunc(300*time.Millisecond, func() { _, _ = h.Release(t.Context()) })
			got, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(time.Minute))
			if err != nil || time.Since(began) != 300*time.Millisecond {
				t.Fatalf("Acquire: %v after %v", err, time.Since(began))
			}
			_, _ = got.Release(t.Context())
			if err := other.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("woken by a release in the process", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			h, err := w.guard.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			time.AfterFunc(300*time.Millisecond, func() { _, _ = h.Release(t.Context()) })
			got, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(time.Minute))
			if err != nil || time.Since(began) != 300*time.Millisecond {
				t.Fatalf("Acquire: %v after %v", err, time.Since(began))
			}
			_, _ = got.Release(t.Context())
		})
	})
	t.Run("others release without a word", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.Take("k", time.Hour)
			began := time.Now()
			time.AfterFunc(2500*time.Millisecond, func() { w.Delete("k") })
			got, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(time.Minute))
			if err != nil || time.Since(began) > 3500*time.Millisecond {
				t.Fatalf("Acquire: %v after %v", err, time.Since(began))
			}
			_, _ = got.Release(t.Context())
		})
	})
	t.Run("looks when the lock runs out", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.Take("k", 400*time.Millisecond)
			began := time.Now()
			got, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(time.Minute))
			if err != nil || time.Since(began) > 420*time.Millisecond {
				t.Fatalf("Acquire: %v after %v", err, time.Since(began))
			}
			_, _ = got.Release(t.Context())
		})
	})
	t.Run("gives up", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.Take("k", time.Hour)
			began := time.Now()
			_, err := w.guard.Acquire(t.Context(), "k", lockguard.WithWait(2500*time.Millisecond))
			if !errors.Is(err, lockguard.ErrBusy) || time.Since(began) != 2500*time.Millisecond {
				t.Errorf("Acquire: %v after %v", err, time.Since(began))
			}
			if _, err := w.guard.Acquire(t.Context(), "k"); !errors.Is(err, lockguard.ErrBusy) || time.Since(began) != 2500*time.Millisecond {
				t.Errorf("without a wait: %v after %v", err, time.Since(began))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := w.guard.Acquire(ctx, "k", lockguard.WithWait(time.Minute)); !errors.Is(err, lockguard.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with a deadline: %v, want both", err)
			}
		})
	})
}

func TestClose(t *testing.T) {
	t.Run("waits for functions, releases what ended", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			done := make(chan error, 1)
			go func() {
				done <- w.guard.Do(t.Context(), "k", func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(40 * time.Second) // the lock is kept meanwhile
					if !w.Held("k") {
						t.Error("the lock of a running function was let go")
					}
					return context.Cause(ctx)
				})
			}()
			synctest.Wait()
			began := time.Now()
			if err := w.guard.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			if time.Since(began) != 40*time.Second || w.Held("k") {
				t.Errorf("closed after %v, held %v", time.Since(began), w.Held("k"))
			}
			if err := <-done; !errors.Is(err, lockguard.ErrClosed) {
				t.Errorf("Do: %v", err)
			}
			if _, err := w.guard.TryAcquire(t.Context(), "k"); !errors.Is(err, lockguard.ErrClosed) {
				t.Errorf("TryAcquire after Close: %v", err)
			}
		})
	})
	t.Run("leaves the lock of a function that does not end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{Memory: &locktest.Memory{}}
			g := w.newGuard(t)
			h, err := g.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close: %v", err)
			}
			if !w.Held("k") || w.Calls("release") != 0 {
				t.Error("released under a running function")
			}
			time.Sleep(30 * time.Second)
			if w.Held("k") {
				t.Error("still renewed after Close")
			}
			if h.Check() == nil {
				t.Error("still trusted")
			}
			_, _ = h.Release(t.Context())
		})
	})
	t.Run("ends waiters and requests on the way", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.Take("busy", time.Hour)
			w.Fail(func(op, key string) error {
				if op == "acquire" && key == "slow" {
					time.Sleep(time.Hour)
				}
				return nil
			})
			errs := make(chan error, 2)
			for _, key := range []string{"busy", "slow"} {
				go func() {
					_, err := w.guard.Acquire(t.Context(), key, lockguard.WithWait(time.Hour))
					errs <- err
				}()
			}
			synctest.Wait()
			began := time.Now()
			if err := w.guard.Close(t.Context()); err != nil || time.Since(began) != 0 {
				t.Errorf("Close: %v after %v", err, time.Since(began))
			}
			for range 2 {
				if err := <-errs; !errors.Is(err, lockguard.ErrClosed) {
					t.Errorf("Acquire: %v, want ErrClosed", err)
				}
			}
			time.Sleep(time.Hour)
		})
	})
}

// A short hold costs two calls, and nothing afterwards; random cancels leave
// neither a lock nor a renewal behind.
func TestNoLeaks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		other := w.newGuard(t)
		for i := range 2000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Millisecond)
			g := w.guard
			if i%2 == 0 {
				g = other
			}
			go func() {
				defer cancel()
				_ = g.Do(ctx, fmt.Sprint("k", i%50), func(ctx context.Context) error {
					select {
					case <-ctx.Done():
					case <-time.After(time.Duration(rand.IntN(1500)) * time.Millisecond):
					}
					return nil
				}, lockguard.WithTTL(time.Second), lockguard.WithWait(time.Second))
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i := range 50 {
			if w.Held(fmt.Sprint("k", i)) {
				t.Errorf("k%d is still held", i)
			}
		}
		n := w.Calls("renew")
		time.Sleep(time.Hour)
		if w.Calls("renew") != n {
			t.Error("something is still renewed")
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(t *testing.T, w *world) {
		for range 100 {
			if err := w.guard.Do(t.Context(), "k", func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if w.Calls("acquire") != 100 || w.Calls("release") != 100 || w.Calls("renew")+w.Calls("read") != 0 {
			t.Error("a short hold costs more than one acquire and one release")
		}
	})
}

func TestNewNeedsABackend(t *testing.T) {
	if _, err := lockguard.New(lockguard.Config{}); !errors.Is(err, lockguard.ErrConfig) {
		t.Errorf("New: %v", err)
	}
}
