package scheduler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/solobeat/solobeat/internal/failpoint"
	"github.com/solobeat/solobeat/tasks"
)

// Config is what a [Scheduler] is made of. Jobs, State, Publisher and ID are
// needed; the zero value of the rest is the default.
type Config struct {
	// Namespace is the deployment's; "" is "default".
	Namespace string
	// KeyPrefix stands before the default key of a job's lock, as before all
	// keys of ours; a key that the file names is verbatim.
	KeyPrefix string
	// Jobs are all entries of the file, also the disabled ones.
	Jobs []*Job
	// State and Publisher are the store and the engine's client.
	State     State
	Publisher Publisher
	// Senders publish for jobs that name another engine, by its name.
	Senders map[string]Sender
	// ID is the instance id, random per process.
	ID string
	// Name is shown to people beside what this replica decides, and is asked
	// for each time, since a worker learns its own when it registers; nil is
	// the ID.
	Name func() string
	// File is where the schedule file lies, for messages.
	File string
	// LatePerSecond bounds the claims of late ticks; 0 is 200.
	LatePerSecond int
	// Logger is where to log; nil discards.
	Logger *slog.Logger
	// Observer is told what happens.
	Observer Observer
	// Clock is the local clock, with monotonic reading; nil is the machine's.
	Clock func() time.Time
}

// TickOutcome is what became of a tick at one replica.
type TickOutcome string

// The outcomes of a tick. A replica reports one of them per tick, except that
// a tick first reported as TickError may later get another.
const (
	TickEnqueued  TickOutcome = "enqueued"
	TickDuplicate TickOutcome = "duplicate"
	TickMissed    TickOutcome = "missed"
	TickPaused    TickOutcome = "paused"
	TickStale     TickOutcome = "stale"
	TickError     TickOutcome = "error"
)

// Observer is a set of functions that are called when something happens; nil
// ones are left out. They are called from the loop, Registered from the beat
// beside it, and must not block.
type Observer struct {
	// Tick: n ticks of a job were settled with this outcome.
	Tick func(schedule string, outcome TickOutcome, n int)
	// Lag: a tick was published this long after it was due (its jitter counts
	// from the tick), by the store's clock.
	Lag func(schedule string, lag time.Duration)
	// Next: the job's next tick.
	Next func(schedule string, tick time.Time)
	// LastDue: the newest tick that was due.
	LastDue func(schedule string, tick time.Time)
	// Heartbeat: the loop has completed, at this instant of the local clock.
	Heartbeat func(at time.Time)
	// StandAside: the replica met a tick that another had claimed; once per
	// tick.
	StandAside func(schedule string)
	// Quarantined: a job is set aside because of err, until its next tick or
	// for good; nil err: it works again.
	Quarantined func(schedule string, err error)
	// StaleFor: for how long the job's claims were answered STALE; 0 when that
	// ends. Reported every 10 s from 5 minutes on.
	StaleFor func(schedule string, d time.Duration)
	// Registered: the replica entered the registry (again).
	Registered func()
	// Fired: a tick was published by this replica.
	Fired func(schedule string, tick Occurrence, taskID string)
}

// defaultLateRate is the number of late ticks that are claimed per second.
const defaultLateRate = 200

// Scheduler settles the ticks of one file, beside any number of others: there
// is no leader. Create it with [New].
type Scheduler struct {
	cfg       Config
	log       *slog.Logger
	local     func() time.Time
	clock     *storeClock
	entries   []*entry
	revisions map[string]string

	poke, wake       chan struct{}
	reload, switched atomic.Bool

	mu         sync.Mutex // guards what follows
	replica    Replica
	generation string
	others     int // in the registry at the last beat
	status     Status

	// What follows belongs to the loop.
	begun       begun
	heap        entryHeap
	stale       map[*entry]bool
	held        map[*entry]bool // late ones that wait for their turn
	late        limiter
	pausedUntil time.Time
	complained  time.Time
	staleAsked  time.Time
	staleLogged time.Time
}

// New checks the jobs and makes a scheduler. The error joins one [*JobError]
// per mistake.
func New(cfg Config) (*Scheduler, error) {
	if cfg.State == nil || cfg.Publisher == nil || cfg.ID == "" {
		return nil, errors.New("scheduler: Config needs State, Publisher and ID")
	}
	cfg.Namespace = cmp.Or(cfg.Namespace, tasks.DefaultNamespace)
	cfg.LatePerSecond = cmp.Or(cfg.LatePerSecond, defaultLateRate)
	s := &Scheduler{
		cfg: cfg, log: discard(cfg.Logger), local: cfg.Clock, revisions: map[string]string{},
		poke: make(chan struct{}, 1), wake: make(chan struct{}, 1), stale: map[*entry]bool{}, held: map[*entry]bool{},
		late: limiter{rate: cfg.LatePerSecond},
	}
	if s.local == nil {
		s.local = failpoint.Now
	}
	s.clock = &storeClock{state: cfg.State, local: s.local}
	var errs []error
	all := checkAll(cfg.Jobs)
	for i, j := range cfg.Jobs {
		if _, twice := s.revisions[j.Name]; twice {
			errs = append(errs, &JobError{Job: j.Name, Field: "name", Msg: "is used twice", Cure: "rename one of the two"})
			continue
		}
		s.revisions[j.Name] = j.Revision()
		if j.Engine != "" && cfg.Senders[j.Engine] == nil {
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
		s.entries = append(s.entries, &entry{job: j, tmpl: all[i].tmpl, revision: s.revisions[j.Name], delay: j.Delay(), index: -1})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.replica = Replica{ID: cfg.ID, Name: cfg.ID, Path: cfg.File, File: hashRevisions(s.revisions)}
	return s, nil
}

// hashRevisions names a file by what decides its ticks.
func hashRevisions(revisions map[string]string) string {
	h := sha256.New()
	for _, job := range slices.Sorted(maps.Keys(revisions)) {
		fmt.Fprintf(h, "%s %s\n", job, revisions[job])
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// Run settles ticks until ctx ends, then takes the replica out of the registry
// and returns nil. The only errors are those that waiting cannot cure
// ([ErrUnsafePolicy]); a store out of reach is waited for.
func (s *Scheduler) Run(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		if s.self().Load > 0 {
			s.leave(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.beats(ctx) })
	s.loop(ctx)
	wg.Wait()
	s.leave(ctx)
	return nil
}

// start registers and reads all state, however long that takes.
func (s *Scheduler) start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		err := s.tryStart(ctx)
		if err == nil || errors.Is(err, ErrUnsafePolicy) {
			return err
		}
		s.storeFailed(ctx, "starting", err)
		s.completed()
		timer.Reset(pause)
	}
}

func (s *Scheduler) tryStart(ctx context.Context) error {
	if err := s.clock.sync(ctx); err != nil {
		return err
	}
	checkCtx, cancel := context.WithTimeout(ctx, callTimeout)
	err := s.cfg.State.Check(checkCtx)
	cancel()
	if err != nil {
		return err
	}
	if err := s.beat(ctx); err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	s.reload.Store(false)
	s.begin()
	s.storeWorks()
	s.pausedUntil = time.Time{}
	s.log.Info("scheduler started", "jobs", len(s.entries), "instance", s.cfg.ID, "file", s.cfg.File)
	return nil
}

// begin notes when this replica began, by the store's clock.
func (s *Scheduler) begin() {
	s.begun = begun{at: s.clock.now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others > 0 {
		s.begun.patient = s.begun.at.Add(patience)
	}
}

// Status is how the loop is doing.
type Status struct {
	// LastLoop is when the loop last completed, by the local clock.
	LastLoop time.Time
	// Overdue is how long the next thing to do is overdue; 0 or less: it is not.
	Overdue time.Duration
	// Jobs counts the enabled jobs, Stale those whose revision is not current,
	// Late those that wait for the rate limit of late ticks.
	Jobs, Stale, Late int
}

// Status returns how the loop is doing. Safe for concurrent use.
func (s *Scheduler) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// The errors of [Scheduler.Ready].
var (
	ErrLoopStuck   = errors.New("scheduler: the loop has not completed for 10 s")
	ErrLoopOverdue = errors.New("scheduler: the next tick is overdue for 30 s")
)

// Ready is nil while the scheduler does its work: its loop completed within
// the last 10 s, and nothing is overdue for 30 s. Before the first loop, and
// after Run returned, it is [ErrLoopStuck].
func (s *Scheduler) Ready() error {
	st := s.Status()
	switch {
	case s.local().Sub(st.LastLoop) > 10*time.Second:
		return ErrLoopStuck
	case st.Overdue > 30*time.Second:
		return fmt.Errorf("%w (%s)", ErrLoopOverdue, st.Overdue.Round(time.Second))
	}
	return nil
}

// completed notes that the loop has completed.
func (s *Scheduler) completed() {
	now := s.local()
	st := Status{LastLoop: now, Jobs: len(s.entries), Stale: len(s.stale), Late: len(s.held)}
	if len(s.heap) > 0 {
		st.Overdue = s.clock.now().Sub(s.heap[0].at)
	}
	s.mu.Lock()
	s.status = st
	s.mu.Unlock()
	s.cfg.Observer.heartbeat(now)
}
