package asynqengine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/solobeat/solobeat/internal/failpoint"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/internal/park"
)

// again is what asynq is told about a task that shall come back: when, and
// whether that counts as a retry of its own.
type again struct {
	after   time.Duration
	counted bool
	why     string
}

func (a *again) Error() string { return a.why }

// ended is what asynq is told about a task that has failed for good: it goes
// to the archive.
type ended struct{ err error }

func (e *ended) Error() string   { return e.err.Error() }
func (e *ended) Unwrap() []error { return []error{e.err, asynq.SkipRetry} }

// retryDelay is asynq's question when a task comes back.
func retryDelay(n int, err error, t *asynq.Task) time.Duration {
	var a *again
	switch {
	case errors.As(err, &a):
		return a.after
	case errors.Is(err, asynq.ErrLeaseExpired), errors.Is(err, context.Canceled):
		return 0 // a dead process has waited long enough
	default:
		return asynq.DefaultRetryDelayFunc(n, err, t)
	}
}

// isFailure is asynq's question whether a return counts as a retry.
func isFailure(err error) bool {
	var a *again
	return !errors.As(err, &a) || a.counted
}

// item is one delivery.
type item struct {
	id, queue string
	retried   int // by asynq's count
	max       int // asynq ends a task above that
	past      *past
	msg       *decoded
	deliv     *tasks.Delivery
	// line is the one it was taken out of, "" for none.
	line string
	// unbegun is set if it could not be written down that the run begins.
	unbegun error

	ran     bool
	runtime time.Duration
}

func (it *item) who() string { return waiter(it.queue, it.id) }

// deaths are the processes that have died under a message: what asynq counts
// less what is known to be no death.
func (it *item) deaths() int { return max(it.retried-it.past.Counted, 0) }

type itemKey struct{}

// bare is a context without asynq's values: a handler that came to need them
// would not run on the other engine.
type bare struct{ context.Context }

// Value has none.
func (bare) Value(any) any { return nil }

// process is the handler of every asynq server of this engine.
func (e *Engine) process(ctx context.Context, t *asynq.Task) error {
	e.active.Add(1)
	defer e.active.Add(-1)
	it := &item{}
	it.id, _ = asynq.GetTaskID(ctx)
	it.queue, _ = asynq.GetQueueName(ctx)
	it.retried, _ = asynq.GetRetryCount(ctx)
	it.max, _ = asynq.GetMaxRetry(ctx)
	var now time.Time
	var err error
	if it.past, now, err = e.readPast(ctx, it.id); err != nil {
		call2(e.cfg.Observer.Parked, it.queue, string(tasks.ParkStore))
		return &again{after: park.First, why: err.Error()}
	}
	taken := time.Now()
	it.msg, err = decode(t.Type(), t.Payload(), t.Headers())
	if err == nil && !it.msg.ours {
		err = e.adopt(ctx, it)
	}
	e.deliver(ctx, it, now, taken)
	if it.past.Key != "" {
		it.line = it.past.Key
		if err := e.lines.leave(ctx, it.line, it.who()); err != nil {
			e.log.Warn("a message stays in its line", "line", it.line, "error", err)
		}
	}
	switch {
	case errors.Is(err, errMalformed):
		return e.finish(ctx, it, dead(err, tasks.ReasonMalformed, ""))
	case err != nil:
		return &again{after: park.First, why: err.Error()}
	}
	return e.judge(ctx, it)
}

// dead is an end in the archive before any run.
func dead(err error, reason tasks.Reason, module string) tasks.Outcome {
	return tasks.Outcome{
		Kind: tasks.Failed, Reason: reason, DeadLetter: true,
		Err: &tasks.Exception{Type: string(reason), Module: module, Args: []any{err.Error()}, Cause: err},
	}
}

// adopt takes over what a plain asynq program has sent: its retries so far are
// attempts, not deaths.
func (e *Engine) adopt(ctx context.Context, it *item) error {
	if it.past.found {
		return nil
	}
	it.past.Retries, it.past.Counted = it.retried, it.retried
	return e.writePast(ctx, it.id, it.past, 0)
}

// deliver builds what the chain gets. The limits that asynq would keep for a
// plain program's message become ours.
func (e *Engine) deliver(ctx context.Context, it *item, now, taken time.Time) {
	t := it.msg.task
	t.ID, t.Queue, t.Attempt = it.id, it.queue, it.past.Retries+1
	t.Redelivered = it.past.Begun || it.deaths() > 0
	if !it.msg.ours && t.Guard == nil && it.msg.guardErr == nil {
		t.Guard = &tasks.Guard{Version: tasks.GuardVersion, Retries: &tasks.RetryPolicy{Max: it.max}}
	}
	if end, ok := ctx.Deadline(); ok && t.Guard != nil && t.Guard.TimeoutMS == 0 && time.Until(end) < farOff {
		g := *t.Guard
		g.TimeoutMS = max(time.Until(end)-deadlineMargin, time.Millisecond).Milliseconds()
		t.Guard = &g
	}
	it.deliv = &tasks.Delivery{
		Task: t, TakenAt: now, Taken: taken, FirstPark: it.past.firstPark(), Losses: it.past.Losses, Deaths: it.deaths(),
		GuardError: it.msg.guardErr,
	}
}

const (
	// farOff tells a deadline that somebody has set from none.
	farOff = 10 * 365 * 24 * time.Hour
	// deadlineMargin is how much sooner than asynq a run is ended, so that what
	// becomes of it is decided here.
	deadlineMargin = 200 * time.Millisecond
)

// judge turns away what may not run yet, or not again, and runs the rest.
func (e *Engine) judge(ctx context.Context, it *item) error {
	if wait := it.msg.task.ETA.Sub(it.deliv.StoreNow()); !it.msg.task.ETA.IsZero() && wait > 0 {
		call2(e.cfg.Observer.Parked, it.queue, park.ETA)
		return &again{after: time.Until(wholeSecond(time.Now().Add(wait))), why: "not before " + it.msg.task.ETA.Format(time.RFC3339)}
	}
	switch deaths := it.deaths(); {
	case deaths >= e.cfg.PoisonAfter:
		return e.finish(ctx, it, dead(fmt.Errorf("%d processes died under this task", deaths), tasks.ReasonWorkerLost, "billiard.exceptions"))
	case deaths >= 2:
		// One at a time, so that whoever kills the process is told from those
		// that only ran beside it.
		if !e.suspect.CompareAndSwap(false, true) {
			call2(e.cfg.Observer.Parked, it.queue, park.Suspect)
			return e.comeBack(ctx, it, &again{after: park.SuspectGap, why: "another suspect runs"})
		}
		defer e.suspect.Store(false)
		call1(e.cfg.Observer.Suspect, it.queue)
	}
	return e.finish(ctx, it, e.runOne(ctx, it))
}

// runOne runs the chain. Its context ends with asynq's, but with a cause that
// the chain knows.
func (e *Engine) runOne(ctx context.Context, it *item) tasks.Outcome {
	run, cancel := context.WithCancelCause(context.WithValue(bare{context.WithoutCancel(ctx)}, itemKey{}, it))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		cancel(givenUp(ctx))
		e.gaveUp(ctx, it)
	})
	defer stop()
	stopToo := context.AfterFunc(e.cancelled, func() { cancel(context.Cause(e.cancelled)) })
	defer stopToo()
	begin := time.Now()
	out := e.run(run, it.deliv)
	it.ran, it.runtime = true, time.Since(begin)
	failpoint.Hit(failpoint.BeforeAck, it.msg.task.Name, it.id)
	if it.unbegun != nil && (out.Kind == tasks.Retried || out.Kind == tasks.Failed) {
		return tasks.Outcome{Kind: tasks.Parked, Reason: tasks.ReasonStore, Err: it.unbegun, Park: tasks.Park{Reason: tasks.ParkStore}}
	}
	return out
}

// givenUp says why asynq has given a run up: its deadline; or its lease, or
// somebody, ended it, and it will be run again.
func givenUp(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return tasks.ErrTimeout
	}
	return tasks.ErrBuried
}

// Middleware writes down that a run begins, just before the handler and inside
// the guards: that a task has begun is what keeps it from expiring, or from
// being skipped, later on. A record says so by itself. It belongs into the
// worker's middlewares and leaves tasks of other engines alone.
func (e *Engine) Middleware() tasks.Middleware {
	return func(next tasks.Handler) tasks.Handler {
		return tasks.HandlerFunc(func(ctx context.Context, t *tasks.Task) (json.RawMessage, error) {
			if err := e.begin(ctx); err != nil {
				return nil, err
			}
			return next.Handle(ctx, t)
		})
	}
}

// minds reports whether it matters later on that a task has begun: it may
// expire, or stand aside for a lock. For most tasks it does not, and nothing is
// written.
func minds(ctx context.Context, t *tasks.Task) bool {
	_, guarded := tasks.ValidityFromContext(ctx)
	return guarded || !t.Expires.IsZero() || t.Guard != nil && t.Guard.BeginBy > 0
}

func (e *Engine) begin(ctx context.Context) error {
	it, ok := ctx.Value(itemKey{}).(*item)
	if _, recorded := tasks.Key(ctx); !ok || recorded || !minds(ctx, it.msg.task) {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	if err := e.cfg.Client.Set(call, e.begunKey(it.id), "1", begunTTL).Err(); err != nil {
		it.unbegun = fmt.Errorf("asynqengine: begin of %s: %w", it.id, err)
		return fmt.Errorf("%w: %w", tasks.ErrNotExecuted, it.unbegun)
	}
	return nil
}
