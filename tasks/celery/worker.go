package celery

import (
	"time"

	"github.com/solobeat/solobeat/internal/failpoint"
	"github.com/solobeat/solobeat/tasks"
)

// worker runs what is ready, one message at a time.
func (e *Engine) worker(run tasks.Runner) {
	p := &place{q: e.ready}
	for {
		it, ok := e.ready.pop(p)
		if !ok {
			return
		}
		e.finish(e.runOne(it, p, run))
	}
}

// runOne runs a message and builds the commit of its outcome.
func (e *Engine) runOne(it *item, p *place, run tasks.Runner) *commit {
	e.processed.Add(1)
	begin := p.since
	// What is acked already must not come back.
	if e.ready.slots > 1 && !it.acked {
		it.deliv.Slot = p
	}
	// Of a single slot the next run begins at once, and would meet the lock.
	it.deliv.Unlocks = e.cfg.Unlocks && e.elsewhere == nil && e.ready.slots > 1
	out := run(it.from.ctx, it.deliv)
	took := time.Since(begin)
	failpoint.Hit(failpoint.BeforeAck, it.msg.Task, it.msg.ID)
	c := e.outcome(it, out)
	c.ran, c.runtime, c.out.Unlock = true, took, out.Unlock
	return c
}
