package asynqengine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
)

// Errors of [Engine.Run].
var (
	// ErrRunsLeft: the grace was over and runs still went on. Their messages
	// are back in their queues; the process must end now.
	ErrRunsLeft = errors.New("asynqengine: runs did not end in time")
	// ErrRunning: Run was called twice.
	ErrRunning = errors.New("asynqengine: engine runs already")
)

// Engine takes tasks from asynq queues and runs them. Make one with [New]; it
// runs once.
type Engine struct {
	cfg       Config
	log       *slog.Logger
	inspector *asynq.Inspector
	results   *resultstore.Writer
	tune      tuning

	run        tasks.Runner
	lines      lines
	wakes      *mailbox
	looking    keySet
	suspect    atomic.Bool // one runs
	active     atomic.Int64
	started    atomic.Bool
	background sync.WaitGroup

	// stopped ends what goes on beside the runs; cancelled ends the runs, with
	// a cause.
	stopped   context.Context
	stop      context.CancelFunc
	cancelled context.Context
	cancel    context.CancelCauseFunc
}

var _ tasks.Waker = (*Engine)(nil)

// tuning are the engine's times; tests shorten some.
type tuning struct {
	check    time.Duration // between two looks at empty queues
	forward  time.Duration // between two looks for tasks whose time has come
	beat     time.Duration
	beatFail time.Duration
	janitor  time.Duration // lines without a timer, orphans
	exit     time.Duration // from the cancelling of runs to the exit
	call     time.Duration // time-out of what is asked beside the runs
	patience time.Duration // how long a write of a run is tried
}

func defaultTuning() tuning {
	return tuning{
		check: 100 * time.Millisecond, forward: time.Second, beat: 3 * time.Second, beatFail: time.Second,
		janitor: time.Minute, exit: 5 * time.Second, call: 5 * time.Second, patience: time.Minute,
	}
}

// New checks the configuration and makes an engine. It does not connect.
func New(cfg Config) (*Engine, error) {
	cfg.defaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, log: cfg.Logger, inspector: asynq.NewInspectorFromRedisClient(cfg.Client),
		lines:   newLines(cfg.Client, cfg.KeyPrefix, cfg.Namespace),
		results: resultstore.NewWriter(cfg.Results), wakes: newMailbox(), tune: defaultTuning(),
	}
	e.stopped, e.stop = context.WithCancel(context.Background())
	e.cancelled, e.cancel = context.WithCancelCause(context.Background())
	return e, nil
}

// Run takes and runs tasks until ctx is cancelled, and ends in order then: it
// stops taking, waits for the grace, cancels the runs with cause
// [tasks.ErrShutdown], and returns at the latest about 5 s later. What still
// runs then is back in its queue already ([ErrRunsLeft]).
func (e *Engine) Run(ctx context.Context, run tasks.Runner) error {
	if !e.started.CompareAndSwap(false, true) {
		return ErrRunning
	}
	e.run = run
	defer e.stop()
	servers := e.servers()
	for _, s := range servers {
		if err := s.Start(asynq.HandlerFunc(e.process)); err != nil {
			return err // only a server that was started before refuses
		}
	}
	for _, duty := range []func(context.Context){e.beatLoop, e.wakeLoop, e.janitorLoop} {
		e.background.Go(func() { duty(e.stopped) })
	}
	e.log.Info("asynq worker is up", "queues", e.cfg.Queues, "concurrency", e.cfg.Concurrency, "servers", len(servers))
	<-ctx.Done()
	e.end(servers)
	e.stop()
	e.background.Wait()
	if n := e.Active(); n > 0 {
		e.log.Error("runs still go on; their tasks are back in their queues", "runs", n)
		return ErrRunsLeft
	}
	return nil
}

// Active is the number of runs in this process.
func (e *Engine) Active() int { return int(e.active.Load()) }

// Queues are the queues that the engine takes from.
func (e *Engine) Queues() []string { return append([]string(nil), e.cfg.Queues...) }

// servers makes asynq's servers; the slots are shared out over them.
func (e *Engine) servers() []*asynq.Server {
	n := min(e.cfg.Servers, e.cfg.Concurrency)
	client := &patient{UniversalClient: e.cfg.Client, stop: e.stopped.Done()}
	queues := map[string]int{}
	for _, q := range e.cfg.Queues {
		queues[q] = 1
	}
	servers := make([]*asynq.Server, n)
	for i := range servers {
		slots := e.cfg.Concurrency / n
		if i < e.cfg.Concurrency%n {
			slots++
		}
		servers[i] = asynq.NewServerFromRedisClient(client, asynq.Config{
			Concurrency: slots, Queues: queues, Logger: logger{e.log}, LogLevel: asynq.InfoLevel,
			TaskCheckInterval: e.tune.check, DelayedTaskCheckInterval: e.tune.forward,
			RetryDelayFunc: retryDelay, IsFailure: isFailure,
			// What is to be waited for has been waited for when it counts.
			ShutdownTimeout: 100 * time.Millisecond,
		})
	}
	return servers
}

// end is the orderly end of the servers.
func (e *Engine) end(servers []*asynq.Server) {
	e.log.Info("asynq worker is stopping", "runs", e.Active(), "grace", e.cfg.Grace)
	each(servers, (*asynq.Server).Stop)
	if !e.idleWithin(e.cfg.Grace) {
		e.log.Warn("grace is over; runs are cancelled", "runs", e.Active())
		e.cancel(tasks.ErrShutdown)
		e.idleWithin(e.tune.exit)
	}
	each(servers, (*asynq.Server).Shutdown)
	e.cancel(tasks.ErrShutdown)
}

func each(servers []*asynq.Server, do func(*asynq.Server)) {
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() { do(s) })
	}
	wg.Wait()
}

// idleWithin waits until no run goes on; false if d passes first.
func (e *Engine) idleWithin(d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for e.Active() > 0 {
		select {
		case <-over.C:
			return e.Active() == 0
		case <-again.C:
		}
	}
	return true
}

// beatLoop feels whether Redis answers.
func (e *Engine) beatLoop(ctx context.Context) {
	known, up := false, false
	for {
		call, cancel := context.WithTimeout(ctx, e.tune.call)
		err := e.cfg.Client.Ping(call).Err()
		cancel()
		if ctx.Err() != nil {
			return
		}
		was := up
		up = err == nil
		call1(e.cfg.Observer.BrokerUp, up)
		switch {
		case up && !was && known:
			e.log.Info("broker answers again")
			if f := e.cfg.Observer.Reconnect; f != nil {
				f()
			}
		case !up && (was || !known):
			e.log.Warn("broker does not answer as it should", "error", err)
		}
		known = true
		wait := e.tune.beat
		if !up {
			wait = e.tune.beatFail
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// janitorLoop looks for what nobody else would find.
func (e *Engine) janitorLoop(ctx context.Context) {
	admin := NewAdmin(AdminConfig{Client: e.cfg.Client, Queues: e.cfg.Queues})
	seen := map[string]bool{}
	for pause(ctx, e.tune.janitor) {
		call, cancel := context.WithTimeout(ctx, e.tune.janitor)
		err := e.sweepLines(call)
		if err == nil {
			seen, err = e.reportOrphans(call, admin, seen)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.Warn("janitor could not look through", "error", err)
		}
	}
}

// reportOrphans tells of tasks that were orphans at the last look too: between
// two reads a task may just be ending.
func (e *Engine) reportOrphans(ctx context.Context, a *Admin, before map[string]bool) (map[string]bool, error) {
	now := map[string]bool{}
	for _, q := range e.cfg.Queues {
		orphans, err := a.Orphans(ctx, q)
		if err != nil {
			return now, err
		}
		n := 0
		for _, o := range orphans {
			who := waiter(q, o.ID)
			now[who] = true
			if !before[who] {
				continue
			}
			n++
			e.log.Warn("asynq's recoverer cannot see this task: it stands as active and never comes back",
				"queue", q, "task_id", o.ID, "reason", o.Reason)
		}
		call2(e.cfg.Observer.Orphans, q, n)
	}
	return now, nil
}

func call1[A any](f func(A), a A) {
	if f != nil {
		f(a)
	}
}

func call2[A, B any](f func(A, B), a A, b B) {
	if f != nil {
		f(a, b)
	}
}
