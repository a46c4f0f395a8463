package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

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
		r.free = append(r.free, l.key)
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

// wake brings forward the oldest messages of the lines that this run has
// freed, once both lock and record are free: whoever came for the record alone
// would meet the lock.
func (r *run) wake(ctx context.Context) {
	for _, line := range r.free {
		if r.w.waker != nil {
			r.w.waker.Wake(context.WithoutCancel(ctx), line)
		}
	}
	r.free = nil
}

// given reports whether the engine has given this run up.
func (r *run) given() bool {
	select {
	case <-r.end:
		return true
	default:
		return false
	}
}

// givenBack is what becomes of a delivery whose run was given up before it
// began.
func (r *run) givenBack(ctx context.Context) tasks.Outcome {
	return tasks.Outcome{Kind: tasks.Returned, Err: context.Cause(ctx), Reason: tasks.ReasonShutdown}
}

// notLocked says what becomes of a delivery that did not get its lock.
func (r *run) notLocked(ctx context.Context, err error) tasks.Outcome {
	var busy *lockguard.BusyError
	switch {
	case errors.As(err, &busy):
		return r.lockBusy(ctx, busy)
	case errors.Is(err, lockguard.ErrForeignKey), errors.Is(err, lockguard.ErrConfig):
		return deadLetter(&tasks.Exception{Type: "LockConfig", Args: []any{err.Error()}, Cause: err}, tasks.ReasonLockConfig)
	case r.given():
		return r.givenBack(ctx)
	default:
		return storeDown(err)
	}
}

func storeDown(err error) tasks.Outcome {
	return tasks.Outcome{Kind: tasks.Parked, Reason: tasks.ReasonStore, Err: err, Park: tasks.Park{Reason: tasks.ParkStore}}
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
	other := !busy.Unsure && busy.Holder.TaskID != r.d.Task.ID
	if other {
		r.standAside("lock")
	}
	if other && l.onBusy == tasks.OnBusySkip && !r.begun && !r.d.FollowUps {
		return tasks.Outcome{
			Kind: tasks.Succeeded, Reason: tasks.ReasonSkipped,
			Note: &tasks.Note{Outcome: "skipped", Reason: tasks.ReasonBusy, Holder: holderName(busy.Holder)},
		}
	}
	return r.park(tasks.ParkLock, l.key, busy.RetryAfter, tasks.ReasonBusy)
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

func (r *run) standAside(at string) {
	if f := r.w.cfg.Observer.StoodAside; f != nil && r.w.aside.first(r.d.Task.ID) {
		f(r.plan.schedule, at)
	}
}

// peekRecord looks at the record without claiming it. It answers if the
// record does; it also learns whether this task has begun.
func (r *run) peekRecord(ctx context.Context) (tasks.Outcome, bool) {
	p := r.plan.record
	rec, found, err := p.guard.Peek(ctx, p.key,
		idempotency.WithRun(r.plan.schedule, r.d.Task.Name, r.d.Task.ID), idempotency.WithFingerprint(p.fingerprint))
	r.sawRecord(rec, found)
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
	return r.inHand(ctx, func() tasks.Outcome {
		result, err := handler(hold.Context())
		return r.outcome(ctx, result, err)
	})
}

// inHand sees to it that a record in hand does not outlive its run, also if the
// chain itself panics: it would be renewed for ever.
func (r *run) inHand(ctx context.Context, next func() tasks.Outcome) tasks.Outcome {
	over, line := false, parkKey(r.plan.record.key)
	defer func() {
		if !over {
			r.release(ctx, errPanic)
			r.free = append(r.free, line)
		}
	}()
	out := next()
	over = true
	out.WonLock = true // with a lock it was won as well
	if out.Kind != tasks.Parked {
		r.free = append(r.free, line)
	}
	failpoint.Hit(failpoint.AfterRecord, r.d.Task.Name, r.d.Task.ID)
	return out
}

var errPanic = errors.New("worker: panic in the chain")

// parkKey is the line in which messages wait for a record.
func parkKey(k idempotency.Key) string { return recordLine + k.Namespace + "|" + k.Text }

const recordLine = "record:"

// Free looks once more whether what a message was parked for is free by now:
// the release may have come between the refusal and the park. A lock that this
// process keeps its own attempts off is not free to it, whatever the store
// says: who has it brings the oldest message forward in the end.
func (w *Worker) Free(ctx context.Context, p tasks.Park) bool {
	switch p.Reason {
	case tasks.ParkLock:
		return w.lockFree(ctx, p.Key)
	case tasks.ParkRecord:
		return w.recordFree(ctx, p.Key)
	default:
		return false
	}
}

func (w *Worker) lockFree(ctx context.Context, key string) bool {
	for _, g := range w.cfg.Locks {
		if g.Occupied(key) {
			return false
		}
		if h, err := g.Inspect(ctx, key); err != nil || h.Held {
			return false
		}
	}
	return true
}

func (w *Worker) recordFree(ctx context.Context, line string) bool {
	ns, text, ok := strings.Cut(strings.TrimPrefix(line, recordLine), "|")
	if !ok {
		return false
	}
	for _, g := range w.cfg.Records {
		rec, found, err := g.Store().Peek(ctx, idempotency.Key{Namespace: ns, Text: text})
		if err != nil || found && (rec.State == idempotency.InProgress || rec.BackoffLeft > 0) {
			return false
		}
	}
	return true
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
		r.sawRecord(busy.Record, true)
		return r.park(tasks.ParkRecord, key, busy.Left, tasks.ReasonInProgress)
	case errors.As(err, &backoff):
		r.sawRecord(backoff.Record, true)
		return r.park(tasks.ParkRecord, key, backoff.Left, tasks.ReasonBackoff)
	case errors.As(err, &ended):
		return replayFailure(ended.Record)
	case errors.Is(err, idempotency.ErrMismatch):
		return mismatch()
	case errors.Is(err, idempotency.ErrKeyMissing), errors.Is(err, idempotency.ErrKeyTooLong), errors.Is(err, idempotency.ErrKeyText):
		return keyMissing(err)
	case errors.Is(err, idempotency.ErrBadOptions):
		return deadLetter(&tasks.Exception{Type: "RecordConfig", Args: []any{err.Error()}, Cause: err}, tasks.ReasonRecordConfig)
	case r.given():
		return r.givenBack(ctx)
	default:
		return storeDown(err)
	}
}

func (r *run) replay(rec idempotency.Record) tasks.Outcome {
	r.standAside("record")
	note := &tasks.Note{Outcome: "replayed", Reason: tasks.ReasonCompleted, Holder: rec.TaskID}
	if rec.Result.Kind == idempotency.ResultOmitted {
		note.Result = "omitted"
	}
	return tasks.Outcome{Kind: tasks.Succeeded, Reason: tasks.ReasonReplayed, Result: rec.Result.Data, Note: note}
}

func replayFailure(rec idempotency.Record) tasks.Outcome {
	return failed(&tasks.Exception{Type: orDefault(rec.ErrCode, "TaskFailed"), Args: []any{rec.ErrMsg}}, tasks.ReasonFailedBefore)
}
