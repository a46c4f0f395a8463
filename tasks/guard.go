package tasks

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// GuardHeader is the message header that carries a [Guard] as JSON text.
const GuardHeader = "solobeat-guard"

// GuardVersion is the newest version of [Guard] that this program runs. It
// writes the oldest one that says all: version 2 only where a lock has one of
// min_hold, stall_after, on_lost: observe, on_store_down: run or on_busy: wait,
// so that a replica which does not know them leaves such a message to others.
const GuardVersion = 2

// DefaultNamespace keeps the keys of a deployment that has not named a
// namespace: they are solobeat:default:….
const DefaultNamespace = "default"

// MaxGuardBytes bounds the JSON text of a guard.
const MaxGuardBytes = 4096

// MaxFenceBase bounds a lock's fence base, so that base and microseconds together
// stay below 2^53, where stores and JSON readers still count exactly.
const MaxFenceBase = 1 << 52

// ErrGuardVersion is returned by [DecodeGuard] for a guard of a version that
// this program does not know: the message waits for a replica that does, and
// is never run unguarded.
var ErrGuardVersion = errors.New("tasks: guard of an unknown version")

// Guard spells out in the message how it is guarded, so that a message
// stands for itself over rolling deploys: keys are rendered, not templates.
type Guard struct {
	// Version is at most [GuardVersion]; [Guard.Encode] sets it.
	Version int `json:"v"`
	// Job is the schedule's entry, "" for a task that an app sent.
	Job string `json:"job,omitempty"`
	// Tick is the job's tick in milliseconds since the epoch, 0 for none.
	Tick int64 `json:"tick,omitempty"`
	// Label is the tick's civil time in the job's zone with the UTC offset.
	Label string `json:"label,omitempty"`
	// BeginBy is the misfire deadline in milliseconds since the epoch: a run
	// that has not begun by then (by the store's clock) is revoked. 0: none.
	BeginBy int64 `json:"begin_by,omitempty"`
	// TimeoutMS is the job's timeout in milliseconds, 0 for none.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Retries is the retry policy for plain errors; nil: the default (3 for
	// a job, none for a task that an app sent).
	Retries *RetryPolicy `json:"retries,omitempty"`
	// Lock is the job's lock, nil for none.
	Lock *LockGuard `json:"lock,omitempty"`
	// Record is the job's idempotency record, nil for none.
	Record *RecordGuard `json:"record,omitempty"`
}

// LockGuard describes the lock under which a task runs. Times are whole
// milliseconds.
type LockGuard struct {
	// Key is the lock's key in the store, verbatim.
	Key string `json:"key"`
	// Name is the key as the file has it, before rendering: what metrics
	// show, so that their series stay bounded. "" means the key itself.
	Name string `json:"name,omitempty"`
	// Backend names the store; "redis" is the default.
	Backend string `json:"backend,omitempty"`
	// TTLMS is the time to live; at least 1,000.
	TTLMS int64 `json:"ttl_ms"`
	// RenewMS is the watchdog's period; 0 means a third of the TTL.
	RenewMS int64 `json:"renew_ms,omitempty"`
	// ExpectMS is the run time above which the run has outlived its lock;
	// 0 means the default (the job's own ttl, else its timeout, else 5 m).
	ExpectMS int64 `json:"expect_ms,omitempty"`
	// MaxHoldMS bounds renewal; 0 means timeout + 1 m, or 24 h without one.
	MaxHoldMS int64 `json:"max_hold_ms,omitempty"`
	// OnBusy says what happens if another holds the lock.
	OnBusy OnBusy `json:"on_busy"`
	// FenceBase is added to the store's fence.
	FenceBase uint64 `json:"fence_base,omitempty"`

	// WaitMS is how long a worker's slot waits with [OnBusyWait]; 0 means
	// [DefaultWait].
	WaitMS int64 `json:"wait_ms,omitempty"`
	// MinHoldMS is how long after its grant the lock is kept at least, also if
	// the run ends sooner; 0 for no longer than the run.
	MinHoldMS int64 `json:"min_hold_ms,omitempty"`
	// StallAfterMS is the time without [Heartbeat] after which the lock is not
	// renewed; 0 means never.
	StallAfterMS int64 `json:"stall_after_ms,omitempty"`
	// OnLost says what a loss does to the run; "" means cancel.
	OnLost OnLost `json:"on_lost,omitempty"`
	// OnStoreDown says what happens while the lock's store is out of reach; ""
	// means retry.
	OnStoreDown OnStoreDown `json:"on_store_down,omitempty"`
}

// OnBusy is the policy for a lock that another holds.
type OnBusy string

// The policies for a busy lock.
const (
	// OnBusySkip ends the task with SUCCESS and a null result.
	OnBusySkip OnBusy = "skip"
	// OnBusyRetry parks the message until the lock is free.
	OnBusyRetry OnBusy = "retry"
	// OnBusyWait lets a worker's slot wait, then does what retry does.
	OnBusyWait OnBusy = "wait"
)

// The bounds of a wait with [OnBusyWait].
const (
	DefaultWait = 30 * time.Second
	MaxBusyWait = time.Hour
)

// OnLost is the policy for a lock that is lost while its run goes on.
type OnLost string

// The policies for a loss.
const (
	// OnLostCancel ends the context of the run.
	OnLostCancel OnLost = "cancel"
	// OnLostObserve leaves the run alone: the loss is counted and told by the
	// handle's Check, and a stale fence is refused.
	OnLostObserve OnLost = "observe"
)

// OnStoreDown is the policy for a lock whose store is out of reach.
type OnStoreDown string

// The policies for a store that is out of reach.
const (
	// OnStoreDownRetry parks the message; nothing runs unguarded.
	OnStoreDownRetry OnStoreDown = "retry"
	// OnStoreDownRun runs the task without its lock.
	OnStoreDownRun OnStoreDown = "run"
)

// RecordGuard describes the idempotency record of a task. Times are whole
// milliseconds.
type RecordGuard struct {
	// Key is the record's key without namespace.
	Key string `json:"key"`
	// Store names the store; "redis" is the default.
	Store string `json:"store,omitempty"`
	// RetentionMS is how long a completed record is kept; 0 means 7 days.
	RetentionMS int64 `json:"retention_ms,omitempty"`
	// Fingerprint is the hex SHA-256 of the payload fields that must be the
	// same for one key; "" means that nothing is compared.
	Fingerprint string `json:"fp,omitempty"`
}

// RetryPolicy says how often and how late a failed run is tried again.
type RetryPolicy struct {
	// Max is the number of retries after the first run; 0: none.
	Max int `json:"max"`
	// BaseMS is the first delay, doubled per retry; 0 means 10,000.
	BaseMS int64 `json:"base_ms,omitempty"`
	// MaxDelayMS bounds the delay; 0 means 600,000.
	MaxDelayMS int64 `json:"max_delay_ms,omitempty"`
}

// DefaultRetries is the retry policy of jobs: 3 retries, 10 s doubling to
// 10 m.
var DefaultRetries = RetryPolicy{Max: 3, BaseMS: 10_000, MaxDelayMS: 600_000} //nolint:gochecknoglobals // a constant in all but syntax

// Delay returns the wait before retry number n, counted from 1.
func (p RetryPolicy) Delay(n int) time.Duration {
	base, limit := p.BaseMS, p.MaxDelayMS
	if base <= 0 {
		base = DefaultRetries.BaseMS
	}
	if limit <= 0 {
		limit = DefaultRetries.MaxDelayMS
	}
	d := base
	for i := 1; i < n && d < limit; i++ {
		d *= 2
	}
	return time.Duration(min(d, limit)) * time.Millisecond
}

// Encode returns the guard as JSON text. It fails if the text is longer than
// [MaxGuardBytes].
func (g *Guard) Encode() (json.RawMessage, error) {
	c := *g
	c.Version = c.version()
	b, err := json.Marshal(&c)
	if err != nil {
		return nil, fmt.Errorf("tasks: guard of %q: %w", g.Job, err)
	}
	if len(b) > MaxGuardBytes {
		return nil, fmt.Errorf("tasks: guard of %q has %d bytes, the limit is %d: shorten its keys", g.Job, len(b), MaxGuardBytes)
	}
	return b, nil
}

// version is the oldest one that says all of the guard.
func (g *Guard) version() int {
	if g.Lock != nil && g.Lock.second() {
		return 2
	}
	return 1
}

// second reports whether the lock asks for what version 1 has not.
func (l *LockGuard) second() bool {
	return l.OnBusy == OnBusyWait || l.MinHoldMS > 0 || l.StallAfterMS > 0 ||
		l.OnLost != "" && l.OnLost != OnLostCancel || l.OnStoreDown != "" && l.OnStoreDown != OnStoreDownRetry
}

// DecodeGuard reads the text of [GuardHeader]. A version that is not known
// gives [ErrGuardVersion]; anything else that is wrong another error.
func DecodeGuard(text json.RawMessage) (*Guard, error) {
	if len(text) > MaxGuardBytes {
		return nil, fmt.Errorf("tasks: guard has %d bytes, the limit is %d", len(text), MaxGuardBytes)
	}
	var v struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("tasks: guard is no JSON object: %w", err)
	}
	if v.Version < 1 { // no program ever knew or will know it
		return nil, fmt.Errorf("tasks: guard has no version (v: %d)", v.Version)
	}
	if v.Version > GuardVersion {
		return nil, fmt.Errorf("%w: %d, this program knows up to %d", ErrGuardVersion, v.Version, GuardVersion)
	}
	var g Guard
	if err := json.Unmarshal(text, &g); err != nil {
		return nil, fmt.Errorf("tasks: guard: %w", err)
	}
	return &g, g.validate()
}

// maxGuardMS bounds every duration of a guard: 10 years, so that no sum of
// them overflows.
const maxGuardMS = 10 * 365 * 24 * 3600 * 1000

// maxInstantMS is the end of the year 9999.
const maxInstantMS = 253_402_300_799_999

func (g *Guard) validate() error {
	if g.Tick < 0 || g.BeginBy < 0 || g.Tick > maxInstantMS || g.BeginBy > maxInstantMS {
		return fmt.Errorf("tasks: guard: tick %d or begin_by %d is no instant", g.Tick, g.BeginBy)
	}
	if err := inRange(map[string]int64{"timeout_ms": g.TimeoutMS}); err != nil {
		return err
	}
	if p := g.Retries; p != nil {
		if err := inRange(map[string]int64{"retries.max": int64(p.Max), "retries.base_ms": p.BaseMS, "retries.max_delay_ms": p.MaxDelayMS}); err != nil {
			return err
		}
	}
	if l := g.Lock; l != nil {
		if err := l.validate(); err != nil {
			return err
		}
	}
	if r := g.Record; r != nil {
		return r.validate()
	}
	return nil
}

func (l *LockGuard) validate() error {
	switch {
	case l.Key == "":
		return errors.New("tasks: guard: lock without key")
	case l.TTLMS < 1000:
		return fmt.Errorf("tasks: guard: lock %q: ttl of %d ms, at least 1000 is needed", l.Key, l.TTLMS)
	case l.OnBusy != OnBusySkip && l.OnBusy != OnBusyRetry && l.OnBusy != OnBusyWait:
		return fmt.Errorf("tasks: guard: lock %q: on_busy %q, skip, retry or wait is known", l.Key, l.OnBusy)
	case l.OnLost != "" && l.OnLost != OnLostCancel && l.OnLost != OnLostObserve:
		return fmt.Errorf("tasks: guard: lock %q: on_lost %q, cancel or observe is known", l.Key, l.OnLost)
	case l.OnStoreDown != "" && l.OnStoreDown != OnStoreDownRetry && l.OnStoreDown != OnStoreDownRun:
		return fmt.Errorf("tasks: guard: lock %q: on_store_down %q, retry or run is known", l.Key, l.OnStoreDown)
	}
	if l.FenceBase > MaxFenceBase {
		return fmt.Errorf("tasks: guard: lock %q: fence_base %d, at most %d is allowed", l.Key, l.FenceBase, uint64(MaxFenceBase))
	}
	return inRange(map[string]int64{
		"lock.ttl_ms": l.TTLMS, "lock.renew_ms": l.RenewMS, "lock.expect_ms": l.ExpectMS, "lock.max_hold_ms": l.MaxHoldMS,
		"lock.wait_ms": l.WaitMS, "lock.min_hold_ms": l.MinHoldMS, "lock.stall_after_ms": l.StallAfterMS,
	})
}

func (r *RecordGuard) validate() error {
	if r.Key == "" {
		return errors.New("tasks: guard: record without key")
	}
	if b, err := hex.DecodeString(r.Fingerprint); r.Fingerprint != "" && (err != nil || len(b) != 32) {
		return fmt.Errorf("tasks: guard: record %q: fingerprint %.70q is no hex SHA-256", r.Key, r.Fingerprint)
	}
	return inRange(map[string]int64{"record.retention_ms": r.RetentionMS})
}

func inRange(values map[string]int64) error {
	for name, v := range values {
		if v < 0 || v > maxGuardMS {
			return fmt.Errorf("tasks: guard: %s is %d, 0 to %d is allowed", name, v, int64(maxGuardMS))
		}
	}
	return nil
}
