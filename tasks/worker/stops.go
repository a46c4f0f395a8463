package worker

import (
	"errors"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/tasks"
)

// What a caller reads of a task that its guards have stopped for good.

func mismatch() tasks.Outcome {
	return failed(&tasks.Exception{
		Type: "IdempotencyMismatch",
		Args: []any{"the same key was used before with other arguments"}, Cause: idempotency.ErrMismatch,
	}, tasks.ReasonMismatch)
}

func lockBusy(p *plan) tasks.Outcome {
	what := "the record"
	if p.lock != nil {
		what = "lock " + p.lock.key
	}
	return failed(&tasks.Exception{Type: string(tasks.ReasonLockBusy), Args: []any{what + " was not free in time"}}, tasks.ReasonLockBusy)
}

// keyMissing: the key cannot be made of this message; it is never a constant,
// and never a skip.
func keyMissing(err error) tasks.Outcome {
	return failed(&tasks.Exception{Type: string(tasks.ReasonKeyMissing), Args: []any{err.Error()}, Cause: err}, tasks.ReasonKeyMissing)
}

// unknownGuard: a later version, or another replica's store: a replica that
// knows it may come, and without the guard the task is never run.
func unknownGuard(err error) tasks.Outcome {
	return tasks.Outcome{Kind: tasks.Parked, Reason: tasks.ReasonGuard, Err: err, Park: tasks.Park{Reason: tasks.ParkGuard}}
}

// deadLetter: the message can never be run as it is.
func deadLetter(err error, reason tasks.Reason) tasks.Outcome {
	out := failed(err, reason)
	out.DeadLetter = true
	return out
}

func failed(err error, reason tasks.Reason) tasks.Outcome {
	out := tasks.Outcome{Kind: tasks.Failed, Err: err, Reason: reason}
	var p *tasks.PanicError
	if errors.As(err, &p) {
		out.Traceback = string(p.Stack)
	}
	return out
}
