package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The defaults and limits of the watchdog's arithmetic.
const (
	// DefaultBatch is how many leases one renewal call carries at most: 100
	// keys block a Redis server for about half a millisecond.
	DefaultBatch = 100

	maxRetryDelay = time.Second
	// clockLook is how often the wall clock is compared while leases are held.
	clockLook = 250 * time.Millisecond
	// jumpNoticed is how far the wall clock may run ahead of the monotonic one
	// before every deadline is looked at again.
	jumpNoticed = time.Millisecond
	// minAttempt is the shortest renewal attempt worth sending.
	minAttempt = 2 * time.Millisecond
)

// State says how a renewal ended.
type State int

const (
	// Unknown: it is not known whether the lease was renewed.
	Unknown State = iota
	// Renewed: the store has set the full TTL again.
	Renewed
	// Lost: the store says that the lease is not ours.
	Lost
)

// Reason says why a lease was lost.
type Reason string

const (
	// Expired: the window closed without a failed renewal in it: the process
	// was paused or starved, or a clock jumped.
	Expired Reason = "expired"
	// RenewDeadline: the window closed after renewals had failed.
	RenewDeadline Reason = "renew_deadline"
	// Taken: somebody else holds it.
	Taken Reason = "taken"
	// Gone: nobody holds it; it was deleted, flushed or evicted.
	Gone Reason = "gone"
	// Stalled: the window closed without a renewal, since no heartbeat came
	// for StallAfter.
	Stalled Reason = "stalled"
)

// Certain reports whether the store itself has said that the lease is not ours
// any more, so that there is nothing left to release.
func (r Reason) Certain() bool { return r == Taken || r == Gone }

// Result is the outcome of one renewal.
type Result struct {
	State State
	// Reason goes with Lost; "" counts as Gone.
	Reason Reason
	// Err goes with Unknown.
	Err error
}

var (
	// ErrLost is the cause with which an entry's context ends when its lease
	// is lost, unless its Owner makes another.
	ErrLost = errors.New("lease: lost")
	// ErrMaxHold is the cause when MaxHold has passed, unless the Spec names
	// another.
	ErrMaxHold = errors.New("lease: max hold has passed")
	// ErrRemoved is the cause after Remove, unless the Spec names another.
	ErrRemoved = errors.New("lease: removed")
	// ErrPending: the lease has not been confirmed yet.
	ErrPending = errors.New("lease: not granted yet")
	// ErrTooLong: Extend would reach beyond MaxHold.
	ErrTooLong = errors.New("lease: longer than max hold")
	// ErrClosed: the keeper is closed.
	ErrClosed = errors.New("lease: keeper is closed")
)

// Spec describes one lease.
type Spec struct {
	// TTL is the time after which the store drops an unrenewed lease.
	TTL time.Duration
	// RenewEvery is the time from one renewal to the next; 0 means TTL/3.
	RenewEvery time.Duration
	// Margin is what is taken off the TTL; 0 means [Margin] of TTL.
	Margin time.Duration
	// MaxHold ends the hold that long after the grant; 0 means never.
	MaxHold time.Duration
	// Expect is the time after which OnExpect is called; 0 means never.
	Expect time.Duration
	// StallAfter is the time without [Entry.Heartbeat], from the grant on,
	// after which the lease is not renewed; 0 means never.
	StallAfter time.Duration
	// Observe leaves the context alone when the lease is lost: Check and the
	// hooks tell of it.
	Observe bool

	// AnswerBy is the instant, on the monotonic clock, at which the context ends
	// with context.DeadlineExceeded unless the lease was granted or removed
	// before; zero: it does not.
	AnswerBy time.Time

	// MaxHoldCause is the cause when MaxHold has passed; nil means ErrMaxHold.
	MaxHoldCause error
	// RemovedCause is the cause after Remove; nil means ErrRemoved.
	RemovedCause error
	// Owner is told what happens; nil means Silent.
	Owner Owner
}

// Owner is told what happens to its lease. It is called from the keeper's
// goroutines, LostCause and OnLost also from whoever calls Check, and must return
// at once.
type Owner interface {
	// LostCause makes the cause of the context of a lease that is lost. It must
	// not call the entry or the keeper.
	LostCause(reason Reason, at time.Time) error
	// OnRenew tells each renewal's result and the round trip of its batch.
	OnRenew(r Result, rtt time.Duration)
	// OnLost is called once, right after the context has ended, or where
	// Observe leaves it alone, when the loss is found out.
	OnLost(reason Reason)
	// OnMaxHold is called once, right after the context has ended.
	OnMaxHold()
	// OnExpect is called once, at the moment the hold passes Expect, renewed
	// or not.
	OnExpect()
	// OnExpired is called once, at the moment the lease has really ended in
	// the store (as far as can be known: the whole TTL after the last
	// confirmation, or a definite loss) while the entry is still held.
	OnExpired()
}

// Silent is an [Owner] that does nothing; embed it.
type Silent struct{}

// LostCause wraps ErrLost and names the reason.
func (Silent) LostCause(r Reason, _ time.Time) error { return fmt.Errorf("%w: %s", ErrLost, r) }

// OnRenew does nothing.
func (Silent) OnRenew(Result, time.Duration) {}

// OnLost does nothing.
func (Silent) OnLost(Reason) {}

// OnMaxHold does nothing.
func (Silent) OnMaxHold() {}

// OnExpect does nothing.
func (Silent) OnExpect() {}

// OnExpired does nothing.
func (Silent) OnExpired() {}

// Margin is the default safety margin of a TTL: 2 ms and 1 % for the drift of
// clocks, and at least 5 % for the time that ending the work takes.
func Margin(ttl time.Duration) time.Duration {
	return max(2*time.Millisecond+ttl/100, ttl/20)
}

// fill puts the defaults in.
func (s *Spec) fill() error {
	if s.TTL < time.Millisecond {
		return fmt.Errorf("lease: ttl %v is below 1ms", s.TTL)
	}
	if s.RenewEvery <= 0 {
		s.RenewEvery = s.TTL / 3
	}
	if s.Margin <= 0 {
		s.Margin = Margin(s.TTL)
	}
	if s.Margin >= s.TTL {
		return fmt.Errorf("lease: margin %v leaves nothing of ttl %v", s.Margin, s.TTL)
	}
	if s.Owner == nil {
		s.Owner = Silent{}
	}
	if s.MaxHoldCause == nil {
		s.MaxHoldCause = ErrMaxHold
	}
	if s.RemovedCause == nil {
		s.RemovedCause = ErrRemoved
	}
	return nil
}

// Due is a lease that is to be renewed.
type Due[T any] struct {
	Item T
	// TTL is what is to be set: the Spec's, or what is left of an Extend.
	TTL time.Duration
}

// RenewFunc renews a batch and answers in the same order. It must end with ctx.
type RenewFunc[T any] func(ctx context.Context, due []Due[T]) []Result

// Options are the settings of a Keeper; the zero value is good.
type Options struct {
	// Batch is the largest number of leases per call; 0 means DefaultBatch.
	Batch int
	// Clock returns now on the monotonic clock (a time.Time that carries its
	// reading) and on the wall clock; nil means the system's. For tests.
	Clock func() (mono, wall time.Time)
}

func systemClock() (mono, wall time.Time) {
	now := time.Now()
	return now, now.Round(0) // Round(0) strips the monotonic reading
}

// instant is one reading of both clocks.
type instant struct{ mono, wall time.Time }

func (i instant) add(d time.Duration) instant {
	return instant{mono: i.mono.Add(d), wall: i.wall.Add(d)}
}

// left is the time from now until i, on the clock that says less.
func (i instant) left(now instant) time.Duration {
	return min(i.mono.Sub(now.mono), i.wall.Sub(now.wall))
}
