package scheduler

import (
	"context"
	"time"
)

const (
	// staleAlarm is how long a job's claims may be answered STALE: two files
	// side by side during a roll-out are usual, for longer they are two
	// deployments in one namespace, one of which does nothing.
	staleAlarm = 5 * time.Minute
	staleRetry = time.Second
	staleTell  = 10 * time.Second
)

// becameStale sets a job apart whose revision is not the current one. It is
// asked for again when another file becomes current.
func (s *Scheduler) becameStale(e *entry, r ClaimResult, now time.Time) {
	if e.staleFrom.IsZero() {
		e.staleFrom = now
		s.log.Debug("another revision of the job is current", "schedule", e.job.Name, "revision", e.revision)
	}
	e.staleGen = r.Generation
	s.stale[e] = true
}

func (s *Scheduler) staleEnds(e *entry) {
	if e.staleFrom.IsZero() {
		return
	}
	e.staleFrom = time.Time{}
	if !e.staleTold.IsZero() {
		e.staleTold = time.Time{}
		s.cfg.Observer.staleFor(e.job.Name, 0)
	}
}

// askStale looks once a second which file is current: one small call answers
// for all jobs that wait for that, and those of another generation are claimed
// again. It is false if the store did not answer.
func (s *Scheduler) askStale(ctx context.Context) bool {
	if len(s.stale) == 0 || s.local().Sub(s.staleAsked) < staleRetry && !s.switched.Swap(false) {
		return true
	}
	s.staleAsked = s.local()
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	current, err := s.cfg.State.Current(callCtx)
	cancel()
	if err != nil {
		s.storeFailed(ctx, "asking which file is current", err)
		return false
	}
	now := s.clock.now()
	alarm := 0
	for e := range s.stale {
		if e.staleGen != current.Generation {
			delete(s.stale, e)
			s.push(e, now)
			continue
		}
		s.dropOverdue(e, now)
		if s.tellStale(e, now) {
			alarm++
		}
	}
	if alarm > 0 {
		s.complainStale(alarm, current)
	}
	return true
}

// dropOverdue gives up a stale job's ticks that are past their deadlines. The
// store is not told: they belong to another revision, or to none.
func (s *Scheduler) dropOverdue(e *entry, now time.Time) {
	first := e.job.Schedule.Next(e.mark)
	if first.IsZero() {
		return
	}
	deadline := e.job.DeadlineOf(first.At)
	if !first.At.Add(deadline).Before(now) {
		return
	}
	last := e.newest(first, now.Add(-deadline))
	s.cfg.Observer.tick(e.job.Name, TickStale, e.jumped(last.At)+1)
	e.mark, e.unsure = last.At, Occurrence{}
}

// tellStale reports a job that has been stale for too long.
func (s *Scheduler) tellStale(e *entry, now time.Time) bool {
	d := now.Sub(e.staleFrom)
	if d <= staleAlarm {
		return false
	}
	if e.staleTold.IsZero() || now.Sub(e.staleTold) >= staleTell {
		e.staleTold = now
		s.cfg.Observer.staleFor(e.job.Name, d)
	}
	return true
}

// complainStale logs, once in 5 minutes, whose file is in the way.
func (s *Scheduler) complainStale(jobs int, current FileInfo) {
	if now := s.local(); s.staleLogged.IsZero() || now.Sub(s.staleLogged) >= staleAlarm {
		s.staleLogged = now
		s.log.Error("jobs of this file are not current for over 5 minutes; two deployments in one namespace?",
			"jobs", jobs, "file", s.cfg.File, "hash", s.self().File,
			"current_file", current.Path, "current_hash", current.File, "current_replica", current.Name)
	}
}
