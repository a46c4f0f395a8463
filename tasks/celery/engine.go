package celery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
)

// Errors of [Engine.Run].
var (
	// ErrRunsLeft: the grace was over and runs still went on. Peers take
	// their messages over; the process must end now.
	ErrRunsLeft = errors.New("celery: runs did not end in time")
	// ErrRunning: Run was called twice.
	ErrRunning = errors.New("celery: engine runs already")
)

// Engine takes messages from Celery queues and runs them. Make one with
// [New]; it runs once.
type Engine struct {
	cfg     Config
	keys    keys
	log     *slog.Logger
	rdb     *redis.Client
	redis   *redisconn.Runner
	scripts *scripts
	sources []*source
	// elsewhere is nil where the scripts write the results.
	elsewhere *elsewhere

	clock    storeClock
	ready    *readyQueue
	finished *mailbox[*commit]
	wakes    *mailbox[string]
	looks    *mailbox[tasks.Park] // parks to look at once more
	due      *dueTimer
	parkSeq  atomic.Int64

	self      atomic.Pointer[replica]
	node      atomic.Pointer[string]
	held      *holdings
	processed atomic.Int64
	cycles    atomic.Int64 // calls begun and answered
	eventTick atomic.Int64
	broker    brokerState

	naiveMu sync.Mutex
	naive   map[string]bool

	started atomic.Bool
	ended   atomic.Bool // the loop is over: nothing is acked any more
	tune    tuning
}

var _ tasks.Waker = (*Engine)(nil)

// tuning are the engine's times; tests shorten some.
type tuning struct {
	beat       time.Duration // period of the heartbeat in the registry
	beatRetry  time.Duration // after one that failed
	beatTTL    time.Duration // a replica without a beat for so long is dead
	stallAge   time.Duration // age of the own beat that tells of a stall of Redis
	stallQuiet time.Duration // how long nobody is buried then
	freshQuiet time.Duration // and after a registration
	lead       time.Duration // how far in the future the scores of unacked lie
	refresh    time.Duration // period at which they are moved on
	wait       time.Duration // a BLMOVE's time-out
	sweep      time.Duration // how long in-flight lists of the dead are swept
	exit       time.Duration // from the cancelling of runs to the exit
	hoard      time.Duration // a message that waits so long for a slot goes back
	janitor    time.Duration
	event      time.Duration // period of worker-heartbeat events
	call       time.Duration // time-out of one script
}

func defaultTuning() tuning {
	return tuning{
		beat: 3 * time.Second, beatRetry: time.Second, beatTTL: 10 * time.Second,
		stallAge: 5 * time.Second, stallQuiet: 15 * time.Second, freshQuiet: 5 * time.Second,
		lead: 30 * time.Second, refresh: 10 * time.Second, wait: 5 * time.Second, sweep: 7 * time.Second,
		exit: 5 * time.Second, hoard: time.Second, janitor: time.Minute, event: 2 * time.Second,
		call: 5 * time.Second,
	}
}

// replica is this process under one instance id. A new one is made when its
// peers have buried it.
type replica struct {
	id      string
	ctx     context.Context // of its runs; cancelled with a cause
	cancel  context.CancelCauseFunc
	inlists []string // keys of its in-flight lists, in the order of the sources
}

// New checks the configuration and makes an engine. It does not connect.
func New(cfg Config) (*Engine, error) {
	cfg.defaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	k := cfg.keys()
	e := &Engine{
		cfg: cfg, keys: k, log: cfg.Logger, rdb: cfg.Broker, redis: redisconn.NewRunner(cfg.Broker),
		scripts: newScripts(), sources: makeSources(k, cfg.Queues),
		ready: newReadyQueue(cfg.Concurrency), finished: newMailbox[*commit](), wakes: newMailbox[string](),
		looks: newMailbox[tasks.Park](), due: newDueTimer(), held: newHoldings(),
		naive: map[string]bool{}, tune: defaultTuning(),
	}
	e.node.Store(&cfg.NodeName)
	if cfg.Results != nil && !redisconn.SameAddress(cfg.Broker.Options(), cfg.Results.Options()) {
		e.elsewhere = newElsewhere(cfg.Results)
	}
	return e, nil
}

// Run takes and runs messages until ctx is cancelled, and ends in order then:
// it stops taking, gives back what no run has begun, waits for the grace,
// cancels the runs with cause [tasks.ErrShutdown], and returns at the latest
// 5 s later. [ErrRunsLeft] says that runs still go on.
func (e *Engine) Run(ctx context.Context, run tasks.Runner) error {
	if !e.started.CompareAndSwap(false, true) {
		return ErrRunning
	}
	base := context.WithoutCancel(ctx)
	self, err := e.enrol(base, "", func(n int, err error) bool {
		e.broker.failed(e, "register", err)
		pause(ctx, backoff(n))
		return ctx.Err() == nil
	})
	if err != nil {
		return err // ctx was cancelled before the server answered
	}
	e.ready.patience = e.tune.hoard
	l := newLoop(ctx, base, e, self)
	background, stop := context.WithCancel(base)
	var wg, runs sync.WaitGroup
	for _, duty := range []func(context.Context){
		e.beatLoop(l), e.refreshLoop, e.dueLoop, e.wakeLoop, e.lookLoop, e.janitorLoop, e.eventLoop, e.elsewhereLoop,
	} {
		wg.Go(func() { duty(background) })
	}
	for range e.ready.runners() {
		runs.Go(func() { e.worker(run) })
	}
	e.log.Info("worker is up", "node", e.NodeName(), "instance", self.id, "queues", e.cfg.Queues, "concurrency", e.cfg.Concurrency)
	left := l.run()
	stop()
	waitFor(&wg, lastWord) // the last event, and what a takeover has begun
	if left > 0 {
		e.log.Error("runs still go on; their messages are left to peers", "runs", left)
		return ErrRunsLeft
	}
	runs.Wait()
	return nil
}

// Instance is the instance id; it changes when peers have buried this replica.
func (e *Engine) Instance() string {
	if r := e.self.Load(); r != nil {
		return r.id
	}
	return e.cfg.Instance
}

// NodeName is the replica's Celery node name, final once Run has registered it.
func (e *Engine) NodeName() string { return *e.node.Load() }

// Active is the number of runs in this process, those included that have left
// their slot.
func (e *Engine) Active() int { return e.ready.runs() }

// Queues are the queues that the engine takes from.
func (e *Engine) Queues() []string { return append([]string(nil), e.cfg.Queues...) }

// QueueKeys are the keys of the engine's lists.
func (e *Engine) QueueKeys() []string { return QueueKeys(e.keys.prefix, e.cfg.Queues...) }

// Wake brings the oldest message that is parked for key forward. It returns
// at once; several calls are sent together.
func (e *Engine) Wake(_ context.Context, key string) { e.wakes.put(e.keys.line(key)) }

func (e *Engine) run(ctx context.Context, s *redisconn.Script, keys []string, args ...any) *redis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	return e.redis.Run(ctx, s, keys, args...)
}

// waitFor waits for a group, but no longer than d.
func waitFor(wg *sync.WaitGroup, d time.Duration) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// pause waits, less if ctx ends first.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// backoff is the pause after the n-th failure in a row.
func backoff(n int) time.Duration {
	d := 20 * time.Millisecond
	for i := 1; i < n && d < time.Second; i++ {
		d *= 2
	}
	return min(d, time.Second)
}
