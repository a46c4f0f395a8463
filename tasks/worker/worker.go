package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/failpoint"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// Worker runs deliveries through the chain. It is safe for concurrent use.
type Worker struct {
	cfg    Config
	set    atomic.Pointer[TaskSet]
	log    *slog.Logger
	wakers []tasks.Waker
	aside  asideMemory

	stopOnce sync.Once
	stopWait chan struct{} // closed: no slot waits for a lock any more
}

// New checks the configuration and returns a worker; [ErrConfig] for all that
// is wrong with it, joined.
func New(cfg Config) (*Worker, error) {
	cfg.PoisonAfter = max(cfg.PoisonAfter, 3)
	w := &Worker{cfg: cfg, log: cfg.Logger, stopWait: make(chan struct{})}
	set, err := w.Prepare(cfg.Registry, cfg.Tasks)
	if err != nil {
		return nil, err
	}
	w.set.Store(set)
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	return w, nil
}

// SetWakers names the engines that bring parked messages forward, each its own,
// when a lock or a record is free again. It must be called before the first run.
func (w *Worker) SetWakers(wakers ...tasks.Waker) { w.wakers = wakers }

// StopWaiting ends the waits for locks with on_busy: wait, as if their time were
// over: call it when the worker shuts down. What waits is parked.
func (w *Worker) StopWaiting() { w.stopOnce.Do(func() { close(w.stopWait) }) }

// Run is the chain, and a [tasks.Runner].
func (w *Worker) Run(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
	r := &run{w: w, d: d, set: w.set.Load(), info: Run{Task: d.Task}, begun: d.Begun(), end: ctx.Done()}
	return r.observed(ctx, func() tasks.Outcome {
		return r.recovered(func() tasks.Outcome {
			return r.planned(func() tasks.Outcome {
				return r.locked(ctx, func(ctx context.Context) tasks.Outcome {
					return r.recorded(ctx, r.handled)
				})
			})
		})
	})
}

// run is the state of one delivery on its way through the chain.
type run struct {
	w     *Worker
	d     *tasks.Delivery
	set   *TaskSet // as it was when the delivery came
	info  Run
	plan  *plan
	begun bool
	away  bool // it was turned away before its handler

	lock *lockguard.Handle
	hold *idempotency.Hold
	// end is closed when the engine gives this run up: a shutdown, a burial.
	end <-chan struct{}
	// free are the lines whose oldest message is brought forward at the end.
	free []string
}

// observed tells the observer of the outcome and writes the log line.
func (r *run) observed(ctx context.Context, next func() tasks.Outcome) tasks.Outcome {
	out := next()
	out.Begun = r.begun || r.info.Executed
	if out.Unlock == nil {
		r.wake(ctx, nil)
	}
	if f := r.w.cfg.Observer.Finished; f != nil {
		f(r.info, out)
	}
	r.logOutcome(ctx, out)
	return out
}

func (r *run) logOutcome(ctx context.Context, out tasks.Outcome) {
	level := slog.LevelInfo
	switch {
	case out.Kind == tasks.Succeeded && out.Reason == "" && r.info.Schedule == "" && !r.info.Takeover:
		level = slog.LevelDebug // of the thousands a second that an app may send
	case out.Kind == tasks.Failed:
		level = slog.LevelError
	}
	if !r.w.log.Enabled(ctx, level) {
		return // most lines of a busy worker: they are not even put together
	}
	attrs := []slog.Attr{
		slog.String("task_id", r.d.Task.ID), slog.String("task", r.d.Task.Name), slog.String("outcome", out.Kind.String()),
		slog.Int("attempt", r.d.Task.Attempt),
	}
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	add("schedule", r.info.Schedule)
	add("reason", string(out.Reason))
	if out.Err != nil {
		add("error", out.Err.Error())
	}
	if out.Note != nil {
		add("note", out.Note.Outcome)
		add("holder", out.Note.Holder)
	}
	if r.info.Fence > 0 {
		attrs = append(attrs, slog.Uint64("fence", r.info.Fence))
	}
	if r.info.Takeover {
		attrs = append(attrs, slog.Bool("takeover", true))
	}
	what := "task " + out.Kind.String()
	if out.Note != nil { // nothing was run
		what = "task " + out.Note.Outcome
	}
	if r.info.Executed {
		attrs = append(attrs, slog.Duration("took", r.info.Took))
	}
	r.w.log.LogAttrs(ctx, level, what, attrs...)
}

// recovered keeps the process alive whatever goes wrong in the chain itself.
// A panic of the handler is caught where the handler is called, so that lock
// and record end in order.
func (r *run) recovered(next func() tasks.Outcome) (out tasks.Outcome) {
	defer func() {
		if v := recover(); v != nil {
			out = failed(&tasks.PanicError{Value: v, Stack: debug.Stack()}, "panic")
			out.DeadLetter = true
		}
	}()
	return next()
}

// planned joins message and configuration, and turns away what must not run.
func (r *run) planned(next func() tasks.Outcome) tasks.Outcome {
	if err := r.d.GuardError; err != nil {
		if errors.Is(err, tasks.ErrGuardVersion) {
			return unknownGuard(err)
		}
		return deadLetter(&tasks.Exception{Type: string(tasks.ReasonBadGuard), Args: []any{err.Error()}, Cause: err}, tasks.ReasonBadGuard)
	}
	if _, ok := r.set.registry.Lookup(r.d.Task.Name); !ok {
		return deadLetter(&tasks.Exception{
			Type: string(tasks.ReasonNotRegistered), Module: "celery.exceptions", Args: []any{r.d.Task.Name}, Cause: tasks.ErrUnknownTask,
		}, tasks.ReasonNotRegistered)
	}
	p, err := r.w.plan(r.set, r.d)
	switch {
	case errors.Is(err, errNotConfigured):
		return unknownGuard(err)
	case err != nil:
		return keyMissing(err)
	}
	r.plan = p
	r.info.Schedule = p.schedule
	if p.lock != nil {
		r.info.Lock = p.lock.name
	}
	return next()
}

// handled calls the handler under the run's timeout, fence and validity.
func (r *run) handled(ctx context.Context) (json.RawMessage, error) {
	t := r.d.Task
	ctx = r.handlerContext(ctx)
	if r.plan.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.plan.timeout, tasks.ErrTimeout)
		defer cancel()
	}
	stop := r.watchOverdue(ctx)
	defer stop()
	r.info.Executed = true
	if !t.ETA.IsZero() {
		r.info.Waited = r.d.StoreNow().Sub(t.ETA)
	}
	if f := r.w.cfg.Observer.Started; f != nil {
		f(r.info)
	}
	failpoint.Hit(failpoint.InRun, t.Name, t.ID)
	began := time.Now()
	defer func() {
		r.info.Took = time.Since(began)
		failpoint.Hit(failpoint.AfterEffect, t.Name, t.ID)
	}()
	result, err := r.call(ctx)
	if err != nil {
		// The cause is what tells a lost lock from an error of the handler's
		// own; it is gone once the contexts are released.
		err = &causedError{err: err, cause: r.cause(ctx)}
	}
	return result, err
}

// call calls the handler and turns a panic into an error with its stack. What
// is no JSON can be neither stored nor replayed, so it ends the task.
func (r *run) call(ctx context.Context) (result json.RawMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &tasks.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	h, _ := r.set.registry.Lookup(r.d.Task.Name)
	for i := len(r.w.cfg.Middlewares) - 1; i >= 0; i-- {
		h = r.w.cfg.Middlewares[i](h)
	}
	result, err = h.Handle(ctx, r.d.Task)
	if err == nil && len(result) > 0 && !json.Valid(result) {
		err = tasks.Permanent(&tasks.Exception{Type: "EncodeError", Module: "kombu.exceptions", Args: []any{"the result is no JSON text"}})
	}
	return result, err
}

// cause is why the run's context has ended, nil if it has not. A process that
// was paused may come here before anybody has noticed that its lock has run
// out, so the guards are asked: to look ends the context.
func (r *run) cause(ctx context.Context) error {
	if r.lock != nil {
		_ = r.lock.Check()
	}
	if r.hold != nil {
		_ = r.hold.Check()
	}
	return context.Cause(ctx)
}

func (r *run) handlerContext(ctx context.Context) context.Context {
	ctx = tasks.NewContext(ctx, r.d.Task)
	switch {
	case r.hold != nil:
		r.info.Fence = r.hold.Fence()
		ctx = tasks.ContextWithFence(ctx, r.info.Fence)
		ctx = tasks.ContextWithKey(ctx, r.hold.Key().Text)
	case r.lock != nil:
		if f, ok := r.lock.Fence(); ok {
			r.info.Fence = uint64(f)
			ctx = tasks.ContextWithFence(ctx, r.info.Fence)
		}
	}
	if r.lock != nil && r.plan.lock.stallAfter > 0 {
		ctx = tasks.ContextWithHeartbeat(ctx, r.lock.Heartbeat)
	}
	switch {
	case r.lock != nil:
		ctx = tasks.ContextWithValidity(ctx, r.lock)
	case r.hold != nil:
		ctx = tasks.ContextWithValidity(ctx, r.hold)
	}
	return ctx
}

// overdueAfter is how long a handler may take to return after its context was
// cancelled before it counts as overdue.
const overdueAfter = 10 * time.Second

func (r *run) watchOverdue(ctx context.Context) (stop func()) {
	f := r.w.cfg.Observer.Overdue
	if f == nil {
		return func() {}
	}
	o := &overdue{tell: f, info: r.info}
	stopWatch := context.AfterFunc(ctx, o.watch)
	return func() {
		if !stopWatch() {
			o.end()
		}
	}
}

// overdue watches a run from the end of its context on. Nearly every run ends
// before, so nothing else is made for it beforehand.
type overdue struct {
	tell func(Run, bool)
	info Run

	mu      sync.Mutex
	over    bool          // the run has ended
	ended   chan struct{} // closed then; nil until it is watched
	watched chan struct{} // closed when all has been told
}

func (o *overdue) watch() {
	o.mu.Lock()
	if o.over {
		o.mu.Unlock()
		return
	}
	o.ended, o.watched = make(chan struct{}), make(chan struct{})
	o.mu.Unlock()
	defer close(o.watched)
	timer := time.NewTimer(overdueAfter)
	defer timer.Stop()
	select {
	case <-o.ended:
	case <-timer.C:
		o.tell(o.info, false)
		<-o.ended
		o.tell(o.info, true)
	}
}

// end waits until all has been told.
func (o *overdue) end() {
	o.mu.Lock()
	o.over = true
	watched := o.watched
	if watched != nil {
		close(o.ended)
	}
	o.mu.Unlock()
	if watched != nil {
		<-watched
	}
}
