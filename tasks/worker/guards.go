package worker

import (
	"cmp"
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
// is acted on, so that a retry never waits for its own lock; or it is left to the
// engine, see yield.
func (r *run) locked(ctx context.Context, next func(context.Context) tasks.Outcome) tasks.Outcome {
	if out, ok := r.late(ctx); ok {
		return out
	}
	l := r.plan.lock
	if l == nil {
		return next(ctx)
	}
	h, out, ok := r.acquire(ctx)
	if !ok {
		return out
	}
	if h == nil { // its store is out of reach, and the lock says to run all the same
		return next(ctx)
	}
	r.lock = h
	released := false
	release := func(giveBack bool) {
		released = true
		r.info.Renewals = h.Renewals()
		// Counted and logged by the guard.
		if giveBack {
			_, _ = h.GiveBack(ctx)
		} else {
			_, _ = h.Release(ctx)
		}
		r.free = append(r.free, l.key)
	}
	defer func() {
		if !released { // a panic of the chain itself
			release(false)
		}
	}()
	out = next(h.Context())
	out.WonLock = !r.away
	if r.yield(ctx, &out) {
		released = true
		return out
	}
	// What is to go on elsewhere has not had its run: it does not wait for its
	// own min_hold.
	release(r.away || out.Kind == tasks.Returned || out.Kind == tasks.Parked)
	return out
}

// acquire takes the lock as its policies say. ok is false if the outcome stands; no handle with ok means that
// the run goes on without its lock.
func (r *run) acquire(ctx context.Context) (h *lockguard.Handle, out tasks.Outcome, ok bool) {
	l := r.plan.lock
	opts := l.options(r.d.Task.ID, r.plan.schedule)
	r.leave()
	h, err := l.guard.TryAcquire(ctx, l.key, opts...)
	if errors.Is(err, lockguard.ErrBusy) && l.onBusy == tasks.OnBusyWait {
		// A completed record answers at once, whoever holds the lock.
		if out, ok := r.recordAnswers(ctx); ok {
			return nil, out, false
		}
		h, err = l.guard.Acquire(ctx, l.key, append(opts, lockguard.WithWait(r.waitFor()), lockguard.WithWaitStop(r.w.stopWait))...)
	}
	switch {
	case err == nil:
		return h, out, true
	case l.onStoreDown == tasks.OnStoreDownRun && storeOut(err) && !r.given():
		r.withoutLock(err)
		return nil, out, true
	default:
		return nil, r.notLocked(ctx, err), false
	}
}

// waitFor is how long a slot waits for the lock: not beyond the time by which
// the run must begin.
func (r *run) waitFor() time.Duration {
	d := r.plan.lock.wait
	begin, _ := r.beginLimit()
	for _, limit := range []time.Time{begin, r.parkLimit()} {
		if !limit.IsZero() {
			d = min(d, limit.Sub(r.d.StoreNow()))
		}
	}
	return max(0, d)
}

// storeOut reports whether the store has given no answer that counts.
func storeOut(err error) bool {
	return errors.Is(err, lockguard.ErrStoreUnavailable) || errors.Is(err, lockguard.ErrTooSlow)
}

func (r *run) withoutLock(err error) {
	r.w.log.Error("task runs without its lock: the lock's store is out of reach, and on_store_down says run",
		"task_id", r.d.Task.ID, "task", r.d.Task.Name, "schedule", r.plan.schedule, "key", r.plan.lock.key, "error", err)
	if f := r.w.cfg.Observer.WithoutLock; f != nil {
		f(r.info)
	}
}

// wake brings forward the oldest messages of the lines that this run has
// freed, once both lock and record are free: whoever came for the record alone
// would meet the lock. The engine that has done it for its own is left out.
func (r *run) wake(ctx context.Context, done tasks.Waker) {
	for _, line := range r.free {
		for _, w := range r.w.wakers {
			if w != done {
				w.Wake(context.WithoutCancel(ctx), line)
			}
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
		return deadLetter(&tasks.Exception{Type: string(tasks.ReasonLockConfig), Args: []any{err.Error()}, Cause: err}, tasks.ReasonLockConfig)
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
	if out, ok := r.recordAnswers(ctx); ok {
		return out
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

// recordAnswers looks at the record, where there is one, without claiming it. It
// answers if the record does; it also learns whether this task has begun.
func (r *run) recordAnswers(ctx context.Context) (tasks.Outcome, bool) {
	p := r.plan.record
	if p == nil {
		return tasks.Outcome{}, false
	}
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
		return r.inSlot(ctx, handler)
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
	r.leave()
	hold, err := p.guard.Claim(ctx, p.key, opts...)
	if err != nil {
		return r.notClaimed(ctx, err)
	}
	r.hold = hold
	r.info.Takeover = hold.Takeover()
	return r.inHand(ctx, func() tasks.Outcome { return r.inSlot(hold.Context(), handler) })
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
	out.WonLock = !r.away // with a lock it was won as well
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
		return deadLetter(&tasks.Exception{Type: string(tasks.ReasonRecordConfig), Args: []any{err.Error()}, Cause: err}, tasks.ReasonRecordConfig)
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
	return failed(&tasks.Exception{Type: cmp.Or(rec.ErrCode, "TaskFailed"), Args: []any{rec.ErrMsg}}, tasks.ReasonFailedBefore)
}
