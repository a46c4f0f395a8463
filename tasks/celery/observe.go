package celery

import (
	"slices"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/internal/park"
)

func call0(f func()) {
	if f != nil {
		f()
	}
}

func call1[A any](f func(A), a A) {
	if f != nil {
		f(a)
	}
}

func call2[A, B any](f func(A, B), a A, b B) {
	if f != nil {
		f(a, b)
	}
}

// tookBy tells what was taken, by queue.
func (e *Engine) tookBy(taken []*item) {
	if e.cfg.Observer.Taken == nil {
		return
	}
	for i := 0; i < len(taken); {
		j := i
		for j < len(taken) && taken[j].src.queue == taken[i].src.queue {
			j++
		}
		e.cfg.Observer.Taken(taken[i].src.queue, j-i)
		i = j
	}
}

func (e *Engine) diverted(queue string, n int) {
	if n == 0 {
		return
	}
	e.log.Warn("messages that are no task envelopes went to the dead letters", "queue", queue, "number", n)
	for range n {
		call2(e.cfg.Observer.DeadLettered, queue, tasks.ReasonNotEnvelope)
	}
}

// splitDiverted tells of the diverted messages that are kept beside the dead
// letters, leaves the others in the reply, and returns how many there were.
func (e *Engine) splitDiverted(c *cycleCall, r *cycleReply) (all int) {
	var listed []int64
	for d := range slices.Chunk(r.diverted, 3) {
		if len(d) < 3 {
			break
		}
		all += int(d[1])
		listed = append(listed, d[0], d[1]-d[2])
		if n := int(d[2]); n > 0 {
			queue := e.sources[c.sources[d[0]-1]].queue
			e.log.Error("messages that are no task envelopes"+keptBeside, "queue", queue, "list", e.keys.deadRaw(queue), "number", n)
			for range n {
				call2(e.cfg.Observer.DeadUnlisted, queue, tasks.ReasonNotEnvelope)
			}
		}
	}
	r.diverted = listed
	return all
}

// keptBeside is said of what the stream of the dead letters did not take.
const keptBeside = " went to a list beside the dead letters, since their stream could not be written (solobeat dead list says what to do)"

// died tells that a message has become a dead letter, and where it lies. The
// list of what lies beside the others keeps no reason, so the log must.
func (e *Engine) died(log func(msg string, args ...any), it *item, d *deadNote, what string, more ...any) {
	attrs := append([]any{"task", it.taskName(), "task_id", it.taskID(), "queue", d.Queue, "reason", d.Reason, "detail", d.Detail}, more...)
	if d.beside {
		e.log.Error(what+keptBeside, append(attrs, "list", e.keys.deadRaw(d.Queue))...)
		call2(e.cfg.Observer.DeadUnlisted, d.Queue, d.Reason)
		return
	}
	log(what+" went to the dead letters", attrs...)
	call2(e.cfg.Observer.DeadLettered, d.Queue, d.Reason)
}

// settled tells what Redis has confirmed, and does what follows from it.
func (e *Engine) settled(c *commit) {
	it, o := c.it, &e.cfg.Observer
	if c.op != nil && c.op.Act == actPark {
		e.due.noteText(c.op.Due)
	}
	switch {
	case c.early: // only after a takeover between take and ack; nothing ran
		return
	case c.lapse == lapseReturned:
		call2(o.Returned, it.src.queue, 1)
		return
	case c.lapse != "":
		call2(o.Parked, it.src.queue, c.lapse)
		return
	}
	if o.Finished != nil {
		o.Finished(Finished{
			Task: it.taskName(), Queue: it.src.queue, Outcome: c.out.Kind, Reason: c.out.Reason, Ran: c.ran, Runtime: c.runtime,
			Message: it.task(),
		})
	}
	if c.op != nil && c.op.Dead != nil {
		e.died(e.log.Warn, it, c.op.Dead, "message")
	}
	switch c.out.Kind {
	case tasks.Parked:
		call2(o.Parked, it.src.queue, string(c.out.Park.Reason))
		if c.op != nil && c.op.Line != "" {
			e.looks.put(c.out.Park)
		}
		return
	case tasks.Retried:
		call2(o.Parked, it.src.queue, park.Retry)
	case tasks.Returned:
		call2(o.Returned, it.src.queue, 1)
		return
	}
	// A message that came out of a line brings the next one when it leaves,
	// whether it ran or not. Who won the lock has released it and woken; the
	// line of a record may be another one.
	if it.note.Key != "" && (!c.out.WonLock || it.note.For == string(tasks.ParkRecord)) {
		e.wakes.put(e.keys.line(it.note.Key))
	}
}

// dropped tells that a commit came too late: the message was taken over.
func (e *Engine) dropped(c *commit) {
	it := c.it
	if c.lapse != "" || c.early || c.out.Kind == tasks.Returned {
		return // it had nothing to commit
	}
	e.log.Warn("late commit dropped: the message is no longer this replica's", "task", it.taskName(), "task_id", it.taskID(),
		"queue", it.src.queue, "outcome", c.out.Kind.String(), "runtime", c.runtime.Round(time.Millisecond))
	call2(e.cfg.Observer.LateCommit, it.taskName(), it.src.queue)
}
