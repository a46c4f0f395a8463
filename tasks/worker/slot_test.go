package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// slotLog notes what a run does with its slot, and what the guards had sent by
// then.
type slotLog struct {
	b     *bench
	calls []string
	enter error
}

func (s *slotLog) note(what string) {
	s.calls = append(s.calls, fmt.Sprintf("%s after %d commands", what, len(s.b.guarded.take())))
}

func (s *slotLog) Leave() { s.note("leave") }
func (s *slotLog) Done()  { s.note("done") }
func (s *slotLog) Enter(context.Context) error {
	s.note("enter")
	return s.enter
}

// A run has no slot while it asks stores, one while its handler runs, and none
// while it tells the stores of its end.
func TestTheSlotIsTheHandlers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		guard *tasks.Guard
		want  []string
		end   int // commands after the slot was given up
	}{
		"nothing":            {nil, []string{"enter after 0 commands", "handler after 0 commands"}, 0},
		"lock":               {jobGuard(lockOf("k", tasks.OnBusyRetry), ""), []string{"leave after 0 commands", "enter after 1 commands", "handler after 0 commands", "done after 0 commands"}, 1},
		"record":             {jobGuard(nil, "r"), []string{"leave after 0 commands", "enter after 1 commands", "handler after 0 commands", "done after 0 commands"}, 1},
		"a wait in the slot": {jobGuard(lockOf("k", tasks.OnBusyWait), "r"), []string{"enter after 2 commands", "handler after 0 commands", "done after 0 commands"}, 2},
		"lock and record":    {jobGuard(lockOf("k", tasks.OnBusyRetry), "r"), []string{"leave after 0 commands", "leave after 1 commands", "enter after 1 commands", "handler after 0 commands", "done after 0 commands"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			log := &slotLog{b: b}
			b.handle("t", func(context.Context, *tasks.Task) (json.RawMessage, error) { log.note("handler"); return nil, nil })
			// The scripts are loaded by a first run, so that each is one command.
			wantKind(t, b.run(b.delivery("warm", "t", jobGuard(lockOf("warm", tasks.OnBusyRetry), "warm"))), tasks.Succeeded)
			b.guarded.take()
			log.calls = nil
			wantKind(t, b.run(b.delivery("id", "t", c.guard, func(d *tasks.Delivery) { d.Slot = log })), tasks.Succeeded)
			if diff := cmp.Diff(c.want, log.calls); diff != "" {
				t.Error(diff)
			}
			if n := len(b.guarded.take()); n != c.end {
				t.Errorf("%d commands after the handler, want %d", n, c.end)
			}
		})
	}
}

// lateSlot is a slot that comes after something has happened.
type lateSlot struct {
	slotLog
	meanwhile func()
}

func (s *lateSlot) Enter(context.Context) error { s.meanwhile(); return nil }

// A slot that comes too late begins nothing: the message has expired meanwhile,
// or the engine has given the run up.
func TestSlotComesTooLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(d *tasks.Delivery, cancel context.CancelCauseFunc)
		want      tasks.Kind
		reason    tasks.Reason
	}{
		"expired": {func(d *tasks.Delivery, _ context.CancelCauseFunc) { d.Task.Expires = time.Now().Add(-time.Second) }, tasks.Revoked, tasks.ReasonExpired},
		"buried":  {func(_ *tasks.Delivery, cancel context.CancelCauseFunc) { cancel(tasks.ErrBuried) }, tasks.Returned, tasks.ReasonShutdown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.handle("t", func(context.Context, *tasks.Task) (json.RawMessage, error) {
				t.Error("the handler was called")
				return nil, errors.New("called")
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			lock := lockOf("k", tasks.OnBusyRetry)
			lock.MinHoldMS = 60_000 // is not kept by what had no run
			d := b.delivery("id", "t", jobGuard(lock, "r"))
			d.Slot = &lateSlot{slotLog{b: b}, func() { c.meanwhile(d, cancel) }}
			out := b.chain.Run(ctx, d)
			wantKind(t, out, c.want)
			if out.Reason != c.reason || out.Begun {
				t.Errorf("outcome %+v, want reason %s", out, c.reason)
			}
			if h, err := b.locks.Inspect(t.Context(), "k"); err != nil || h.Held {
				t.Errorf("the lock is held: %+v %v", h, err)
			}
			if rec := b.record("t"); rec.State != idempotency.Released || rec.TaskID != "" {
				t.Errorf("the record is %+v, want it released, of no task", rec)
			}
		})
	}
}

// What has its guards and gets no slot goes back: its handler was not called,
// and nothing of it keeps others out.
func TestNoSlotGivesAllBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		reason tasks.Reason
	}{
		"in time":   {fmt.Errorf("%w within 1s", tasks.ErrNoSlot), tasks.ReasonSlot},
		"at a stop": {tasks.ErrShutdown, tasks.ReasonShutdown},
		"lost":      {&lockguard.LostError{Key: "k"}, tasks.ReasonLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.handle("t", func(context.Context, *tasks.Task) (json.RawMessage, error) {
				t.Error("the handler was called")
				return nil, errors.New("called")
			})
			lock := lockOf("k", tasks.OnBusyRetry)
			lock.MinHoldMS = 60_000 // is not kept by what had no run
			out := b.run(b.delivery("id", "t", jobGuard(lock, "r"), func(d *tasks.Delivery) { d.Slot = &slotLog{b: b, enter: c.err} }))
			wantKind(t, out, tasks.Returned)
			if out.Reason != c.reason || out.Lost || out.Begun || out.WonLock {
				t.Errorf("outcome %+v, want reason %s, neither a loss nor begun, its place in the line kept", out, c.reason)
			}
			if h, err := b.locks.Inspect(t.Context(), "k"); err != nil || h.Held {
				t.Errorf("the lock is held: %+v %v", h, err)
			}
			if rec := b.record("t"); rec.State != idempotency.Released {
				t.Errorf("the record is %s, want it released", rec.State)
			}
			if diff := cmp.Diff([]string{"record:t|r", "k"}, b.woken); diff != "" {
				t.Error(diff)
			}
			// Whatever it had in hand, it has not begun: so it expires.
			again := b.run(b.delivery("id", "t", jobGuard(lock, "r"), func(d *tasks.Delivery) { d.Task.Expires = time.Now().Add(-time.Second) }))
			wantKind(t, again, tasks.Revoked)
		})
	}
}
