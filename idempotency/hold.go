package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/solobeat/solobeat/internal/lease"
)

// ErrEnded is what [Hold.Check] returns after the hold was completed, released
// or failed.
var ErrEnded = errors.New("idempotency: the hold has ended")

// noValidity is the time to live of a keeper's entry whose lease is no validity:
// no stall of a store is as long, so the record is renewed again after it.
const noValidity = 10 * 365 * 24 * time.Hour

// Hold is a record in hand. It is renewed until it is ended or max_hold has
// passed. Its methods are safe for concurrent use.
type Hold struct {
	g     *Guard
	cfg   claimConfig
	claim Claim // not written to after Claim has returned
	entry *lease.Entry[*Hold]

	lostOnce sync.Once

	turn  chan struct{} // one slot: taken while an end is sent; guards the two below
	ended bool
	end   error
}

func newHold(g *Guard, c claimConfig, key Key) *Hold {
	return &Hold{
		g: g, cfg: c, turn: make(chan struct{}, 1),
		claim: Claim{Key: key, Owner: NewOwner(), Options: c.ClaimOptions},
	}
}

type contextKey struct{}

// FromContext returns the hold under which a function runs.
func FromContext(ctx context.Context) (*Hold, bool) {
	h, ok := ctx.Value(contextKey{}).(*Hold)
	return h, ok
}

// Context is a child of the context given to Claim. It ends with a cause:
// [ErrStale] if the record was taken over or forgotten, [ErrMaxHold], and with
// [WithValidity] also [ErrLeaseLost] at the lease's local deadline and
// [ErrRecordLost] if the record has vanished.
func (h *Hold) Context() context.Context {
	return context.WithValue(h.entry.Context(), contextKey{}, h)
}

// Key is the record's key.
func (h *Hold) Key() Key { return h.claim.Key }

// Fence grows with each grant of the key's record; a resource that refuses a
// smaller one is safe from a holder that wakes up late.
func (h *Hold) Fence() uint64 { return h.claim.Fence }

// Attempt counts the claims of the record, from 1.
func (h *Hold) Attempt() int { return h.claim.Attempt }

// Takeover is true if the record was taken over from a passed lease: an earlier
// run may have had its effect.
func (h *Hold) Takeover() bool { return h.claim.Takeover }

// Deadline is the instant at which the lease's validity ends unless it is
// renewed before; it carries a monotonic reading. False without [WithValidity],
// and when the hold is over.
func (h *Hold) Deadline() (time.Time, bool) {
	if !h.cfg.validity {
		return time.Time{}, false
	}
	return h.entry.Deadline()
}

// Changed is closed at the next move of the deadline. Ask for it before
// Deadline, then no move is missed. The end of the hold is not a move.
func (h *Hold) Changed() <-chan struct{} { return h.entry.Changed() }

// Check returns nil while the record is, as far as is known here, in hand, else
// the cause with which the context ends, or [ErrEnded]. It does no I/O: call it
// right before each effect.
func (h *Hold) Check() error {
	err := h.entry.Check()
	if errors.Is(err, lease.ErrRemoved) || errors.Is(err, lease.ErrClosed) {
		return ErrEnded
	}
	return err
}

// Complete ends the hold with a result (JSON text, or nil for null). Above
// [MaxResult] the result is left out and the record completed all the same. A
// completion after the lease has passed is accepted unless the record was taken
// over: then it is [ErrStale], and the result must be dropped. If the record has
// vanished, it is made anew, completed; that is counted and no error.
func (h *Hold) Complete(ctx context.Context, result json.RawMessage) error {
	return h.finish(ctx, OpComplete, func(ctx context.Context) error {
		return h.g.cfg.Store.Complete(ctx, h.claim, NewResult(result), h.cfg.retention)
	})
}

// Release ends the hold without a result: the key may be claimed again after
// backoff, by any task id. The cause is kept in the record; nil for none. A
// record that has vanished is counted and no error.
func (h *Hold) Release(ctx context.Context, cause error, backoff time.Duration) error {
	return h.finish(ctx, OpRelease, func(ctx context.Context) error {
		return h.g.cfg.Store.Release(ctx, h.claim, NewFailure(cause), max(0, backoff))
	})
}

// GiveBack ends the hold of a run that has not begun: the key may be claimed at
// once, the attempt is not counted, and no task has begun by it.
func (h *Hold) GiveBack(ctx context.Context) error {
	return h.finish(ctx, OpRelease, func(ctx context.Context) error {
		return h.g.cfg.Store.Abandon(ctx, h.claim.Key, h.claim.Owner)
	})
}

// Fail ends the hold for good: every later claim of the key gets the error, for
// the retention. Only an explicitly permanent error should do so. A record that
// has vanished is counted and no error.
func (h *Hold) Fail(ctx context.Context, cause error) error {
	return h.finish(ctx, OpFail, func(ctx context.Context) error {
		return h.g.cfg.Store.Fail(ctx, h.claim, NewFailure(cause), h.cfg.retention)
	})
}

// finish sends an end until it is answered: the effect has happened, so neither
// a cancelled context nor one lost reply may keep it from being told. The first
// end that was answered stands; any later call repeats its answer.
func (h *Hold) finish(ctx context.Context, op Operation, send func(context.Context) error) error {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	if h.ended {
		return h.end
	}
	h.entry.Remove()
	timeout := h.g.cfg.EndTimeout
	if timeout <= 0 {
		timeout = max(h.cfg.Lease, 5*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	switch err := h.send(ctx, op, send); {
	case err == nil:
	case errors.Is(err, ErrRecordLost):
		h.vanished()
	case errors.Is(err, ErrStale):
		h.g.cfg.Observer.stale(h.cfg.labels, op)
		h.end = err
	default:
		return err // not known: it may be tried again
	}
	h.ended = true
	return h.end
}

func (h *Hold) send(ctx context.Context, op Operation, send func(context.Context) error) error {
	for delay := 20 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		err := h.g.call(ctx, op, send)
		if !errors.Is(err, ErrStoreUnavailable) {
			return err
		}
		if !pause(ctx, delay) {
			return fmt.Errorf("%s not told to the store, its lease decides: %w", op, err)
		}
	}
}

func (h *Hold) spec() lease.Spec {
	s := lease.Spec{
		TTL:          noValidity,
		RenewEvery:   h.cfg.renewEvery,
		MaxHold:      h.cfg.maxHold,
		MaxHoldCause: ErrMaxHold,
		Owner:        leaseOwner{},
	}
	if s.RenewEvery <= 0 {
		s.RenewEvery = h.cfg.Lease / 3
	}
	if h.cfg.validity {
		s.TTL = h.cfg.Lease
	}
	return s
}

// leaseOwner makes the causes of a hold's context.
type leaseOwner struct{ lease.Silent }

// LostCause implements lease.Owner.
func (leaseOwner) LostCause(r lease.Reason, _ time.Time) error { return lostCause(r) }

func lostCause(r lease.Reason) error {
	switch r {
	case lease.Taken:
		return ErrStale
	case lease.Gone:
		return ErrRecordLost
	default:
		return fmt.Errorf("%w: %s", ErrLeaseLost, r)
	}
}

// renewed turns a store's answer into the keeper's.
func (h *Hold) renewed(err error) lease.Result {
	switch {
	case err == nil:
		return lease.Result{State: lease.Renewed}
	case errors.Is(err, ErrStale):
		h.g.cfg.Observer.stale(h.cfg.labels, OpRenew)
		return lease.Result{State: lease.Lost, Reason: lease.Taken}
	case errors.Is(err, ErrRecordLost) && h.cfg.validity:
		h.vanished()
		return lease.Result{State: lease.Lost, Reason: lease.Gone}
	case errors.Is(err, ErrRecordLost):
		// The lock still keeps others out; the completion makes the record anew.
		h.vanished()
		return lease.Result{State: lease.Renewed}
	default:
		return lease.Result{Err: err}
	}
}

// vanished counts a lost record once.
func (h *Hold) vanished() {
	h.lostOnce.Do(func() {
		h.g.log.Error("a record in hand has vanished: its store has lost data",
			"store", h.cfg.labels.Store, "schedule", h.cfg.labels.Schedule, "task", h.cfg.labels.Task, "task_id", h.cfg.TaskID)
		h.g.cfg.Observer.lost(h.cfg.labels)
	})
}
