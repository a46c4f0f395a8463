package lockguard

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The contexts of a hold and of its requests. Short holds are many, so none of
// them has a timer of its own, and all but one are views of what is there.

// holdContext is the context given to Acquire with the handle in it: the parent
// of the hold's own.
type holdContext Handle

// under puts the handle into a context.
func (h *Handle) under(ctx context.Context) context.Context {
	h.parent = ctx
	return (*holdContext)(h)
}

// Deadline implements context.Context.
func (c *holdContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done implements context.Context.
func (c *holdContext) Done() <-chan struct{} { return c.parent.Done() }

// Err implements context.Context.
func (c *holdContext) Err() error { return c.parent.Err() }

// Value implements context.Context.
func (c *holdContext) Value(key any) any {
	if key == (handleKey{}) {
		return (*Handle)(c)
	}
	return c.parent.Value(key)
}

// attemptContext is the context of an attempt: that of the hold, which Close ends
// too and which descends from the caller's, with the attempt's deadline. The
// watchdog ends it then, unless the lock was granted.
type attemptContext Handle

// sending is the context of the attempt; ctx is that of under.
func (h *Handle) sending(_ context.Context) context.Context { return (*attemptContext)(h) }

// Deadline implements context.Context.
func (c *attemptContext) Deadline() (time.Time, bool) {
	if at, ok := c.parent.Deadline(); ok && at.Before(c.answerBy) {
		return at, true
	}
	return c.answerBy, true
}

// Done implements context.Context.
func (c *attemptContext) Done() <-chan struct{} { return c.entry.Context().Done() }

// Err implements context.Context.
func (c *attemptContext) Err() error {
	ctx := c.entry.Context()
	err := ctx.Err()
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// Value implements context.Context.
func (c *attemptContext) Value(key any) any { return c.entry.Context().Value(key) }

// releaseContext has the values of a context, and a deadline of its own.
type releaseContext struct {
	values context.Context
	by     time.Time
	done   <-chan struct{}
}

// releasing is the context of a release.
func (h *Handle) releasing(ctx context.Context, by time.Time) context.Context {
	return &releaseContext{values: ctx, by: by, done: h.g.releases.after(by)}
}

// Deadline implements context.Context.
func (c *releaseContext) Deadline() (time.Time, bool) { return c.by, true }

// Done implements context.Context.
func (c *releaseContext) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *releaseContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value implements context.Context.
func (c *releaseContext) Value(key any) any { return c.values.Value(key) }

// alarmEvery is by how much an alarm may be late.
const alarmEvery = 100 * time.Millisecond

// alarm gives out channels that are closed some time after an instant. All who
// ask within alarmEvery share one, and its timer.
type alarm struct {
	mu   sync.Mutex
	at   time.Time
	ring chan struct{}
}

// after returns a channel that is closed at the instant, or up to alarmEvery
// later. The instants that are asked for must not go back by much.
func (a *alarm) after(at time.Time) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if late := a.at.Sub(at); late < 0 || late > alarmEvery {
		ring := make(chan struct{})
		a.at, a.ring = at.Add(alarmEvery), ring
		time.AfterFunc(time.Until(a.at), func() { close(ring) })
	}
	return a.ring
}
