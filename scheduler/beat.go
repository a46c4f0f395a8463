package scheduler

import (
	"context"
	"time"
)

const (
	beatEvery = 3 * time.Second
	beatRetry = time.Second
)

// beat tells the store that this replica lives and which file it has.
func (s *Scheduler) beat(ctx context.Context) error {
	s.beating <- struct{}{}
	defer func() { <-s.beating }()
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sent := s.local()
	r, err := s.cfg.State.Beat(callCtx, s.self(), s.revisions)
	if err != nil {
		return err
	}
	s.clock.check(sent, s.local(), r.Now)
	s.mu.Lock()
	s.replica.Load = r.Load
	changed := s.generation != r.Current.Generation
	s.generation, s.others = r.Current.Generation, r.Others
	s.mu.Unlock()
	for _, id := range r.Buried {
		s.log.Warn("a scheduler is dead", "instance", id)
	}
	if r.Registered {
		s.log.Info("scheduler registered", "instance", s.cfg.ID, "load_us", r.Load)
		s.cfg.Observer.registered()
		// Whatever the reason (new, taken for dead, data lost), what is known
		// of the jobs may be wrong.
		s.reload.Store(true)
	}
	if changed {
		s.log.Info("current schedule file", "own", r.Current.File == s.replica.File,
			"file", r.Current.Path, "hash", r.Current.File, "replica", r.Current.Name)
	}
	if changed || r.Registered {
		s.switched.Store(true)
		s.wakeLoop()
	}
	return nil
}

// beats beats every 3 s until ctx ends; a failed one is tried again after 1 s.
func (s *Scheduler) beats(ctx context.Context) {
	timer := time.NewTimer(beatEvery)
	defer timer.Stop()
	var complained time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.poke:
		}
		wait := beatEvery
		if err := s.beat(ctx); err != nil {
			wait = beatRetry
			if now := s.local(); ctx.Err() == nil && (complained.IsZero() || now.Sub(complained) >= syncEvery) {
				complained = now
				s.log.Warn("scheduler's beat failed", "error", err)
			}
		}
		timer.Reset(wait)
	}
}

// leave takes the replica out of the registry, so that another file can become
// current at once.
func (s *Scheduler) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := s.cfg.State.Leave(ctx, s.self()); err != nil {
		s.log.Info("scheduler left without saying so", "error", err)
	}
}

// pokeBeat asks for a beat now.
func (s *Scheduler) pokeBeat() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

func (s *Scheduler) wakeLoop() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// self is this replica as the store knows it.
func (s *Scheduler) self() Replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	self := s.replica
	if s.cfg.Name != nil {
		self.Name = s.cfg.Name()
	}
	return self
}
