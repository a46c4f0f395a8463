package lockguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/solobeat/solobeat/internal/lease"
)

// TryAcquire tries once; see Acquire.
func (g *Guard) TryAcquire(ctx context.Context, key string, opts ...Option) (*Handle, error) {
	asked := time.Now()
	h := &Handle{g: g}
	if err := g.settings(&h.set, key, opts); err != nil {
		return nil, err
	}
	if err := g.try(ctx, key, h, asked, asked); err != nil {
		return nil, err
	}
	return h, nil
}

// Acquire takes the lock, waiting up to WithWait while it is busy or the store is
// out of reach. The handle must be released. Errors: *BusyError, ErrTooSlow,
// ErrStoreUnavailable, ErrForeignKey, ErrConfig, ErrClosed, and the context's
// own, joined with what was in the way.
func (g *Guard) Acquire(ctx context.Context, key string, opts ...Option) (*Handle, error) {
	asked := time.Now()
	h := &Handle{g: g}
	if err := g.settings(&h.set, key, opts); err != nil {
		return nil, err
	}
	w := &waiter{g: g, key: key, asked: asked, limit: h.set.wait, stop: h.set.stopWait, backoff: firstBackoff}
	defer w.end()
	var reason error // of the last try, told along when the context ends
	for {
		if err := w.turn(ctx, reason); err != nil {
			return nil, err
		}
		err := g.try(ctx, key, h, w.asked, time.Now())
		switch {
		case err == nil:
			return h, nil
		case ctx.Err() != nil && reason != nil:
			return nil, fmt.Errorf("%w (%w)", ctxError(ctx, key), reason)
		case !worthWaiting(err) || w.left() <= 0:
			return nil, err
		}
		reason = err
		if err := w.wait(ctx, err); err != nil {
			return nil, err
		}
		h = &Handle{g: g, set: h.set}
	}
}

func worthWaiting(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrStoreUnavailable) || errors.Is(err, ErrTooSlow)
}

// try makes one attempt, with a token of its own, for a handle that has its
// settings and nothing else. The lock was asked for first at asked, and now.
func (g *Guard) try(ctx context.Context, key string, h *Handle, asked, now time.Time) error {
	err := g.attempt(ctx, key, h, now)
	switch {
	case err == nil:
		h.begin(h.since.Sub(asked))
	case errors.Is(err, ErrBusy):
		if f := g.obs.Busy; f != nil {
			f(h.set.labels, g.backend.Name())
		}
	case errors.Is(err, ErrClosed) || ctx.Err() != nil:
		if f := g.obs.AcquireCancelled; f != nil {
			f(h.set.labels, g.backend.Name())
		}
	default:
		if f := g.obs.AcquireError; f != nil {
			f(h.set.labels, g.backend.Name(), err)
		}
	}
	return err
}

func (g *Guard) attempt(ctx context.Context, key string, h *Handle, began time.Time) error {
	if ctx.Err() != nil {
		return ctxError(ctx, key)
	}
	h.ref = Ref{Key: key, Token: randomHex()}
	if err := g.enter(h); err != nil {
		return err
	}
	validity := h.set.ttl - lease.Margin(h.set.ttl)
	h.answerBy = began.Add(min(validity, attemptTimeout))
	// Registered before the request is sent, so that no end of the request
	// can come before its entry.
	if err := g.keeper.Enter(h.under(ctx), &h.entry, h.ref, h.spec()); err != nil {
		g.leave(h)
		return closedOr(err)
	}
	grant, err := g.ask(ctx, h, began, validity)
	answered := err == nil
	if answered {
		h.fence, h.since = grant.Fence, time.Now()
		if h.entry.Confirm() {
			h.granted.Store(true)
			return nil
		}
		err = fmt.Errorf("%w: %s", ErrTooSlow, key)
	}
	h.entry.Remove()
	if !definite(err) || errors.Is(err, ErrClosed) {
		g.cleanup(ctx, h.ref, h.set.labels, answered)
	}
	g.leave(h)
	return err
}

// ask sends the attempt, and once more with the same token if the answer may
// have been lost.
func (g *Guard) ask(ctx context.Context, h *Handle, began time.Time, validity time.Duration) (Grant, error) {
	sendCtx := h.sending(ctx)
	a := Attempt{
		Key: h.ref.Key, Token: h.ref.Token, TTL: h.set.ttl, MaxHold: h.set.maxHold, MinHold: h.set.minHold,
		TaskID: h.set.taskID, Instance: g.instance, FenceBase: h.set.fenceBase,
	}
	if g.closed.Load() { // closed between enter and Enter: CancelAll has not seen it
		return Grant{}, ErrClosed
	}
	var grant Grant
	var err error
	for again := range 2 {
		if again > 0 {
			h.entry.Sending() // the first time Enter has noted it
		}
		grant, err = g.backend.TryAcquire(sendCtx, a)
		if err == nil || definite(err) {
			return grant, err
		}
		if over(sendCtx) {
			break
		}
	}
	switch {
	case over(ctx):
		return Grant{}, fmt.Errorf("%w (%w)", ctxError(ctx, a.Key), err)
	case g.closed.Load():
		return Grant{}, ErrClosed
	case time.Since(began) >= validity:
		return Grant{}, fmt.Errorf("%w: %s: %w", ErrTooSlow, a.Key, err)
	}
	return Grant{}, fmt.Errorf("%w: acquire %s: %w", ErrStoreUnavailable, a.Key, err)
}

func closedOr(err error) error {
	if errors.Is(err, lease.ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}
