package lockguard

import (
	"errors"
	"fmt"
	"time"
)

// States, to be tested with errors.Is, also on context.Cause.
var (
	// ErrBusy: the lock is held by another. It comes as a *BusyError.
	ErrBusy = errors.New("lockguard: lock is busy")
	// ErrTooSlow: the grant came after its own validity; it was given back.
	ErrTooSlow = errors.New("lockguard: grant came too late to be trusted")
	// ErrStoreUnavailable: the store did not answer, or refused; nothing is
	// held. It wraps the cause.
	ErrStoreUnavailable = errors.New("lockguard: store is unavailable")
	// ErrLost: the lock was lost while it was held. It comes as a *LostError.
	ErrLost = errors.New("lockguard: lock was lost")
	// ErrMaxHold: the function ran longer than its max hold. Not a loss.
	ErrMaxHold = errors.New("lockguard: max_hold has passed")
	// ErrNotHeld: the handle was released.
	ErrNotHeld = errors.New("lockguard: lock is not held")
	// ErrFenced: a resource has seen a larger fence and refused this one.
	ErrFenced = errors.New("lockguard: fence is stale")
	// ErrForeignKey: the key exists and is no lock, such as a list.
	ErrForeignKey = errors.New("lockguard: key is not a lock")
	// ErrConfig: a number or name is out of range.
	ErrConfig = errors.New("lockguard: bad configuration")
	// ErrClosed: the guard is closed.
	ErrClosed = errors.New("lockguard: guard is closed")
)

// BusyError is ErrBusy with who holds the lock.
type BusyError struct {
	// Holder may lack everything but Key and Held.
	Holder Holder
	// RetryAfter is when the holder's lock runs out unless it is renewed; 0 if
	// it never does or it is not known.
	RetryAfter time.Duration
	// Unsure: the answer is this process's own, without the store, and the lock
	// may be free there: another attempt of this process is under way, or a
	// function goes on whose hold is over.
	Unsure bool
}

// Error names the key and, if known, the holder.
func (e *BusyError) Error() string {
	switch {
	case e.Holder.Kept:
		return fmt.Sprintf("%v: %s, kept by its min_hold", ErrBusy, e.Holder.Key)
	case e.Holder.TaskID != "":
		return fmt.Sprintf("%v: %s, held by task %s", ErrBusy, e.Holder.Key, e.Holder.TaskID)
	case e.Holder.Instance != "":
		return fmt.Sprintf("%v: %s, held by instance %s", ErrBusy, e.Holder.Key, e.Holder.Instance)
	}
	return fmt.Sprintf("%v: %s", ErrBusy, e.Holder.Key)
}

// Is makes errors.Is(err, ErrBusy) true.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Reason says why a lock was lost.
type Reason string

// The reasons.
const (
	// ReasonExpired: the validity ended without a failed renewal: the process
	// was paused or starved, or a clock jumped.
	ReasonExpired Reason = "expired"
	// ReasonRenewDeadline: the validity ended after renewals had failed.
	ReasonRenewDeadline Reason = "renew_deadline"
	// ReasonTaken: the key holds another's token.
	ReasonTaken Reason = "taken"
	// ReasonGone: the key was deleted, flushed or evicted.
	ReasonGone Reason = "gone"
	// ReasonStalled: the validity ended without a renewal, since no heartbeat
	// came for the lock's stall after.
	ReasonStalled Reason = "stalled"
)

// Reasons lists all reasons, for counters that must be born at zero.
func Reasons() []Reason {
	return []Reason{ReasonExpired, ReasonRenewDeadline, ReasonTaken, ReasonGone, ReasonStalled}
}

// LostError is ErrLost with its circumstances. It is the cause of the handle's
// context.
type LostError struct {
	Key    string
	Reason Reason
	// Fence is the number of the lost grant, 0 if the back end has none.
	Fence Fence
	// At is the local time at which the loss was noticed.
	At time.Time
}

// Error names the key and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("%v: %s (%s)", ErrLost, e.Key, e.Reason)
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }
