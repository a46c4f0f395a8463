package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// States of a task as results hold them.
const (
	StateSuccess = "SUCCESS"
	StateFailure = "FAILURE"
	StateRetry   = "RETRY"
	StateRevoked = "REVOKED"
)

// Ready reports whether a state is final.
func Ready(state string) bool {
	return state == StateSuccess || state == StateFailure || state == StateRevoked
}

// Result is what is stored for a task.
type Result struct {
	TaskID string
	State  string
	// Value is the task's result as JSON; nil means null. It is ignored on
	// encoding if Exception is set.
	Value json.RawMessage
	// Exception is set for FAILURE and REVOKED, and for a RETRY that has a cause.
	Exception *Exception
	// Traceback is text, "" for null.
	Traceback string
	// Children is raw JSON; nil is written as [].
	Children json.RawMessage
	// DateDone is the instant at which a final state was reached, in UTC;
	// written as null for other states. On decoding zero means absent.
	DateDone time.Time
	GroupID  string
	ParentID string
	// Solobeat is an extra object under the key "solobeat", nil for none. It
	// tells why a guard ended the run; Python clients do not look at it.
	Solobeat json.RawMessage
}

// EncodeResult gives the JSON of a result, laid out as Celery 5.7 writes it. A
// final state needs DateDone, FAILURE and REVOKED an Exception: a client
// cannot raise what is no exception.
func EncodeResult(r *Result) ([]byte, error) {
	ready := Ready(r.State)
	switch {
	case r.TaskID == "" || r.State == "":
		return nil, fmt.Errorf("wire: encode result: task id %q, state %q: both are needed", r.TaskID, r.State)
	case ready && r.DateDone.IsZero():
		return nil, fmt.Errorf("wire: encode result of %s: %s without DateDone", r.TaskID, r.State)
	case r.Exception == nil && (r.State == StateFailure || r.State == StateRevoked):
		return nil, fmt.Errorf("wire: encode result of %s: %s without Exception", r.TaskID, r.State)
	case r.Exception != nil && r.State == StateSuccess:
		return nil, fmt.Errorf("wire: encode result of %s: SUCCESS with Exception", r.TaskID)
	}
	w := writer{b: make([]byte, 0, 240+len(r.Value)+len(r.Traceback))}
	w.lit(`{"status": `)
	w.str(r.State)
	w.lit(`, "result": `)
	if r.Exception != nil {
		w.exception(r.Exception)
	} else {
		w.rawOrNull(r.Value, "value")
	}
	w.lit(`, "traceback": `)
	w.strOrNull(r.Traceback)
	w.lit(`, "children": `)
	if r.Children == nil {
		w.lit("[]")
	} else {
		w.raw(r.Children, "children")
	}
	w.lit(`, "date_done": `)
	if ready {
		w.time(r.DateDone)
	} else {
		w.lit("null")
	}
	if r.GroupID != "" {
		w.lit(`, "group_id": `)
		w.str(r.GroupID)
	}
	if r.ParentID != "" {
		w.lit(`, "parent_id": `)
		w.str(r.ParentID)
	}
	if r.Solobeat != nil {
		w.lit(`, "solobeat": `)
		w.raw(r.Solobeat, "solobeat")
	}
	w.lit(`, "task_id": `)
	w.str(r.TaskID)
	w.lit(`}`)
	if w.err != nil {
		return nil, fmt.Errorf("wire: encode result of %s: %w", r.TaskID, w.err)
	}
	return w.b, nil
}

// compressedMark starts a result that Celery 5.7 has compressed; a content
// type and another zero byte follow.
const compressedMark = "\x00celery-compressed\x00"

// DecodeResult reads a stored result of any Celery version since 5.2,
// compressed ones included. Value keeps its text, in which NaN and infinities
// may stand as Python writes them; see [Finite]. The error is an [*Error].
func DecodeResult(data []byte) (*Result, error) {
	if rest, ok := bytes.CutPrefix(data, []byte(compressedMark)); ok {
		inflated, err := inflateResult(rest)
		if err != nil {
			return nil, err
		}
		data = inflated
	}
	s := scanner[[]byte]{b: data}
	if !utf8.Valid(data) || s.peek() != '{' || !s.value() || !s.end() {
		return nil, fail(ErrMalformed, "", "a result that is no JSON object")
	}
	s = scanner[[]byte]{b: data}
	members, _ := s.members()
	r := &Result{}
	var value json.RawMessage
	for _, m := range members {
		raw := m.val.in(data)
		switch string(unquoted(data, m.key)) {
		case "status":
			r.State = textOf(raw)
		case "result":
			value = raw
		case "traceback":
			r.Traceback = textOf(raw)
		case "children":
			r.Children = raw
		case "date_done":
			r.DateDone = dateOf(raw)
		case "task_id":
			r.TaskID = textOf(raw)
		case "group_id":
			r.GroupID = textOf(raw)
		case "parent_id":
			r.ParentID = textOf(raw)
		case "solobeat":
			r.Solobeat = raw
		}
	}
	if r.State == "" {
		return nil, &Error{Kind: ErrMalformed, Field: "status", Reason: "missing or no string", ID: r.TaskID}
	}
	if value != nil && string(value) != "null" {
		r.Value = value
	}
	if r.State != StateSuccess && value != nil {
		r.Exception = exceptionIn(value)
	}
	return r, nil
}

func inflateResult(rest []byte) ([]byte, error) {
	name, body, ok := bytes.Cut(rest, []byte{0})
	if !ok {
		return nil, fail(ErrMalformed, "", "a compressed result without its content type")
	}
	data, err := decompress(body, string(name))
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, ErrUnsupported):
		return nil, fail(ErrUnsupported, "result_compression", clip(string(name)))
	case errors.Is(err, ErrTooLarge):
		return nil, fail(ErrTooLarge, "", "a result of more than 64 MiB when inflated")
	}
	return nil, fail(ErrMalformed, "", "a compressed result: "+err.Error())
}

// textOf gives the text of a string, "" for anything else.
func textOf(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	return string(unquoted(raw, span{0, len(raw)}))
}

// dateOf reads a time, plain or as a typed value of kombu; zero if it is none.
func dateOf(raw []byte) time.Time {
	if len(raw) > 0 && raw[0] == '{' {
		var typed struct {
			Value string `json:"__value__"`
		}
		if json.Unmarshal(raw, &typed) != nil {
			return time.Time{}
		}
		t, _, err := parseTime(typed.Value)
		if err != nil {
			return time.Time{}
		}
		return t
	}
	t, _, err := parseTime(textOf(raw))
	if err != nil {
		return time.Time{}
	}
	return t
}

// exceptionIn reads an exception object, nil if the value is none.
func exceptionIn(value []byte) *Exception {
	s := scanner[[]byte]{b: value}
	members, ok := s.members()
	if !ok {
		return nil
	}
	e := &Exception{Args: []json.RawMessage{}}
	for _, m := range members {
		raw := m.val.in(value)
		switch string(unquoted(value, m.key)) {
		case "exc_type":
			e.Type = textOf(raw)
		case "exc_module":
			e.Module = textOf(raw)
		case "exc_message":
			e.Args = argsIn(raw)
		}
	}
	if e.Type == "" {
		return nil
	}
	return e
}

// argsIn reads exc_message: a list, or one value.
func argsIn(raw []byte) []json.RawMessage {
	if raw[0] != '[' {
		return []json.RawMessage{raw}
	}
	s := scanner[[]byte]{b: raw}
	s.enter()
	args := []json.RawMessage{}
	for first := true; s.item(first) == stepMore; first = false {
		p, ok := s.take()
		if !ok {
			break
		}
		args = append(args, p.in(raw))
	}
	return args
}
