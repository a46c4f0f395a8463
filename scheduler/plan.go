package scheduler

import (
	"errors"
	"fmt"
	"time"
)

// ErrNoProgress is the reason of a quarantine: the schedule gave a tick that
// is not later than the one before.
var ErrNoProgress = errors.New("scheduler: schedule does not move on")

const (
	// lateAfter is from when on `once` does not make up for a tick. It is more
	// than [MisfireThreshold], so that no fault shorter than that, and no burial
	// of a dead replica, loses one: the call that was under way when the store
	// came back has to time out, and the next one has its pause.
	lateAfter = MisfireThreshold + callTimeout + 3*pause
	// patience is how long a replica that has just begun leaves open ticks to
	// the others, who may be about to settle them after a fault.
	patience = callTimeout + 2*pause
)

// begun is when a replica began, by the store's clock, and until when it leaves
// older ticks to others; zero: there were none.
type begun struct{ at, patient time.Time }

// plan is what to do about a job at an instant: wait until a time, claim a
// tick, or nothing any more.
type plan struct {
	done  bool
	wait  time.Time  // nothing is due before
	tick  Occurrence // the tick to claim, if not zero
	miss  time.Time  // after that the tick is only recorded as missed
	order bool       // only if the tick before is settled
	jump  int        // older open ticks, which become missed
	late  bool       // a late one, which the rate limit is for

	patient bool // the wait leaves open ticks to others
}

// plan decides by the misfire policy which of the job's open ticks is next.
// Ticks that were due before this replica started count as late from the
// first second: whoever was down does not know for how long. But where there are
// others, they have a moment to settle them one by one.
func (e *entry) plan(now time.Time, start begun) (plan, error) {
	s := e.job.Schedule
	first := s.Next(e.mark)
	if first.IsZero() {
		return plan{done: true}, nil
	}
	if !first.At.After(e.mark) {
		return plan{}, fmt.Errorf("%w: %s after %s", ErrNoProgress, first.At, e.mark)
	}
	e.due = first.At.Add(e.delay)
	if e.due.After(now) {
		return plan{wait: e.due}, nil
	}
	late := func(due time.Time) bool { return now.Sub(due) > lateAfter || !due.After(start.at) }
	p := plan{tick: first}
	switch e.job.Misfire.policy() {
	case MisfireSkip:
		grace := e.delay + MisfireThreshold
		if first.At.Add(grace).Before(now) {
			p.tick = e.newest(first, now.Add(-grace-time.Millisecond))
			if next := s.Next(p.tick.At); !next.IsZero() && !next.At.Add(e.delay).After(now) {
				p.tick = next // the first that is not late; the claim counts the others as missed
			}
		}
		p.miss = p.tick.At.Add(grace)
	case MisfireAll:
		deadline := e.job.DeadlineOf(first.At)
		p.order = true
		if first.At.Add(deadline).Before(now) {
			p.tick = e.newest(first, now.Add(-deadline-time.Millisecond))
			p.order = false
		}
		p.miss = p.tick.At.Add(deadline)
	default:
		if late(e.due) {
			upTo := now
			if !start.patient.IsZero() && now.Sub(e.due) <= lateAfter {
				upTo = start.at
			}
			p.tick = e.newest(first, upTo.Add(-e.delay))
			if now.Before(start.patient) && p.tick.At.After(first.At) {
				return plan{wait: start.patient, patient: true}, nil
			}
		}
		p.miss = p.tick.At.Add(e.job.DeadlineOf(p.tick.At))
	}
	p.jump = e.jumped(p.tick.At)
	p.late = late(p.tick.At.Add(e.delay))
	return p, nil
}

// newest is the last tick at or before an instant, at least first.
func (e *entry) newest(first Occurrence, upTo time.Time) Occurrence {
	if last := e.job.Schedule.Prev(upTo); last.At.After(first.At) {
		return last
	}
	return first
}

// jumped counts the open ticks before tick.
func (e *entry) jumped(tick time.Time) int {
	return max(0, e.job.Schedule.Count(e.mark, tick)-1)
}

// giveUp settles a tick whose claim may have been done although no reply came,
// when the policy would go on with a newer one: it is either found to be ours,
// or missed.
func (e *entry) giveUp(tick Occurrence) plan {
	return plan{tick: tick, jump: e.jumped(tick.At)}
}

// claim spells a plan out for the store, without its message.
func (e *entry) claim(p plan) Claim {
	c := Claim{
		Job: e.job.Name, Revision: e.revision, Tick: p.tick.At, Label: p.tick.Label, Civil: e.civil(p.tick),
		Due: p.tick.At.Add(e.delay), MissAfter: p.miss, InOrder: p.order, Base: e.mark, Jumped: p.jump,
		Next: e.job.Schedule.Next(p.tick.At).At,
	}
	if p.order {
		c.Prev = e.job.Schedule.Prev(p.tick.At.Add(-time.Second)).At
	}
	return c
}

// civil names the civil time of a cron tick, and which of two equal ones it
// is: replicas with different zone data reckon different instants, and
// different offsets, for one civil time.
func (e *entry) civil(tick Occurrence) string {
	if e.job.Spec.Cron == "" {
		return ""
	}
	_, offset := tick.Local.Zone()
	fold := 0
	if all := instantsOf(e.job.Schedule.Location(), tick.At.Unix()+int64(offset)); all.n > 1 && all.last == tick.At.Unix() {
		fold = 1
	}
	return fmt.Sprintf("%s#%d", tick.Local.Format("2006-01-02T15:04:05"), fold)
}
