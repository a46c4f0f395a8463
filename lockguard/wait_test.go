package lockguard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/locktest"
)

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
			if err := w.guard.Close(t.Context()); err != nil || time.Since(began) > 50*time.Millisecond {
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
