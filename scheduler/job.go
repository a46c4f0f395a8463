package scheduler

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// Times that the scheduler keeps to.
const (
	// MisfireThreshold is how late a tick may be before it counts as late: from
	// there on `skip` only records it as missed, and `once` runs the newest of
	// several, a few seconds later, so that a fault that ended in time, and was
	// noticed to have ended after it, loses none.
	MisfireThreshold = 15 * time.Second
	// MinDeadline is the shortest misfire deadline that a job may ask for,
	// beside its jitter. The loop sleeps up to a second and a call to the store
	// may take two: a deadline below that loses a tick now and then
	// (kubernetes/kubernetes#86647).
	MinDeadline = 10 * time.Second
	// MaxDeadline is the longest misfire deadline.
	MaxDeadline = 30 * 24 * time.Hour
)

// Job is one entry of the schedule file. The zero value of an optional field
// is the documented default. Strings in Args, Kwargs, Lock.Key and Record.Key
// may be templates with .Tick and .Job; they are rendered from the tick, never
// from the clock, so that a late tick has the right day.
type Job struct {
	// Name is the entry's name: [a-z0-9][a-z0-9._-]{0,99}.
	Name string
	// Task is the name of the task to enqueue.
	Task string
	// Args and Kwargs are the task's arguments: JSON values (nil, bool, numbers,
	// string, []any, map[string]any), in which every string may be a template.
	Args   []any
	Kwargs map[string]any
	// Spec is the schedule as written, Schedule what [ParseSpec] made of it.
	Spec     SpecConfig
	Schedule Schedule
	// Disabled jobs keep their state and have no ticks.
	Disabled bool
	// Engine names the engine that the task queues in; "" is the one whose
	// messages the claim itself publishes.
	Engine string
	// Queue is the queue to publish to; "" is the publisher's default.
	Queue string
	// Priority is 0 (taken first, the default) to 9.
	Priority int
	// Jitter spreads jobs: each job fires a fixed part of it, made from the
	// job's name, after its tick. Keys and labels keep the tick.
	Jitter time.Duration
	// Expires sets the message's `expires` to tick + Expires; 0 sets none.
	Expires time.Duration
	// Timeout bounds a run; 0 is no bound.
	Timeout time.Duration
	// Retries is the policy for runs that fail; nil is [tasks.DefaultRetries].
	Retries *tasks.RetryPolicy
	// Lock guards the runs; nil is `lock: off`.
	Lock *JobLock
	// Record makes a second run of a tick harmless; nil is `idempotency: off`.
	Record *JobRecord
	// Misfire says what becomes of late ticks.
	Misfire Misfire
	// Labels, Owner and Runbook are for people.
	Labels         map[string]string
	Owner, Runbook string
}

// JobLock is the lock of a job's runs.
type JobLock struct {
	// Key is a template, used verbatim; "" is solobeat:<namespace>:lock:<job>
	// behind the key prefix.
	Key string
	// Backend is the lock's store; "" is redis.
	Backend string
	// TTL is at least 1 s; 0 is [lockguard.DefaultTTL]. Renew is at most two thirds of
	// it; 0 is a third. Expect is the run time above which a run has outlived
	// its lock; 0 is the TTL if one is set, else the timeout, else
	// [lockguard.DefaultExpect]. MaxHold bounds renewal; 0 is timeout + 1 m, or 24 h.
	TTL, Renew, Expect, MaxHold time.Duration
	// MinHold keeps the lock busy so long after its grant, also if the run ends
	// sooner. StallAfter is the time without [tasks.Heartbeat] after which the
	// lock is not renewed, at least 1 s; 0 is never.
	MinHold, StallAfter time.Duration
	// OnBusy is skip, retry or wait; "" is skip, and retry with MisfireAll. Wait
	// is how long a worker's slot waits; 0 is [tasks.DefaultWait].
	OnBusy tasks.OnBusy
	Wait   time.Duration
	// OnLost is cancel or observe; "" is cancel.
	OnLost tasks.OnLost
	// OnStoreDown is retry or run; "" is retry.
	OnStoreDown tasks.OnStoreDown
	// FenceBase is added to the store's fence; at most 2^52.
	FenceBase uint64
}

// JobRecord is the idempotency record of a job's runs.
type JobRecord struct {
	// Key is a template; "" is the job's name and the tick's label.
	Key string
	// Store is the record's store; "" is redis.
	Store string
	// Retention is how long a completed record is kept; 0 is
	// [idempotency.DefaultRetention].
	Retention time.Duration
}

// MisfirePolicy says which of several late ticks run.
type MisfirePolicy string

// The misfire policies.
const (
	// MisfireSkip only records a tick that is more than [MisfireThreshold] late.
	MisfireSkip MisfirePolicy = "skip"
	// MisfireOnce runs the newest of the late ticks, if within its deadline.
	MisfireOnce MisfirePolicy = "once"
	// MisfireAll runs each late tick within its deadline, the oldest first.
	MisfireAll MisfirePolicy = "all"
)

// Misfire is a job's policy for late ticks.
type Misfire struct {
	// Policy is "" for MisfireOnce.
	Policy MisfirePolicy
	// Deadline is how long after its tick a run may still begin; 0 is
	// [DefaultDeadline], and 24 h with MisfireAll.
	Deadline time.Duration
}

// policy is the policy with its default filled in.
func (m Misfire) policy() MisfirePolicy {
	if m.Policy == "" {
		return MisfireOnce
	}
	return m.Policy
}

// Revision is the hash of what decides the job's ticks: its schedule with
// zone, days and dst, and whether it is enabled. Two files whose entries give
// the same ticks have the same revision, whatever else they differ in.
func (j *Job) Revision() string {
	text := "on"
	if j.Disabled {
		text = "off"
	}
	if j.Schedule != nil {
		text += "\n" + j.Schedule.String()
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// DeadlineOf is how long after tick a run may still begin.
func (j *Job) DeadlineOf(tick time.Time) time.Duration {
	switch {
	case j.Misfire.Deadline > 0:
		return j.Misfire.Deadline
	case j.Misfire.policy() == MisfireAll:
		return MaxDefaultDeadline
	default:
		return DefaultDeadline(j.Schedule, tick) + j.Jitter
	}
}

// Delay is the job's fixed part of its jitter, in whole milliseconds: so long after
// each tick its message is published.
func (j *Job) Delay() time.Duration {
	ms := j.Jitter.Milliseconds()
	if ms <= 0 {
		return 0
	}
	sum := sha256.Sum256([]byte("jitter\n" + j.Name))
	var n uint64
	for _, b := range sum[:8] {
		n = n<<8 | uint64(b)
	}
	return time.Duration(n%uint64(ms)) * time.Millisecond
}
