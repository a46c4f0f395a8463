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
	s, err := g.settings(key, opts)
	if err != nil {
		return nil, err
	}
	return g.try(ctx, key, s, time.Now())
}

// Acquire takes the lock, waiting up to WithWait while it is busy or the store is
// out of reach. The handle must be released. Errors: *BusyError, ErrTooSlow,
// ErrStoreUnavailable, ErrForeignKey, ErrConfig, ErrClosed, and the context's
// own, joined with what was in the way.
func (g *Guard) Acquire(ctx context.Context, key string, opts ...Option) (*Handle, error) {
	s, err := g.settings(key, opts)
	if err != nil {
		return nil, err
	}
	w := &waiter{g: g, key: key, asked: time.Now(), limit: s.wait, stop: s.stopWait, backoff: firstBackoff}
	defer w.end()
	var reason error // of the last try, told along when the context ends
	for {
		if err := w.turn(ctx, reason); err != nil {
			return nil, err
		}
		h, err := g.try(ctx, key, s, w.asked)
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
	}
}

func worthWaiting(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrStoreUnavailable) || errors.Is(err, ErrTooSlow)
}

// try makes one attempt, with a token of its own.
func (g *Guard) try(ctx context.Context, key string, s settings, asked time.Time) (*Handle, error) {
	h, err := g.attempt(ctx, key, s)
	switch {
	case err == nil:
		h.begin(time.Since(asked))
		return h, nil
	case errors.Is(err, ErrBusy):
		if f := g.obs.Busy; f != nil {
			f(s.labels, g.backend.Name())
		}
	case errors.Is(err, ErrClosed) || ctx.Err() != nil:
		if f := g.obs.AcquireCancelled; f != nil {
			f(s.labels, g.backend.Name())
		}
	default:
		if f := g.obs.AcquireError; f != nil {
			f(s.labels, g.backend.Name(), err)
		}
	}
	return nil, err
}

func (g *Guard) attempt(ctx context.Context, key string, s settings) (*Handle, error) {
	if ctx.Err() != nil {
		return nil, ctxError(ctx, key)
	}
	l, err := g.enter(key)
	if err != nil {
		return nil, err
	}
	h := &Handle{g: g, set: s, local: l, ref: Ref{Key: key, Token: randomHex()}}
	// Registered before the request is sent, so that no end of the request
	// can come before its entry.
	h.entry, err = g.keeper.Add(context.WithValue(ctx, handleKey{}, h), h.ref, s.spec(h))
	if err != nil {
		g.leave(key, l)
		return nil, closedOr(err)
	}
	grant, err := g.ask(ctx, h)
	answered := err == nil
	if answered {
		h.fence = grant.Fence
		h.since = time.Now()
		if h.entry.Confirm() {
			g.mu.Lock()
			l.handle = h
			g.mu.Unlock()
			return h, nil
		}
		err = fmt.Errorf("%w: %s", ErrTooSlow, key)
	}
	h.entry.Remove()
	if !definite(err) || errors.Is(err, ErrClosed) {
		g.cleanup(ctx, h.ref, s.labels, answered)
	}
	g.leave(key, l)
	return nil, err
}

// ask sends the attempt, and once more with the same token if the answer may
// have been lost.
func (g *Guard) ask(ctx context.Context, h *Handle) (Grant, error) {
	validity := h.set.ttl - lease.Margin(h.set.ttl)
	began := time.Now()
	sendCtx, cancel := h.sending(ctx, min(validity, attemptTimeout))
	defer cancel()
	a := Attempt{
		Key: h.ref.Key, Token: h.ref.Token, TTL: h.set.ttl, MaxHold: h.set.maxHold, MinHold: h.set.minHold,
		TaskID: h.set.taskID, Instance: g.instance, FenceBase: h.set.fenceBase,
	}
	if g.isClosed() { // closed between enter and Add: CancelAll has not seen it
		return Grant{}, ErrClosed
	}
	var grant Grant
	var err error
	for range 2 {
		h.entry.Sending()
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
	case g.isClosed():
		return Grant{}, ErrClosed
	case time.Since(began) >= validity:
		return Grant{}, fmt.Errorf("%w: %s: %w", ErrTooSlow, a.Key, err)
	}
	return Grant{}, fmt.Errorf("%w: acquire %s: %w", ErrStoreUnavailable, a.Key, err)
}

// sending is the context of a request: of the entry's, which Close ends too and
// which descends from the caller's.
func (h *Handle) sending(_ context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(h.entry.Context(), d)
}

func (g *Guard) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func closedOr(err error) error {
	if errors.Is(err, lease.ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}
