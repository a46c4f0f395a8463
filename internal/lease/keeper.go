package lease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Keeper renews leases of one kind. One per process and store is enough.
type Keeper[T any] struct {
	renew RenewFunc[T]
	batch int
	clock func() (mono, wall time.Time)

	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	renewC chan struct{} // the renewer shall look at its queue again
	eventC chan struct{} // the deadline goroutine shall

	mu      sync.Mutex
	running bool
	closed  bool
	// renewAt and eventAt are when the two goroutines look again by themselves,
	// zero for never: whoever plans nothing sooner need not wake them, which
	// would cost more than all else about a lease.
	renewAt, eventAt time.Time
	entries          map[*Entry[T]]struct{}
	renewQueue       queue[T]
	eventQueue       queue[T]
	ahead            time.Duration // wall clock minus monotonic clock at the last look
	origin           instant
}

// NewKeeper returns a keeper that renews through renew. It starts its two
// goroutines with the first lease that has a deadline. Close it.
func NewKeeper[T any](renew RenewFunc[T], o Options) *Keeper[T] {
	k := &Keeper[T]{
		renew: renew, batch: o.Batch, clock: o.Clock,
		renewC: make(chan struct{}, 1), eventC: make(chan struct{}, 1),
		entries: map[*Entry[T]]struct{}{},
	}
	if k.batch <= 0 {
		k.batch = DefaultBatch
	}
	if k.clock == nil {
		k.clock = systemClock
	}
	k.renewQueue.slot = func(e *Entry[T]) *slot { return &e.renewSlot }
	k.eventQueue.slot = func(e *Entry[T]) *slot { return &e.eventSlot }
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.origin = k.now()
	return k
}

// Add registers a lease before it is asked for. The error is ErrClosed, or
// names a bad number of the spec.
func (k *Keeper[T]) Add(parent context.Context, item T, s Spec) (*Entry[T], error) {
	e := &Entry[T]{}
	if err := k.Enter(parent, e, item, s); err != nil {
		return nil, err
	}
	return e, nil
}

// Enter is Add for an entry that is part of something else; it must be zero. It
// notes the send time of the first try, as [Entry.Sending] does.
func (k *Keeper[T]) Enter(parent context.Context, e *Entry[T], item T, s Spec) error {
	if err := s.fill(); err != nil {
		return err
	}
	e.k, e.item, e.spec, e.ttl = k, item, s, s.TTL
	e.renewSlot.index, e.eventSlot.index = -1, -1
	e.ctx, e.cancel = context.WithCancelCause(parent)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		e.cancel(ErrClosed)
		return ErrClosed
	}
	k.entries[e] = struct{}{}
	e.sent = k.now()
	if !s.AnswerBy.IsZero() {
		k.eventQueue.set(e, s.AnswerBy)
		k.start()
	}
	return nil
}

// Len is the number of entries that were added and not removed.
func (k *Keeper[T]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.entries)
}

// CancelAll ends the contexts of all entries with the cause. The leases stay
// held and are renewed until they are removed, since their functions still run.
func (k *Keeper[T]) CancelAll(cause error) {
	k.mu.Lock()
	cancels := make([]context.CancelCauseFunc, 0, len(k.entries))
	for e := range k.entries {
		cancels = append(cancels, e.cancel)
	}
	k.mu.Unlock()
	for _, cancel := range cancels {
		cancel(cause)
	}
}

// Close stops renewing and waits until both goroutines and all calls have
// ended. The contexts of entries that are left end with ErrClosed.
func (k *Keeper[T]) Close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.stop()
	k.wg.Wait()
	k.CancelAll(ErrClosed)
}

func (k *Keeper[T]) now() instant {
	mono, wall := k.clock()
	return instant{mono: mono, wall: wall}
}

// start is called with k.mu held, after the queues have changed.
func (k *Keeper[T]) start() {
	if !k.running {
		k.running = true
		k.wg.Go(k.renewLoop)
		k.wg.Go(k.eventLoop)
	}
	k.rouse()
}

// rouse wakes the goroutines that have to look sooner than they would. It is
// called with k.mu held, after the queues have changed.
func (k *Keeper[T]) rouse() {
	if _, at, ok := k.renewQueue.first(); ok && sooner(at, k.renewAt) {
		k.renewAt = at
		poke(k.renewC)
	}
	if _, at, ok := k.eventQueue.first(); ok && sooner(at, k.eventAt) {
		k.eventAt = at
		poke(k.eventC)
	}
}

func sooner(at, planned time.Time) bool { return planned.IsZero() || at.Before(planned) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func run(todo []func()) {
	for _, f := range todo {
		f()
	}
}

// wait sleeps until d has passed (never, if d < 0), or c or the stop says so.
func (k *Keeper[T]) wait(c <-chan struct{}, d time.Duration) bool {
	var timeC <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeC = timer.C
	}
	select {
	case <-timeC:
		return true
	case <-c:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// renewLoop sends what is due. Each call runs beside the loop, so that one
// stuck call holds up its own batch only.
func (k *Keeper[T]) renewLoop() {
	for {
		due, timeout, wait := k.collect()
		if len(due) > 0 {
			k.wg.Go(func() {
				ctx, cancel := context.WithTimeout(k.ctx, timeout)
				defer cancel()
				k.call(ctx, due)
			})
			continue
		}
		if !k.wait(k.renewC, wait) {
			return
		}
	}
}

// collect takes a batch of what is due now, or within TTL/30, out of the queue.
// Without any it returns the time until the next is due, −1 if there is none.
func (k *Keeper[T]) collect() (due []*Entry[T], timeout, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	defer func() { k.renewAt = lookAt(now, wait) }()
	for len(due) < k.batch {
		e, at, ok := k.renewQueue.first()
		if !ok {
			return due, timeout, untilPlanned(now, k.renewAt)
		}
		early := time.Duration(0)
		if len(due) > 0 {
			early = e.spec.TTL / 30
		}
		if d := at.Sub(now.mono); d > early {
			return due, timeout, d
		}
		k.renewQueue.drop(e)
		t := min(e.spec.TTL/6, e.window(e.confirmed).left(now)/2)
		if t < minAttempt {
			continue // the deadline is here; its own goroutine sees to it
		}
		if e.stalls(now) {
			continue // it comes back with the next heartbeat, or ends
		}
		if len(due) == 0 || t < timeout {
			timeout = t
		}
		due = append(due, e)
	}
	return due, timeout, 0
}

// call renews the entries in one call and applies the results.
func (k *Keeper[T]) call(ctx context.Context, batch []*Entry[T]) []Result {
	due := make([]Due[T], len(batch))
	k.mu.Lock()
	sent := k.now()
	for i, e := range batch {
		due[i] = e.due(sent)
		e.takeOff()
	}
	k.mu.Unlock()
	results := k.renew(ctx, due)
	for len(results) < len(batch) {
		results = append(results, Result{Err: errors.New("lease: no answer for this item")})
	}
	k.mu.Lock()
	now := k.now()
	rtt := now.mono.Sub(sent.mono)
	var todo []func()
	for i, e := range batch {
		e.touchDown()
		todo = append(todo, k.apply(e, results[i], sent, due[i].TTL, now)...)
		if e.phase != removed {
			todo = append(todo, func() { e.spec.Owner.OnRenew(results[i], rtt) })
		}
	}
	k.rouse()
	k.mu.Unlock()
	run(todo)
	return results
}

// apply is called with k.mu held and returns what to do without it.
func (k *Keeper[T]) apply(e *Entry[T], r Result, sent instant, ttl time.Duration, now instant) []func() {
	if e.phase != held {
		return nil
	}
	switch r.State {
	case Renewed:
		e.renewals++
		if !sent.mono.Before(e.confirmed.mono) {
			e.confirmed, e.ttl, e.failed = sent, ttl, false
			if e.changed != nil {
				close(e.changed)
				e.changed = nil
			}
		}
		k.renewQueue.set(e, sent.mono.Add(e.spec.RenewEvery))
		k.plan(e, now)
		return nil
	case Lost:
		if r.Reason == "" {
			r.Reason = Gone
		}
		return k.lose(e, r.Reason)
	default:
		e.failed = true
		k.renewQueue.set(e, now.mono.Add(min(e.spec.TTL/12, maxRetryDelay)))
		return nil
	}
}

// eventLoop owns the deadlines, and nothing that could be stuck.
func (k *Keeper[T]) eventLoop() {
	for {
		todo, wait := k.expire()
		run(todo)
		if !k.wait(k.eventC, wait) {
			return
		}
	}
}

// expire does what the passing of time asks for; wait is the time to its next
// turn, −1 if no lease is held.
func (k *Keeper[T]) expire() (todo []func(), wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	defer func() { k.eventAt = lookAt(now, wait) }()
	k.noticeJump(now)
	for {
		e, at, ok := k.eventQueue.first()
		if !ok {
			return todo, min(untilPlanned(now, k.eventAt), clockLook)
		}
		if d := at.Sub(now.mono); d > 0 {
			return todo, min(d, clockLook)
		}
		todo = append(todo, k.pass(e, now)...)
	}
}

// untilPlanned is the wait of a goroutine that has found nothing to do: until the
// look for which it was woken, −1 if that has passed. Who takes leases and gives
// them back at once, each before it is looked at, so wakes it once and not each
// time.
func untilPlanned(now instant, planned time.Time) time.Duration {
	if planned.After(now.mono) {
		return planned.Sub(now.mono)
	}
	return -1
}

// lookAt is the instant of the next look, zero for none.
func lookAt(now instant, wait time.Duration) time.Time {
	if wait < 0 {
		return time.Time{}
	}
	return now.mono.Add(wait)
}

// noticeJump plans every entry again when the wall clock has run ahead of the
// monotonic one: it was set, or the machine was asleep.
func (k *Keeper[T]) noticeJump(now instant) {
	ahead := now.wall.Sub(k.origin.wall) - now.mono.Sub(k.origin.mono)
	if ahead > k.ahead && ahead < k.ahead+jumpNoticed {
		return // let slow drift add up
	}
	jumped := ahead > k.ahead
	k.ahead = ahead
	if !jumped {
		return
	}
	for e := range k.entries {
		if e.phase != pending {
			k.plan(e, now)
		}
	}
}

// plan puts the entry where its next event belongs.
func (k *Keeper[T]) plan(e *Entry[T], now instant) {
	if at, ok := e.nextEvent(now); ok {
		k.eventQueue.set(e, at)
		return
	}
	k.eventQueue.drop(e)
}

// pass fires the events of an entry that are due now.
func (k *Keeper[T]) pass(e *Entry[T], now instant) (todo []func()) {
	if !e.expectAt.IsZero() && !e.expectAt.After(now.mono) {
		e.expectAt = time.Time{}
		todo = append(todo, e.spec.Owner.OnExpect)
	}
	switch {
	case e.phase == pending: // its answer has not come in time
		e.phase = overdue
		todo = append(todo, func() { e.cancel(context.DeadlineExceeded) })
	case e.phase == held && e.window(e.confirmed).left(now) <= 0:
		todo = append(todo, k.lose(e, e.deadlineReason())...)
	case e.phase == held && !e.maxAt.IsZero() && !e.maxAt.After(now.mono):
		e.phase, e.cause = spent, e.spec.MaxHoldCause
		k.renewQueue.drop(e)
		todo = append(todo, func() { e.cancel(e.spec.MaxHoldCause) })
		todo = append(todo, e.spec.Owner.OnMaxHold)
	}
	if (e.phase == lost || e.phase == spent) && !e.expired && e.confirmed.add(e.ttl).left(now) <= 0 {
		e.expired = true
		todo = append(todo, e.spec.Owner.OnExpired)
	}
	k.plan(e, now)
	return todo
}

// lose ends a held lease. It is called with k.mu held and returns what to do
// without it.
func (k *Keeper[T]) lose(e *Entry[T], reason Reason) (todo []func()) {
	now := k.now()
	e.phase, e.cause = lost, e.spec.Owner.LostCause(reason, now.mono)
	k.renewQueue.drop(e)
	cause := e.cause
	if !e.spec.Observe {
		todo = append(todo, func() { e.cancel(cause) })
	}
	todo = append(todo, func() { e.spec.Owner.OnLost(reason) })
	if reason.Certain() {
		e.expired = true
		todo = append(todo, e.spec.Owner.OnExpired)
	}
	k.plan(e, now)
	poke(k.eventC)
	return todo
}
