package worker

import (
	"errors"
	"fmt"
	"log/slog"
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
	// Key renders the lock's key from the arguments.
	Key *render.Template
	// Name is the key as the file has it, for metrics.
	Name string
	// Backend names the store, "" means [DefaultBackend].
	Backend string
	// TTL is the time to live, at least 1 s; 0 means 30 s.
	TTL time.Duration
	// Renew is the watchdog's period; 0 means a third of the TTL.
	Renew time.Duration
	// Expect is the run time above which a run has outlived its lock; 0
	// means 5 m or the task's timeout.
	Expect time.Duration
	// MaxHold bounds renewal; 0 means timeout + 1 m, or 24 h without one.
	MaxHold time.Duration
	// OnBusy says what happens while another holds the lock; "" means retry.
	OnBusy tasks.OnBusy
	// FenceBase is added to the store's fence.
	FenceBase uint64
}

// RecordConfig is the idempotency record of a task.
type RecordConfig struct {
	// Key renders the record's key; nil means the task id.
	Key *render.Template
	// Store names the store, "" means [DefaultBackend].
	Store string
	// Retention is how long a completed record is kept; 0 means 7 days.
	Retention time.Duration
	// Fingerprint names the parameters that must be the same for one key.
	Fingerprint []string
}

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
	// Namespace keeps deployments apart; "" means "default".
	Namespace string
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

func (c *Config) check() error {
	var errs []error
	if c.Registry == nil {
		errs = append(errs, errors.New("worker: no registry"))
	}
	for name, t := range c.Tasks {
		if t.Lock != nil {
			if t.Lock.Key == nil {
				errs = append(errs, fmt.Errorf("worker: task %s: lock without key", name))
			}
			if _, ok := c.Locks[backendOr(t.Lock.Backend)]; !ok {
				errs = append(errs, fmt.Errorf("worker: task %s: lock back end %q is not configured", name, backendOr(t.Lock.Backend)))
			}
		}
		if t.Record != nil {
			if _, ok := c.Records[backendOr(t.Record.Store)]; !ok {
				errs = append(errs, fmt.Errorf("worker: task %s: record store %q is not configured", name, backendOr(t.Record.Store)))
			}
		}
	}
	return errors.Join(errs...)
}

func backendOr(name string) string {
	if name == "" {
		return DefaultBackend
	}
	return name
}
