package idempotency

import (
	"errors"
	"fmt"
	"time"

	"github.com/solobeat/solobeat/internal/render"
)

// The states that callers tell apart; test with errors.Is.
var (
	// ErrStale: the record is not this claim's any more. It was taken over,
	// finished by another, or forgotten by an operator.
	ErrStale = errors.New("idempotency: record was taken over")
	// ErrMismatch: the key was used before with another payload.
	ErrMismatch = errors.New("idempotency: same key, other payload")
	// ErrKeyMissing: a part of the key is missing or empty.
	ErrKeyMissing = render.ErrMissing
	// ErrKeyTooLong: the key's text or namespace is above its limit.
	ErrKeyTooLong = errors.New("idempotency: key is too long")
	// ErrKeyText: the key's text is no valid UTF-8.
	ErrKeyText = errors.New("idempotency: key is not valid UTF-8")
	// ErrUnsafeEviction: the store may drop records before their time.
	ErrUnsafeEviction = errors.New("idempotency: store may evict records")
	// ErrRecordLost: the store has no record of a claim that is in hand, so it
	// has lost data. A completion is stored all the same.
	ErrRecordLost = errors.New("idempotency: record has vanished from the store")
	// ErrStoreUnavailable: the store did not answer, or not in time.
	ErrStoreUnavailable = errors.New("idempotency: store is unavailable")
	// ErrNotFound: there is no record under the key.
	ErrNotFound = errors.New("idempotency: no record")
	// ErrInProgress: the record is in progress and force was not given.
	ErrInProgress = errors.New("idempotency: record is in progress")
	// ErrLeaseLost: without a lock the lease is what keeps others out, and it
	// could not be renewed in time. It is a context's cause.
	ErrLeaseLost = errors.New("idempotency: lease of the record has passed")
	// ErrMaxHold: the hold has lasted as long as it may; the record is no
	// longer renewed. It is a context's cause, and no loss.
	ErrMaxHold = errors.New("idempotency: max_hold has passed")
	// ErrBadOptions: a number is out of its range.
	ErrBadOptions = errors.New("idempotency: bad options")
)

// CompletedError is what [Guard.Claim] returns for a key that is done: the
// record holds the result to replay.
type CompletedError struct{ Record Record }

// Error names the key.
func (e *CompletedError) Error() string {
	return fmt.Sprintf("idempotency: %s is completed", e.Record.Key)
}

// BusyError is what [Guard.Claim] returns while another attempt has the record
// in progress.
type BusyError struct {
	Record Record
	// Left is how long the other's lease still runs if it is not renewed.
	Left time.Duration
}

// Error names the key and the lease left.
func (e *BusyError) Error() string {
	return fmt.Sprintf("idempotency: %s is in progress, lease left %v", e.Record.Key, e.Left)
}

// Is makes the error match [ErrInProgress].
func (e *BusyError) Is(target error) bool { return target == ErrInProgress }

// BackoffError is what [Guard.Claim] returns for a released record whose
// back-off has not passed.
type BackoffError struct {
	Record Record
	// Left is the back-off that is left.
	Left time.Duration
}

// Error names the key and the time left.
func (e *BackoffError) Error() string {
	return fmt.Sprintf("idempotency: %s waits %v before the next attempt", e.Record.Key, e.Left)
}

// FailedError is what [Guard.Claim] returns for a key that failed for good.
type FailedError struct{ Record Record }

// Error repeats the stored error.
func (e *FailedError) Error() string {
	return fmt.Sprintf("idempotency: %s failed before: %s", e.Record.Key, e.Record.ErrMsg)
}

// MismatchError is what [Guard.Claim] returns for a key that was used with
// another payload, whatever the record's state.
type MismatchError struct{ Record Record }

// Error names the key.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("idempotency: %s was used with another payload by task %q", e.Record.Key, e.Record.TaskID)
}

// Is makes the error match [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }
