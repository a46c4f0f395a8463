package asynqengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/internal/park"
)

// finish does what an outcome asks for and answers asynq. What asynq has given
// up is another run's by now: its outcome is dropped.
func (e *Engine) finish(ctx context.Context, it *item, out tasks.Outcome) error {
	if ctx.Err() != nil {
		return e.late(ctx, it, out)
	}
	var answer error
	var err error
	switch out.Kind {
	case tasks.Succeeded, tasks.Revoked:
		err = e.final(ctx, it, out)
	case tasks.Failed:
		answer, err = &ended{orText(out.Err, out.Reason)}, e.final(ctx, it, out)
	case tasks.Retried:
		answer, err = e.retried(ctx, it, out)
	case tasks.Parked:
		answer, err = e.parked(ctx, it, out)
	case tasks.Returned:
		answer, err = e.returned(ctx, it, out)
	default:
		answer = &ended{fmt.Errorf("asynqengine: the run had no outcome (kind %d)", out.Kind)}
	}
	if err != nil {
		// Nothing is written down; it comes back, or its lease is over.
		e.log.Error("outcome could not be written", "task_id", it.id, "task", it.msg.task.Name, "outcome", out.Kind.String(), "error", err)
		return e.comeBack(ctx, it, &again{after: park.First, why: err.Error()})
	}
	e.tell(it, out)
	e.leftLine(it, out)
	return answer
}

func orText(err error, reason tasks.Reason) error {
	if err != nil {
		return err
	}
	return errors.New("asynqengine: " + string(reason))
}

// final writes the result and forgets the past. That the task has begun stays
// known for a day. A result that a server refuses is lost: to run the task again
// for its sake would have its effect twice, and be refused again. For a server
// that is away the run keeps its slot, for as long as it is this process's own;
// then the error says that the task must come back.
func (e *Engine) final(ctx context.Context, it *item, out tasks.Outcome) error {
	switch err := e.writeResult(ctx, it.id, out); {
	case err == nil:
	case !away(err):
		e.log.Error("result is lost", "task_id", it.id, "task", it.msg.task.Name, "outcome", out.Kind.String(), "error", err)
	default:
		it.past.Begun = true
		return errors.Join(err, e.notePast(ctx, it))
	}
	if it.past.found || it.retried > 0 {
		if err := e.cfg.Client.Del(ctx, e.pastKey(it.id)).Err(); err != nil {
			e.log.Debug("past of a task is left to its TTL", "task_id", it.id, "error", err)
		}
	}
	return nil
}

// late drops an outcome: asynq has given the run up, and the task is another
// run's by now.
func (e *Engine) late(ctx context.Context, it *item, out tasks.Outcome) error {
	e.log.Warn("late outcome dropped: asynq had given the run up", "task", it.msg.task.Name, "task_id", it.id,
		"queue", it.queue, "outcome", out.Kind.String(), "runtime", it.runtime.Round(time.Millisecond))
	call2(e.cfg.Observer.LateCommit, it.msg.task.Name, it.queue)
	e.leftLine(it, out)
	return ctx.Err()
}

// gaveUp writes down, as soon as asynq gives a run up, that this is no death of
// a process, though asynq counts a retry; at the end of the process it does not.
// A handler that ignores its context may return only when the next run is over.
func (e *Engine) gaveUp(ctx context.Context, it *item) {
	if e.cancelled.Err() != nil {
		return
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.tune.call)
	defer cancel()
	p, _, err := e.readPast(call, it.id)
	if err == nil {
		p.Counted++
		p.Begun = true
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.Retries++
		}
		err = e.writePast(call, it.id, p, 0)
	}
	if err != nil {
		e.log.Warn("it is not written down that asynq has given a run up", "task_id", it.id, "error", err)
	}
}

// reserve is how many runs asynq must still allow after what is counted as a
// retry: those that follow deaths.
func reserve(most int) int { return max(1, min(retryReserve, most/2)) }

// retried sends a task again with one more attempt.
func (e *Engine) retried(ctx context.Context, it *item, out tasks.Outcome) (error, error) {
	counted := it.retried+1+reserve(it.max) <= it.max
	it.past.Retries++
	if counted {
		it.past.Counted++
	}
	it.past.Begun = true
	it.past.Losses = 0
	it.past.unpark()
	if err := e.writePast(ctx, it.id, it.past, max(out.After, 0)); err != nil {
		return nil, err
	}
	if err := e.writeResult(ctx, it.id, out); err != nil {
		return nil, err
	}
	return e.comeBack(ctx, it, &again{after: out.After, counted: counted, why: orText(out.Err, out.Reason).Error()}), nil
}

// returned gives a task back to its queue; no attempt is counted.
func (e *Engine) returned(ctx context.Context, it *item, out tasks.Outcome) (error, error) {
	it.past.Begun = it.past.Begun || out.Begun
	if out.Lost {
		it.past.Losses++
	}
	if out.WonLock {
		it.past.unpark()
	}
	if err := e.writePast(ctx, it.id, it.past, 0); err != nil {
		return nil, err
	}
	return e.comeBack(ctx, it, &again{why: orText(out.Err, out.Reason).Error()}), nil
}

// parked parks a task for what the chain said; no attempt is counted.
func (e *Engine) parked(ctx context.Context, it *item, out tasks.Outcome) (error, error) {
	now, p, was := it.deliv.StoreNow(), out.Park, *it.past
	same := was.For == string(p.Reason) && was.Key == p.Key
	it.past.For, it.past.Key, it.past.N = string(p.Reason), p.Key, 1
	if same {
		it.past.N = was.N + 1
	}
	it.past.Begun = it.past.Begun || out.Begun
	waits := p.Key != "" && (p.Reason == tasks.ParkLock || p.Reason == tasks.ParkRecord)
	// Who wins the lock and then meets the same record again still waits.
	won := out.WonLock && (p.Reason != tasks.ParkRecord || !same)
	switch {
	case waits && (was.FirstPark == 0 || won):
		it.past.FirstPark = now.UnixMicro()
	case won:
		it.past.FirstPark = 0
	}
	delay := park.Delay(p, it.past.N, waits)
	if waits {
		limit := park.Limit(p, it.past.firstPark())
		oldest, err := e.lines.join(ctx, p.Key, it.past.firstPark(), it.who())
		if err != nil {
			return nil, err
		}
		if left := limit.Sub(now); !oldest || left < delay {
			delay = max(left, 0)
		}
	}
	if err := e.writePast(ctx, it.id, it.past, 0); err != nil {
		return nil, err
	}
	why := "parked: " + string(p.Reason)
	if p.Key != "" {
		why += " " + p.Key
	}
	if out.Err != nil {
		why += ": " + out.Err.Error()
	}
	answer := e.comeBack(ctx, it, &again{after: delay, why: why})
	if waits {
		e.look(p)
	}
	return answer, nil
}

// errNoRuns: asynq's own limit is reached, so that a task cannot come back.
var errNoRuns = errors.New("asynqengine: MaxRetry allows no further run")

// comeBack answers that a task shall come back. Where asynq allows no further
// run (a plain program's MaxRetry of 0, or as many deaths), it would archive
// the task without a word: then the result says so.
func (e *Engine) comeBack(ctx context.Context, it *item, a *again) error {
	if it.retried < it.max {
		return a
	}
	err := fmt.Errorf("%w (%d of %d are used): %s", errNoRuns, it.retried, it.max, a.why)
	out := tasks.Outcome{Kind: tasks.Failed, Err: &tasks.Exception{
		Type: "MaxRetriesExceededError", Module: "celery.exceptions", Args: []any{err.Error()}, Cause: err,
	}}
	if err := e.final(ctx, it, out); err != nil {
		e.log.Error("result is lost", "task_id", it.id, "task", it.msg.task.Name, "outcome", out.Kind.String(), "error", err)
	}
	return &ended{err}
}

// tell tells the observer what became of a delivery.
func (e *Engine) tell(it *item, out tasks.Outcome) {
	o := &e.cfg.Observer
	call1(o.Finished, Finished{
		Task: it.msg.task.Name, Queue: it.queue, Outcome: out.Kind, Reason: out.Reason, Ran: it.ran, Runtime: it.runtime,
		Message: it.msg.task,
	})
	switch out.Kind {
	case tasks.Failed:
		if out.DeadLetter {
			e.log.Warn("task went to the archive", "task", it.msg.task.Name, "task_id", it.id, "queue", it.queue, "reason", out.Reason, "error", out.Err)
			call2(o.DeadLettered, it.queue, out.Reason)
		}
	case tasks.Parked:
		call2(o.Parked, it.queue, string(out.Park.Reason))
	case tasks.Retried:
		call2(o.Parked, it.queue, park.Retry)
	case tasks.Returned:
		call2(o.Returned, it.queue, 1)
	case tasks.Succeeded, tasks.Revoked:
	}
}

// leftLine: a message that came out of a line brings the next one forward when
// it leaves, whether it ran or not; not if it stands in it again.
func (e *Engine) leftLine(it *item, out tasks.Outcome) {
	if it.line != "" && (out.Kind != tasks.Parked || out.Park.Key != it.line) {
		e.wakes.put(it.line)
	}
}
