package asynqengine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/solobeat/solobeat/tasks"
)

// Headers of messages of ours. The payload of a message is a JSON object, the
// named arguments, as plain asynq programs write it.
const (
	headerVersion = "solobeat-v"
	headerArgs    = "solobeat-args"
	headerETA     = "solobeat-eta"
	headerExpires = "solobeat-expires"
	headerPrefix  = "solobeat-"
	wireVersion   = "1"
)

// retryReserve is how many more runs asynq is told to allow than the policy
// asks for: those that follow the death of a process. Which run is the last one
// is decided here, and asynq's count must not end a task before.
const retryReserve = 100

// forever is the deadline of a message that sets none: without one asynq would
// give each run 30 minutes.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant in all but syntax

// errMalformed: the message is no task of ours nor of a Go program that
// enqueues JSON.
var errMalformed = errors.New("asynqengine: malformed message")

// encode makes asynq's task of a request whose ID and Queue are set.
func encode(r *tasks.Request) (*asynq.Task, []asynq.Option, error) {
	if r.Priority != 0 {
		return nil, nil, fmt.Errorf("asynqengine: %s: priority %d: asynq has none; use a queue of its own", r.Name, r.Priority)
	}
	if !ValidQueue(r.Queue) {
		return nil, nil, fmt.Errorf("asynqengine: %s: queue %q: %s", r.Name, r.Queue, QueueRule)
	}
	payload, err := object(r.Kwargs)
	if err != nil {
		return nil, nil, fmt.Errorf("asynqengine: %s: kwargs: %w", r.Name, err)
	}
	h := map[string]string{headerVersion: wireVersion}
	for k, v := range r.Headers {
		h[k] = headerText(v)
	}
	if len(r.Args) > 0 {
		b, err := json.Marshal(r.Args)
		if err != nil {
			return nil, nil, fmt.Errorf("asynqengine: %s: args: %w", r.Name, err)
		}
		h[headerArgs] = string(b)
	}
	opts := []asynq.Option{
		asynq.TaskID(r.ID), asynq.Queue(r.Queue), asynq.Deadline(forever), asynq.MaxRetry(retriesOf(r.Guard).Max + retryReserve),
	}
	if !r.ETA.IsZero() {
		h[headerETA] = r.ETA.UTC().Format(time.RFC3339Nano)
		opts = append(opts, asynq.ProcessAt(wholeSecond(r.ETA)))
	}
	if !r.Expires.IsZero() {
		h[headerExpires] = r.Expires.UTC().Format(time.RFC3339Nano)
	}
	if r.Guard != nil {
		text, err := r.Guard.Encode()
		if err != nil {
			return nil, nil, fmt.Errorf("asynqengine: %s: %w", r.Name, err)
		}
		h[tasks.GuardHeader] = string(text)
	}
	return asynq.NewTaskWithHeaders(r.Name, payload, h), opts, nil
}

func retriesOf(g *tasks.Guard) tasks.RetryPolicy {
	switch {
	case g != nil && g.Retries != nil:
		return *g.Retries
	case g != nil && g.Job != "":
		return tasks.DefaultRetries
	default:
		return tasks.RetryPolicy{}
	}
}

// wholeSecond rounds up, since asynq keeps whole seconds and would be early.
func wholeSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); !whole.Equal(t) {
		return whole.Add(time.Second)
	}
	return t
}

func object(m map[string]json.RawMessage) ([]byte, error) {
	if len(m) == 0 {
		return []byte("{}"), nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// headerText gives a header as asynq carries it: a string stays plain, so that
// other programs read their traceparent, unless it would be read as JSON.
func headerText(v json.RawMessage) string {
	var s string
	if len(v) > 0 && v[0] == '"' && json.Unmarshal(v, &s) == nil && !json.Valid([]byte(s)) {
		return s
	}
	return string(v)
}

// headerJSON is the inverse of headerText.
func headerJSON(s string) json.RawMessage {
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	b, _ := json.Marshal(s) // strings always encode
	return b
}

// decoded is what a message says.
type decoded struct {
	task *tasks.Task
	// ours is false for a message that a plain asynq program sent.
	ours bool
	// guardErr is why the guard could not be read, nil otherwise.
	guardErr error
}

// decode reads a message. The error wraps errMalformed; the task's name is set
// even then.
func decode(name string, payload []byte, headers map[string]string) (*decoded, error) {
	t := &tasks.Task{Name: name, Engine: EngineName, Args: []json.RawMessage{}, Kwargs: map[string]json.RawMessage{}}
	d := &decoded{task: t, ours: headers[headerVersion] != ""}
	for k, v := range headers {
		if strings.HasPrefix(k, headerPrefix) {
			continue
		}
		if t.Headers == nil {
			t.Headers = map[string]json.RawMessage{}
		}
		t.Headers[k] = headerJSON(v)
	}
	if v := headers[headerVersion]; d.ours && v != wireVersion {
		return d, fmt.Errorf("%w: %s is %q, %s is known", errMalformed, headerVersion, v, wireVersion)
	}
	if text := bytes.TrimSpace(payload); len(text) > 0 && string(text) != "null" {
		if err := json.Unmarshal(text, &t.Kwargs); err != nil {
			return d, fmt.Errorf("%w: the payload is no JSON object", errMalformed)
		}
	}
	if text := headers[headerArgs]; text != "" {
		if err := json.Unmarshal([]byte(text), &t.Args); err != nil {
			return d, fmt.Errorf("%w: %s is no JSON list", errMalformed, headerArgs)
		}
	}
	for name, at := range map[string]*time.Time{headerETA: &t.ETA, headerExpires: &t.Expires} {
		var err error
		if text := headers[name]; text != "" {
			if *at, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return d, fmt.Errorf("%w: %s is no instant", errMalformed, name)
			}
		}
	}
	if text := headers[tasks.GuardHeader]; text != "" {
		t.Guard, d.guardErr = tasks.DecodeGuard([]byte(text))
	}
	return d, nil
}
