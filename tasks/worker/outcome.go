package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// causedError is a handler's error with the cause for which its context was
// cancelled, nil if it was not.
type causedError struct{ err, cause error }

func (e *causedError) Error() string { return e.err.Error() }
func (e *causedError) Unwrap() error { return e.err }

// outcome ends the record and says what becomes of the message. Whatever the
// handler returned, a record that another run took over decides: this
// message is then a second copy, answered from the record. That may only be
// found out when the record is ended.
func (r *run) outcome(ctx context.Context, result json.RawMessage, err error) tasks.Outcome {
	if err == nil {
		return r.success(ctx, result)
	}
	if r.hold != nil && errors.Is(r.hold.Check(), idempotency.ErrStale) {
		return r.takenOver()
	}
	var perm *tasks.PermanentError
	if errors.As(err, &perm) {
		return r.permanent(ctx, err)
	}
	var cause error
	if c := new(causedError); errors.As(err, &c) {
		cause = c.cause
	}
	if stale := r.release(ctx, err); stale {
		return r.takenOver()
	}
	switch {
	case lost(cause), errors.Is(err, lockguard.ErrFenced): // who is fenced off has a successor
		return r.lostGuard(orErr(cause, err))
	case stopping(cause):
		return tasks.Outcome{Kind: tasks.Returned, Err: cause, Reason: tasks.ReasonShutdown}
	case cause == nil && errors.Is(err, tasks.ErrShortage):
		return tasks.Outcome{Kind: tasks.Parked, Reason: tasks.ReasonShortage, Err: exception(err), Park: tasks.Park{Reason: tasks.ParkShortage}}
	default:
		return r.failure(err, cause)
	}
}

// lost tells the loss of a lock or record from max_hold and a timeout, which
// are the run's own fault.
func lost(cause error) bool {
	return errors.Is(cause, lockguard.ErrLost) || errors.Is(cause, idempotency.ErrStale) ||
		errors.Is(cause, idempotency.ErrLeaseLost) || errors.Is(cause, idempotency.ErrRecordLost)
}

// stopping tells the end of this replica, or of its life under this instance.
func stopping(cause error) bool {
	return errors.Is(cause, tasks.ErrShutdown) || errors.Is(cause, tasks.ErrBuried) || errors.Is(cause, lockguard.ErrClosed)
}

func orErr(cause, err error) error {
	if cause != nil {
		return cause
	}
	return err
}

func (r *run) success(ctx context.Context, result json.RawMessage) tasks.Outcome {
	if r.hold != nil {
		switch err := r.complete(ctx, result); {
		case errors.Is(err, idempotency.ErrStale):
			return r.takenOver()
		case err != nil:
			// The effect has happened: its result stands. The record is left in
			// progress, so that another message of this key waits for its lease.
			r.w.log.Error("record could not be completed", "task_id", r.d.Task.ID, "task", r.d.Task.Name, "error", err)
		}
	}
	return tasks.Outcome{Kind: tasks.Succeeded, Result: result}
}

// complete tries for as long as this run may go on: once its lease is over,
// the next message of the key would have the effect a second time. Meanwhile
// nothing is committed, and the lease may be taken over like any other.
func (r *run) complete(ctx context.Context, result json.RawMessage) error {
	for {
		err := r.hold.Complete(ctx, result)
		if err == nil || errors.Is(err, idempotency.ErrStale) || !errors.Is(err, idempotency.ErrStoreUnavailable) || r.given() {
			return err
		}
		r.w.log.Warn("record cannot be completed yet, it is tried on", "task_id", r.d.Task.ID, "task", r.d.Task.Name, "error", err)
	}
}

func (r *run) takenOver() tasks.Outcome {
	r.begun = true
	return r.park(tasks.ParkRecord, parkKey(r.plan.record.key), time.Second, tasks.ReasonTakenOver)
}

func (r *run) permanent(ctx context.Context, err error) tasks.Outcome {
	if r.hold != nil {
		ferr := r.hold.Fail(ctx, exception(err))
		if errors.Is(ferr, idempotency.ErrStale) {
			return r.takenOver()
		}
		if ferr != nil {
			r.w.log.Warn("record could not be ended as failed", "task_id", r.d.Task.ID, "error", ferr)
		}
	}
	return failed(exception(err), tasks.ReasonPermanent)
}

// release gives the record back, so that the next run may claim it at once.
// stale: it is another run's by now.
func (r *run) release(ctx context.Context, cause error) (stale bool) {
	if r.hold == nil {
		return false
	}
	err := r.hold.Release(ctx, exception(cause), 0)
	if err != nil && !errors.Is(err, idempotency.ErrStale) {
		r.w.log.Warn("record could not be released", "task_id", r.d.Task.ID, "error", err)
	}
	return errors.Is(err, idempotency.ErrStale)
}

func (r *run) lostGuard(cause error) tasks.Outcome {
	if r.d.Losses+1 >= r.w.cfg.PoisonAfter {
		return failed(&tasks.Exception{
			Type: string(tasks.ReasonLockLost), Args: []any{fmt.Sprintf("lock or record was lost in %d runs", r.d.Losses+1)}, Cause: cause,
		}, tasks.ReasonLockLost)
	}
	return tasks.Outcome{Kind: tasks.Returned, Err: cause, Reason: tasks.ReasonLost, Lost: true}
}

// failure is a run that failed by itself: tried again where its policy says.
func (r *run) failure(err, cause error) tasks.Outcome {
	err = r.limitError(err, cause)
	policy, after := r.plan.retries, time.Duration(0)
	var asked *tasks.RetryError
	if errors.As(err, &asked) {
		after = asked.After
		switch {
		case asked.Max > 0:
			policy.Max = asked.Max
		case asked.Max == 0:
			policy.Max = tasks.DefaultRetries.Max
		}
	}
	if retriesDone := r.d.Task.Attempt - 1; retriesDone < policy.Max {
		if after <= 0 {
			after = policy.Delay(retriesDone + 1)
		}
		out := tasks.Outcome{Kind: tasks.Retried, Err: exception(retryCause(err)), After: after, Reason: tasks.ReasonError}
		out.Traceback = traceback(err)
		return out
	}
	out := failed(exception(retryCause(err)), tasks.ReasonError)
	if asked != nil && asked.Cause == nil {
		out.Err = &tasks.Exception{
			Type: "MaxRetriesExceededError", Module: "celery.exceptions",
			Args: []any{fmt.Sprintf("Can't retry %s[%s]: %d retries are done", r.d.Task.Name, r.d.Task.ID, policy.Max)},
		}
	}
	return out
}

// limitError names the limit that a run has passed, where the handler only
// says that its context ended.
func (r *run) limitError(err, cause error) error {
	if cause == nil || !isContextError(err) && !errors.Is(err, cause) {
		return err
	}
	switch {
	case errors.Is(cause, tasks.ErrTimeout):
		return &tasks.Exception{Type: "TimeLimitExceeded", Module: "billiard.exceptions", Args: []any{r.plan.timeout.Seconds()}, Cause: cause}
	case errors.Is(cause, lockguard.ErrMaxHold), errors.Is(cause, idempotency.ErrMaxHold):
		return &tasks.Exception{Type: "MaxHoldExceeded", Args: []any{r.plan.maxHold().Seconds()}, Cause: cause}
	default:
		return err
	}
}

func retryCause(err error) error {
	var asked *tasks.RetryError
	if errors.As(err, &asked) && asked.Cause != nil {
		return asked.Cause
	}
	return err
}

func traceback(err error) string {
	var p *tasks.PanicError
	if errors.As(err, &p) {
		return string(p.Stack)
	}
	return ""
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// exception takes the wrappings off that say how to treat an error, not what
// it is.
func exception(err error) error {
	var c *causedError
	if errors.As(err, &c) {
		err = c.err
	}
	var perm *tasks.PermanentError
	if errors.As(err, &perm) && perm.Cause != nil {
		err = perm.Cause
	}
	return err
}
