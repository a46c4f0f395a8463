package worker

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/tasks"
)

// leave lets another run have the slot while this one asks a store. A run that
// waits for a lock in its slot keeps it all along: else those that wait for the
// lock could have all slots, and who has it none.
func (r *run) leave() {
	if l := r.plan.lock; r.d.Slot != nil && (l == nil || l.onBusy != tasks.OnBusyWait) {
		r.d.Slot.Leave()
	}
}

// inSlot calls the handler once the run has its slot again, and leaves it for
// good then: what follows are the ends of record and lock.
func (r *run) inSlot(ctx context.Context, handler func(context.Context) (json.RawMessage, error)) tasks.Outcome {
	if r.d.Slot != nil {
		if out, ok := r.turnedAway(ctx, r.d.Slot.Enter(ctx)); ok {
			return out
		}
	}
	result, err := handler(ctx)
	if r.d.Slot != nil && (r.lock != nil || r.hold != nil) {
		r.d.Slot.Done()
	}
	return r.outcome(ctx, result, err)
}

// turnedAway says what becomes of a run that has its lock and its record and
// cannot begin: it got no slot, its context has ended meanwhile, or it may no
// longer begin. It gives its record back as one that has not begun.
func (r *run) turnedAway(ctx context.Context, err error) (out tasks.Outcome, ok bool) {
	if err == nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil:
		if out, ok = r.missed(); !ok || r.info.Takeover {
			return out, false
		}
	case lost(err):
		out = tasks.Outcome{Kind: tasks.Returned, Err: err, Reason: tasks.ReasonLost}
	case errors.Is(err, tasks.ErrNoSlot):
		out = tasks.Outcome{Kind: tasks.Returned, Err: err, Reason: tasks.ReasonSlot}
	default:
		out = tasks.Outcome{Kind: tasks.Returned, Err: err, Reason: tasks.ReasonShutdown}
	}
	r.away = true
	if r.hold != nil {
		if err := r.hold.GiveBack(ctx); err != nil && !errors.Is(err, idempotency.ErrStale) {
			r.w.log.Warn("record could not be given back", "task_id", r.d.Task.ID, "error", err)
		}
	}
	return out, true
}
