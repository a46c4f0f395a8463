package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// Publisher makes the message of a request. The claim script puts it into the
// list in the same step in which it claims the tick, so that a crash between
// the two is impossible.
type Publisher interface {
	// Prepare returns the list's full key (prefix, priority suffix) and the
	// message. It does no I/O.
	Prepare(req *tasks.Request) (listKey string, message []byte, err error)
}

// Sender publishes for an engine whose messages the claim script cannot put
// down. Such a tick takes three steps: the store says that it is to be fired,
// the message is sent under the tick's own task id, and the tick is claimed. A
// crash between them leaves the tick to another replica, whose Send finds the
// id.
type Sender interface {
	// Prepare fills in what the request leaves open, and refuses what Send
	// would refuse. It does no I/O.
	Prepare(req *tasks.Request) error
	// Send sends the message. False says that its id is there already: another
	// replica has published the tick.
	Send(ctx context.Context, req *tasks.Request) (sent bool, err error)
}

// Step says how much of a tick one claim does.
type Step int

// The steps of a claim.
const (
	// Whole claims the tick and publishes its message at once.
	Whole Step = iota
	// Look changes nothing where the answer is Fired: the tick is to be sent.
	Look
	// Sent claims a tick whose message has been sent, however late it is.
	Sent
)

// ErrUnsafePolicy is returned by a [State] whose store may evict schedule
// state when memory runs out.
var ErrUnsafePolicy = errors.New("scheduler: the store may evict schedule state")

// ErrUnknownJob is returned by an [Admin] for a job of which its store knows
// nothing.
var ErrUnknownJob = errors.New("scheduler: unknown job")

// Replica is one scheduler with the file that it has loaded.
type Replica struct {
	// ID is the instance id, random per process.
	ID string
	// Name is for people: solobeat@host.
	Name string
	// File is the hash of the job → revision map of the loaded file, Path where
	// it lies.
	File, Path string
	// Load is the load instant in microseconds by the store's clock; 0 until
	// the first beat gave one. It stays the same when the replica registers
	// again, so that a replica that was paused does not bring an old file back.
	Load int64
}

// BeatReply is what a beat found.
type BeatReply struct {
	// Load is the replica's load instant.
	Load int64
	// Now is the store's clock.
	Now time.Time
	// Registered tells that the replica was not in the registry: it is new, was
	// taken for dead, or the store lost its data.
	Registered bool
	// Buried are the ids of replicas that this beat took for dead.
	Buried []string
	// Switched tells that this beat made another file the current one.
	Switched bool
	// Current is the current file.
	Current FileInfo
	// Others is the number of other replicas in the registry: those that live,
	// and the dead that nobody has buried yet.
	Others int
}

// FileInfo tells of the file of a replica.
type FileInfo struct {
	// Generation changes whenever another file becomes current.
	Generation string `json:"generation,omitempty"`
	// File, Path, Replica and Name describe the file and who loaded it last.
	File    string `json:"file"`
	Path    string `json:"path,omitempty"`
	Replica string `json:"replica,omitempty"`
	Name    string `json:"name,omitempty"`
}

// Claim asks for one tick.
type Claim struct {
	Job      string
	Revision string
	// Tick and Label name the tick; Civil is its civil time without offset, and
	// whether it is the first or second of two equal ones: two replicas with
	// different zone data must not run it twice. "" for ticks that follow
	// elapsed time.
	Tick  time.Time
	Label string
	Civil string
	// Due is the instant before which it must not fire: tick + jitter.
	Due time.Time
	// MissAfter is the instant after which it is only recorded as missed.
	MissAfter time.Time
	// Prev is the tick before, zero if there is none. With InOrder the claim is
	// refused (GAP) unless Prev is settled.
	Prev    time.Time
	InOrder bool
	// Base is the newest settled instant that the claimant knows, Jumped the
	// number of ticks between it and Tick, which become missed. The claim is
	// refused (GAP) if the store knows a newer one.
	Base   time.Time
	Jumped int
	// Next is the tick after, zero if there is none; kept for people.
	Next time.Time
	// Step is Whole for what the claim itself publishes, or does not.
	Step Step
	// List and Message are what to publish, TaskID the message's id. A Whole
	// claim without a list settles the tick as missed: it cannot be rendered, or
	// is too late.
	List    string
	Message []byte
	TaskID  string
}

// Outcome is the store's answer to a claim.
type Outcome int

// The answers to a claim.
const (
	// Fired: the tick is ours and its message is in the queue.
	Fired Outcome = iota + 1
	// Duplicate: the tick, or a later one, is settled already.
	Duplicate
	// Early: the tick is not due yet by the store's clock.
	Early
	// Stale: another revision of the job is current.
	Stale
	// Gap: an older tick is not settled, or a newer base is known.
	Gap
	// Missed: too late; recorded as missed.
	Missed
	// Paused: somebody has paused the job; recorded as paused.
	Paused
	// Unseeded: the store knew nothing of the job, which now starts afresh.
	Unseeded
)

// String is the answer in capitals.
func (o Outcome) String() string {
	switch o {
	case Fired:
		return "FIRED"
	case Duplicate:
		return "DUP"
	case Early:
		return "EARLY"
	case Stale:
		return "STALE"
	case Gap:
		return "GAP"
	case Missed:
		return "MISSED"
	case Paused:
		return "PAUSED"
	case Unseeded:
		return "UNSEEDED"
	default:
		return "UNKNOWN"
	}
}

// ClaimResult is the answer to one claim.
type ClaimResult struct {
	Outcome Outcome
	// Err is set if the answer is not known; the claim may have been done.
	Err error
	// Refused tells that Err is the store's own "no" to this claim (a foreign
	// type under one of its keys), not trouble with the store.
	Refused bool
	// Now is the store's clock at the claim.
	Now time.Time
	// Mark is the newest settled instant: the last tick or the activation.
	Mark time.Time
	// Aside tells, for Fired, that this replica claimed the tick but another
	// had published it.
	Aside bool
	// By and Last tell who settled the last tick, for Duplicate; LastAs, what it
	// was settled as: Fired, Missed or Paused, 0 if that is not known.
	By     string
	Last   time.Time
	LastAs Outcome
	// Wait is the time left, for Early.
	Wait time.Duration
	// Generation is the current file's, for Stale: as long as it is current the
	// answer stays.
	Generation string
	// NeedBeat tells, for Unseeded, that the store has lost the registry and a
	// beat should restore it; the job's state is not changed then.
	NeedBeat bool
}

// JobState is what the store knows of a job.
type JobState struct {
	Job string `json:"job"`
	// Known is false if the store has nothing.
	Known bool `json:"known"`
	// Last is the last settled tick, zero if none; Label its civil label.
	Last  time.Time `json:"last,omitzero"`
	Label string    `json:"label,omitempty"`
	// Seq counts the published ticks, Missed those recorded as missed, Skipped
	// those for which the job was paused.
	Seq     int64 `json:"seq"`
	Missed  int64 `json:"missed"`
	Skipped int64 `json:"skipped"`
	// Paused is set while the job is paused.
	Paused *Pause `json:"paused,omitempty"`
	// Since is when the current revision became active: ticks up to it do not
	// fire.
	Since time.Time `json:"since,omitzero"`
	// Revision is the current one; Current tells that the current file has it.
	Revision string `json:"revision"`
	Current  bool   `json:"current"`
	// Next is the tick after Last as its claimant reckoned it.
	Next time.Time `json:"next,omitzero"`
	// At is when the last tick was settled, By the replica, Result fired,
	// missed or paused, TaskID the message.
	At     time.Time `json:"at,omitzero"`
	By     string    `json:"by,omitempty"`
	Result string    `json:"result,omitempty"`
	TaskID string    `json:"task_id,omitempty"`
	// LastBegun is the newest tick whose message a worker has begun, or settled
	// without a run; LastSuccess is when a run last succeeded.
	LastBegun   time.Time `json:"last_begun,omitzero"`
	LastSuccess time.Time `json:"last_success,omitzero"`
}

// Pause says since when a job's ticks are not published, who wanted that, and
// why.
type Pause struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// RunNote tells how far a run of a job has come.
type RunNote struct {
	// Tick is the run's, zero if it has none.
	Tick time.Time
	// Succeeded is true once the handler has returned a result.
	Succeeded bool
	TaskID    string
}

// Mark is the newest settled instant: ticks up to it do not fire.
func (s JobState) Mark() time.Time {
	if s.Since.After(s.Last) {
		return s.Since
	}
	return s.Last
}

// HistoryEntry is one decision about a job's ticks, or the end of one of its
// runs.
type HistoryEntry struct {
	// At is when, by the store's clock.
	At time.Time `json:"at"`
	// Outcome of a decision is fired, missed, jumped (older late ticks that a
	// newer one replaced), paused (ticks of a paused job, in one entry for all
	// that follow each other) or seeded (the state was new or lost); of what
	// somebody did by hand pause, resume or triggered; of a run it is a
	// [tasks.Kind] in words, skipped or replayed.
	Outcome string `json:"outcome"`
	// Tick and Label name the tick; Count is how many ticks the entry is about.
	Tick  time.Time `json:"tick,omitzero"`
	Label string    `json:"label,omitempty"`
	Count int64     `json:"count"`
	// By is the replica or the person, TaskID the message, LateMS how long after
	// its due time (tick and jitter) it was published or settled, Reason why
	// somebody paused or resumed the job.
	By     string `json:"by,omitempty"`
	TaskID string `json:"task_id,omitempty"`
	LateMS int64  `json:"late_ms"`
	Reason string `json:"reason,omitempty"`
	// Run is what is known of a run, nil for a decision about a tick.
	Run *RunEntry `json:"run,omitempty"`
}

// Ended reports whether the entry is the end of a run, after which nothing
// more comes of its message.
func (e HistoryEntry) Ended() bool {
	switch e.Outcome {
	case tasks.Succeeded.String(), tasks.Failed.String(), tasks.Revoked.String():
		return e.Run != nil
	}
	return false
}

// RunEntry is the part of a [HistoryEntry] that tells of a run.
type RunEntry struct {
	// Reason says in one word why a run ended as it did, "" for a success.
	Reason string `json:"reason,omitempty"`
	// Attempt counts from 1; Fence is 0 for a run without one.
	Attempt int    `json:"attempt"`
	Fence   uint64 `json:"fence,omitempty"`
	// Takeover tells that the run took over from a dead or stalled one.
	Takeover bool `json:"takeover,omitempty"`
	// TookMS is the handler's run time in milliseconds, 0 if it was not called.
	TookMS int64 `json:"took_ms"`
}

// ReplicaInfo is one live replica in the registry.
type ReplicaInfo struct {
	FileInfo
	Load time.Time `json:"load"`
	Beat time.Time `json:"beat"`
	// Current tells that its file is the current one.
	Current bool `json:"current"`
}

// State is where ticks are settled: what the loop needs. All methods are safe
// for concurrent use and return when ctx ends.
type State interface {
	// Now is the store's clock, in one round trip.
	Now(ctx context.Context) (time.Time, error)
	// Check refuses a store that may lose schedule state (ErrUnsafePolicy).
	Check(ctx context.Context) error
	// Beat registers the replica or keeps it alive, buries the dead, and makes
	// the newest file current. Revisions is the file's job → revision map.
	Beat(ctx context.Context, r Replica, revisions map[string]string) (BeatReply, error)
	// Leave takes the replica out of the registry at an orderly end.
	Leave(ctx context.Context, r Replica) error
	// Claim asks for ticks; the results are in the order of the claims.
	Claim(ctx context.Context, r Replica, claims []Claim) []ClaimResult
	// Load reads the state of jobs, in their order.
	Load(ctx context.Context, jobs []string) ([]JobState, error)
	// Current is the current file, zero if there is none.
	Current(ctx context.Context) (FileInfo, error)
}

// Admin is what the commands about jobs need beside [State].
type Admin interface {
	// Jobs reads the state of all jobs of the current file, by name.
	Jobs(ctx context.Context) ([]JobState, error)
	// Load reads the state of jobs, in their order.
	Load(ctx context.Context, jobs []string) ([]JobState, error)
	// History is the job's last decisions, the newest first, at most n (0: all
	// that are kept).
	History(ctx context.Context, job string, n int) ([]HistoryEntry, error)
	// LastRuns finds the newest run that has ended in the last few entries of
	// each job's history; a job that has none there is left out.
	LastRuns(ctx context.Context, jobs []string) (map[string]HistoryEntry, error)
	// AddHistory adds the end of a run to a job's history. At is set by the
	// store; Run is needed.
	AddHistory(ctx context.Context, job string, e HistoryEntry) error
	// NoteRun keeps how far the job's runs have come. It tells whether a run of
	// the same task had succeeded before this one did.
	NoteRun(ctx context.Context, job string, r RunNote) (again bool, err error)
	// Pause stops the ticks of a job from now on, for all replicas and until
	// Resume: they are settled as paused. A pause that is in force stays as it
	// is; it is returned, with false. [ErrUnknownJob] if the store has no such job.
	Pause(ctx context.Context, job, by, reason string) (p Pause, changed bool, err error)
	// Resume ends a pause, which it returns: the job has ticks again from now
	// on, and none up to now. False says that the job was not paused.
	Resume(ctx context.Context, job, by, reason string) (p Pause, changed bool, err error)
	// NoteTrigger adds to a job's history that somebody asked for a run. At is
	// set by the store.
	NoteTrigger(ctx context.Context, job string, e HistoryEntry) error
	// Replicas lists the live schedulers, the newest load first.
	Replicas(ctx context.Context) ([]ReplicaInfo, error)
}
