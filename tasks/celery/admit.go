package celery

import (
	"errors"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
	"github.com/solobeat/solobeat/tasks/internal/park"
)

// admit decides what becomes of a message that was just taken: nil for a run,
// else the commit that ends it. Whether it has expired is left to the run: only
// that can see whether the task has begun.
func (e *Engine) admit(it *item, now time.Time) *commit {
	if it.err != nil {
		return e.undecodable(it)
	}
	m := it.msg
	if field := m.Unsupported(); field != "" {
		err := &tasks.Exception{Type: string(tasks.ReasonUnsupported), Args: []any{"the message asks for " + field + ", which is not supported"}}
		return e.deadLetter(it, tasks.ReasonUnsupported, field, exceptionOf(err))
	}
	if e.cfg.Registered != nil && !e.cfg.Registered(m.Task) {
		return e.deadLetter(it, tasks.ReasonNotRegistered, "no handler of that name in this worker: all workers of a queue must know its tasks", wire.NotRegistered(m.Task))
	}
	e.noteNaive(m)
	if m.ETA.After(now) {
		return e.parkUntil(it, m.ETA, park.ETA)
	}
	return nil
}

func (e *Engine) undecodable(it *item) *commit {
	reason := tasks.ReasonMalformed
	switch {
	case errors.Is(it.err, wire.ErrContentDisallowed):
		reason = tasks.ReasonContentDisallowed
	case errors.Is(it.err, wire.ErrUnsupported):
		reason = tasks.ReasonUnsupported
	case errors.Is(it.err, wire.ErrTooLarge):
		reason = tasks.ReasonTooLarge
	case errors.Is(it.err, wire.ErrNotEnvelope):
		reason = tasks.ReasonNotEnvelope
	}
	return e.deadLetter(it, reason, it.err.Error(), wire.ExceptionOf(it.err))
}

// maxNaiveNames bounds the task names that are remembered for one warning.
const maxNaiveNames = 1000

// noteNaive warns, once per task name, of times without an offset: they are
// read as UTC, as Celery does with enable_utc.
func (e *Engine) noteNaive(m *wire.Message) {
	if !m.ETANaive && !m.ExpiresNaive {
		return
	}
	e.naiveMu.Lock()
	known := e.naive[m.Task] || len(e.naive) >= maxNaiveNames
	if !known {
		e.naive[m.Task] = true
	}
	e.naiveMu.Unlock()
	if !known {
		e.log.Warn("eta or expires without an offset is read as UTC; the sender should write one", "task", m.Task, "task_id", m.ID)
	}
}
