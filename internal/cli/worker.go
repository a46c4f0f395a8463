package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/internal/reload"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
	"github.com/solobeat/solobeat/tasks/command"
	"github.com/solobeat/solobeat/tasks/webhook"
	"github.com/solobeat/solobeat/tasks/worker"
)

// startWait is how long a process waits for Redis at its start.
const startWait = time.Minute

func (c *program) workerCommand() *cobra.Command {
	var o processOptions
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run tasks; with --with-scheduler also schedule",
		Example: `  solobeat worker -c solobeat.yaml
  solobeat worker -c solobeat.yaml --with-scheduler
  SOLOBEAT_REDIS_URL=redis://redis:6379/0 solobeat worker`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.worker, o.registry = true, c.handlers
			return c.process(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.scheduler, "with-scheduler", false, "also schedule the jobs of schedule.file")
	cmd.Flags().StringVarP(&o.node, "node-name", "n", "", "Celery node name, name@host (default solobeat@<host>)")
	o.hidden(cmd)
	return cmd
}

func (c *program) schedulerCommand() *cobra.Command {
	var o processOptions
	cmd := &cobra.Command{
		Use:     "scheduler",
		Short:   "Schedule the jobs of schedule.file",
		Example: `  solobeat scheduler -c solobeat.yaml`,
		Args:    args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.scheduler = true
			return c.process(cmd.Context(), o)
		},
	}
	o.hidden(cmd)
	return cmd
}

// processOptions say what a long-running process does.
type processOptions struct {
	worker, scheduler bool
	node              string
	embedded          bool
	// registry holds handlers beside those of tasks:.
	registry *tasks.Registry
	// ready is called with the metrics address once all is up.
	ready func(addr string)
	// gate decides when the scheduler runs; nil: at once, to the end.
	gate func(ctx context.Context, run func(context.Context) error) error
	// fired is told of every tick that this process published.
	fired func(scheduler.Occurrence)
}

func (o *processOptions) hidden(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.embedded, "embedded-store", false, "the store is the demo's own")
	_ = cmd.Flags().MarkHidden("embedded-store")
}

// process is one replica: it wires the parts, runs them, and stops them in
// order.
func (c *program) process(ctx context.Context, o processOptions) error {
	orders, stop := takeHangups(ctx)
	defer stop()
	// What is loaded below is what is read here, or newer: then it is read again.
	configFile := c.configFile()
	files := readFiles(configFile)
	cfg, err := c.load()
	if err != nil {
		return c.withSchedule(err)
	}
	log := newLogger(c.Err, cfg.Log.Level, cfg.Log.Format)
	var jobs []*scheduler.Job
	if o.scheduler || cfg.Schedule.File != "" {
		files = reload.Join(files, readFiles(cfg.Schedule.File))
		if jobs, err = c.schedule(cfg); err != nil {
			return err
		}
	}
	r := &replica{cfg: cfg, log: log, jobs: jobs, o: o, began: time.Now(), pulses: map[string]*pulse{}}
	r.reload = &reloader{
		replica: r, env: c.env, configFile: configFile, scheduleFile: cfg.Schedule.File, began: files, now: orders,
		replaced: make(chan []*scheduler.Job, 1),
	}
	if o.worker {
		spare := spareGarbage(c.env)
		defer runtime.KeepAlive(spare)
	}
	return r.run(ctx)
}

// readFiles reads a file, if there is one to read.
func readFiles(path string) reload.Snapshot {
	if path == "" {
		return reload.Snapshot{}
	}
	return reload.Read([]string{path}, config.ReadFile)
}

// replica is one worker or scheduler process.
type replica struct {
	cfg      *config.Config
	log      *slog.Logger
	jobs     []*scheduler.Job
	o        processOptions
	registry *tasks.Registry

	stores  *stores
	metrics *metrics.Metrics
	locks   *lockguard.Guard
	records *idempotency.Guard
	celery  *celery.Engine
	asynq   *asynqengine.Engine
	chain   *worker.Worker
	sched   *scheduler.Scheduler
	history *historian
	reload  *reloader
	pulses  map[string]*pulse // by engine
	began   time.Time
}

func (r *replica) run(ctx context.Context) error {
	role := "worker"
	if !r.o.worker {
		role = "scheduler"
	}
	var err error
	if r.stores, err = openStores(r.cfg, r.log, role); err != nil {
		return err
	}
	defer r.stores.close()
	r.stores.embedded, r.stores.patience = r.o.embedded, startWait
	if r.registry, err = r.registryOf(r.cfg); err != nil {
		return exit(exitConfig, err)
	}
	r.warnTasks(r.cfg, r.registry)
	r.metrics = metrics.New(r.metricsConfig())
	if err := r.stores.reach(ctx, startWait, r.servers()...); err != nil {
		return stopped(ctx, err)
	}
	defer r.closeHistory()
	if err := r.build(ctx); err != nil {
		return stopped(ctx, err)
	}
	a, err := serveAdmin(r.cfg, r.log, r.metrics, r.health(), r.readiness())
	if err != nil {
		return err
	}
	defer a.close(ctx)
	if r.o.ready != nil {
		r.o.ready(a.addr)
	}
	return r.serve(ctx)
}

// servers are those that this process needs: a scheduler takes no locks and
// reads no results.
func (r *replica) servers() []server {
	if !r.o.worker {
		return []server{r.stores.brokerServer()}
	}
	return r.stores.all()
}

// stopped turns the error of a start or a loop that was told to stop into an
// orderly end.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// registryOf holds the program's own handlers and the commands and webhooks of tasks:.
func (r *replica) registryOf(cfg *config.Config) (*tasks.Registry, error) {
	reg := &tasks.Registry{}
	if own := r.o.registry; own != nil {
		for _, name := range own.Names() {
			if h, ok := own.Lookup(name); ok {
				if err := reg.Add(name, h); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, t := range cfg.Tasks {
		h, err := readyMade(t, r.log)
		if err != nil {
			return nil, err
		}
		if h == nil {
			continue
		}
		if err := reg.Add(t.Name, h); err != nil {
			return nil, err
		}
	}
	return reg, nil
}

// warnTasks names entries of tasks: that do less than they seem to.
func (r *replica) warnTasks(cfg *config.Config, reg *tasks.Registry) {
	for _, t := range cfg.Tasks {
		if _, ok := reg.Lookup(t.Name); !ok && r.o.worker {
			r.log.Warn("tasks: entry has no handler here: its messages end as NotRegistered", "task", t.Name)
		}
		if t.Config.AckEarly && r.o.worker && cfg.Worker.Has(asynqengine.EngineName) {
			r.log.Warn("ack: early counts for Celery only; asynq acknowledges after the run", "task", t.Name)
		}
	}
}

// readyMade is the handler that an entry of tasks: declares; nil for none.
func readyMade(t config.Task, log *slog.Logger) (h tasks.Handler, err error) {
	switch {
	case t.Command != nil:
		cfg := *t.Command
		cfg.Logger = log
		h, err = command.New(cfg)
	case t.Webhook != nil:
		h, err = webhook.New(*t.Webhook)
	}
	if err != nil {
		return nil, fmt.Errorf("tasks.%s: %w", t.Name, err)
	}
	return h, nil
}

func (r *replica) metricsConfig() metrics.Config {
	mc := metrics.Config{
		Version: Version(), Jobs: r.jobs, Namespace: r.cfg.Namespace, KeyPrefix: r.cfg.Redis.GlobalKeyPrefix, Tasks: r.registry.Names(), Queues: r.cfg.Worker.Queues,
		Worker: r.o.worker, Scheduler: r.o.scheduler, Engines: r.cfg.Worker.Engines, Locks: taskLocks(r.cfg),
	}
	if r.o.worker {
		mc.Concurrency = r.cfg.Worker.Concurrency
	}
	return mc
}

func (r *replica) build(ctx context.Context) error {
	if r.o.worker {
		if err := r.buildWorker(ctx); err != nil {
			return err
		}
	}
	if r.cfg.Schedule.File != "" {
		r.metrics.CollectJobs(r.stores.state().Load)
	}
	if r.o.scheduler {
		return r.buildScheduler(ctx)
	}
	return nil
}

func (r *replica) buildWorker(ctx context.Context) error {
	var err error
	if r.locks, err = r.stores.lockGuard(ctx, r.metrics.LockObserver()); err != nil {
		return err
	}
	if r.records, err = r.stores.recordGuard(ctx, r.metrics.RecordObserver()); err != nil {
		return err
	}
	r.history = newHistorian(ctx, r.stores.state(), r.shownName, r.log, r.metrics.RanTwice)
	if r.cfg.Worker.Has(asynqengine.EngineName) {
		if err := r.buildAsynq(ctx); err != nil {
			return err
		}
	}
	var wrap []tasks.Middleware
	if r.asynq != nil {
		wrap = append(wrap, r.asynq.Middleware())
	}
	r.chain, err = worker.New(worker.Config{
		Registry: r.registry, Tasks: taskConfigs(r.cfg), PoisonAfter: r.cfg.Worker.PoisonAfter,
		Locks:       map[string]*lockguard.Guard{worker.DefaultBackend: r.locks},
		Records:     map[string]*idempotency.Guard{worker.DefaultBackend: r.records},
		Middlewares: wrap, Logger: r.log, Observer: r.workerObserver(),
	})
	if err != nil {
		return exit(exitConfig, err)
	}
	if r.cfg.Worker.Has(celery.EngineName) {
		if err := r.buildCelery(ctx); err != nil {
			return err
		}
	}
	r.chain.SetWakers(r.wakers()...)
	for _, p := range r.pulses {
		p.beat(true) // Redis has just been reached
	}
	r.metrics.CollectDepths(r.depths)
	return nil
}

// buildCelery makes the engine of Celery queues and tries what it needs.
func (r *replica) buildCelery(ctx context.Context) error {
	var err error
	r.celery, err = celery.New(celery.Config{
		Broker: r.stores.broker, Results: r.stores.results, Namespace: r.cfg.Namespace,
		KeyPrefix: r.cfg.Redis.GlobalKeyPrefix, ResultsKeyPrefix: r.cfg.Redis.ResultsKeyPrefix,
		Queues: r.cfg.Worker.Queues, Concurrency: r.cfg.Worker.Concurrency, NodeName: r.nodeName(), Instance: r.stores.instance,
		ResultExpires: r.cfg.Results.Expires, PoisonAfter: r.cfg.Worker.PoisonAfter, Grace: r.cfg.Worker.Grace,
		AckEarly:   r.chain.AckEarly,
		Registered: r.chain.Registered,
		AfterPark:  r.chain.Free,
		Unlocks:    r.stores.locks == r.stores.broker,
		Logger:     r.log, Observer: r.celeryObserver(), Version: Version(),
	})
	if err != nil {
		return exit(exitConfig, err)
	}
	if err := r.stores.insist(ctx, func() error { return r.celery.Probe(ctx) }); errors.Is(err, celery.ErrProbe) {
		return exit(exitConfig, err)
	} else if err != nil { // a state of the server, which a later start may find gone
		return err
	}
	return nil
}

// buildAsynq makes the engine of asynq queues.
func (r *replica) buildAsynq(ctx context.Context) error {
	var err error
	r.asynq, err = asynqengine.New(asynqengine.Config{
		Client: r.stores.broker, Results: r.stores.results, Namespace: r.cfg.Namespace,
		KeyPrefix: r.cfg.Redis.GlobalKeyPrefix, ResultsKeyPrefix: r.cfg.Redis.ResultsKeyPrefix,
		Queues: r.cfg.Worker.Queues, Concurrency: r.cfg.Worker.Concurrency, Servers: r.cfg.Asynq.Servers,
		ResultExpires: r.cfg.Results.Expires, PoisonAfter: min(r.cfg.Worker.PoisonAfter, asynqengine.MaxPoisonAfter), Grace: r.cfg.Worker.Grace,
		AfterPark: func(ctx context.Context, p tasks.Park) bool { return r.chain.Free(ctx, p) },
		Logger:    r.log, Observer: r.asynqObserver(),
	})
	if err != nil {
		return exit(exitConfig, err)
	}
	err = r.stores.asynqClient().ProbeResults(ctx, r.stores.instance)
	if errors.Is(err, resultstore.ErrRefused) {
		return exit(exitConfig, fmt.Errorf("asynq: results: %w", err))
	}
	return err
}

// wakers are the engines, each of which brings its own messages forward.
func (r *replica) wakers() []tasks.Waker {
	var w []tasks.Waker
	if r.celery != nil {
		w = append(w, r.celery)
	}
	if r.asynq != nil {
		w = append(w, r.asynq)
	}
	return w
}

func (r *replica) nodeName() string {
	if r.o.node != "" {
		return r.o.node
	}
	return r.cfg.Worker.Name
}

// shownName tells this replica from others on its machine as soon as the Celery
// engine has registered it.
func (r *replica) shownName() string {
	if r.celery != nil {
		return r.celery.NodeName()
	}
	return cmp.Or(r.nodeName(), celery.DefaultNodeName())
}

func (r *replica) buildScheduler(ctx context.Context) error {
	state := r.stores.state()
	if err := r.stores.insist(ctx, func() error { return state.Check(ctx) }); err != nil {
		if errors.Is(err, scheduler.ErrUnsafePolicy) {
			return exit(exitConfig, err)
		}
		return err
	}
	r.warnUnserved(r.jobs)
	client := r.stores.sender
	for _, q := range r.jobQueues(r.jobs) {
		if err := r.stores.insist(ctx, func() error { return client.Bind(ctx, q) }); err != nil {
			return err
		}
	}
	var err error
	r.sched, err = scheduler.New(scheduler.Config{
		Namespace: r.cfg.Namespace, KeyPrefix: r.cfg.Redis.GlobalKeyPrefix, Jobs: r.jobs, State: state, Publisher: client,
		Senders: map[string]scheduler.Sender{asynqengine.EngineName: r.stores.asynqClient()},
		ID:      r.stores.instance, Name: r.shownName, File: r.cfg.Schedule.File,
		Logger: r.log, Observer: r.schedulerObserver(),
	})
	if err != nil {
		return exit(exitConfig, err)
	}
	return nil
}

// warnUnserved names jobs whose engine this worker does not take from.
func (r *replica) warnUnserved(jobs []*scheduler.Job) {
	for _, j := range jobs {
		if engine := cmp.Or(j.Engine, celery.EngineName); r.o.worker && !r.cfg.Worker.Has(engine) {
			r.log.Warn("job queues in an engine that this worker does not take from", "schedule", j.Name, "engine", engine, "worker.engines", r.cfg.Worker.Engines)
		}
	}
}

// jobQueues are the Celery queues that jobs publish to.
func (r *replica) jobQueues(jobs []*scheduler.Job) []string {
	seen := map[string]bool{}
	var queues []string
	for _, j := range jobs {
		q := cmp.Or(j.Queue, r.cfg.Worker.Queues[0])
		if j.Engine == "" && !seen[q] {
			seen[q] = true
			queues = append(queues, q)
		}
	}
	return queues
}

// serve runs the parts until the context ends. The scheduler stops at once,
// the engine drains, then the guards end what is left.
func (r *replica) serve(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	if r.chain != nil {
		defer context.AfterFunc(gctx, r.chain.StopWaiting)()
	}
	watching, stopWatching := context.WithCancel(ctx)
	watched := r.watchStores(watching)
	reloading := r.reload.watchFiles(watching)
	defer func() { stopWatching(); <-watched; <-reloading }()
	if r.sched != nil {
		g.Go(func() error { return stopped(gctx, r.runScheduler(gctx)) })
	}
	if r.celery != nil {
		g.Go(func() error { return stopped(gctx, r.celery.Run(gctx, r.chain.Run)) })
	}
	if r.asynq != nil {
		g.Go(func() error { return stopped(gctx, r.asynq.Run(gctx, r.chain.Run)) })
	}
	err := g.Wait()
	r.closeGuards(ctx, errors.Is(err, celery.ErrRunsLeft) || errors.Is(err, asynqengine.ErrRunsLeft))
	if err == nil {
		r.log.Info("stopped")
	}
	return err
}

// closeGuards ends what is held. Runs that did not end in time are not waited
// for: peers have their messages already, and their locks run out.
func (r *replica) closeGuards(ctx context.Context, runsLeft bool) {
	if r.locks == nil {
		return
	}
	wait := 2 * time.Second
	if runsLeft {
		wait = 0
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	if err := r.locks.Close(closing); err != nil {
		r.log.Warn("locks are left to their TTL", "error", err)
	}
	if !runsLeft && r.records != nil {
		r.records.Close()
	}
}

func (r *replica) closeHistory() {
	if r.history != nil {
		r.history.close()
	}
}

func (r *replica) runScheduler(ctx context.Context) error {
	if r.o.gate == nil {
		return r.sched.Run(ctx)
	}
	return r.o.gate(ctx, r.sched.Run)
}
