package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// lockWith is a lock of 2 s with some more said of it.
func lockWith(key string, change func(*tasks.LockGuard)) *tasks.LockGuard {
	l := lockOf(key, tasks.OnBusyRetry)
	change(l)
	return l
}

// A retry meets no lock of its own: it was released before the retry was
// scheduled. Where min_hold keeps it, the retry waits for the rest of it.
func TestL03_RetryMeetsNoLockOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, minHold := range map[string]time.Duration{"": 0, "min_hold": 1200 * time.Millisecond} {
		t.Run("L03 "+name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t, setup{}, nil)
			var starts []time.Time
			r.handle("report", func(_ context.Context, task *tasks.Task) (json.RawMessage, error) {
				starts = append(starts, time.Now()) // one run at a time
				if task.Attempt < 3 {
					return nil, errors.New("not yet")
				}
				return json.RawMessage(`"done"`), nil
			})
			r.start()
			for _, id := range []string{"id", "next"} { // what it leaves keeps nobody out
				g := jobGuard(lockWith("k", func(l *tasks.LockGuard) { l.TTLMS, l.MinHoldMS = 60_000, minHold.Milliseconds() }), "")
				g.Retries = &tasks.RetryPolicy{Max: 2, BaseMS: 50, MaxDelayMS: 50}
				r.send("report", id, withGuard(g))
				if res := r.result(id, 30*time.Second); res.State != "SUCCESS" || string(res.Value) != `"done"` {
					t.Fatalf("%s: %+v", id, res)
				}
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			if len(starts) != 6 {
				t.Fatalf("%d runs of two tasks that fail twice", len(starts))
			}
			for i, at := range starts[1:] {
				if gap := at.Sub(starts[i]); gap < minHold-50*time.Millisecond {
					t.Errorf("run %d began %v after the one before, min hold %v", i+2, gap, minHold)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if met := slices.Contains(r.parked, string(tasks.ParkLock)); met != (minHold > 0) {
				t.Errorf("parked for %v", r.parked)
			}
		})
	}
}

func TestMinHoldKeepsTheNextOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	runs := 0
	b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { runs++; return nil, nil })
	g := jobGuard(lockWith("k", func(l *tasks.LockGuard) { l.OnBusy, l.MinHoldMS = tasks.OnBusySkip, 600_000 }), "")
	wantKind(t, b.run(b.delivery("first", "report", g)), tasks.Succeeded)
	out := b.run(b.delivery("second", "report", g))
	wantKind(t, out, tasks.Succeeded)
	if runs != 1 || out.Note == nil || out.Note.Outcome != "skipped" || out.Note.Holder != "first" {
		t.Errorf("%d runs, note %+v", runs, out.Note)
	}
	if h, err := b.locks.Inspect(t.Context(), "k"); err != nil || !h.Kept || h.Left < 590*time.Second {
		t.Errorf("holder %+v, %v", h, err)
	}
}

// A run that is given back has not had its turn: its next holder need not wait.
func TestMinHoldIsNotForWhatGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ctx, stop := context.WithCancelCause(t.Context())
	b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		stop(tasks.ErrShutdown)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	g := jobGuard(lockWith("k", func(l *tasks.LockGuard) { l.MinHoldMS = 600_000 }), "")
	wantKind(t, b.chain.Run(ctx, b.delivery("id", "report", g)), tasks.Returned)
	if h, err := b.locks.Inspect(t.Context(), "k"); err != nil || h.Held {
		t.Errorf("holder %+v, %v", h, err)
	}
}

func TestObservedLossLeavesTheRunAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		v, ok := tasks.ValidityFromContext(ctx)
		if !ok {
			t.Error("the run does not look guarded")
		} else if at, ok := v.Deadline(); ok {
			t.Errorf("a command would be killed at %v", at)
		}
		h, _ := lockguard.FromContext(ctx)
		b.client.Del(t.Context(), "k")
		testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return errors.Is(h.Check(), lockguard.ErrLost) }, "the loss is found out")
		if ctx.Err() != nil {
			t.Errorf("cancelled: %v", context.Cause(ctx))
		}
		return json.RawMessage(`1`), nil
	})
	g := jobGuard(lockWith("k", func(l *tasks.LockGuard) { l.OnLost = tasks.OnLostObserve }), "r")
	out := b.run(b.delivery("id", "report", g))
	wantKind(t, out, tasks.Succeeded)
	if string(out.Result) != "1" {
		t.Errorf("result %s", out.Result)
	}
}

func TestStalledRunLosesItsLock(t *testing.T) {
	t.Parallel()
	for name, beats := range map[string]bool{"stalls": false, "gets on": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for began := time.Now(); time.Since(began) < 5*time.Second; {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-tick.C:
						if beats {
							tasks.Heartbeat(ctx)
						}
					}
				}
				return nil, nil
			})
			g := jobGuard(lockWith("k", func(l *tasks.LockGuard) { l.TTLMS, l.StallAfterMS = 1000, 1000 }), "")
			out := b.run(b.delivery("id", "report", g))
			var lost *lockguard.LostError
			switch {
			case beats:
				wantKind(t, out, tasks.Succeeded)
			case out.Kind != tasks.Returned || !out.Lost || !errors.As(out.Err, &lost) || lost.Reason != lockguard.ReasonStalled:
				t.Errorf("outcome %s, lost %v: %v", out.Kind, out.Lost, out.Err)
			}
		})
	}
	tasks.Heartbeat(t.Context()) // without a lock it is nothing
}

func TestStoreDownRun(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]string{"lock alone": "", "with a record": "r"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var without atomic.Int64
			b := newBenchOf(t, setup{withoutLock: func(r worker.Run) {
				if r.Schedule != "hourly" || r.Lock != "k" {
					t.Errorf("told of %+v", r)
				}
				without.Add(1)
			}})
			ran := false
			b.handle("report", func(ctx context.Context, task *tasks.Task) (json.RawMessage, error) {
				ran = true
				_, held := lockguard.FromContext(ctx)
				if _, guarded := tasks.ValidityFromContext(ctx); held != guarded || held != (task.ID == "up") {
					t.Errorf("%s: held %v, guarded %v", task.ID, held, guarded)
				}
				return nil, nil
			})
			g := jobGuard(lockWith("k", func(l *tasks.LockGuard) { l.OnStoreDown = tasks.OnStoreDownRun }), record)
			wantKind(t, b.run(b.delivery("up", "report", g)), tasks.Succeeded)
			b.hold("k", "somebody")
			ran = false
			if out := b.run(b.delivery("busy", "report", g)); ran || out.Kind == tasks.Succeeded && record == "" {
				t.Errorf("a busy lock was taken for a store that is down: %s", out.Kind)
			}
			b.redis.Pause()
			defer b.redis.Continue()
			if record != "" {
				g.Record.Key = "another"
			}
			out := b.run(b.delivery("down", "report", g))
			if record == "" {
				wantKind(t, out, tasks.Succeeded)
			} else if out.Kind != tasks.Parked || out.Park.Reason != tasks.ParkStore {
				t.Errorf("outcome %s %+v: with a record nothing runs without its store", out.Kind, out.Park)
			}
			if ran != (record == "") || without.Load() != 1 {
				t.Errorf("ran %v, told %d times", ran, without.Load())
			}
		})
	}
}

func TestBusyWait(t *testing.T) {
	t.Parallel()
	waits := func(l *tasks.LockGuard) { l.OnBusy, l.WaitMS = tasks.OnBusyWait, 20_000 }
	t.Run("woken by the release", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, nil)
		b.handle("report", ok)
		h := b.hold("k", "somebody")
		released := make(chan time.Time, 1)
		time.AfterFunc(300*time.Millisecond, func() { _, _ = h.Release(context.Background()); released <- time.Now() })
		wantKind(t, b.run(b.delivery("id", "report", jobGuard(lockWith("k", waits), ""))), tasks.Succeeded)
		if d := time.Since(<-released); d > 500*time.Millisecond {
			t.Errorf("ran %v after the release", d)
		}
	})
	t.Run("then parked as under retry", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, nil)
		b.handle("report", ok)
		b.hold("k", "somebody")
		began := time.Now()
		out := b.run(b.delivery("id", "report", jobGuard(lockWith("k", func(l *tasks.LockGuard) { waits(l); l.WaitMS = 400 }), "")))
		if d := time.Since(began); d < 400*time.Millisecond || d > 3*time.Second {
			t.Errorf("waited %v, want 400ms", d)
		}
		if out.Kind != tasks.Parked || out.Park.Reason != tasks.ParkLock || out.Park.Key != "k" {
			t.Errorf("outcome %s %+v", out.Kind, out.Park)
		}
	})
	t.Run("not beyond the time to begin", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, nil)
		b.handle("report", ok)
		b.hold("k", "somebody")
		g := jobGuard(lockWith("k", waits), "")
		g.BeginBy = time.Now().Add(500 * time.Millisecond).UnixMilli()
		began := time.Now()
		out := b.run(b.delivery("id", "report", g))
		if d := time.Since(began); d > 3*time.Second || out.Kind != tasks.Parked {
			t.Errorf("%s after %v", out.Kind, d)
		}
	})
	t.Run("a completed record answers at once", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, nil)
		b.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) { return json.RawMessage(`7`), nil })
		g := jobGuard(lockWith("k", waits), "r")
		wantKind(t, b.run(b.delivery("first", "report", g)), tasks.Succeeded)
		b.hold("k", "somebody")
		began := time.Now()
		out := b.run(b.delivery("second", "report", g))
		wantKind(t, out, tasks.Succeeded)
		if d := time.Since(began); d > 5*time.Second || string(out.Result) != "7" {
			t.Errorf("%s after %v", out.Result, d)
		}
	})
	t.Run("ends with the worker", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, nil)
		b.handle("report", ok)
		b.hold("k", "somebody")
		time.AfterFunc(300*time.Millisecond, b.chain.StopWaiting)
		began := time.Now()
		out := b.run(b.delivery("id", "report", jobGuard(lockWith("k", waits), "")))
		if d := time.Since(began); d > 5*time.Second || out.Kind != tasks.Parked {
			t.Errorf("%s after %v", out.Kind, d)
		}
	})
}
