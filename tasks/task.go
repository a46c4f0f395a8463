package tasks

import (
	"encoding/json"
	"time"
)

// Task is one unit of work as a handler sees it. It is read-only: the same
// value may be handed to several middlewares.
type Task struct {
	// ID is the task id, the one field that joins log lines, results and
	// history. It stays the same over retries and redeliveries.
	ID string
	// Name is the registered name, for example "reports.hourly".
	Name string
	// Args are the positional arguments, each as the JSON text that was sent.
	Args []json.RawMessage
	// Kwargs are the named arguments, each as the JSON text that was sent.
	Kwargs map[string]json.RawMessage
	// Headers are the message's headers that belong neither to the protocol
	// nor to Solobeat: traceparent, baggage, an app's own.
	Headers map[string]json.RawMessage
	// Queue is the queue that the message was taken from.
	Queue string
	// Engine names the engine that took it: "celery".
	Engine string
	// Attempt counts from 1; a retry raises it, a redelivery does not.
	Attempt int
	// Priority is the message's priority, 0 (first, the default) to 9.
	Priority int
	// Redelivered is true if another run of this message may have begun: its
	// replica died, was shut down, or lost the lock or the record.
	Redelivered bool
	// RootID and ParentID are the workflow's ids, "" where there are none.
	RootID, ParentID string
	// ETA is the instant before which the task must not start; zero: none.
	ETA time.Time
	// Expires is the instant after which a task that has not begun is
	// revoked; zero: never.
	Expires time.Time
	// Guard is what the sender wrote about lock, record, timeout and retries;
	// nil where the message carries none.
	Guard *Guard
}

// Delivery is one message as an engine hands it to the worker's chain: the
// task, and what the chain must know of the message's past.
type Delivery struct {
	Task *Task
	// TakenAt is the store's clock (Redis TIME) when the message was taken,
	// and Taken the local reading of the same instant, which carries Go's
	// monotonic clock: "now" by the store is TakenAt + time.Since(Taken).
	TakenAt time.Time
	Taken   time.Time
	// FirstPark is the store's time of the first park for a busy lock or
	// record since the lock was last won; zero: never parked for one.
	FirstPark time.Time
	// Losses counts the runs of this message that ended because the lock or
	// the record was lost.
	Losses int
	// Deaths counts the replicas that died under this message.
	Deaths int
	// FollowUps is true if a chain, chord or callback waits for the result,
	// so that no stop by a guard may end the task without one.
	FollowUps bool
	// GuardError is set if the message carries a guard that could not be
	// read: [ErrGuardVersion] (parked, a newer replica may know it) or
	// another error (a dead letter).
	GuardError error
	// Slot is nil where a run keeps its slot to its end.
	Slot Slot
	// Unlocks is true if the engine can free the run's lock in the step that
	// settles the message: the locks lie on its server.
	Unlocks bool
}

// StoreNow returns the current time by the clock of the store that the
// message was taken from.
func (d *Delivery) StoreNow() time.Time {
	return d.TakenAt.Add(time.Since(d.Taken))
}

// Begun reports whether an earlier run of this task may have started, as far
// as the message itself tells. A record that names the task id is the third
// sign; only the chain can see that one.
func (d *Delivery) Begun() bool {
	return d.Task.Redelivered || d.Task.Attempt > 1
}
