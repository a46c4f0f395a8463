package tasks

import (
	"context"
	"encoding/json"
	"time"
)

// Runner runs one delivery through the chain and says what shall become of
// its message. It never panics. It alone judges whether the message may still
// begin (its expiry, a job's deadline): only the chain can see whether an
// earlier run of it has begun.
type Runner func(ctx context.Context, d *Delivery) Outcome

// Kind is what an engine does with a message after a run.
type Kind int

// The kinds of outcome.
const (
	// Succeeded: write the result SUCCESS, ack.
	Succeeded Kind = iota + 1
	// Failed: write the result FAILURE, ack; with DeadLetter also keep it.
	Failed
	// Retried: send again with one more attempt after After, write RETRY, ack.
	Retried
	// Revoked: write the result REVOKED with Reason, ack.
	Revoked
	// Parked: put back for Park.Left without counting an attempt.
	Parked
	// Returned: give back to the taking end, no attempt counted, marked
	// redelivered if Begun; Lost says whether it counts as a loss of lock or
	// record.
	Returned
)

// String returns the outcome's name as metrics and history show it.
func (k Kind) String() string {
	switch k {
	case Succeeded:
		return "succeeded"
	case Failed:
		return "failed"
	case Retried:
		return "retried"
	case Revoked:
		return "revoked"
	case Parked:
		return "parked"
	case Returned:
		return "returned"
	default:
		return "unknown"
	}
}

// Outcome is what becomes of a message after a run.
type Outcome struct {
	Kind Kind
	// Result is the JSON of Succeeded; nil means null.
	Result json.RawMessage
	// Note is an extra object in the result's JSON under the key "solobeat",
	// which tells of a stop by a guard; nil for none.
	Note *Note
	// Err is the reason of Failed, Retried and Returned.
	Err error
	// Traceback is the text of Failed: the stack of a panic, else "".
	Traceback string
	// Reason says in one word why; "" for a plain success.
	Reason Reason
	// DeadLetter keeps the message of a Failed task in the dead letters.
	DeadLetter bool
	// After is the wait before the next attempt of Retried.
	After time.Duration
	// Park says how long and for what a Parked message waits.
	Park Park
	// Lost counts a Returned message as a loss of its lock or record.
	Lost bool
	// WonLock drops the message's first-park time: its lock was won, or its
	// record where it has no lock.
	WonLock bool
	// Unlock is the lock of a Succeeded or Failed run that is still to be freed,
	// nil for none; see [Delivery.Unlocks].
	Unlock *Unlock
	// Begun says that a run of this task has begun, though the message itself
	// may not tell: one that is Parked or Returned is marked redelivered, so
	// that it neither expires nor is skipped later on.
	Begun bool
}

// Note is what a caller reads in a result about a stop by a guard.
type Note struct {
	// Outcome is "skipped" or "replayed".
	Outcome string `json:"outcome"`
	// Reason is [ReasonBusy] or [ReasonCompleted].
	Reason Reason `json:"reason,omitempty"`
	// Holder names who held the lock, where known.
	Holder string `json:"holder,omitempty"`
	// Result is "omitted" where a stored result was too large to keep.
	Result string `json:"result,omitempty"`
}

// ParkReason says what a parked message waits for.
type ParkReason string

// The reasons for parking.
const (
	// ParkLock: another holds the lock. Only the oldest parked message of a
	// key has a timer; a release brings it forward.
	ParkLock ParkReason = "lock"
	// ParkRecord: another run has the record in progress; as ParkLock.
	ParkRecord ParkReason = "record"
	// ParkStore: the lock's or the record's store is out of reach.
	ParkStore ParkReason = "store"
	// ParkShortage: the replica lacked what the handler needs to begin.
	ParkShortage ParkReason = "shortage"
	// ParkGuard: the guard is of a version that this replica does not know.
	ParkGuard ParkReason = "guard"
)

// MaxWait is the longest wait for a lock or a record, from the first park on.
const MaxWait = 24 * time.Hour

// Park says how long, and for what, a message waits in the broker.
type Park struct {
	Reason ParkReason
	// Key is the lock's or the record's key for ParkLock and ParkRecord:
	// messages with one key wait in one line.
	Key string
	// Left is the time after which the key may be free: the lock's remaining
	// TTL or the record's remaining lease; for the other reasons 0,
	// since the engine's own back-off applies.
	Left time.Duration
	// Deadline is the latest end of the wait by the store's clock, be it for
	// the message's expiry or for the instant by which it must begin; zero
	// means [MaxWait] after the first park, which bounds it in any case.
	Deadline time.Time
}

// Slot is the place of a run among those that its engine lets run at a time. A
// run that waits for a store lets another one have it. Its methods are called
// from the goroutine of the run.
type Slot interface {
	// Leave gives the slot up before the handler; without one it does nothing.
	Leave()
	// Enter takes a slot again after Leave. Its error says that there was none
	// in time ([ErrNoSlot]), or why ctx has ended: the message is to be given
	// back.
	Enter(ctx context.Context) error
	// Done gives the slot up once the handler has returned: what is left to do
	// is to tell stores of it.
	Done()
}

// Unlock is a lock that its run has left to the engine: to be freed by a script in
// the step that settles the message, so that neither comes without the other.
type Unlock struct {
	// Key is the lock's, and Token its value unless it was lost meanwhile. Who
	// waits for it is told on Channel.
	Key, Token, Channel string
	// Lines are the keys by which messages are parked that wait for the run's end:
	// the engine brings its own forward, as for [Waker.Wake], once the lock is free.
	Lines []string
	// Ended is called once, with how the engine, which is by, has freed the lock.
	// It does not wait.
	Ended func(by Waker, end UnlockEnd)
}

// UnlockEnd says how an [Unlock] has ended.
type UnlockEnd int

// The ends of an unlock.
const (
	// UnlockUnknown: the engine's step was done, its answer was lost.
	UnlockUnknown UnlockEnd = iota
	// UnlockFreed: the lock was the run's, and is free now.
	UnlockFreed
	// UnlockNotHeld: the lock was not the run's any more; it was left alone.
	UnlockNotHeld
	// UnlockLeft: no step of the engine's frees it. The run does, and brings the
	// lines forward.
	UnlockLeft
)

// Waker is an engine that can bring forward what is parked for a key: the
// chain calls it once that lock or record is free, and leaves out the engine that
// has freed it ([Unlock]).
type Waker interface {
	Wake(ctx context.Context, key string)
}
