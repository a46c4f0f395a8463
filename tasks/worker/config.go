package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// DefaultBackend names the lock back end and the record store that a guard
// means when it names none.
const DefaultBackend = "redis"

// TaskConfig is what the worker's own configuration says of one task. A lock
// or record given here replaces the message's whole; timeout and retries win
// over the message's.
type TaskConfig struct {
	// Params names the positional arguments, for templates.
	Params []string
	// Timeout bounds a run; 0 leaves the message's.
	Timeout time.Duration
	// Retries is the policy for plain errors; nil leaves the message's.
	Retries *tasks.RetryPolicy
	// AckEarly acknowledges a message before its run: a kill loses the run.
	AckEarly bool
	// Lock guards the task's runs; nil leaves the message's.
	Lock *LockConfig
	// Record makes the task's effect single; nil leaves the message's.
	Record *RecordConfig
}

// LockConfig is the lock of a task.
type LockConfig struct {
	// Key is the lock's key: a text, or a template over .Params and .Task.Name
	// such as "payment:{{ .Params.payment_id }}". The text as it stands here is
	// the lock's name in metrics.
	Key string
	// Backend names the store, "" means [DefaultBackend].
	Backend string
	// TTL is the time to live, at least 1 s; 0 means [lockguard.DefaultTTL].
	TTL time.Duration
	// Renew is the watchdog's period; 0 means a third of the TTL.
	Renew time.Duration
	// Expect is the run time above which a run has outlived its lock; 0
	// means the TTL if one is set, else the task's timeout, else
	// [lockguard.DefaultExpect].
	Expect time.Duration
	// MaxHold bounds renewal; 0 means timeout + 1 m, or
	// [lockguard.DefaultMaxHold] without one.
	MaxHold time.Duration
	// MinHold keeps the lock busy so long after its grant, also if the run ends
	// sooner; 0 for no longer than the run.
	MinHold time.Duration
	// StallAfter is the time without [tasks.Heartbeat] after which the lock is
	// not renewed; 0 means never.
	StallAfter time.Duration
	// OnBusy says what happens while another holds the lock; "" means retry.
	OnBusy tasks.OnBusy
	// Wait is how long a slot waits with [tasks.OnBusyWait]; 0 means
	// [tasks.DefaultWait].
	Wait time.Duration
	// OnLost says what a loss does to the run; "" means cancel.
	OnLost tasks.OnLost
	// OnStoreDown says what happens while the store is out of reach; "" means
	// retry.
	OnStoreDown tasks.OnStoreDown
	// FenceBase is added to the store's fence.
	FenceBase uint64
}

// RecordConfig is the idempotency record of a task.
type RecordConfig struct {
	// Key is the record's key: a template over .Params and .Task.Name, in which
	// values are escaped, so that different ones never give one key; "" means
	// the task id.
	Key string
	// Store names the store, "" means [DefaultBackend].
	Store string
	// Retention is how long a completed record is kept; 0 means
	// [idempotency.DefaultRetention].
	Retention time.Duration
	// Fingerprint names the parameters that must be the same for one key.
	Fingerprint []string
}

// ErrConfig is wrapped by every error of [New].
var ErrConfig = errors.New("worker: bad configuration")

// Config is what a [Worker] is made of.
type Config struct {
	// Registry holds the handlers.
	Registry *tasks.Registry
	// Locks are the lock guards by back end; may be nil where no task has a
	// lock.
	Locks map[string]*lockguard.Guard
	// Records are the record guards by store.
	Records map[string]*idempotency.Guard
	// Tasks is the configuration by task name.
	Tasks map[string]TaskConfig
	// PoisonAfter bounds the losses of lock or record of one message before
	// it fails; below 3 it is 3.
	PoisonAfter int
	// Middlewares wrap every handler, the first one outermost, inside the
	// guards.
	Middlewares []tasks.Middleware
	// Logger gets one line per run that did not simply succeed; nil discards.
	Logger *slog.Logger
	// Observer is told what happens; its functions may be nil.
	Observer Observer
}

// Observer is told what happens to runs. Functions must not block.
type Observer struct {
	// Started is called before the handler runs.
	Started func(Run)
	// Finished is called for every delivery once its outcome is known.
	Finished func(Run, tasks.Outcome)
	// StoodAside is called when a delivery met another task's lock (at "lock")
	// or a completed record (at "record"), once per task, however often its
	// message comes.
	StoodAside func(schedule, at string)
	// WithoutLock is called before a run that goes on without its lock, since
	// the lock's store is out of reach and its on_store_down says run.
	WithoutLock func(Run)
	// Overdue is called when a handler still runs some time after its
	// context was cancelled, and again with ended true when it returns.
	Overdue func(r Run, ended bool)
}

// Run is what observers are told of one delivery.
type Run struct {
	Task *tasks.Task
	// Schedule is the job's name, "" for a task that an app sent.
	Schedule string
	// Lock is the lock's name as configured, "" without one.
	Lock string
	// Fence is the run's fence, 0 without one.
	Fence uint64
	// Takeover is true if the run took over a dead or stalled run's record.
	Takeover bool
	// Executed is true once the handler was called.
	Executed bool
	// Renewals counts the confirmed renewals of the lock.
	Renewals int
	// Waited is the time from the message's ETA to the start, 0 without one.
	Waited time.Duration
	// Took is the handler's run time.
	Took time.Duration
}

// keys are the parsed keys of one task's entry; nil where it has none.
type keys struct{ lock, record *render.Template }

// compile checks the configuration and parses the keys of its tasks.
func (c *Config) compile() (map[string]keys, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if c.Registry == nil {
		bad("no registry")
	}
	parsed := map[string]keys{}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		var k keys
		var err error
		if l := c.Tasks[name].Lock; l != nil {
			if l.Key == "" {
				bad("task %s: lock without key", name)
			} else if k.lock, err = parseKey(l.Key, render.Text); err != nil {
				bad("task %s: lock key: %w", name, err)
			}
			if _, ok := c.Locks[backendOr(l.Backend)]; !ok {
				bad("task %s: lock back end %q is not configured", name, backendOr(l.Backend))
			}
		}
		if r := c.Tasks[name].Record; r != nil {
			if r.Key != "" {
				if k.record, err = parseKey(r.Key, render.Key); err != nil {
					bad("task %s: record key: %w", name, err)
				}
			}
			if _, ok := c.Records[backendOr(r.Store)]; !ok {
				bad("task %s: record store %q is not configured", name, backendOr(r.Store))
			}
		}
		parsed[name] = k
	}
	return parsed, errors.Join(errs...)
}

// parseKey parses a key of a task: a function of its parameters and name.
func parseKey(text string, kind render.Kind) (*render.Template, error) {
	t, err := render.Parse("key", text, kind)
	if err != nil {
		return nil, err
	}
	return t, t.CheckPure(".Params", ".Task")
}

func backendOr(name string) string {
	if name == "" {
		return DefaultBackend
	}
	return name
}
