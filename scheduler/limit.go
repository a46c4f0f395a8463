package scheduler

import "time"

// limiter gives claims of late ticks their turn, a bounded number per second,
// so that a restart after a long stop is no thundering herd.
type limiter struct {
	rate int
	next time.Time // the next free turn
}

// reserve returns the next free turn; one in the past is now. A second's worth
// of unused turns is kept.
func (l *limiter) reserve(now time.Time) time.Time {
	if oldest := now.Add(-time.Second); l.next.Before(oldest) {
		l.next = oldest
	}
	turn := l.next
	l.next = turn.Add(time.Second / time.Duration(l.rate))
	return turn
}

// hold puts a late tick off until its turn, or until the job has a tick that is
// on time, which late ones do not hold up. It is false if the turn has come.
func (s *Scheduler) hold(e *entry, p plan, now time.Time) bool {
	local := s.local()
	if e.turn.IsZero() {
		e.turn = s.late.reserve(local)
	}
	left := e.turn.Sub(local)
	if left <= 0 {
		return false
	}
	at := now.Add(left)
	if next := e.job.Schedule.Next(p.tick.At); !next.IsZero() && p.tick.At.Before(next.At) {
		if due := next.At.Add(e.delay); due.After(now) && due.Before(at) {
			at = due
		}
	}
	s.held[e] = true
	s.push(e, at)
	return true
}

// letGo ends what hold did.
func (s *Scheduler) letGo(e *entry) {
	e.turn = time.Time{}
	delete(s.held, e)
}
