// Package ready is what the ready-made handlers, commands and webhooks, have
// in common.
package ready

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// FieldError is one mistake in a handler's configuration.
type FieldError struct {
	// Of is the handler's own sentinel, which the error matches.
	Of error
	// Field is the key at fault as in a configuration file: command[1],
	// env.NAME, url, headers.X-Shop.
	Field string
	// Msg is what is wrong, Cure what to write instead. Neither shows a secret.
	Msg, Cure string
	// Err is the cause, may be nil.
	Err error
}

// Error names the key, the mistake and the cure.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%v: %s: %s: %s", e.Of, e.Field, e.Msg, e.Cure)
}

// Is makes the error match its handler's sentinel.
func (e *FieldError) Is(target error) bool { return target == e.Of }

// Unwrap returns the cause.
func (e *FieldError) Unwrap() error { return e.Err }

// Mistakes are those of one configuration. They are an error.
type Mistakes []*FieldError

// Add adds a mistake, if it is one.
func (m *Mistakes) Add(e *FieldError) {
	if e != nil {
		*m = append(*m, e)
	}
}

// Err puts the mistakes under their handler's sentinel; nil if there are none.
func (m Mistakes) Err(of error) error {
	if len(m) == 0 {
		return nil
	}
	for _, e := range m {
		e.Of = of
	}
	return m
}

// Error lists the mistakes, one a line.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, e := range m {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the mistakes.
func (m Mistakes) Unwrap() []error {
	errs := make([]error, len(m))
	for i, e := range m {
		errs[i] = e
	}
	return errs
}

// FieldErrors returns the mistakes in an error of [Mistakes.Err].
func FieldErrors(err error) []*FieldError {
	m, _ := errors.AsType[Mistakes](err)
	return m
}

// Input is what a handler outside is given: the arguments as they were sent.
func Input(t *tasks.Task) ([]byte, error) {
	in := struct {
		Args   []json.RawMessage          `json:"args"`
		Kwargs map[string]json.RawMessage `json:"kwargs"`
	}{t.Args, t.Kwargs}
	if in.Args == nil {
		in.Args = []json.RawMessage{}
	}
	if in.Kwargs == nil {
		in.Kwargs = map[string]json.RawMessage{}
	}
	return encode(in)
}

// Text is a text as a JSON string.
func Text(s string) json.RawMessage {
	b, err := encode(s)
	if err != nil { // cannot be: a string is always JSON
		return nil
	}
	return b
}

// encode leaves <, > and & as they are.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(buf.Bytes(), "\n"), err
}

// Tick is the tick of a job's task, RFC 3339 in UTC; "" for none.
func Tick(t *tasks.Task) string {
	if t.Guard == nil || t.Guard.Tick == 0 {
		return ""
	}
	return time.UnixMilli(t.Guard.Tick).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}

// Stopped joins the reason with that of the context, so that the worker can
// tell a run that was stopped from one that failed.
func Stopped(ctx context.Context, reason error) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == nil:
		return reason
	case errors.Is(cause, err):
		return fmt.Errorf("%w (%w)", reason, cause)
	default:
		return fmt.Errorf("%w (%w: %w)", reason, err, cause)
	}
}
