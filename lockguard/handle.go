package lockguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/solobeat/solobeat/internal/lease"
)

type handleKey struct{}

// FromContext returns the handle of the lock under which the code runs, the
// innermost if there are several.
func FromContext(ctx context.Context) (*Handle, bool) {
	h, ok := ctx.Value(handleKey{}).(*Handle)
	return h, ok
}

// Handle is one hold of a lock. Its methods may be called from any goroutine.
type Handle struct {
	g        *Guard
	set      settings
	parent   context.Context // given to Acquire
	ref      Ref
	answerBy time.Time // of the attempt
	entry    lease.Entry[Ref]

	fence Fence     // set before the grant is confirmed
	since time.Time // likewise

	granted atomic.Bool   // fence and since may be read by anybody
	freed   chan struct{} // closed by leave; nil while nobody waits for that; under g.mu

	release sync.Mutex // one Release at a time

	mu     sync.Mutex
	reason Reason  // of the loss, "" if none
	begun  bool    // HeldStart was told
	ended  bool    // the hold is over, by release or by loss
	left   bool    // the key was left inside the process
	result Release // "" until the answer is definite
}

// Context is a child of the context given to Acquire, and carries the handle. It
// ends when the lock is lost (cause: *LostError), when max hold has passed
// (ErrMaxHold), when the guard is closed (ErrClosed) and by Release (ErrNotHeld).
func (h *Handle) Context() context.Context { return h.entry.Context() }

// Check returns nil while the lock can be trusted, else *LostError, ErrMaxHold
// or ErrNotHeld. It looks at both clocks and does no I/O: call it before each
// side effect.
func (h *Handle) Check() error { return h.entry.Check() }

// Verify asks the store whether the lock is still ours, and renews it by that.
// Besides the errors of Check it returns ErrStoreUnavailable, after which the
// lock is what it was.
func (h *Handle) Verify(ctx context.Context) error {
	return h.asked(ctx, "verify", h.entry.Renew(ctx))
}

// asked names the error of a request out of turn.
func (h *Handle) asked(ctx context.Context, what string, err error) error {
	var lost *LostError
	switch {
	case err == nil, errors.As(err, &lost), errors.Is(err, ErrMaxHold), errors.Is(err, ErrNotHeld):
		return err
	case errors.Is(err, lease.ErrTooLong):
		return fmt.Errorf("%w: %s %s: %w", ErrConfig, what, h.ref.Key, err)
	case over(ctx):
		return ctxError(ctx, h.ref.Key)
	}
	return fmt.Errorf("%w: %s %s: %w", ErrStoreUnavailable, what, h.ref.Key, err)
}

// Extend asks the store now for a validity of at least that long, for one long
// step that may keep this process from renewing. Renewals go on, and set what is
// left of it, until that is less than the TTL; a holder that dies meanwhile
// keeps others out as long. It cannot pass max hold: then it is ErrConfig, and
// the lock is as before. Other errors are those of Verify.
func (h *Handle) Extend(ctx context.Context, atLeast time.Duration) error {
	if atLeast <= 0 {
		return fmt.Errorf("%w: extend %s by %v", ErrConfig, h.ref.Key, atLeast)
	}
	return h.asked(ctx, "extend", h.entry.Extend(ctx, atLeast))
}

// Heartbeat tells that the function gets on; see WithStallAfter. It does no I/O.
func (h *Handle) Heartbeat() { h.entry.Heartbeat() }

// Remaining is the validity left, margin taken off; 0 when there is none.
func (h *Handle) Remaining() time.Duration { return h.entry.Remaining() }

// Deadline is the instant at which the validity ends unless the lock is renewed
// before. False: it is not held, or its loss is only observed (WithOnLost), so
// that nothing is to end by it.
func (h *Handle) Deadline() (time.Time, bool) {
	if h.set.observe {
		return time.Time{}, false
	}
	return h.entry.Deadline()
}

// Changed is closed at the next move of the deadline, nil where there is none.
// Ask for it before Deadline, then no move is missed. The end of the hold is not
// a move.
func (h *Handle) Changed() <-chan struct{} {
	if h.set.observe {
		return nil
	}
	return h.entry.Changed()
}

// Fence is the number of this grant. False: the back end has none.
func (h *Handle) Fence() (Fence, bool) { return h.fence, h.fence != 0 }

// Key is the lock's key.
func (h *Handle) Key() string { return h.ref.Key }

// Since is the local time of the grant.
func (h *Handle) Since() time.Time { return h.since }

// Renewals is the number of confirmed renewals.
func (h *Handle) Renewals() int { return h.entry.Renewals() }

// NoteFenced tells the Observer that a resource has refused the handle's fence.
// lockredis.SetFenced does it by itself.
func (h *Handle) NoteFenced() {
	if f := h.g.obs.Fenced; f != nil {
		f(h.set.labels)
	}
}

// Release gives the lock back, by token, and ends the handle's context. It may be
// called again: after a definite answer it returns the same, after an error it
// tries again. It is sent on a context of its own (2 s), so it works also when
// ctx has ended; of ctx only the values are used. Where the store has said before
// that the lock is not ours, nothing is sent. What is left of WithMinHold is kept.
func (h *Handle) Release(ctx context.Context) (Release, error) {
	return h.giveBack(ctx, h.set.minHold)
}

// GiveBack is Release for a function that has not ended its work, and shall go
// on elsewhere: it keeps nothing.
func (h *Handle) GiveBack(ctx context.Context) (Release, error) { return h.giveBack(ctx, 0) }

func (h *Handle) giveBack(ctx context.Context, keep time.Duration) (Release, error) {
	h.release.Lock()
	defer h.release.Unlock()
	result, reason := h.end()
	if result != "" {
		return result, nil
	}
	result, err := NotHeld, error(nil)
	if !lease.Reason(reason).Certain() {
		result, err = h.send(ctx, keep)
	}
	h.over(result, err)
	return result, err
}

// over notes how the release has ended, and leaves the key inside the process.
// The first definite end counts.
func (h *Handle) over(result Release, err error) {
	h.mu.Lock()
	if h.result != "" {
		h.mu.Unlock()
		return
	}
	if err == nil {
		h.result = result
	}
	leave := !h.left
	h.left = true
	h.mu.Unlock()
	if f := h.g.obs.Released; f != nil {
		f(h.set.labels, h.g.backend.Name(), result)
	}
	if leave {
		h.g.leave(h)
	}
}

// Yield ends the handle's context and its renewal as Release does, and leaves it
// to the caller to free the lock in a script of his own on the lock's server: the
// script deletes the key if its value is token, and publishes the key on channel
// then. Afterwards he calls Yielded, or Release if his script did not run. False:
// the back end is no Yielder, the lock has a min hold, or nothing is to be freed;
// call Release.
func (h *Handle) Yield() (token, channel string, ok bool) {
	y, can := h.g.backend.(Yielder)
	if !can || h.set.minHold > 0 {
		return "", "", false
	}
	h.release.Lock()
	defer h.release.Unlock()
	if result, reason := h.end(); result != "" || lease.Reason(reason).Certain() {
		return "", "", false
	}
	return h.ref.Token, y.ReleaseChannel(), true
}

// Yielded tells how the release after Yield has ended: Released, NotHeld, or
// ReleaseUnknown where its answer was lost. It does not wait.
func (h *Handle) Yielded(result Release) { h.over(result, nil) }

// end takes the lock out of the watchdog's hands: after it no renewal is sent.
func (h *Handle) end() (Release, Reason) {
	h.entry.Remove()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heldEndLocked()
	return h.result, h.reason
}

// send asks the store to release, twice if the first answer may have been lost.
// What our own second request does not find is unknown, not stolen.
func (h *Handle) send(ctx context.Context, keep time.Duration) (Release, error) {
	by := time.Now().Add(releaseTimeout)
	sendCtx := h.releasing(ctx, by)
	result, err := h.g.backend.Release(sendCtx, h.ref, keep)
	if err != nil && time.Until(by) > nearDeadline {
		result, err = h.g.backend.Release(sendCtx, h.ref, keep)
		if err == nil && result == NotHeld {
			result = ReleaseUnknown
		}
	}
	if err != nil {
		h.g.log.Warn("release failed; the lock runs out by itself", "key", h.ref.Key, "error", err)
		return ReleaseUnknown, fmt.Errorf("%w: release %s: %w", ErrStoreUnavailable, h.ref.Key, err)
	}
	return result, nil
}

// begin tells the Observer of the grant.
func (h *Handle) begin(wait time.Duration) {
	o, l := h.g.obs, h.set.labels
	if o.Acquired != nil {
		o.Acquired(l, h.g.backend.Name(), wait)
	}
	if o.Fence != nil && h.fence != 0 {
		o.Fence(l, h.fence)
	}
	// Under the mutex, so that a loss at the same moment cannot tell the end
	// before the start.
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	h.begun = true
	if o.HeldStart != nil {
		o.HeldStart(l, h.since)
	}
}

func (h *Handle) heldEnd() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heldEndLocked()
}

func (h *Handle) heldEndLocked() {
	if h.ended {
		return
	}
	h.ended = true
	if f := h.g.obs.HeldEnd; f != nil && h.begun {
		d := time.Since(h.since)
		f(h.set.labels, d, float64(d)/float64(h.set.ttl), float64(d)/float64(cmp.Or(h.set.expect, h.set.ttl)))
	}
}

// leaseOwner is the handle as the watchdog sees it.
type leaseOwner Handle

// LostCause implements lease.Owner.
func (o *leaseOwner) LostCause(r lease.Reason, at time.Time) error {
	h := (*Handle)(o)
	return &LostError{Key: h.ref.Key, Reason: Reason(r), Fence: h.fence, At: at}
}

// OnLost implements lease.Owner.
func (o *leaseOwner) OnLost(r lease.Reason) {
	h := (*Handle)(o)
	h.mu.Lock()
	h.reason = Reason(r)
	h.mu.Unlock()
	h.g.log.Error("lock was lost while its function runs", "key", h.ref.Key, "reason", string(r),
		"task_id", h.set.taskID, "fence", uint64(h.fence))
	if f := h.g.obs.Lost; f != nil {
		f(h.set.labels, Reason(r))
	}
	h.heldEnd()
}

// OnRenew implements lease.Owner.
func (o *leaseOwner) OnRenew(r lease.Result, rtt time.Duration) {
	h := (*Handle)(o)
	outcome := RenewFailed
	switch r.State {
	case lease.Renewed:
		outcome = RenewOK
	case lease.Lost:
		outcome = RenewRejected
	default:
		h.g.log.Warn("renewal failed, it is tried again", "key", h.ref.Key, "error", r.Err, "left", h.Remaining())
	}
	if f := h.g.obs.Renewed; f != nil {
		f(h.set.labels, h.g.backend.Name(), outcome, rtt)
	}
}

// OnMaxHold implements lease.Owner.
func (o *leaseOwner) OnMaxHold() {
	h := (*Handle)(o)
	h.g.log.Error("max_hold has passed; the lock is not renewed any more", "key", h.ref.Key,
		"task_id", h.set.taskID, "max_hold", h.set.maxHold)
	if f := h.g.obs.MaxHold; f != nil {
		f(h.set.labels)
	}
}

// OnExpect implements lease.Owner.
func (o *leaseOwner) OnExpect() {
	h := (*Handle)(o)
	h.g.log.Warn("run outlived its lock's expect", "key", h.ref.Key, "task_id", h.set.taskID, "expect", h.set.expect)
	if f := h.g.obs.Outlived; f != nil {
		f(h.set.labels)
	}
}

// OnExpired implements lease.Owner.
func (o *leaseOwner) OnExpired() {
	h := (*Handle)(o)
	h.g.log.Error("lock has run out and its function still runs", "key", h.ref.Key, "task_id", h.set.taskID)
	if f := h.g.obs.ExpiredWhileHeld; f != nil {
		f(h.set.labels)
	}
}
