package celery

import (
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Headers of ours beside those of package wire. They are read by replicas
// only and not shown to handlers.
const (
	// headerFirstPark is the store's time (µs) of the first park for a lock or
	// a record since the lock was last won.
	headerFirstPark = wire.HeaderPrefix + "first-park"
	// headerParked is a parkNote.
	headerParked = wire.HeaderPrefix + "parked"
)

// item is one message that this replica holds.
type item struct {
	tag  string
	from *replica // under whose tags it was taken
	src  *source
	raw  []byte
	msg  *wire.Message // nil if undecodable
	err  error         // why

	deliv  *tasks.Delivery
	note   parkNote // of its last park
	readyA time.Time
	// acked is set once an early ack is confirmed: nothing of it is left in
	// unacked, and what its run leads to is written in any case.
	acked   bool
	suspect bool // occupies the replica's place for a suspect
}

// parkNote travels with a parked message: for what it was parked, how often
// in a row, and for which key.
type parkNote struct {
	For string `json:"for"`
	N   int    `json:"n"`
	Key string `json:"key,omitempty"`
}

// newItem decodes a raw message at once. It shares memory with raw.
func newItem(tag string, from *replica, src *source, raw []byte, takenAt, taken time.Time) *item {
	it := &item{tag: tag, from: from, src: src, raw: raw}
	if it.msg, it.err = wire.Decode(raw); it.err != nil {
		return it
	}
	it.note = readNote(it.msg)
	it.deliv = delivery(it.msg, src.queue, takenAt, taken)
	return it
}

func delivery(m *wire.Message, queue string, takenAt, taken time.Time) *tasks.Delivery {
	t := &tasks.Task{
		ID: m.ID, Name: m.Task, Args: m.Args, Kwargs: m.Kwargs, Headers: foreignHeaders(m.Headers),
		Queue: queue, Engine: EngineName, Attempt: m.Retries + 1, Priority: m.Priority,
		Redelivered: m.Redelivered, RootID: m.RootID, ParentID: m.ParentID, ETA: m.ETA, Expires: m.Expires,
	}
	d := &tasks.Delivery{Task: t, TakenAt: takenAt, Taken: taken}
	if len(m.Headers) == 0 {
		return d
	}
	d.Deaths, _ = m.HeaderInt(wire.HeaderDeliveries)
	d.Losses, _ = m.HeaderInt(wire.HeaderLosses)
	if us, ok := headerMicros(m, headerFirstPark); ok {
		d.FirstPark = us
	}
	if text, ok := m.Headers[wire.HeaderGuard]; ok {
		t.Guard, d.GuardError = tasks.DecodeGuard(text)
	}
	return d
}

// foreignHeaders are what a handler sees: everything that is not ours.
func foreignHeaders(h map[string]json.RawMessage) map[string]json.RawMessage {
	for name := range h {
		if strings.HasPrefix(name, wire.HeaderPrefix) {
			out := maps.Clone(h)
			maps.DeleteFunc(out, func(k string, _ json.RawMessage) bool { return strings.HasPrefix(k, wire.HeaderPrefix) })
			return out
		}
	}
	return h
}

func headerMicros(m *wire.Message, name string) (time.Time, bool) {
	us, err := strconv.ParseInt(string(m.Headers[name]), 10, 64)
	if err != nil || us <= 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(us).UTC(), true
}

func readNote(m *wire.Message) parkNote {
	text, ok := m.Headers[headerParked]
	if !ok {
		return parkNote{}
	}
	var n parkNote
	if json.Unmarshal(text, &n) != nil {
		return parkNote{} // not ours; the park starts anew
	}
	return n
}

// taskName and taskID are what could be read, also of a message that could not
// be decoded.
// task is the message as its handler gets it, nil if it could not be decoded.
func (it *item) task() *tasks.Task {
	if it.deliv == nil {
		return nil
	}
	return it.deliv.Task
}

func (it *item) taskName() string {
	var we *wire.Error
	switch {
	case it.msg != nil:
		return it.msg.Task
	case errors.As(it.err, &we):
		return we.Task
	}
	return ""
}

func (it *item) taskID() string {
	var we *wire.Error
	switch {
	case it.msg != nil:
		return it.msg.ID
	case errors.As(it.err, &we):
		return we.ID
	}
	return ""
}

func (it *item) deaths() int {
	if it.deliv == nil {
		return 0
	}
	return it.deliv.Deaths
}

// withHeader returns a copy of h with one more header.
func withHeader(h map[string]json.RawMessage, name string, value json.RawMessage) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(h)+1)
	maps.Copy(out, h)
	out[name] = value
	return out
}
