package lease

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

type phase int

const (
	pending phase = iota // added, not granted yet
	overdue              // AnswerBy has passed
	held                 // granted and trusted
	spent                // MaxHold has passed: valid to its deadline, not renewed
	lost                 // lost while its holder went on
	removed              // given back
)

// Entry is one lease: pending from Add or Enter, held from Confirm, over from
// Remove.
// Its methods may be called from any goroutine.
type Entry[T any] struct {
	k      *Keeper[T]
	item   T
	spec   Spec
	ctx    context.Context
	cancel context.CancelCauseFunc

	// All below is guarded by k.mu.
	phase     phase
	sent      instant       // of the request that may confirm
	confirmed instant       // send time of the last confirmation
	ttl       time.Duration // that the last confirmation has set
	longTo    time.Time     // until which Extend asked for it; zero: not at all
	flights   int           // renewals under way
	landed    chan struct{} // closed when the last of them is over
	stalled   bool          // the last turn to renew was left out for want of a heartbeat
	maxAt     time.Time
	expectAt  time.Time // zero: none, or done
	expired   bool      // OnExpired was called
	failed    bool      // a renewal has failed since the last confirmation
	cause     error
	changed   chan struct{}
	renewals  int
	renewSlot slot
	eventSlot slot

	beat atomic.Int64 // of the last heartbeat, since k.origin; written without k.mu
	idle atomic.Bool  // stalled, to be read without k.mu
}

// Item is what was given to Add or Enter.
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
	e.ttl = e.spec.TTL
	if e.phase != pending || e.k.closed || e.window(e.sent).left(now) <= 0 {
		return false
	}
	e.phase, e.confirmed = held, e.sent
	e.beat.Store(int64(now.mono.Sub(e.k.origin.mono)))
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
	case pending, overdue:
		return ErrPending
	case lost, spent:
		if ph == spent || !e.spec.Observe {
			e.cancel(cause) // if another goroutine has noticed it and not cancelled yet
		}
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
	return e.renewNow(ctx)
}

func (e *Entry[T]) renewNow(ctx context.Context) error {
	results := e.k.call(ctx, []*Entry[T]{e})
	if results[0].State == Unknown {
		return results[0].Err
	}
	return e.Check()
}

// Extend asks the store now for a validity of at least d, once: renewals go on,
// and set what is left of it until that is less than the TTL. It waits for the
// renewals under way, since one that the store carries out later would set less.
// The errors are those of Renew, and ErrTooLong.
func (e *Entry[T]) Extend(ctx context.Context, d time.Duration) error {
	if err := e.Check(); err != nil {
		return err
	}
	e.k.mu.Lock()
	now := e.k.now()
	if left := e.maxAt.Sub(now.mono); !e.maxAt.IsZero() && d > left {
		e.k.mu.Unlock()
		return fmt.Errorf("%w: %v are asked for, %v are left", ErrTooLong, d, left)
	}
	was := e.longTo
	// The margin is 1/20 of the whole, so a little more than 1/19 of d.
	if to := now.mono.Add(d + max(e.spec.Margin, 2*time.Millisecond+d/18)); to.After(was) {
		e.longTo = to
	}
	e.k.mu.Unlock()
	err := e.land(ctx)
	if err == nil {
		err = e.renewNow(ctx)
	}
	if err != nil {
		e.k.mu.Lock()
		e.longTo = was
		e.k.mu.Unlock()
	}
	return err
}

// land waits until no renewal is under way.
func (e *Entry[T]) land(ctx context.Context) error {
	for {
		e.k.mu.Lock()
		landed := e.landed
		if e.flights == 0 {
			e.k.mu.Unlock()
			return nil
		}
		e.k.mu.Unlock()
		select {
		case <-landed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// takeOff and touchDown count the renewals under way, with k.mu held.
func (e *Entry[T]) takeOff() {
	if e.flights == 0 {
		e.landed = make(chan struct{})
	}
	e.flights++
}

func (e *Entry[T]) touchDown() {
	if e.flights--; e.flights == 0 {
		close(e.landed)
	}
}

// Heartbeat tells that the holder gets on. It costs two readings of memory and
// one of the clock, unless renewal has stopped for want of it: then it goes on.
func (e *Entry[T]) Heartbeat() {
	now := e.k.now()
	e.beat.Store(int64(now.mono.Sub(e.k.origin.mono)))
	if !e.idle.Load() {
		return
	}
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	e.stalled = false
	e.idle.Store(false)
	if e.phase == held {
		e.k.renewQueue.set(e, now.mono)
		poke(e.k.renewC)
	}
}

// stalls reports whether no heartbeat has come for too long, and notes it.
// Called with k.mu held, at the entry's turn to be renewed.
func (e *Entry[T]) stalls(now instant) bool {
	if e.spec.StallAfter <= 0 {
		return false
	}
	// Noted before the clock is compared: a heartbeat that comes in between
	// sees it, and puts the entry back.
	e.idle.Store(true)
	beat := time.Duration(e.beat.Load())
	e.stalled = now.mono.Sub(e.k.origin.mono)-beat >= e.spec.StallAfter
	e.idle.Store(e.stalled)
	return e.stalled
}

// due is what the entry's renewal asks for now.
func (e *Entry[T]) due(now instant) Due[T] {
	return Due[T]{Item: e.item, TTL: max(e.spec.TTL, e.longTo.Sub(now.mono))}
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
func (e *Entry[T]) window(i instant) instant {
	margin := e.spec.Margin
	if e.ttl > e.spec.TTL {
		margin = max(margin, Margin(e.ttl))
	}
	return i.add(e.ttl - margin)
}

func (e *Entry[T]) deadlineReason() Reason {
	switch {
	case e.stalled:
		return Stalled
	case e.failed:
		return RenewDeadline
	default:
		return Expired
	}
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
	switch e.phase {
	case held:
		sooner(now.mono.Add(e.window(e.confirmed).left(now)))
		sooner(e.maxAt)
	case spent, lost:
		if !e.expired {
			sooner(now.mono.Add(e.confirmed.add(e.ttl).left(now)))
		}
	}
	return at, !at.IsZero()
}
