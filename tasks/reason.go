package tasks

// Reason says in one word why an [Outcome] is as it is. Metrics, history, results
// and dead letters show it; these are all there are. Those that a caller meets
// as the name of an exception are spelt like it.
type Reason string

// The reasons of what was not run, or not run to its end, and has not failed.
const (
	// ReasonSkipped: the lock was held, and the job says skip.
	ReasonSkipped Reason = "skipped"
	// ReasonReplayed: the record was completed before, and its result stands.
	ReasonReplayed Reason = "replayed"
	// ReasonCompleted is ReasonReplayed as a [Note] tells it.
	ReasonCompleted Reason = "completed"
	// ReasonBusy: another holds the lock.
	ReasonBusy Reason = "busy"
	// ReasonInProgress: another run has the record.
	ReasonInProgress Reason = "in_progress"
	// ReasonBackoff: the record waits before the next attempt.
	ReasonBackoff Reason = "backoff"
	// ReasonTakenOver: another run took the record over meanwhile.
	ReasonTakenOver Reason = "taken_over"
	// ReasonStore: the lock's or the record's store is out of reach.
	ReasonStore Reason = "store"
	// ReasonShortage: the replica lacked what the handler needs to begin.
	ReasonShortage Reason = "shortage"
	// ReasonGuard: this worker does not know the guard.
	ReasonGuard Reason = "guard"
	// ReasonLost: lock or record was lost in mid-run.
	ReasonLost Reason = "lost"
	// ReasonShutdown: the replica stops.
	ReasonShutdown Reason = "shutdown"
	// ReasonSlot: the run got its lock and then no slot of the replica in time.
	ReasonSlot Reason = "slot"
	// ReasonMissed: the job's deadline had passed before the run could begin.
	ReasonMissed Reason = "missed"
	// ReasonExpired: the message's expires had.
	ReasonExpired Reason = "expired"
)

// The reasons of runs that failed, or are tried again.
const (
	// ReasonError: the handler returned an error, or panicked, or took too long.
	ReasonError Reason = "error"
	// ReasonPermanent: the handler said that no retry can help.
	ReasonPermanent Reason = "permanent"
	// ReasonFailedBefore: the record says that the effect failed for good.
	ReasonFailedBefore Reason = "failed_before"
	// ReasonMismatch: the key was used before with other arguments.
	ReasonMismatch Reason = "mismatch"
	// ReasonKeyMissing: a key cannot be made of the message's arguments.
	ReasonKeyMissing Reason = "KeyMissing"
	// ReasonLockBusy: lock or record were not free in time.
	ReasonLockBusy Reason = "LockBusy"
	// ReasonLockLost: lock or record were lost once too often.
	ReasonLockLost Reason = "LockLost"
)

// The reasons of dead letters.
const (
	// ReasonNotRegistered: no handler of that name.
	ReasonNotRegistered Reason = "NotRegistered"
	// ReasonBadGuard: the guard cannot be read.
	ReasonBadGuard Reason = "BadGuard"
	// ReasonLockConfig: the lock's key or numbers cannot be used.
	ReasonLockConfig Reason = "LockConfig"
	// ReasonRecordConfig: the record's cannot.
	ReasonRecordConfig Reason = "RecordConfig"
	// ReasonContentDisallowed: the body is of a type that is not decoded.
	ReasonContentDisallowed Reason = "ContentDisallowed"
	// ReasonNotEnvelope: the bytes are no message of Celery's.
	ReasonNotEnvelope Reason = "NotEnvelope"
	// ReasonMalformed: the message is broken.
	ReasonMalformed Reason = "Malformed"
	// ReasonUnsupported: the message asks for what is not supported.
	ReasonUnsupported Reason = "Unsupported"
	// ReasonTooLarge: the message is larger than what is read.
	ReasonTooLarge Reason = "TooLarge"
	// ReasonWorkerLost: too many replicas have died under the message.
	ReasonWorkerLost Reason = "WorkerLostError"
	// ReasonFailed: the outcome named none.
	ReasonFailed Reason = "Failed"
)
