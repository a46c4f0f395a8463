package wire

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Encode gives the list element for m, byte for byte laid out as Celery 5.7
// sends it. ID and Task are required. Empty fields get what a client would
// send: Lang "go", RootID and CorrelationID the ID, Origin that of this
// process, ArgsRepr and KwargsRepr the text of the arguments, and a fresh
// DeliveryTag, which must be unique for each message. Args and kwargs are never
// null, times always carry an offset and six digits. An argument or header that
// is no JSON (NaN included) is an error.
func Encode(m *Message) ([]byte, error) {
	if m.ID == "" || m.Task == "" {
		return nil, fmt.Errorf("wire: encode: a message needs an id and a task (id %q, task %q)", m.ID, m.Task)
	}
	body, err := appendBody(make([]byte, 0, 256), m)
	if err != nil {
		return nil, err
	}
	w := writer{b: make([]byte, 0, 1024+base64.StdEncoding.EncodedLen(len(body)))}
	w.lit(`{"body": "`)
	w.b = base64.StdEncoding.AppendEncode(w.b, body)
	w.lit(`", "content-encoding": "utf-8", "content-type": "application/json", "headers": {`)
	w.headers(m)
	w.lit(`}, "properties": {`)
	w.properties(m)
	w.lit(`}}`)
	if w.err != nil {
		return nil, fmt.Errorf("wire: encode %s: %w", m.Task, w.err)
	}
	return w.b, nil
}

func appendBody(b []byte, m *Message) ([]byte, error) {
	w := writer{b: append(b, '[')}
	w.lit("[")
	for i, a := range m.Args {
		if i > 0 {
			w.lit(", ")
		}
		w.raw(a, "argument "+strconv.Itoa(i))
	}
	w.lit("], {")
	for i, k := range slices.Sorted(maps.Keys(m.Kwargs)) {
		if i > 0 {
			w.lit(", ")
		}
		w.str(k)
		w.lit(": ")
		w.raw(m.Kwargs[k], "argument "+strconv.Quote(k))
	}
	w.lit(`}, {"callbacks": `)
	w.rawOrNull(m.Embed.Callbacks, "callbacks")
	w.lit(`, "errbacks": `)
	w.rawOrNull(m.Embed.Errbacks, "errbacks")
	w.lit(`, "chain": `)
	w.rawOrNull(m.Embed.Chain, "chain")
	w.lit(`, "chord": `)
	w.rawOrNull(m.Embed.Chord, "chord")
	w.lit("}]")
	if w.err != nil {
		return nil, fmt.Errorf("wire: encode %s: %w", m.Task, w.err)
	}
	return w.b, nil
}

func (w *writer) headers(m *Message) {
	w.lit(`"lang": `)
	w.str(or(m.Lang, "go"))
	w.lit(`, "task": `)
	w.str(m.Task)
	w.lit(`, "id": `)
	w.str(m.ID)
	w.lit(`, "shadow": `)
	w.strOrNull(m.Shadow)
	w.lit(`, "eta": `)
	w.time(m.ETA)
	w.lit(`, "expires": `)
	w.time(m.Expires)
	w.lit(`, "group": `)
	w.strOrNull(m.Group)
	w.lit(`, "group_index": `)
	if m.GroupIndex == nil {
		w.lit("null")
	} else {
		w.int(*m.GroupIndex)
	}
	w.lit(`, "retries": `)
	w.int(m.Retries)
	w.lit(`, "timelimit": `)
	if m.Timelimit == nil {
		w.lit("[null, null]")
	} else {
		w.raw(m.Timelimit, "timelimit")
	}
	w.lit(`, "root_id": `)
	w.str(or(m.RootID, m.ID))
	w.lit(`, "parent_id": `)
	w.strOrNull(m.ParentID)
	w.lit(`, "argsrepr": `)
	if m.ArgsRepr == "" {
		w.str(ReprArgs(m.Args))
	} else {
		w.str(m.ArgsRepr)
	}
	w.lit(`, "kwargsrepr": `)
	if m.KwargsRepr == "" {
		w.str(ReprKwargs(m.Kwargs))
	} else {
		w.str(m.KwargsRepr)
	}
	w.lit(`, "origin": `)
	if m.Origin == "" {
		w.str(Origin())
	} else {
		w.str(m.Origin)
	}
	w.lit(`, "ignore_result": `)
	w.lit([...]string{Unset: "null", False: "false", True: "true"}[m.IgnoreResult])
	w.lit(`, "replaced_task_nesting": `)
	w.int(m.ReplacedTaskNesting)
	w.lit(`, "stamped_headers": `)
	w.rawOrNull(m.StampedHeaders, "stamped_headers")
	w.lit(`, "stamps": `)
	if m.Stamps == nil {
		w.lit("{}")
	} else {
		w.raw(m.Stamps, "stamps")
	}
	w.otherHeaders(m)
}

func (w *writer) otherHeaders(m *Message) {
	for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
		if headerField(k) >= 0 {
			w.fail(fmt.Errorf("header %q is a field of its own", k))
			return
		}
		w.lit(", ")
		w.str(k)
		w.lit(": ")
		w.raw(m.Headers[k], "header "+strconv.Quote(k))
	}
	if m.Redelivered {
		w.lit(`, "redelivered": true`)
	}
}

func (w *writer) properties(m *Message) {
	w.lit(`"correlation_id": `)
	w.str(or(m.CorrelationID, m.ID))
	w.lit(`, "reply_to": `)
	w.str(m.ReplyTo)
	w.lit(`, "delivery_mode": 2, "delivery_info": {"exchange": `)
	w.str(m.Exchange)
	w.lit(`, "routing_key": `)
	w.str(m.RoutingKey)
	if m.Redelivered {
		w.lit(`, "redelivered": true`)
	}
	w.lit(`}, "priority": `)
	w.int(clampPriority(m.Priority))
	w.lit(`, "body_encoding": "base64", "delivery_tag": `)
	if m.DeliveryTag == "" {
		w.str(NewID())
	} else {
		w.str(m.DeliveryTag)
	}
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
