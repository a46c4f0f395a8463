package tasks

import (
	"errors"
	"fmt"
	"time"
)

// The causes with which a run's context is cancelled, and the errors that a
// handler may return to steer what becomes of its message. Test with
// errors.Is, also on context.Cause(ctx).
var (
	// ErrShutdown: the worker is shutting down and its grace is over.
	ErrShutdown = errors.New("tasks: worker is shutting down")
	// ErrBuried: peers took this replica for dead and took its messages over.
	ErrBuried = errors.New("tasks: replica was taken for dead by its peers")
	// ErrNoSlot: no slot of the engine became free in time.
	ErrNoSlot = errors.New("tasks: no free slot")
	// ErrTimeout: the run passed its timeout.
	ErrTimeout = errors.New("tasks: run passed its timeout")
	// ErrNotExecuted: the handler vouches that the effect did not happen.
	ErrNotExecuted = errors.New("tasks: effect was not executed")
	// ErrShortage: the handler could not begin for want of something that this
	// replica lacks for now, such as file descriptors. The message waits as for
	// a store that is out of reach, on any replica; no attempt is counted.
	ErrShortage = errors.New("tasks: the replica is short of resources")
	// ErrUnknownTask: no handler is registered under the name.
	ErrUnknownTask = errors.New("tasks: no handler is registered")
	// ErrDuplicateName: the name is registered twice.
	ErrDuplicateName = errors.New("tasks: name is registered twice")
	// ErrBadName: the name is no task name.
	ErrBadName = errors.New("tasks: bad task name")
	// ErrBadArguments: the arguments do not fit the handler's input. It is
	// permanent: the same message can never fit.
	ErrBadArguments = errors.New("tasks: arguments do not fit")
)

// RetryError asks for another run; see [Retry].
type RetryError struct {
	// After is the wait; 0 takes the policy's delay.
	After time.Duration
	// Max is the largest number of retries; 0 means 3, [OwnRetries] what the
	// task's own policy says.
	Max int
	// Cause is the reason, may be nil.
	Cause error
}

// OwnRetries is the number of retries that the task's own policy says.
const OwnRetries = -1

// Retry returns an error that asks for another run after the given wait (0:
// 10 s doubling to 10 m). Max bounds the number of retries; 0 means 3,
// [OwnRetries] what the task's own policy says.
func Retry(cause error, after time.Duration, maxRetries int) error {
	return &RetryError{After: after, Max: maxRetries, Cause: cause}
}

// Error tells the cause and the wait.
func (e *RetryError) Error() string {
	if e.Cause == nil {
		return "tasks: retry in " + e.After.String()
	}
	return fmt.Sprintf("tasks: retry in %s: %v", e.After, e.Cause)
}

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Cause }

// PermanentError ends a task for good; see [Permanent].
type PermanentError struct{ Cause error }

// Permanent returns an error that ends the task for good: it is not retried,
// and its record stays failed, so that the same key is not tried again.
func Permanent(cause error) error { return &PermanentError{Cause: cause} }

// Error returns the cause's text.
func (e *PermanentError) Error() string {
	if e.Cause == nil {
		return "tasks: permanent failure"
	}
	return e.Cause.Error()
}

// Unwrap returns the cause.
func (e *PermanentError) Unwrap() error { return e.Cause }

// Exception is an error that says how a Python client shall see it.
type Exception struct {
	// Type is the exception's class name, such as "PaymentDeclined".
	Type string
	// Module is where Python looks for the class; "" makes a new class.
	Module string
	// Args are the exception's arguments; JSON values.
	Args []any
	// Cause is the Go error behind it, may be nil.
	Cause error
}

// Error returns the type and the arguments.
func (e *Exception) Error() string {
	if len(e.Args) == 0 {
		return e.Type
	}
	return fmt.Sprintf("%s: %v", e.Type, e.Args[0])
}

// Unwrap returns the cause.
func (e *Exception) Unwrap() error { return e.Cause }

// ErrorCode returns the type: what a record keeps of a failure.
func (e *Exception) ErrorCode() string { return e.Type }

// BadArguments returns the error of arguments that do not fit: permanent, an
// [ErrBadArguments], and to a Python client the TypeError that a stock worker
// gives.
func BadArguments(cause error) error {
	err := fmt.Errorf("%w: %w", ErrBadArguments, cause)
	return Permanent(&Exception{Type: "TypeError", Module: "builtins", Args: []any{err.Error()}, Cause: err})
}

// PanicError is a panic of a handler, recovered: the run failed, the process
// lives.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the goroutine's stack.
	Stack []byte
}

// Error returns the panic's value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
