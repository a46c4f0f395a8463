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
	raw  string
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

// parcel is an item with all that it points to, so that a message is one piece
// of memory.
type parcel struct {
	item
	msg   wire.Message
	task  tasks.Task
	deliv tasks.Delivery
}

// newItem decodes a raw message at once.
func newItem(tag string, from *replica, src *source, raw string, takenAt, taken time.Time) *item {
	p := &parcel{item: item{tag: tag, from: from, src: src, raw: raw}}
	it := &p.item
	if it.err = wire.DecodeText(&p.msg, raw); it.err != nil {
		return it
	}
	it.msg, it.deliv = &p.msg, &p.deliv
	it.note = readNote(it.msg)
	p.describe(takenAt, taken)
	return it
}

// describe tells the chain of the message.
func (p *parcel) describe(takenAt, taken time.Time) {
	m, t, d := &p.msg, &p.task, &p.deliv
	t.ID, t.Name, t.Args, t.Kwargs, t.Headers = m.ID, m.Task, m.Args, m.Kwargs, foreignHeaders(m.Headers)
	t.Queue, t.Engine, t.Attempt, t.Priority = p.src.queue, EngineName, m.Retries+1, m.Priority
	t.Redelivered, t.RootID, t.ParentID, t.ETA, t.Expires = m.Redelivered, m.RootID, m.ParentID, m.ETA, m.Expires
	d.Task, d.TakenAt, d.Taken = t, takenAt, taken
	if len(m.Headers) == 0 {
		return
	}
	d.Deaths, _ = m.HeaderInt(wire.HeaderDeliveries)
	d.Losses, _ = m.HeaderInt(wire.HeaderLosses)
	if us, ok := headerMicros(m, headerFirstPark); ok {
		d.FirstPark = us
	}
	if text, ok := m.Headers[wire.HeaderGuard]; ok {
		t.Guard, d.GuardError = tasks.DecodeGuard(text)
	}
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

// task is the message as its handler gets it, nil if it could not be decoded.
func (it *item) task() *tasks.Task {
	if it.deliv == nil {
		return nil
	}
	return it.deliv.Task
}

// taskName and taskID are what could be read, also of a message that could not
// be decoded.
func (it *item) taskName() string {
	if it.msg != nil {
		return it.msg.Task
	}
	return it.readable().Task
}

func (it *item) taskID() string {
	if it.msg != nil {
		return it.msg.ID
	}
	return it.readable().ID
}

// readable is what an error of the codec knows of the message.
func (it *item) readable() wire.Error {
	var we *wire.Error
	if errors.As(it.err, &we) {
		return *we
	}
	return wire.Error{}
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
