package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Enqueuer sends tasks. It returns the task's id.
type Enqueuer interface {
	Enqueue(ctx context.Context, name string, opts ...Option) (id string, err error)
}

// Request is a task to be sent, as the options of one Enqueue call describe
// it. Engines build their message from it.
type Request struct {
	Name     string
	ID       string
	Args     []json.RawMessage
	Kwargs   map[string]json.RawMessage
	Queue    string
	ETA      time.Time
	Expires  time.Time
	Priority int
	Headers  map[string]json.RawMessage
	Guard    *Guard
}

// Option changes one Enqueue call.
type Option func(*Request) error

// NewRequest applies the options. Errors name the option and the task.
func NewRequest(name string, opts ...Option) (*Request, error) {
	if !ValidName(name) {
		return nil, fmt.Errorf("%w: %q", ErrBadName, name)
	}
	r := &Request{Name: name, Args: []json.RawMessage{}, Kwargs: map[string]json.RawMessage{}}
	for _, o := range opts {
		if err := o(r); err != nil {
			return nil, fmt.Errorf("tasks: enqueue %s: %w", name, err)
		}
	}
	return r, nil
}

// WithArgs sets the positional arguments; each must be encodable as JSON.
func WithArgs(args ...any) Option {
	return func(r *Request) error {
		for i, a := range args {
			b, err := marshal(a)
			if err != nil {
				return fmt.Errorf("argument %d: %w", i, err)
			}
			r.Args = append(r.Args, b)
		}
		return nil
	}
}

// WithKwargs adds named arguments from a map or a struct that encodes as a
// JSON object.
func WithKwargs(v any) Option {
	return func(r *Request) error {
		b, err := marshal(v)
		if err != nil {
			return fmt.Errorf("kwargs: %w", err)
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(b, &m); err != nil {
			return fmt.Errorf("kwargs must be an object: %w", err)
		}
		maps.Copy(r.Kwargs, m)
		return nil
	}
}

// WithQueue sends to another queue than the client's default.
func WithQueue(queue string) Option {
	return func(r *Request) error {
		if queue == "" {
			return fmt.Errorf("queue is empty")
		}
		r.Queue = queue
		return nil
	}
}

// WithETA sets the instant before which the task must not start.
func WithETA(at time.Time) Option {
	return func(r *Request) error { r.ETA = at; return nil }
}

// WithCountdown sets the ETA to now + d by the local clock.
func WithCountdown(d time.Duration) Option {
	return func(r *Request) error { r.ETA = time.Now().Add(d); return nil }
}

// WithExpires sets the instant after which a task that has not begun is
// revoked.
func WithExpires(at time.Time) Option {
	return func(r *Request) error { r.Expires = at; return nil }
}

// WithPriority sets the priority, 0 (taken first, the default) to 9. On Redis
// the smaller number goes first, the opposite of RabbitMQ.
func WithPriority(p int) Option {
	return func(r *Request) error {
		if p < 0 || p > 9 {
			return fmt.Errorf("priority %d, 0 to 9 is allowed", p)
		}
		r.Priority = p
		return nil
	}
}

// WithRetries sets the policy for runs that end in a plain error. Workers of
// Solobeat read it; Python workers do not.
func WithRetries(p RetryPolicy) Option {
	return func(r *Request) error {
		if p.Max < 0 {
			return fmt.Errorf("retries: max %d is negative", p.Max)
		}
		if r.Guard == nil {
			r.Guard = &Guard{}
		}
		r.Guard.Retries = &p
		return nil
	}
}

// WithHeaders adds headers of the app's own; the names of the protocol and
// those that begin with "solobeat-" are refused.
func WithHeaders(h map[string]any) Option {
	return func(r *Request) error {
		for k, v := range h {
			if reserved(k) {
				return fmt.Errorf("header %q is reserved", k)
			}
			b, err := marshal(v)
			if err != nil {
				return fmt.Errorf("header %q: %w", k, err)
			}
			if r.Headers == nil {
				r.Headers = map[string]json.RawMessage{}
			}
			r.Headers[k] = b
		}
		return nil
	}
}

// WithID sets the task id instead of a random one. Sending one id twice
// sends two messages: the record is what makes the second harmless.
func WithID(id string) Option {
	return func(r *Request) error {
		if id == "" || len(id) > 255 || strings.ContainsAny(id, "\x00\r\n") {
			return fmt.Errorf("id %q: 1 to 255 characters on one line are allowed", id)
		}
		r.ID = id
		return nil
	}
}

// reserved lists the header names of Celery's protocol 2.
func reserved(name string) bool {
	switch name {
	case "lang", "task", "id", "shadow", "eta", "expires", "group", "group_index", "retries", "timelimit",
		"root_id", "parent_id", "argsrepr", "kwargsrepr", "origin", "ignore_result", "replaced_task_nesting",
		"stamped_headers", "stamps", "compression", "redelivered", "":
		return true
	}
	return strings.HasPrefix(name, "solobeat-")
}
