package wire

import (
	"errors"
	"strings"
)

// Kinds of an [Error]; test for them with [errors.Is].
var (
	// ErrNotEnvelope: the bytes are no kombu envelope: no JSON object, or one
	// that lacks what every Celery worker requires (headers, content-type,
	// properties with delivery_tag, delivery_info, exchange and routing_key).
	ErrNotEnvelope = errors.New("not a kombu envelope")
	// ErrMalformed: an envelope whose headers or body cannot be read.
	ErrMalformed = errors.New("malformed message")
	// ErrContentDisallowed: the body is in a serialization that is never
	// decoded (pickle, yaml, msgpack, raw bytes and all unknown ones).
	ErrContentDisallowed = errors.New("content disallowed")
	// ErrUnsupported: the message asks for something that this package cannot
	// read: protocol 1, another compression or text encoding.
	ErrUnsupported = errors.New("unsupported")
	// ErrTooLarge: a compressed body is larger than [MaxInflated] when inflated.
	ErrTooLarge = errors.New("too large")
)

// Error says why a message could not be decoded. ID and Task are filled in
// whenever they could be read, so that a FAILURE can be stored for the task.
type Error struct {
	Kind   error  // one of the Err values of this package
	Field  string // path in the envelope, such as "headers.eta"; "" if the whole is meant
	Reason string // what is wrong with it
	ID     string // task id, if it could be read
	Task   string // task name, if it could be read
}

// Error gives kind, field and reason in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("wire: ")
	if e.Kind != nil {
		b.WriteString(e.Kind.Error())
	}
	if e.Field != "" {
		b.WriteString(": ")
		b.WriteString(e.Field)
	}
	if e.Reason != "" {
		b.WriteString(": ")
		b.WriteString(e.Reason)
	}
	return b.String()
}

// Unwrap gives the kind.
func (e *Error) Unwrap() error { return e.Kind }

func fail(kind error, field, reason string) *Error {
	return &Error{Kind: kind, Field: field, Reason: reason}
}
