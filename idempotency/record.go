package idempotency

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// State is the state of a record.
type State uint8

// The states of a record.
const (
	// InProgress: an attempt has claimed it and has not ended it.
	InProgress State = iota + 1
	// Completed: done; the result is replayed.
	Completed
	// Released: the last attempt gave it back; any attempt may claim it once
	// its back-off has passed.
	Released
	// Failed: ended for good by a permanent error; the error is replayed.
	Failed
)

// String returns the name as records are listed.
func (s State) String() string {
	switch s {
	case InProgress:
		return "in_progress"
	case Completed:
		return "completed"
	case Released:
		return "released"
	case Failed:
		return "failed"
	default:
		return "unknown"
	}
}

// Verdict is a store's answer to a claim.
type Verdict uint8

// The verdicts.
const (
	// Run: the record is claimed; the caller runs.
	Run Verdict = iota + 1
	// Replay: the key is completed.
	Replay
	// Busy: another attempt has it in progress and its lease has not passed.
	Busy
	// Backoff: it is released and its back-off has not passed.
	Backoff
	// PermanentlyFailed: it failed for good.
	PermanentlyFailed
	// Mismatch: the key was used with another payload.
	Mismatch
)

// String returns the verdict in one word.
func (v Verdict) String() string {
	switch v {
	case Run:
		return "run"
	case Replay:
		return "replay"
	case Busy:
		return "busy"
	case Backoff:
		return "backoff"
	case PermanentlyFailed:
		return "failed"
	case Mismatch:
		return "mismatch"
	default:
		return "unknown"
	}
}

// Strength is what a store promises about records that it has acknowledged.
type Strength uint8

// The strengths of stores.
const (
	// BestEffort: a failover, an eviction or a restart may lose records.
	BestEffort Strength = iota + 1
	// Durable: an acknowledged record survives a crash of the store.
	Durable
)

// String returns the strength as docs and validate show it.
func (s Strength) String() string {
	if s == Durable {
		return "durable"
	}
	return "best effort"
}

// Owner is the random identity of one claim attempt. It is never the task id,
// which stays the same over redeliveries: two copies would both pass for it.
type Owner [16]byte

// NewOwner makes an owner for one attempt.
func NewOwner() Owner {
	var o Owner
	_, _ = rand.Read(o[:]) // never fails
	return o
}

// String returns the owner in hex.
func (o Owner) String() string { return hex.EncodeToString(o[:]) }

// ResultKind says what of a result is kept.
type ResultKind uint8

// The kinds of stored results.
const (
	// ResultNone: the run had no result; a replay is null.
	ResultNone ResultKind = iota
	// ResultInline: Data is the whole result.
	ResultInline
	// ResultOmitted: the result was above [MaxResult], or the store has lost
	// it; a replay is null and says so.
	ResultOmitted
)

// String returns the kind in one word.
func (k ResultKind) String() string {
	switch k {
	case ResultInline:
		return "inline"
	case ResultOmitted:
		return "omitted"
	default:
		return "none"
	}
}

// MaxResult is the size in bytes up to which a result is kept whole. The record
// of a larger one is completed all the same: a size limit that leaves the
// record open runs the effect again (gofiber/fiber#4287).
const MaxResult = 1 << 20

// Result is the stored outcome of a completed run.
type Result struct {
	Kind ResultKind
	// Data is JSON text, as it was given.
	Data json.RawMessage
}

// NewResult wraps a run's result; above [MaxResult] it is omitted.
func NewResult(data json.RawMessage) Result {
	switch {
	case len(data) == 0:
		return Result{Kind: ResultNone}
	case len(data) > MaxResult:
		return Result{Kind: ResultOmitted}
	default:
		return Result{Kind: ResultInline, Data: data}
	}
}

// Record is what a store keeps under one key. Times are the store's.
type Record struct {
	Key   Key
	State State
	// Owner is the attempt that claimed it last; zero after it was forgotten.
	Owner Owner
	Fence uint64
	// Attempt counts the claims since the record was made or forgotten.
	Attempt int
	// TaskID and Instance name the run and the replica that claimed it last.
	TaskID   string
	Instance string
	// LeaseLeft is what is left of an InProgress record's lease, and BackoffLeft
	// of a Released record's back-off; 0 if it has passed.
	LeaseLeft   time.Duration
	BackoffLeft time.Duration
	// Takeover is true if the last claim took it over from a passed lease.
	Takeover bool
	// Lost is true if the record vanished and its completion made it anew.
	Lost   bool
	Result Result
	// ErrCode and ErrMsg tell why a record was Released or Failed.
	ErrCode string
	ErrMsg  string
	// Fingerprint is the hex SHA-256 of the payload, "" for none.
	Fingerprint string
	Created     time.Time
	// Done is when the last attempt ended; zero while it is in progress.
	Done time.Time
	// Expires is when the store drops the record.
	Expires time.Time
}

// The defaults of the times in [ClaimOptions] and of a retention.
const (
	DefaultLease     = 30 * time.Second
	DefaultHold      = 7 * 24 * time.Hour
	DefaultRetention = 7 * 24 * time.Hour
)

// MaxFence bounds the fences that a store keeps: above 2^53 a number of
// JavaScript, Lua or a float column loses digits.
const MaxFence = 1<<53 - 1

// ClaimOptions say how a record is claimed.
type ClaimOptions struct {
	// Fingerprint is the hex SHA-256 of the payload fields that one key must
	// keep (see [Fingerprint]); "" compares nothing.
	Fingerprint string
	// Lease is how long the record keeps others out unrenewed; 0 means
	// DefaultLease. Whole milliseconds, at least one.
	Lease time.Duration
	// Hold is how long a record that is in progress or released is kept; 0
	// means DefaultHold. It must not be below Lease.
	Hold time.Duration
	// TaskID and Instance name the run and the replica.
	TaskID   string
	Instance string
	// MinFence is the fence of the lock that is held; 0 where there is none,
	// and the store's clock in microseconds takes its place.
	MinFence uint64
}

// WithDefaults fills in the times that are zero and checks the rest.
func (o ClaimOptions) WithDefaults() (ClaimOptions, error) {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Hold == 0 {
		o.Hold = max(DefaultHold, o.Lease)
	}
	switch {
	case o.Lease < time.Millisecond:
		return o, fmt.Errorf("%w: lease %v is below 1ms", ErrBadOptions, o.Lease)
	case o.Hold < o.Lease:
		return o, fmt.Errorf("%w: hold %v is below the lease %v", ErrBadOptions, o.Hold, o.Lease)
	case o.MinFence > MaxFence:
		return o, fmt.Errorf("%w: fence %d is above %d", ErrBadOptions, o.MinFence, uint64(MaxFence))
	case o.Fingerprint != "" && !isHexSHA256(o.Fingerprint):
		return o, fmt.Errorf("%w: fingerprint %q is no hex SHA-256", ErrBadOptions, o.Fingerprint)
	}
	return o, nil
}

func isHexSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32
}

// Claim is a won record as its holder has it in hand: enough to end it even if
// the store has lost it.
type Claim struct {
	Key     Key
	Owner   Owner
	Fence   uint64
	Attempt int
	// Takeover is true if the record was taken over from a passed lease.
	Takeover bool
	Options  ClaimOptions
}

// Failure is an error as a record keeps it.
type Failure struct{ Code, Msg string }

// maxErrMsg bounds a stored error text, in bytes.
const maxErrMsg = 500

// NewFailure turns an error into what a record keeps. Its code is the type that
// an error gives itself by a method ErrorCode() string, else "Error".
func NewFailure(err error) Failure {
	if err == nil {
		return Failure{}
	}
	f := Failure{Code: "Error", Msg: err.Error()}
	var coded interface{ ErrorCode() string }
	if errors.As(err, &coded) {
		f.Code = cut(coded.ErrorCode(), 64)
	}
	f.Msg = cut(f.Msg, maxErrMsg)
	return f
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
