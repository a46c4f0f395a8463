package celery

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
	"github.com/solobeat/solobeat/tasks/internal/park"
)

// parkUntil parks a message as it is until an instant.
func (e *Engine) parkUntil(it *item, at time.Time, reason string) *commit {
	return &commit{it: it, lapse: reason, op: e.parkOp(it, []byte(it.raw), at)}
}

// parkOp is a park with a timer of its own.
func (e *Engine) parkOp(it *item, raw []byte, at time.Time) *op {
	due := micros(at)
	return &op{
		Act: actPark, ParkAs: e.keys.parkTag(it.from.id, e.parkSeq.Add(1), it.src.step),
		List: it.src.key, Suffix: it.src.suffix, Queue: it.src.queue, Due: due, Limit: due, Delay: "0", raw: raw,
	}
}

// parkedFor parks a message for what the chain said. No attempt is counted.
func (e *Engine) parkedFor(it *item, out tasks.Outcome) *commit {
	now := it.deliv.StoreNow()
	p := out.Park
	note := parkNote{For: string(p.Reason), N: 1, Key: p.Key}
	again := it.note.For == note.For && it.note.Key == note.Key
	if again {
		note.N = it.note.N + 1
	}
	waits := p.Key != "" && (p.Reason == tasks.ParkLock || p.Reason == tasks.ParkRecord)
	// Who wins the lock and then meets the same record again still waits.
	won := out.WonLock && (p.Reason != tasks.ParkRecord || !again)
	first := it.deliv.FirstPark
	if waits && (first.IsZero() || won) {
		first = now
	}
	raw, err := parkedRaw(it, out, note, first, won && !waits)
	if err != nil {
		return e.deadLetter(it, tasks.ReasonMalformed, err.Error(), wire.ExceptionOf(err))
	}
	delay := park.Delay(p, note.N, waits)
	o := e.parkOp(it, raw, now.Add(delay))
	if waits {
		limit := park.Limit(p, first)
		o.Limit = micros(limit)
		if due := now.Add(delay); due.After(limit) {
			o.Due = o.Limit
		}
		o.Line, o.Order, o.Delay = e.keys.line(p.Key), micros(first), strconv.FormatInt(delay.Microseconds(), 10)
	}
	return &commit{it: it, out: out, op: o}
}

// parkedRaw is the message as it is parked: with what the next delivery must
// know of its past.
func parkedRaw(it *item, out tasks.Outcome, note parkNote, first time.Time, drop bool) ([]byte, error) {
	raw := []byte(it.raw)
	if out.Begun && !it.deliv.Begun() {
		var err error
		if raw, err = wire.Redeliver(raw, it.deaths()); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(note)
	if err != nil {
		return nil, err
	}
	h := map[string]json.RawMessage{headerParked: text}
	switch {
	case drop:
		h[headerFirstPark] = nil
	case !first.IsZero():
		h[headerFirstPark] = json.RawMessage(micros(first))
	}
	return wire.SetHeaders(raw, h)
}

// retried sends a message again with one more attempt: RETRY, the new message
// and the ack are one step.
func (e *Engine) retried(it *item, out tasks.Outcome) *commit {
	var eta time.Time
	if out.After > 0 {
		eta = it.deliv.StoreNow().Add(out.After)
	}
	headers := map[string]json.RawMessage{
		wire.HeaderDeliveries: nil, wire.HeaderLosses: nil, headerFirstPark: nil, headerParked: nil,
	}
	raw, err := wire.Retry([]byte(it.raw), it.msg.Retries+1, eta, headers)
	if err != nil {
		return e.deadLetter(it, tasks.ReasonMalformed, err.Error(), wire.ExceptionOf(err))
	}
	c := &commit{it: it, out: out}
	r := &wire.Result{State: wire.StateRetry, Traceback: out.Traceback}
	if out.Err != nil {
		exc := exceptionOf(out.Err)
		r.Exception = &exc
	}
	if err := c.store(e, r); err != nil {
		e.log.Error("result cannot be encoded", "task_id", it.taskID(), "error", err)
	}
	if eta.IsZero() {
		c.op = &op{Act: actPush, List: it.src.key, Side: "L", raw: raw}
	} else {
		c.op = e.parkOp(it, raw, eta)
	}
	return c
}

// line is the zset of messages that are parked for a key.
func (k keys) line(key string) string { return k.own("line:" + key) }

func micros(t time.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }
