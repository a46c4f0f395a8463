package lockguard

import (
	"context"
	"iter"
	"time"
)

// Fence is a number that grows with each grant of a key.
type Fence uint64

// FenceKind says how far a back end's fences can be relied on.
type FenceKind string

// The kinds of fences.
const (
	// NoFence: the back end has no number to give.
	NoFence FenceKind = "none"
	// BestEffort: grows also over a flush or a failover, unless the server's
	// clock is set back as well.
	BestEffort FenceKind = "best effort"
	// Strong: grows, always.
	Strong FenceKind = "strong"
)

// Caps are a back end's abilities, as Probe found them.
type Caps struct {
	// Fence is the kind of fences it hands out.
	Fence FenceKind
	// Warnings are complete sentences for people.
	Warnings []string
}

// Attempt is one try to acquire.
type Attempt struct {
	// Key is the lock's key, verbatim.
	Key string
	// Token is random, made by the Guard for this attempt.
	Token string
	// TTL is at least 1 s.
	TTL time.Duration
	// MaxHold is the longest that the holder will renew it, MinHold the
	// shortest that it may be kept.
	MaxHold, MinHold time.Duration
	// TaskID and Instance are told to who asks for the holder; both may be "".
	TaskID, Instance string
	// FenceBase is added to the back end's number.
	FenceBase uint64
}

// Grant is the answer to an Attempt that won.
type Grant struct {
	// Fence is 0 if the back end has none.
	Fence Fence
}

// Ref names a grant.
type Ref struct{ Key, Token string }

// Renewal asks for the full TTL again.
type Renewal struct {
	Ref
	TTL time.Duration
}

// RenewState says how one renewal ended.
type RenewState int

// The three ends of a renewal.
const (
	// RenewUnknown: not known whether it was renewed; not a loss.
	RenewUnknown RenewState = iota
	// Renewed: the full TTL is set again.
	Renewed
	// RenewLost: the store says that the token does not hold the lock.
	RenewLost
)

// RenewResult is the end of one renewal.
type RenewResult struct {
	State RenewState
	// Reason goes with RenewLost: ReasonTaken or ReasonGone.
	Reason Reason
	// Err goes with RenewUnknown.
	Err error
}

// Release says how a release ended.
type Release string

// The ends of a release.
const (
	// Released: the lock was ours and is free now.
	Released Release = "released"
	// Kept: the lock was ours, and is kept for the rest of its min hold.
	Kept Release = "kept"
	// NotHeld: the lock was not ours any more; it was left alone.
	NotHeld Release = "not_held"
	// ReleaseUnknown: not known: the store did not answer, or only our own
	// repeated request found nothing.
	ReleaseUnknown Release = "unknown"
)

// Holder tells who holds a lock.
type Holder struct {
	// Key is the lock's key.
	Key string
	// Held says whether anybody holds it; all below is empty if not.
	Held bool
	// Foreign: it is held by somebody who left no data, such as redis-py.
	Foreign bool
	// Kept: the holder has released it, and its min hold keeps it until Left.
	Kept bool
	// TaskID and Instance may be empty also if it is not foreign.
	TaskID, Instance string
	Fence            Fence
	// Since is the time of the grant, by the store's clock.
	Since time.Time
	// Left is when the lock runs out unless it is renewed, 0 if never.
	Left time.Duration
}

// Backend is a store of locks. It starts no goroutine per lock. All methods end
// with their context. Errors other than the ones named are taken for "the store
// is unavailable".
type Backend interface {
	// Name is the value of the metrics' label "backend".
	Name() string
	// Probe asks the store for what it can and how it is set up.
	Probe(ctx context.Context) (Caps, error)
	// TryAcquire tries once. It is idempotent: the same token again sets the
	// full TTL and gives the same fence. Errors: *BusyError, ErrForeignKey.
	TryAcquire(ctx context.Context, a Attempt) (Grant, error)
	// Renew renews a batch; results come in the same order.
	Renew(ctx context.Context, rs []Renewal) []RenewResult
	// Release frees the lock if the token holds it. A nil error goes with
	// Released, Kept and NotHeld. Where keep, counted from the grant by the
	// store's clock, is not over, the lock stays busy for the rest of it, and
	// no renewal or attempt with its token prolongs that. Repeated it gives the
	// same answer, or frees the lock where keep is 0.
	Release(ctx context.Context, r Ref, keep time.Duration) (Release, error)
	// ForceRelease frees the lock whoever holds it, and tells who did. The
	// fence goes on growing. Error: ErrForeignKey.
	ForceRelease(ctx context.Context, key string) (Holder, error)
	// Read tells the holder. Error: ErrForeignKey.
	Read(ctx context.Context, key string) (Holder, error)
}

// Waker is a Backend that can tell waiters of a release. It is a hint only:
// others may release without a word.
type Waker interface {
	// Wake returns a channel that receives when the key may be free, and a
	// function that ends it. It returns when releases from now on are told.
	Wake(ctx context.Context, key string) (<-chan struct{}, func(), error)
}

// Yielder is a Backend whose locks somebody else may free in a script of his own
// on its server; see [Handle.Yield].
type Yielder interface {
	// ReleaseChannel is where releases are told to those who wait.
	ReleaseChannel() string
}

// Lister is a Backend that can list the locks held through it.
type Lister interface {
	// List yields the holders of all locks held, in no order. Locks that were
	// not taken through Solobeat are not listed. An error with a holder's key is
	// about that lock alone, and the list goes on; any other one ends it.
	List(ctx context.Context) iter.Seq2[Holder, error]
}
