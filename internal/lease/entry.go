package lease

import (
	"context"
	"time"
)

type phase int

const (
	pending phase = iota // added, not granted yet
	held                 // granted and trusted
	spent                // MaxHold has passed: valid to its deadline, not renewed
	lost                 // lost while its holder went on
	removed              // given back
)

// Entry is one lease: pending from Add, held from Confirm, over from Remove.
// Its methods may be called from any goroutine.
type Entry[T any] struct {
	k      *Keeper[T]
	item   T
	spec   Spec
	ctx    context.Context
	cancel context.CancelCauseFunc

	// All below is guarded by k.mu.
	phase     phase
	sent      instant // of the request that may confirm
	confirmed instant // send time of the last confirmation
	maxAt     time.Time
	expectAt  time.Time // zero: none, or done
	expired   bool      // OnExpired was called
	failed    bool      // a renewal has failed since the last confirmation
	cause     error
	changed   chan struct{}
	renewals  int
	renewSlot slot
	eventSlot slot
}

// Item is what was given to Add.
func (e *Entry[T]) Item() T { return e.item }

// Context is a child of the context given to Add. It ends, with a cause, when
// the lease is lost, when MaxHold has passed, and by Remove.
func (e *Entry[T]) Context() context.Context { return e.ctx }

// AfterFunc arranges to call f when Context has ended, as context.AfterFunc does.
func (e *Entry[T]) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(e.ctx, f) }

// Sending notes the send time of a request that may grant the lease. Call it
// right before each try; a try that is repeated must set the full TTL again.
func (e *Entry[T]) Sending() {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	e.sent = e.k.now()
}

// Confirm tells that the request noted by Sending was granted. It returns false
// if the answer came after the lease's validity, or Remove came first; the lease
// must be given back then.
func (e *Entry[T]) Confirm() bool {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	now := e.k.now()
	if e.phase != pending || e.k.closed || e.window(e.sent).left(now) <= 0 {
		return false
	}
	e.phase, e.confirmed = held, e.sent
	if e.spec.MaxHold > 0 {
		e.maxAt = e.sent.mono.Add(e.spec.MaxHold)
	}
	if e.spec.Expect > 0 {
		e.expectAt = now.mono.Add(e.spec.Expect)
	}
	e.k.renewQueue.set(e, e.sent.mono.Add(e.spec.RenewEvery))
	e.k.plan(e, now)
	e.k.start()
	return true
}

// Check returns nil while the lease is held and trusted, else the reason: the
// cause of the loss, ErrPending or RemovedCause. It does no I/O and reads both
// clocks; whoever finds the window closed ends the context there and then.
func (e *Entry[T]) Check() error {
	e.k.mu.Lock()
	var todo []func()
	if e.phase == held && e.window(e.confirmed).left(e.k.now()) <= 0 {
		todo = e.k.lose(e, e.deadlineReason())
	}
	ph, cause := e.phase, e.cause
	e.k.mu.Unlock()
	run(todo)
	switch ph {
	case held:
		return nil
	case pending:
		return ErrPending
	case lost, spent:
		e.cancel(cause) // if another goroutine has noticed it and not cancelled yet
		return cause
	default:
		return e.spec.RemovedCause
	}
}

// Remaining is the validity left, 0 when there is none.
func (e *Entry[T]) Remaining() time.Duration {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	if e.phase != held && e.phase != spent {
		return 0
	}
	return max(0, e.window(e.confirmed).left(e.k.now()))
}

// Deadline is the instant at which the validity ends unless it is renewed
// before; it carries a monotonic reading. False: the lease is not held.
func (e *Entry[T]) Deadline() (time.Time, bool) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	if e.phase != held && e.phase != spent {
		return time.Time{}, false
	}
	return e.window(e.confirmed).mono, true
}

// Changed is closed at the next move of the deadline. Ask for it before
// Deadline, then no move is missed. The end of the lease is not a move.
func (e *Entry[T]) Changed() <-chan struct{} {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

// Renewals is the number of confirmed renewals.
func (e *Entry[T]) Renewals() int {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	return e.renewals
}

// Renew asks the store now, out of turn. Nil: the lease was ours and has its
// full TTL again. Otherwise the cause of the loss, or an error that leaves the
// lease as it was.
func (e *Entry[T]) Renew(ctx context.Context) error {
	if err := e.Check(); err != nil {
		return err
	}
	results := e.k.call(ctx, []*Entry[T]{e})
	if results[0].State == Unknown {
		return results[0].Err
	}
	return e.Check()
}

// Remove ends the entry; its context ends with RemovedCause if it has not ended
// before. When it has returned, no renewal of it will be started.
func (e *Entry[T]) Remove() {
	e.k.mu.Lock()
	e.phase = removed
	delete(e.k.entries, e)
	e.k.renewQueue.drop(e)
	e.k.eventQueue.drop(e)
	e.k.mu.Unlock()
	e.cancel(e.spec.RemovedCause)
}

// window is the validity of a confirmation sent at i.
func (e *Entry[T]) window(i instant) instant { return i.add(e.spec.TTL - e.spec.Margin) }

func (e *Entry[T]) deadlineReason() Reason {
	if e.failed {
		return RenewDeadline
	}
	return Expired
}

// nextEvent is the next instant, on the monotonic clock, at which something
// happens to the entry by the mere passing of time.
func (e *Entry[T]) nextEvent(now instant) (time.Time, bool) {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	sooner(e.expectAt)
	if e.phase == held {
		sooner(now.mono.Add(e.window(e.confirmed).left(now)))
		sooner(e.maxAt)
	} else if !e.expired {
		sooner(now.mono.Add(e.confirmed.add(e.spec.TTL).left(now)))
	}
	return at, !at.IsZero()
}
