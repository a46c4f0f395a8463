package lockguard_test

import (
	"context"
	"errors"
	"fmt"
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
		HeldEnd: func(l lockguard.Labels, d time.Duration, ratio, _ float64) {
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

func TestNewNeedsABackend(t *testing.T) {
	if _, err := lockguard.New(lockguard.Config{}); !errors.Is(err, lockguard.ErrConfig) {
		t.Errorf("New: %v", err)
	}
}
