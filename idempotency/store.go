package idempotency

import (
	"context"
	"iter"
	"time"
)

// Store keeps records. All its methods are safe for concurrent use, decide and
// write in one step, judge by the store's own clock, and name the claim (owner
// and fence), so that a delayed call cannot hurt a newer holder. An answer that
// did not come is [ErrStoreUnavailable]; such a call may have been done, and
// each may be repeated.
type Store interface {
	// Name is what configuration and metrics call it: "redis".
	Name() string
	// Strength is what it promises about acknowledged records.
	Strength() Strength
	// Check finds out whether the store is fit for records, by one or two
	// questions to it: [ErrUnsafeEviction] and the like say what to change.
	Check(ctx context.Context) error

	// Claim tries to win the record for owner. With [Run] the claim is won and
	// the record is as it now stands; else the claim is zero and the record is
	// what stands in the way. It is idempotent for one owner, so a lost reply
	// does not lock its own caller out (redis/go-redis#2985).
	Claim(ctx context.Context, key Key, owner Owner, o ClaimOptions) (Verdict, Claim, Record, error)
	// Abandon gives back what a claim without an answer may have won for
	// owner, or what its run has not begun with. The attempt is not counted, and
	// the record names no task.
	Abandon(ctx context.Context, key Key, owner Owner) error
	// Renew starts the leases of records anew, in one round trip. The results
	// are in the order of the items.
	Renew(ctx context.Context, items []RenewItem) []RenewResult
	// Complete ends the claim with a result, kept for retention. It does not
	// test the lease. [ErrStale] if the record is not the claim's; if there is
	// no record at all, it is made anew, completed, and the error is
	// [ErrRecordLost].
	Complete(ctx context.Context, c Claim, r Result, retention time.Duration) error
	// Release gives the record back: it may be claimed again after backoff.
	// [ErrStale], [ErrRecordLost].
	Release(ctx context.Context, c Claim, cause Failure, backoff time.Duration) error
	// Fail ends the claim for good, kept for retention. [ErrStale],
	// [ErrRecordLost].
	Fail(ctx context.Context, c Claim, cause Failure, retention time.Duration) error

	// Peek reads a record without changing it; false if there is none.
	Peek(ctx context.Context, key Key) (Record, bool, error)
	// Get reads a record by the hash of its key, as lists show it.
	// [ErrNotFound].
	Get(ctx context.Context, hash [32]byte) (Record, error)
	// List yields every record once, in no order, results by their kind only. It reads
	// in pages: what is made or dropped meanwhile may be missing.
	List(ctx context.Context) iter.Seq2[Record, error]
	// Forget turns a record into a released one without back-off, its result,
	// fingerprint and attempts dropped and its fence raised, and returns what it
	// was. It is never deleted, so whoever still runs under it stays stale. An
	// InProgress record needs force, else [ErrInProgress]. [ErrNotFound]. The
	// reason is kept in the record.
	Forget(ctx context.Context, key Key, force bool, reason string) (Record, error)
}

// RenewItem is one record to renew.
type RenewItem struct{ Claim Claim }

// RenewResult is the outcome of one renewal. Err is nil if it was renewed,
// [ErrStale] if the record is not the claim's, [ErrRecordLost] if there is no
// record, [ErrStoreUnavailable] if that is not known.
type RenewResult struct{ Err error }
