package idempotency

import "time"

// Labels say whose record a decision was about. They never hold the key.
type Labels struct {
	// Schedule is the job, "" for a task that an app sent.
	Schedule string
	Task     string
	Store    string
}

// Decision is what a claim came to.
type Decision string

// The decisions.
const (
	DecisionClaimed     Decision = "claimed"
	DecisionCompleted   Decision = "completed"
	DecisionInProgress  Decision = "in_progress"
	DecisionTakeover    Decision = "takeover"
	DecisionMismatch    Decision = "mismatch"
	DecisionUnavailable Decision = "unavailable"
)

// Operation names a call to a store.
type Operation string

// The operations.
const (
	OpClaim    Operation = "claim"
	OpRenew    Operation = "renew"
	OpComplete Operation = "complete"
	OpRelease  Operation = "release"
	OpFail     Operation = "fail"
	OpPeek     Operation = "peek"
)

// Observer is told what happens. Each function may be nil; none may block.
type Observer struct {
	// Decision is called once per [Guard.Claim] that got as far as the store, and
	// per [Guard.Peek] that found a finished record, a mismatch, or no store. A
	// released record in its back-off counts as in_progress, a failed one as
	// completed.
	Decision func(Labels, Decision)
	// Operation is called once per call to the store; ok is false only if the
	// store did not answer.
	Operation func(store string, op Operation, ok bool, took time.Duration)
	// Lost is called when a record in hand has vanished from the store.
	Lost func(Labels)
	// Stale is called when a call met a record that was taken over.
	Stale func(Labels, Operation)
}

func (o *Observer) decision(l Labels, d Decision) {
	if o.Decision != nil {
		o.Decision(l, d)
	}
}

func (o *Observer) operation(store string, op Operation, ok bool, took time.Duration) {
	if o.Operation != nil {
		o.Operation(store, op, ok, took)
	}
}

func (o *Observer) lost(l Labels) {
	if o.Lost != nil {
		o.Lost(l)
	}
}

func (o *Observer) stale(l Labels, op Operation) {
	if o.Stale != nil {
		o.Stale(l, op)
	}
}
