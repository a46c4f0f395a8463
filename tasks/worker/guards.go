package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/failpoint"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// locked runs next under the lock. The lock is released before the outcome
// is acted on, so that a retry never waits for its own lock.
func (r *run) locked(ctx context.Context, next func(context.Context) tasks.Outcome) tasks.Outcome {
	if out, ok := r.late(ctx); ok {
		return out
	}
	l := r.plan.lock
	if l == nil {
		return next(ctx)
	}
	h, err := l.guard.TryAcquire(ctx, l.key,
		lockguard.WithTTL(l.ttl), lockguard.WithRenewEvery(l.renew), lockguard.WithMaxHold(l.maxHold), lockguard.WithExpect(l.expect),
		lockguard.WithTaskID(r.d.Task.ID), lockguard.WithFenceBase(l.fenceBase),
		lockguard.WithLabels(lockguard.Labels{Schedule: r.plan.schedule, Lock: l.name}))
	if err != nil {
		return r.notLocked(ctx, err)
	}
	r.lock = h
	released := false
	release := func() {
		released = true
		r.info.Renewals = h.Renewals()
		_, _ = h.Release(ctx) // counted and logged by the guard
		r.wake(ctx, l.key)
	}
	defer func() {
		if !released { // a panic of the chain itself
			release()
		}
	}()
	out := next(h.Context())
	release()
	out.WonLock = true
	return out
}

func (r *run) wake(ctx context.Context, key string) {
	if r.w.waker != nil {
		r.w.waker.Wake(context.WithoutCancel(ctx), key)
	}
}

// notLocked says what becomes of a delivery that did not get its lock.
func (r *run) notLocked(ctx context.Context, err error) tasks.Outcome {
	var busy *lockguard.BusyError
	switch {
	case errors.As(err, &busy):
		return r.lockBusy(ctx, busy)
	case errors.Is(err, lockguard.ErrForeignKey), errors.Is(err, lockguard.ErrConfig):
		out := failed(&tasks.Exception{Type: "LockConfig", Args: []any{err.Error()}, Cause: err}, "LockConfig")
		out.DeadLetter = true
		return out
	case context.Cause(ctx) != nil:
		return tasks.Outcome{Kind: tasks.Returned, Err: context.Cause(ctx), Reason: "shutdown"}
	default:
		return r.storeDown(err)
	}
}

func (r *run) storeDown(err error) tasks.Outcome {
	return tasks.Outcome{Kind: tasks.Parked, Reason: "store", Err: err, Park: tasks.Park{Reason: tasks.ParkStore}}
}

// lockBusy: a completed record answers at once, whoever holds the lock; a
// skip is final only for what has not begun and what nothing waits for.
func (r *run) lockBusy(ctx context.Context, busy *lockguard.BusyError) tasks.Outcome {
	if r.plan.record != nil {
		if out, ok := r.peekRecord(ctx); ok {
			return out
		}
	}
	l := r.plan.lock
	other := busy.Holder.TaskID != r.d.Task.ID
	if l.onBusy == tasks.OnBusySkip && !r.begun && !r.d.FollowUps && other {
		r.standAside("lock")
		return tasks.Outcome{
			Kind: tasks.Succeeded, Reason: "skipped",
			Note: &tasks.Note{Outcome: "skipped", Reason: "busy", Holder: holderName(busy.Holder)},
		}
	}
	return r.park(tasks.ParkLock, l.key, busy.RetryAfter, "busy")
}

func holderName(h lockguard.Holder) string {
	switch {
	case h.TaskID != "":
		return h.TaskID
	case h.Instance != "":
		return h.Instance
	default:
		return "unknown"
	}
}

// park waits for a key until the limit that holds for this delivery.
func (r *run) park(why tasks.ParkReason, key string, left time.Duration, reason string) tasks.Outcome {
	limit, _ := r.beginLimit()
	return tasks.Outcome{
		Kind: tasks.Parked, Reason: reason,
		Park: tasks.Park{Reason: why, Key: key, Left: left, Deadline: limit},
	}
}

func (r *run) standAside(at string) {
	if f := r.w.cfg.Observer.StoodAside; f != nil {
		f(r.plan.schedule, at)
	}
}

// peekRecord looks at the record without claiming it. It answers if the
// record does; it also learns whether this task has begun.
func (r *run) peekRecord(ctx context.Context) (tasks.Outcome, bool) {
	p := r.plan.record
	rec, found, err := p.guard.Peek(ctx, p.key,
		idempotency.WithRun(r.plan.schedule, r.d.Task.Name, r.d.Task.ID), idempotency.WithFingerprint(p.fingerprint))
	r.begun = r.begun || found && rec.TaskID == r.d.Task.ID
	if err != nil {
		return r.notClaimed(ctx, err), true
	}
	return tasks.Outcome{}, false
}

// recorded runs the handler under the record and turns what it returns into
// an outcome.
func (r *run) recorded(ctx context.Context, handler func(context.Context) (json.RawMessage, error)) tasks.Outcome {
	p := r.plan.record
	if p == nil {
		result, err := handler(ctx)
		return r.outcome(ctx, result, err)
	}
	opts := []idempotency.Option{
		idempotency.WithRun(r.plan.schedule, r.d.Task.Name, r.d.Task.ID), idempotency.WithFingerprint(p.fingerprint),
		idempotency.WithLease(p.lease, p.renew), idempotency.WithMaxHold(p.maxHold), idempotency.WithRetention(p.retention),
	}
	if r.lock == nil {
		opts = append(opts, idempotency.WithValidity(true))
	} else if f, ok := r.lock.Fence(); ok {
		opts = append(opts, idempotency.WithFence(uint64(f)))
	}
	hold, err := p.guard.Claim(ctx, p.key, opts...)
	if err != nil {
		return r.notClaimed(ctx, err)
	}
	r.hold = hold
	r.info.Takeover = hold.Takeover()
	result, err := handler(hold.Context())
	out := r.outcome(ctx, result, err)
	if out.Kind != tasks.Parked {
		r.wake(ctx, parkKey(p.key))
	}
	failpoint.Hit(failpoint.AfterRecord, r.d.Task.Name)
	return out
}

// parkKey is the line in which messages wait for a record.
func parkKey(k idempotency.Key) string { return recordLine + k.Namespace + "|" + k.Text }

const recordLine = "record:"

// Free looks once more whether what a message was parked for is free by now:
// the release may have come between the refusal and the park.
func (w *Worker) Free(ctx context.Context, p tasks.Park) bool {
	switch p.Reason {
	case tasks.ParkLock:
		for _, g := range w.cfg.Locks {
			if h, err := g.Inspect(ctx, p.Key); err != nil || h.Held {
				return false
			}
		}
		return true
	case tasks.ParkRecord:
		ns, text, ok := strings.Cut(strings.TrimPrefix(p.Key, recordLine), "|")
		if !ok {
			return false
		}
		for _, g := range w.cfg.Records {
			rec, found, err := g.Store().Peek(ctx, idempotency.Key{Namespace: ns, Text: text})
			if err != nil || found && rec.State == idempotency.InProgress {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// notClaimed says what becomes of a delivery that did not get its record.
func (r *run) notClaimed(ctx context.Context, err error) tasks.Outcome {
	key := parkKey(r.plan.record.key)
	var (
		done    *idempotency.CompletedError
		busy    *idempotency.BusyError
		backoff *idempotency.BackoffError
		ended   *idempotency.FailedError
	)
	switch {
	case errors.As(err, &done):
		return r.replay(done.Record)
	case errors.As(err, &busy):
		return r.park(tasks.ParkRecord, key, busy.Left, "in_progress")
	case errors.As(err, &backoff):
		return r.park(tasks.ParkRecord, key, backoff.Left, "backoff")
	case errors.As(err, &ended):
		return replayFailure(ended.Record)
	case errors.Is(err, idempotency.ErrMismatch):
		return mismatch()
	case errors.Is(err, idempotency.ErrKeyMissing), errors.Is(err, idempotency.ErrKeyTooLong):
		return failed(&tasks.Exception{Type: "KeyMissing", Args: []any{err.Error()}, Cause: err}, "KeyMissing")
	case context.Cause(ctx) != nil:
		return tasks.Outcome{Kind: tasks.Returned, Err: context.Cause(ctx), Reason: "shutdown"}
	default:
		return r.storeDown(err)
	}
}

func (r *run) replay(rec idempotency.Record) tasks.Outcome {
	r.standAside("record")
	note := &tasks.Note{Outcome: "replayed", Reason: "completed", Holder: rec.TaskID}
	if rec.Result.Kind == idempotency.ResultOmitted {
		note.Result = "omitted"
	}
	return tasks.Outcome{Kind: tasks.Succeeded, Reason: "replayed", Result: rec.Result.Data, Note: note}
}

func replayFailure(rec idempotency.Record) tasks.Outcome {
	return failed(&tasks.Exception{Type: orDefault(rec.ErrCode, "TaskFailed"), Args: []any{rec.ErrMsg}}, "failed_before")
}

func mismatch() tasks.Outcome {
	return failed(&tasks.Exception{
		Type: "IdempotencyMismatch",
		Args: []any{"the same key was used before with other arguments"}, Cause: idempotency.ErrMismatch,
	}, "mismatch")
}

func lockBusy(p *plan) tasks.Outcome {
	what := "the record"
	if p.lock != nil {
		what = "lock " + p.lock.key
	}
	return failed(&tasks.Exception{Type: "LockBusy", Args: []any{what + " was not free in time"}}, "LockBusy")
}

func failed(err error, reason string) tasks.Outcome {
	out := tasks.Outcome{Kind: tasks.Failed, Err: err, Reason: reason}
	var p *tasks.PanicError
	if errors.As(err, &p) {
		out.Traceback = string(p.Stack)
	}
	return out
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
