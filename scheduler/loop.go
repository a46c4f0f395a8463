package scheduler

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/solobeat/solobeat/internal/failpoint"
)

const (
	// longestSleep bounds one timer: timers follow the monotonic clock, which a
	// suspend or a stopped process may leave behind (robfig/cron#154).
	longestSleep = time.Second
	// pause is the wait after a call to the store that failed.
	pause = time.Second
	// claimBatch is how many claims one turn of the loop makes at most,
	claimBatch = 500
	// and claimRound how many of them go out together.
	claimRound = 50
	// failLimit is how many failures in a row set a job aside.
	failLimit = 3
)

// loop settles ticks until ctx ends.
func (s *Scheduler) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		if ctx.Err() != nil {
			return
		}
		s.turn(ctx)
		s.completed()
		timer.Reset(s.idle())
	}
}

// turn does what is due now.
func (s *Scheduler) turn(ctx context.Context) {
	if s.local().Before(s.pausedUntil) {
		return
	}
	if s.clock.due() {
		if err := s.clock.sync(ctx); err != nil {
			s.storeFailed(ctx, "reading the store's clock", err)
			return
		}
	}
	if s.self().Load == 0 { // another file since the last turn
		if err := s.beat(ctx); err != nil {
			s.storeFailed(ctx, "telling of a new schedule file", err)
			return
		}
	}
	if s.reload.Swap(false) {
		if err := s.load(ctx); err != nil {
			s.reload.Store(true)
			s.storeFailed(ctx, "reading the state of the jobs", err)
			return
		}
	}
	if s.askStale(ctx) {
		looked := s.clock.now()
		s.claimDue(ctx)
		s.adopt(looked)
	}
}

// idle is how long the loop may sleep.
func (s *Scheduler) idle() time.Duration {
	d := longestSleep
	if left := s.pausedUntil.Sub(s.local()); left > 0 {
		return min(d, left)
	}
	if len(s.heap) > 0 {
		d = min(d, s.heap[0].at.Sub(s.clock.now()))
	}
	return max(d, 0)
}

// storeFailed notes that the store is out of reach, and rests for a moment.
func (s *Scheduler) storeFailed(ctx context.Context, doing string, err error) {
	s.pausedUntil = s.local().Add(pause)
	if ctx.Err() != nil {
		return
	}
	if now := s.local(); s.complained.IsZero() || now.Sub(s.complained) >= syncEvery {
		s.complained = now
		s.log.Warn("schedule store out of reach, ticks are kept until their deadlines", "doing", doing, "error", err)
	}
}

func (s *Scheduler) storeWorks() {
	if !s.complained.IsZero() {
		s.log.Info("schedule store is back")
		s.complained = time.Time{}
	}
}

// prepare plans one job and makes its claim. Where nothing is to be claimed it
// puts the entry where it belongs.
func (s *Scheduler) prepare(e *entry, now time.Time) (a asked, ok bool) {
	defer func() {
		// A panic in a schedule or a publisher concerns one job.
		if v := recover(); v != nil {
			s.setAside(e, now, fmt.Errorf("scheduler: panic: %v", v))
			ok = false
		}
	}()
	p, err := e.plan(now, s.begun)
	if err != nil {
		s.quarantine(e, err) // and not back into the heap: it cannot get better
		return a, false
	}
	if !e.unsure.IsZero() && e.unsure.At != p.tick.At && e.unsure.At.After(e.mark) {
		p = e.giveUp(e.unsure)
	}
	switch {
	case p.done:
		e.at, e.due = time.Time{}, time.Time{}
		return a, false
	case p.patient:
		s.push(e, p.wait)
		return a, false
	case p.tick.IsZero():
		s.push(e, p.wait)
		s.tellNext(e, p.wait.Add(-e.delay))
		return a, false
	case p.late && s.hold(e, p, now):
		return a, false
	}
	s.cfg.Observer.lastDue(e.job.Name, p.tick.At)
	a = asked{entry: e, plan: p, claim: e.claim(p)}
	if now.After(p.miss) {
		return a, true // too late, or given up: settled without a message
	}
	if err := s.publishable(&a); err != nil {
		if e.failures+1 < failLimit {
			s.setAside(e, now, err)
			return a, false
		}
		// Other replicas had their chance: settled without a message, so that
		// the job's next ticks do not wait for one that cannot be rendered.
		s.failedTick(e)
		s.quarantine(e, err)
		s.log.Error("tick cannot be rendered and is recorded as missed", "schedule", e.job.Name, "tick", p.tick.Label, "error", err)
		a.claim.Step, a.claim.List, a.claim.Message, a.sender = Whole, "", nil, nil
	}
	return a, true
}

// publishable renders the tick's message into the claim.
func (s *Scheduler) publishable(a *asked) error {
	req, err := s.request(a.entry, a.plan.tick)
	if err != nil {
		return err
	}
	a.claim.TaskID = req.ID
	if sender := s.cfg.Senders[a.entry.job.Engine]; sender != nil {
		a.sender, a.request, a.claim.Step = sender, req, Look
		return sender.Prepare(req)
	}
	a.claim.List, a.claim.Message, err = s.cfg.Publisher.Prepare(req)
	if err == nil && a.claim.List == "" {
		err = errors.New("scheduler: publisher named no list")
	}
	return err
}

// settle takes the store's answer to one claim.
func (s *Scheduler) settle(ctx context.Context, a asked, r ClaimResult) {
	e, tick, name, obs := a.entry, a.plan.tick, a.entry.job.Name, &s.cfg.Observer
	if r.Err != nil {
		s.claimFailed(ctx, a, r)
		return
	}
	if r.Outcome != Stale && r.Outcome != Unseeded {
		s.staleEnds(e)
	}
	now := s.clock.now()
	again := now
	switch r.Outcome {
	case Fired:
		failpoint.Hit(failpoint.AfterClaim, name, "")
		e.mark = tick.At
		if r.Aside {
			s.asideOf(name)
			break
		}
		s.fired(a)
		obs.lag(name, r.Now.Sub(a.claim.Due))
	case Missed:
		s.missed(a)
		e.mark = tick.At
	case Paused:
		s.paused(a)
		e.mark = tick.At
	case Duplicate:
		s.duplicate(a, r)
		e.mark = maxTime(r.Mark, tick.At)
	case Early:
		again = now.Add(max(r.Wait, time.Millisecond))
	case Gap:
		if r.Mark.Equal(e.mark) {
			again = now.Add(pause) // the schedule and the store disagree; never spin
		}
		e.mark = r.Mark
	case Unseeded:
		again = now.Add(pause)
		if r.NeedBeat {
			s.pokeBeat()
		} else {
			e.mark = r.Mark
			s.log.Warn("state of a job was new or lost, it starts afresh", "schedule", name)
		}
	case Stale:
		s.letGo(e)
		s.becameStale(e, r, now)
		return
	}
	e.unsure = Occurrence{}
	s.letGo(e)
	switch r.Outcome {
	case Fired, Duplicate:
		s.recovered(e)
	case Missed, Paused:
		e.failures = 0 // the next tick has its own tries; set aside it stays until one succeeds
	default:
	}
	s.push(e, again)
}

// fired reports a tick that this replica published.
func (s *Scheduler) fired(a asked) {
	name, obs := a.entry.job.Name, &s.cfg.Observer
	obs.tick(name, TickEnqueued, 1)
	if a.plan.jump > 0 {
		obs.tick(name, TickMissed, a.plan.jump)
	}
	obs.fired(name, a.plan.tick, a.claim.TaskID)
	s.log.Debug("tick published", "schedule", name, "tick", a.plan.tick.Label, "task_id", a.claim.TaskID)
}

// missed reports a tick that this replica settled without a message.
func (s *Scheduler) missed(a asked) {
	name, n := a.entry.job.Name, a.plan.jump+1
	s.cfg.Observer.tick(name, TickMissed, n)
	s.log.Warn("tick missed", "schedule", name, "tick", a.plan.tick.Label, "ticks", n)
}

// paused reports a tick that this replica settled without a message, since
// somebody has paused the job.
func (s *Scheduler) paused(a asked) {
	name, n := a.entry.job.Name, a.plan.jump+1
	s.cfg.Observer.tick(name, TickPaused, n)
	s.log.Debug("tick not published: the job is paused", "schedule", name, "tick", a.plan.tick.Label, "ticks", n)
}

// duplicate reports a tick that was settled already. One that this replica
// itself settled, in a call whose reply was lost, is its own.
func (s *Scheduler) duplicate(a asked, r ClaimResult) {
	tick := a.plan.tick.At
	switch {
	case r.By == s.cfg.ID && r.Last.Equal(tick):
		switch {
		case a.entry.unsure.IsZero():
		case r.LastAs == Missed:
			s.missed(a)
		case r.LastAs == Paused:
			s.paused(a)
		default:
			s.fired(a)
		}
	case !r.Last.Before(tick):
		s.asideOf(a.entry.job.Name)
	}
}

// asideOf reports a tick that another replica has published.
func (s *Scheduler) asideOf(name string) {
	s.cfg.Observer.tick(name, TickDuplicate, 1)
	s.cfg.Observer.standAside(name)
}

// claimFailed keeps the tick: it is asked for again until the store itself
// says that it is too late.
func (s *Scheduler) claimFailed(ctx context.Context, a asked, r ClaimResult) {
	e := a.entry
	if !r.Refused {
		e.unsure = a.plan.tick
		s.failedTick(e)
		s.push(e, e.at)
		s.storeFailed(ctx, "claiming a tick", r.Err)
		return
	}
	s.setAside(e, s.clock.now(), r.Err)
}

// setAside lets a job rest after a failure of its own; others go on.
func (s *Scheduler) setAside(e *entry, now time.Time, err error) {
	s.failedTick(e)
	e.failures++
	if e.failures >= failLimit {
		s.quarantine(e, err)
	} else {
		s.log.Error("job failed", "schedule", e.job.Name, "error", err)
	}
	s.push(e, now.Add(min(time.Second<<min(e.failures-1, 6), time.Minute)))
}

// quarantine tells that a job is set aside.
func (s *Scheduler) quarantine(e *entry, err error) {
	if e.quarantined {
		return
	}
	e.quarantined = true
	s.log.Error("job set aside", "schedule", e.job.Name, "error", err)
	s.cfg.Observer.quarantine(e.job.Name, err)
}

// recovered tells that a job works again.
func (s *Scheduler) recovered(e *entry) {
	e.failures = 0
	if e.quarantined {
		e.quarantined = false
		s.log.Info("job works again", "schedule", e.job.Name)
		s.cfg.Observer.quarantine(e.job.Name, nil)
	}
}

// failedTick counts the failure of the entry's first open tick, once.
func (s *Scheduler) failedTick(e *entry) {
	if !e.failed.Equal(e.due) {
		e.failed = e.due
		s.cfg.Observer.tick(e.job.Name, TickError, 1)
	}
}

func (s *Scheduler) push(e *entry, at time.Time) {
	e.at = at
	heap.Push(&s.heap, e)
}

func (s *Scheduler) tellNext(e *entry, tick time.Time) {
	if !e.next.Equal(tick) {
		e.next = tick
		s.cfg.Observer.next(e.job.Name, tick)
	}
}

// load reads the state of all jobs and starts the heap anew.
func (s *Scheduler) load(ctx context.Context) error {
	names := make([]string, len(s.entries))
	for i, e := range s.entries {
		names[i] = e.job.Name
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout+time.Duration(len(names)/claimBatch)*100*time.Millisecond)
	defer cancel()
	states, err := s.cfg.State.Load(callCtx, names)
	if err != nil {
		return err
	}
	now := s.clock.now()
	s.heap, s.stale = s.heap[:0], map[*entry]bool{}
	for i, e := range s.entries {
		e.mark = states[i].Mark()
		if !states[i].Known {
			e.mark = now
		}
		s.letGo(e)
		s.heap = append(s.heap, e)
		e.at, e.index = now, i
	}
	heap.Init(&s.heap)
	return nil
}

// maxTime is the later of two instants.
func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func discard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
