package worker

import (
	"context"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/tasks"
)

// lookTimeout bounds a look at a record that decides nothing but whether its
// task has begun.
const lookTimeout = 2 * time.Second

// late says what becomes of a delivery that may no longer begin, or has waited
// for 24 h, by the store's clock; ok is false while it may. What has begun does
// not expire, but it does not wait for ever either.
func (r *run) late(ctx context.Context) (out tasks.Outcome, ok bool) {
	if out, ok := r.missed(); ok {
		begun, err := r.hasBegun(ctx)
		switch {
		case err != nil && r.given():
			return r.givenBack(ctx), true
		case err != nil:
			return storeDown(err), true
		case !begun:
			return out, true
		}
	}
	if limit := r.parkLimit(); !limit.IsZero() && r.d.StoreNow().After(limit) {
		return lockBusy(r.plan), true
	}
	return out, false
}

// missed says what becomes of a delivery that has not begun, as far as is known,
// and may no longer; ok is false while it may.
func (r *run) missed() (out tasks.Outcome, ok bool) {
	limit, reason := r.beginLimit()
	switch {
	case limit.IsZero() || !r.d.StoreNow().After(limit):
		return out, false
	case r.d.FirstPark.IsZero():
		return tasks.Outcome{Kind: tasks.Revoked, Reason: reason}, true
	default:
		return lockBusy(r.plan), true
	}
}

// beginLimit is the instant by which what has not begun must begin, zero for
// none.
func (r *run) beginLimit() (limit time.Time, reason tasks.Reason) {
	if r.begun {
		return limit, ""
	}
	limit, reason = r.plan.beginBy, tasks.ReasonMissed
	if at := r.d.Task.Expires; !at.IsZero() && (limit.IsZero() || at.Before(limit)) {
		limit, reason = at, tasks.ReasonExpired
	}
	return limit, reason
}

// parkLimit is the end of the wait that began with the first park, zero for
// none.
func (r *run) parkLimit() time.Time {
	if r.d.FirstPark.IsZero() {
		return time.Time{}
	}
	return r.d.FirstPark.Add(tasks.MaxWait)
}

// hasBegun looks at the record, where there is one, for this task's id. It
// goes past the guard, which would count a decision.
func (r *run) hasBegun(ctx context.Context) (bool, error) {
	if r.begun || r.plan.record == nil {
		return r.begun, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	rec, found, err := r.plan.record.guard.Store().Peek(ctx, r.plan.record.key)
	if err != nil {
		return false, err
	}
	r.sawRecord(rec, found)
	return r.begun, nil
}

// sawRecord learns from a record whether this task has begun.
func (r *run) sawRecord(rec idempotency.Record, found bool) {
	r.begun = r.begun || found && rec.TaskID == r.d.Task.ID
}

// park waits for a key until the limit that holds for this delivery.
func (r *run) park(why tasks.ParkReason, key string, left time.Duration, reason tasks.Reason) tasks.Outcome {
	deadline, _ := r.beginLimit()
	if at := r.parkLimit(); deadline.IsZero() || !at.IsZero() && at.Before(deadline) {
		deadline = at
	}
	return tasks.Outcome{
		Kind: tasks.Parked, Reason: reason,
		Park: tasks.Park{Reason: why, Key: key, Left: left, Deadline: deadline},
	}
}
