package celery

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// commit is how one delivery ends on Redis. It is built where the outcome is
// known and sent by the loop alone.
type commit struct {
	it      *item
	out     tasks.Outcome
	ran     bool
	runtime time.Duration

	key    string // of the result, "" for none
	result []byte
	op     *op // nil: nothing but result and ack

	// early: only the ack that comes before the run of an ack-early task.
	early bool
	// lapse: the message was not dealt with, only given back or put off by
	// the engine itself; no outcome is told.
	lapse string
}

// op is what settle.lua does beside result and ack. Numbers are text, since
// Lua's default format rounds them.
type op struct {
	Tag    string    `json:"tag"`
	Key    string    `json:"key,omitempty"`
	Act    string    `json:"act"` // ack, push or park
	List   string    `json:"list,omitempty"`
	Side   string    `json:"side,omitempty"` // R: the taking end
	ParkAs string    `json:"ptag,omitempty"`
	Suffix string    `json:"suffix,omitempty"`
	Due    string    `json:"due,omitempty"`
	Limit  string    `json:"limit,omitempty"`
	Line   string    `json:"line,omitempty"`
	Order  string    `json:"order,omitempty"`
	Delay  string    `json:"delay,omitempty"`
	Queue  string    `json:"queue,omitempty"`
	Dead   *deadNote `json:"dead,omitempty"`

	raw []byte
}

// deadNote is what a dead letter says beside the raw bytes.
type deadNote struct {
	Queue      string       `json:"queue"`
	Reason     tasks.Reason `json:"reason"`
	Detail     string       `json:"detail,omitempty"`
	Instance   string       `json:"instance,omitempty"`
	List       string       `json:"list,omitempty"`
	Deliveries string       `json:"deliveries,omitempty"`
	Task       string       `json:"task,omitempty"`
	ID         string       `json:"id,omitempty"`

	beside bool // it could not be put into the stream: see [Admin.Unlisted]
}

// Acts of an op.
const (
	actAck  = "ack"
	actPush = "push"
	actPark = "park"
)

// lapseReturned is the lapse of what is given back; all others are the reason
// of a park.
const lapseReturned = "returned"

// tagFor is the tag that must still be ours for the commit to count; "" makes
// it unconditional.
func (c *commit) tagFor() string { return *c.tagArg() }

// tagArg is tagFor as a script gets it.
func (c *commit) tagArg() *string {
	if c.it.acked {
		return new(string)
	}
	return &c.it.tag
}

// outcome turns what a run (or the engine) said into a commit.
func (e *Engine) outcome(it *item, out tasks.Outcome) *commit {
	switch out.Kind {
	case tasks.Succeeded:
		return e.succeeded(it, out)
	case tasks.Failed:
		return e.failed(it, out)
	case tasks.Retried:
		return e.retried(it, out)
	case tasks.Revoked:
		c := &commit{it: it, out: out}
		c.storeException(e, wire.StateRevoked, wire.TaskRevoked(string(out.Reason)), "")
		return c
	case tasks.Parked:
		return e.parkedFor(it, out)
	case tasks.Returned:
		return e.returned(it, out)
	}
	out.Err = fmt.Errorf("celery: the run had no outcome (kind %d)", out.Kind)
	out.Kind = tasks.Failed
	return e.failed(it, out)
}

func (e *Engine) succeeded(it *item, out tasks.Outcome) *commit {
	c := &commit{it: it, out: out}
	r := &wire.Result{State: wire.StateSuccess, Value: out.Result}
	if out.Note != nil {
		note, err := json.Marshal(out.Note)
		if err != nil {
			return e.failed(it, tasks.Outcome{Kind: tasks.Failed, Err: err})
		}
		r.Solobeat = note
	}
	if err := c.store(e, r); err != nil {
		// The result is no JSON: Celery calls that EncodeError.
		exc := &tasks.Exception{Type: "EncodeError", Module: "kombu.exceptions", Args: []any{err.Error()}}
		return e.failed(it, tasks.Outcome{Kind: tasks.Failed, Err: exc})
	}
	return c
}

func (e *Engine) failed(it *item, out tasks.Outcome) *commit {
	exc := exceptionOf(out.Err)
	if out.DeadLetter {
		detail := ""
		if out.Err != nil {
			detail = out.Err.Error()
		}
		c := e.deadLetter(it, out.Reason, detail, exc)
		c.out = out
		return c
	}
	c := &commit{it: it, out: out}
	c.storeException(e, wire.StateFailure, exc, out.Traceback)
	return c
}

// deadLetter ends a message in the dead letters of its queue, with FAILURE
// where its id is known.
func (e *Engine) deadLetter(it *item, reason tasks.Reason, detail string, exc wire.Exception) *commit {
	if reason == "" {
		reason = tasks.ReasonFailed
	}
	c := &commit{it: it, out: tasks.Outcome{Kind: tasks.Failed, Reason: reason, DeadLetter: true}}
	c.op = &op{Act: actAck, raw: []byte(it.raw), Dead: &deadNote{
		Queue: it.src.queue, Reason: reason, Detail: clipText(detail), Instance: it.from.id, List: it.src.name,
		Deliveries: strconv.Itoa(it.deaths()), Task: it.taskName(), ID: it.taskID(),
	}}
	c.storeException(e, wire.StateFailure, exc, "")
	return c
}

// returned gives a message back to the taking end, marked as begun if it has.
func (e *Engine) returned(it *item, out tasks.Outcome) *commit {
	raw, err := []byte(it.raw), error(nil)
	if out.Begun {
		raw, err = wire.Redeliver(raw, it.deaths())
	}
	if err == nil && (out.Lost || out.WonLock) {
		h := map[string]json.RawMessage{}
		if out.Lost {
			h[wire.HeaderLosses] = strconv.AppendInt(nil, int64(it.deliv.Losses+1), 10)
		}
		if out.WonLock {
			h[headerFirstPark], h[headerParked] = nil, nil
		}
		raw, err = wire.SetHeaders(raw, h)
	}
	if err != nil {
		return e.deadLetter(it, tasks.ReasonMalformed, err.Error(), wire.ExceptionOf(err))
	}
	return &commit{it: it, out: out, op: &op{Act: actPush, List: it.src.key, Side: "R", raw: raw}}
}

// giveBack puts a message that no run has begun back to the taking end, as it
// came.
func (e *Engine) giveBack(it *item) *commit {
	return &commit{it: it, lapse: lapseReturned, op: &op{Act: actPush, List: it.src.key, Side: "R", raw: []byte(it.raw)}}
}

// store encodes the result of the commit's task; nothing is stored for a
// sender that ignores results, or where no id is known.
func (c *commit) store(e *Engine, r *wire.Result) error {
	r.TaskID = c.it.taskID()
	if r.TaskID == "" {
		return nil
	}
	if m := c.it.msg; m != nil {
		if m.IgnoreResult.Or(false) {
			return nil
		}
		r.GroupID, r.ParentID = m.Group, m.ParentID
	}
	if wire.Ready(r.State) {
		r.DateDone = time.Now().UTC()
	}
	b, err := wire.EncodeResult(r)
	if err != nil {
		return err
	}
	c.key, c.result = e.keys.result(r.TaskID), b
	return nil
}

// storeException is store for what ends with an exception. Where its arguments
// are no JSON, their text is stored.
func (c *commit) storeException(e *Engine, state string, exc wire.Exception, traceback string) {
	err := c.store(e, &wire.Result{State: state, Exception: &exc, Traceback: traceback})
	if err != nil {
		plain := wire.NewException(exc.Type, exc.Text())
		err = c.store(e, &wire.Result{State: state, Exception: &plain, Traceback: traceback})
	}
	if err != nil {
		e.log.Error("result cannot be encoded", "task_id", c.it.taskID(), "error", err)
	}
}

// exceptionOf gives the exception by which a Python client sees err.
func exceptionOf(err error) wire.Exception { return wire.ExceptionOfRun(err) }

// clipText bounds what a dead letter tells beside the raw bytes.
func clipText(s string) string {
	const most = 1000
	if len(s) > most {
		return s[:most]
	}
	return s
}
