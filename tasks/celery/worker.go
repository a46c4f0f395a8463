package celery

import (
	"time"

	"github.com/solobeat/solobeat/internal/failpoint"
	"github.com/solobeat/solobeat/tasks"
)

// worker is one slot: it runs what is ready, one message at a time.
func (e *Engine) worker(run tasks.Runner) {
	for {
		it, ok := e.ready.pop()
		if !ok {
			return
		}
		e.finish(e.runOne(it, run))
	}
}

// runOne runs a message and builds the commit of its outcome.
func (e *Engine) runOne(it *item, run tasks.Runner) *commit {
	e.active.Add(1)
	e.processed.Add(1)
	begin := time.Now()
	out := run(it.from.ctx, it.deliv)
	took := time.Since(begin)
	e.active.Add(-1)
	failpoint.Hit(failpoint.BeforeAck, it.msg.Task, it.msg.ID)
	c := e.outcome(it, out)
	c.ran, c.runtime = true, took
	return c
}
