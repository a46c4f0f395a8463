package asynqguard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// ErrWait is wrapped by what a middleware returns for a task that is to come
// back: its lock is busy, its record is in progress, or their store is out of
// reach. It has not failed.
var ErrWait = errors.New("asynqguard: task waits")

// WaitError says how long a task waits, and for what. It wraps [ErrWait].
type WaitError struct {
	// Left is when what it waits for may be free; 0: not known.
	Left time.Duration
	// Cause is the error of the lock or the record.
	Cause error
}

// Error tells the cause.
func (e *WaitError) Error() string { return ErrWait.Error() + ": " + e.Cause.Error() }

// Unwrap returns [ErrWait] and the cause.
func (e *WaitError) Unwrap() []error { return []error{ErrWait, e.Cause} }

// The bounds of a wait.
const (
	shortest = time.Second
	longest  = 10 * time.Second
)

// IsFailure is asynq.Config.IsFailure: a task that waits has not failed.
func IsFailure(err error) bool { return err != nil && !errors.Is(err, ErrWait) }

// RetryDelay is asynq.Config.RetryDelayFunc: a task that waits comes back when
// what it waits for may be free, in 1 s to 10 s, ± 20 %; any other as asynq does
// by default.
func RetryDelay(n int, err error, t *asynq.Task) time.Duration {
	var w *WaitError
	if !errors.As(err, &w) {
		return asynq.DefaultRetryDelayFunc(n, err, t)
	}
	d := min(max(w.Left, shortest), longest)
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// Key names the lock or the record of a task; "" means that it has none. Make
// it of the payload, never of the clock.
type Key func(*asynq.Task) string

// ByType names a lock after the task's type, behind a prefix: one run at a time
// of each type.
func ByType(prefix string) Key {
	return func(t *asynq.Task) string { return prefix + t.Type() }
}

// ByID names a record after the task's id: what asynq runs again after it was
// done is not done again. The key of anything that is enqueued more than once
// belongs into the payload.
func ByID(*asynq.Task) string { return idKey }

const idKey = "\x00task id"

// Lock returns a middleware that runs tasks under a lock. While another holds
// it a task waits in asynq, before that for lockguard.WithWait in its server's
// slot. What the handler gets is a context that ends, with a cause, when the lock
// is lost; [tasks.Fence] gives its fence, and [tasks.Heartbeat] feeds
// lockguard.WithStallAfter.
func Lock(g *lockguard.Guard, key Key, opts ...lockguard.Option) asynq.MiddlewareFunc {
	return lock(g, key, tasks.OnBusyRetry, opts)
}

// LockOrSkip is Lock for tasks that need not run while another of their kind
// does: such a task is done, without a run. Not so one that may have begun
// before: it waits.
func LockOrSkip(g *lockguard.Guard, key Key, opts ...lockguard.Option) asynq.MiddlewareFunc {
	return lock(g, key, tasks.OnBusySkip, opts)
}

func lock(g *lockguard.Guard, key Key, busy tasks.OnBusy, opts []lockguard.Option) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			k := keyOf(ctx, key, t)
			if k == "" {
				return next.ProcessTask(ctx, t)
			}
			id, _ := asynq.GetTaskID(ctx)
			h, err := g.Acquire(ctx, k, append([]lockguard.Option{lockguard.WithTaskID(id)}, opts...)...)
			if err != nil {
				return notLocked(ctx, err, id, busy)
			}
			defer func() { _, _ = h.Release(ctx) }() // counted and logged by the guard; also after a panic
			inner := tasks.ContextWithHeartbeat(tasks.ContextWithValidity(h.Context(), h), h.Heartbeat)
			if f, ok := h.Fence(); ok {
				inner = tasks.ContextWithFence(inner, uint64(f))
			}
			return next.ProcessTask(inner, t)
		})
	}
}

func keyOf(ctx context.Context, key Key, t *asynq.Task) string {
	k := key(t)
	if k == idKey {
		k, _ = asynq.GetTaskID(ctx)
	}
	return k
}

// notLocked says what becomes of a task that did not get its lock.
func notLocked(ctx context.Context, err error, id string, policy tasks.OnBusy) error {
	var busy *lockguard.BusyError
	switch {
	case errors.Is(err, lockguard.ErrForeignKey), errors.Is(err, lockguard.ErrConfig):
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry) // it cannot get better
	case !errors.As(err, &busy):
		return &WaitError{Cause: err}
	}
	retried, _ := asynq.GetRetryCount(ctx)
	if policy == tasks.OnBusySkip && !busy.Unsure && busy.Holder.TaskID != id && retried == 0 {
		return nil
	}
	return &WaitError{Left: busy.RetryAfter, Cause: err}
}

// Record returns a middleware that makes a task's effect single: a task whose
// key is completed is done without a run, one whose key is in progress waits,
// and one whose key has failed for good (asynq.SkipRetry) goes to the archive.
// Use it inside [Lock]: what is registered first is outside.
func Record(g *idempotency.Guard, key Key, opts ...idempotency.Option) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			k := keyOf(ctx, key, t)
			if k == "" {
				return next.ProcessTask(ctx, t)
			}
			id, _ := asynq.GetTaskID(ctx)
			all := []idempotency.Option{idempotency.WithRun("", t.Type(), id)}
			if f, ok := tasks.Fence(ctx); ok {
				all = append(all, idempotency.WithFence(f))
			}
			if _, locked := tasks.ValidityFromContext(ctx); !locked {
				all = append(all, idempotency.WithValidity(true))
			}
			h, err := g.Claim(ctx, idempotency.Key{Namespace: t.Type(), Text: k}, append(all, opts...)...)
			if err != nil {
				return notClaimed(err)
			}
			return recorded(ctx, h, t, next)
		})
	}
}

// notClaimed says what becomes of a task that did not get its record.
func notClaimed(err error) error {
	var (
		done    *idempotency.CompletedError
		busy    *idempotency.BusyError
		backoff *idempotency.BackoffError
	)
	switch {
	case errors.As(err, &done):
		return nil
	case errors.As(err, &busy):
		return &WaitError{Left: busy.Left, Cause: err}
	case errors.As(err, &backoff):
		return &WaitError{Left: backoff.Left, Cause: err}
	case errors.Is(err, idempotency.ErrStoreUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &WaitError{Cause: err}
	default: // failed before, other arguments, no key: it cannot get better
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
}

// recorded runs the handler and ends the record.
func recorded(ctx context.Context, h *idempotency.Hold, t *asynq.Task, next asynq.Handler) error {
	over := false
	defer func() {
		if !over { // a panic: asynq makes an error of it
			_ = h.Release(ctx, errPanic, 0)
		}
	}()
	inner := tasks.ContextWithFence(tasks.ContextWithKey(h.Context(), h.Key().Text), h.Fence())
	if _, ok := tasks.ValidityFromContext(inner); !ok {
		inner = tasks.ContextWithValidity(inner, h)
	}
	err := next.ProcessTask(inner, t)
	over = true
	switch {
	case err == nil:
		err = complete(ctx, h)
	case errors.Is(err, asynq.SkipRetry):
		if ferr := h.Fail(ctx, err); errors.Is(ferr, idempotency.ErrStale) {
			return &WaitError{Cause: ferr}
		}
	default:
		if rerr := h.Release(ctx, err, 0); errors.Is(rerr, idempotency.ErrStale) {
			return &WaitError{Cause: rerr}
		}
	}
	return err
}

var errPanic = errors.New("asynqguard: handler panicked")

// complete ends a record whose effect has happened. Only a record that another
// run took over makes the task come back, to be answered from it; any other
// failure leaves it in progress, so that the next task of its key waits for its
// lease.
func complete(ctx context.Context, h *idempotency.Hold) error {
	for {
		err := h.Complete(context.WithoutCancel(ctx), nil)
		switch {
		case errors.Is(err, idempotency.ErrStale):
			return &WaitError{Cause: err}
		case err == nil, !errors.Is(err, idempotency.ErrStoreUnavailable), ctx.Err() != nil:
			return nil
		}
	}
}
