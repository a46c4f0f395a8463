package lockguard

import "time"

// Labels are the configured names under which a lock is counted; never its key,
// which may be rendered from data.
type Labels struct {
	// Schedule is the job's name, "" for others.
	Schedule string
	// Lock is the lock's name as configured.
	Lock string
}

// RenewOutcome is how a renewal is counted.
type RenewOutcome string

// The outcomes of a renewal.
const (
	// RenewOK: renewed.
	RenewOK RenewOutcome = "ok"
	// RenewFailed: no definite answer; it is tried again.
	RenewFailed RenewOutcome = "failed"
	// RenewRejected: the store said that the lock is not ours.
	RenewRejected RenewOutcome = "rejected"
)

// Observer is told what happens, at the moment it happens. Each function is
// optional, must return at once, and may be called from several goroutines.
type Observer struct {
	// Acquired: a lock was granted; wait is the time since it was first asked for.
	Acquired func(l Labels, backend string, wait time.Duration)
	// Busy: an attempt met a held lock.
	Busy func(l Labels, backend string)
	// AcquireError: an attempt failed (store, too slow, foreign key).
	AcquireError func(l Labels, backend string, err error)
	// AcquireCancelled: an attempt ended by its caller's context.
	AcquireCancelled func(l Labels, backend string)
	// Renewed: a renewal ended; rtt is the round trip of its batch.
	Renewed func(l Labels, backend string, outcome RenewOutcome, rtt time.Duration)
	// Lost: a held lock was lost; its context has ended.
	Lost func(l Labels, reason Reason)
	// ExpiredWhileHeld: the lock has really ended in the store, and the
	// function under it still runs.
	ExpiredWhileHeld func(l Labels)
	// MaxHold: a run passed its max hold; its context has ended.
	MaxHold func(l Labels)
	// Outlived: a run passes its lock's expect now, renewed or not.
	Outlived func(l Labels)
	// Released: a release ended.
	Released func(l Labels, backend string, result Release)
	// Cleanup: the release by token after a failed, cancelled or late acquire
	// ended.
	Cleanup func(l Labels, backend string, result Release)
	// HeldStart: a hold begins.
	HeldStart func(l Labels, since time.Time)
	// HeldEnd: a hold ended, by release or by loss; ttlRatio is held ÷ TTL,
	// expectRatio held ÷ expect (÷ TTL where no expect is set).
	HeldEnd func(l Labels, held time.Duration, ttlRatio, expectRatio float64)
	// Fence: the number of a grant, not called for back ends without fences.
	Fence func(l Labels, f Fence)
	// Fenced: a resource refused the holder's fence.
	Fenced func(l Labels)
}
