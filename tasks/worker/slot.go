package worker

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/solobeat/solobeat/tasks"
)

// leave lets another run have the slot while this one asks a store.
func (r *run) leave() {
	if r.d.Slot != nil {
		r.d.Slot.Leave()
	}
}

func (r *run) enter(ctx context.Context) error {
	if r.d.Slot == nil {
		return nil
	}
	return r.d.Slot.Enter(ctx)
}

// inSlot calls the handler once the run has its slot again, and leaves it for
// good then: what follows are the ends of record and lock.
func (r *run) inSlot(ctx context.Context, handler func(context.Context) (json.RawMessage, error)) tasks.Outcome {
	if err := r.enter(ctx); err != nil {
		return r.noSlot(ctx, err)
	}
	result, err := handler(ctx)
	if r.d.Slot != nil && (r.lock != nil || r.hold != nil) {
		r.d.Slot.Done()
	}
	return r.outcome(ctx, result, err)
}

// noSlot gives a message back that has its lock and its record and could not
// begin.
func (r *run) noSlot(ctx context.Context, err error) tasks.Outcome {
	r.release(ctx, err)
	out := tasks.Outcome{Kind: tasks.Returned, Err: err, Reason: tasks.ReasonShutdown}
	switch {
	case lost(err):
		out.Reason = tasks.ReasonLost
	case errors.Is(err, tasks.ErrNoSlot):
		out.Reason = tasks.ReasonSlot
	}
	return out
}
