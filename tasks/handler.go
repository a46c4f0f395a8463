package tasks

import (
	"context"
	"encoding/json"
	"time"
)

// Handler runs one task. The context is cancelled, with a cause, when the
// lock or the record is lost, the timeout passes, or the worker shuts down.
// The returned JSON is the task's result; nil means null.
type Handler interface {
	Handle(ctx context.Context, t *Task) (json.RawMessage, error)
}

// HandlerFunc is a function that is a [Handler].
type HandlerFunc func(ctx context.Context, t *Task) (json.RawMessage, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, t *Task) (json.RawMessage, error) {
	return f(ctx, t)
}

// Middleware wraps a handler. An app's middlewares run inside the guards:
// what they see is a run that holds its lock and its record.
type Middleware func(Handler) Handler

type taskKey struct{}

type fenceKey struct{}

type recordKey struct{}

// NewContext returns ctx with the task that is being run.
func NewContext(ctx context.Context, t *Task) context.Context {
	return context.WithValue(ctx, taskKey{}, t)
}

// FromContext returns the task that is being run, or false outside a run.
func FromContext(ctx context.Context) (*Task, bool) {
	t, ok := ctx.Value(taskKey{}).(*Task)
	return t, ok
}

// ContextWithFence returns ctx with the fence of the run: its record's, or
// its lock's where there is no record.
func ContextWithFence(ctx context.Context, fence uint64) context.Context {
	return context.WithValue(ctx, fenceKey{}, fence)
}

// Fence returns the run's fence: the number that a resource compares to
// refuse a writer that lost its lock. It is false for a run that has neither
// a record nor a lock with a fence.
func Fence(ctx context.Context) (uint64, bool) {
	f, ok := ctx.Value(fenceKey{}).(uint64)
	return f, ok
}

// ContextWithKey returns ctx with the key of the run's record.
func ContextWithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, recordKey{}, key)
}

// Key returns the key of the run's idempotency record, or false for a run
// without one: what a handler passes on to a provider that takes a key of its
// callers.
func Key(ctx context.Context) (string, bool) {
	k, ok := ctx.Value(recordKey{}).(string)
	return k, ok
}

// Validity is how long a run may trust its lock, or its record where it has
// no lock: the deadline moves with each confirmed renewal.
type Validity interface {
	// Deadline returns the instant until which the holder is trusted; false
	// means that there is none.
	Deadline() (time.Time, bool)
	// Changed returns a channel that is closed when the deadline moves next.
	Changed() <-chan struct{}
}

type heartbeatKey struct{}

// ContextWithHeartbeat returns ctx with what [Heartbeat] calls.
func ContextWithHeartbeat(ctx context.Context, beat func()) context.Context {
	return context.WithValue(ctx, heartbeatKey{}, beat)
}

// Heartbeat tells that the run gets on. Where the task's lock has stall_after,
// a run without a heartbeat for so long is taken for stalled: its lock is not
// renewed any more and ends. Elsewhere it does nothing. It is cheap enough for
// each turn of a loop, and may be called from any goroutine.
func Heartbeat(ctx context.Context) {
	if beat, ok := ctx.Value(heartbeatKey{}).(func()); ok {
		beat()
	}
}

type validityKey struct{}

// ContextWithValidity returns ctx with the run's validity, which handlers
// that start programs need: a program must end by itself at that instant.
func ContextWithValidity(ctx context.Context, v Validity) context.Context {
	return context.WithValue(ctx, validityKey{}, v)
}

// ValidityFromContext returns the run's validity, or false for a run that has
// neither lock nor record.
func ValidityFromContext(ctx context.Context) (Validity, bool) {
	v, ok := ctx.Value(validityKey{}).(Validity)
	return v, ok
}
