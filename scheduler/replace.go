package scheduler

import (
	"errors"
	"fmt"
	"time"
)

// JobSet are the jobs of a file, checked and ready to be used by the scheduler
// whose [Scheduler.Prepare] made it, once.
type JobSet struct {
	jobs      []*Job
	entries   []*entry // of those that are enabled
	revisions map[string]string
	file      string

	tried time.Time // when the loop first wanted to use it, by the local clock
}

// owedFor bounds how long open ticks of the jobs before hold up the next ones:
// a job that the store keeps refusing must not keep its own mend out.
const owedFor = 10 * time.Second

// Prepare checks jobs as [New] does, and changes nothing. The error joins one
// [*JobError] per mistake.
func (s *Scheduler) Prepare(jobs []*Job) (*JobSet, error) {
	set := &JobSet{jobs: jobs, revisions: make(map[string]string, len(jobs))}
	var errs []error
	all := checkAll(jobs)
	for i, j := range jobs {
		if _, twice := set.revisions[j.Name]; twice {
			errs = append(errs, &JobError{Job: j.Name, Field: "name", Msg: "is used twice", Cure: "rename one of the two"})
			continue
		}
		set.revisions[j.Name] = j.Revision()
		if j.Engine != "" && s.cfg.Senders[j.Engine] == nil {
			errs = append(errs, &JobError{Job: j.Name, Field: "engine", Msg: fmt.Sprintf("%q is not served here", j.Engine), Cure: "name another engine"})
			continue
		}
		if err := all[i].err; err != nil {
			errs = append(errs, err)
			continue
		}
		if j.Disabled {
			continue
		}
		set.entries = append(set.entries, &entry{job: j, tmpl: all[i].tmpl, revision: set.revisions[j.Name], delay: j.Delay(), index: -1})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	set.file = hashRevisions(set.revisions)
	return set, nil
}

// Replace puts a set of jobs in force in place of those before, while the
// scheduler runs; Observer.Replaced tells when that has happened. First the
// ticks of jobs that change or go, as far as due, are settled. Then the file is
// loaded like one of a roll-out, with a new load instant, and the new ticks
// count from where the old ones were settled: none is lost, doubled or fired
// retroactively. Jobs that do not change keep their state. While the store is
// out of reach all that waits. A set that comes later replaces one that waits.
// Safe for concurrent use.
func (s *Scheduler) Replace(set *JobSet) {
	s.pending.Store(set)
	s.wakeLoop()
}

// adopt uses the set that waits, if the ticks of the jobs before have been
// settled up to looked, an instant of the store's clock. It belongs to the loop.
func (s *Scheduler) adopt(looked time.Time) {
	set := s.pending.Load()
	if set == nil {
		return
	}
	now := s.local()
	if now.Before(s.pausedUntil) { // the store is out of reach, and settles nothing
		set.tried = time.Time{}
		return
	}
	if set.tried.IsZero() {
		set.tried = now
	}
	if s.owes(set, looked) && now.Sub(set.tried) < owedFor || !s.pending.CompareAndSwap(set, nil) {
		return
	}
	s.takeOver(set)
	s.heap = s.heap[:0]
	if set.file == s.self().File {
		for _, e := range s.entries {
			if !s.stale[e] {
				s.push(e, looked)
			}
		}
	} else {
		s.register(set, looked)
		s.reload.Store(true)
	}
	s.wakeLoop()
	s.log.Info("schedule replaced", "jobs", len(s.entries), "hash", set.file)
	s.cfg.Observer.replaced(set.jobs)
}

// owes tells that a job which the set changes or does not have has a tick that
// was due and is not settled. Those that cannot be settled now do not count:
// another file is current, their job fails, or there are too many late ones.
func (s *Scheduler) owes(set *JobSet, looked time.Time) bool {
	for _, e := range s.entries {
		if set.revisions[e.job.Name] == e.revision || e.index < 0 || e.failures > 0 || s.stale[e] || s.held[e] {
			continue
		}
		if next := e.job.Schedule.Next(e.mark); !next.IsZero() && !next.At.Add(e.delay).After(looked) {
			return true
		}
	}
	return false
}

// takeOver makes the set's entries those of the loop. Jobs of the same revision
// keep what is known of their ticks.
func (s *Scheduler) takeOver(set *JobSet) {
	before := make(map[string]*entry, len(s.entries))
	for _, e := range s.entries {
		s.letGo(e)
		before[e.job.Name] = e
	}
	for i, e := range set.entries {
		was := before[e.job.Name]
		if was == nil || was.revision != e.revision {
			continue
		}
		delete(before, e.job.Name)
		s.recovered(was) // what it failed for may be mended
		was.job, was.tmpl, was.delay, was.index = e.job, e.tmpl, e.delay, -1
		set.entries[i] = was
	}
	for _, e := range before {
		s.recovered(e)
		s.staleEnds(e)
		delete(s.stale, e)
	}
	s.entries = set.entries
}

// register makes the set's file the one that beats tell of, with a load instant
// that the next beat gets.
func (s *Scheduler) register(set *JobSet, looked time.Time) {
	s.beating <- struct{}{}
	defer func() { <-s.beating }()
	s.revisions = set.revisions
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replica.Load > 0 { // else nothing was settled since From
		s.replica.From = looked
	}
	s.replica.File, s.replica.Load = set.file, 0
}
