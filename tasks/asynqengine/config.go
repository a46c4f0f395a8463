package asynqengine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks"
)

// EngineName is what [tasks.Task.Engine] holds for tasks of this engine.
const EngineName = "asynq"

// Defaults of a [Config].
const (
	// DefaultQueue is the queue where none is named, the same as on the other
	// engine.
	DefaultQueue = "celery"
	// DefaultResultExpires is how long results are kept.
	DefaultResultExpires = 24 * time.Hour
	// DefaultGrace is how long running tasks may go on after a stop.
	DefaultGrace = 20 * time.Second
	// MinPoisonAfter is the smallest number of deaths that condemn a message.
	MinPoisonAfter = 3
	// MaxPoisonAfter is the largest: asynq itself ends a task after MaxRetry
	// deaths, without a result.
	MaxPoisonAfter = retryReserve
	// MaxServers bounds [Config.Servers].
	MaxServers = 100
)

// ErrConfig is wrapped by every error about a [Config].
var ErrConfig = errors.New("asynqengine: bad configuration")

// Config is what an [Engine] is made of. Client is required.
type Config struct {
	// Client is the Redis of the queues and of our keys: single, Sentinel or
	// Cluster. asynq, its inspector and the engine share it and its pool; it
	// stays the caller's to close, after Run has returned. It should not repeat
	// commands by itself.
	Client redis.UniversalClient
	// Results is the Redis that holds the results; nil is Client.
	Results redis.UniversalClient
	// Namespace keeps deployments on one Redis apart; "" is "default". The
	// queues themselves are asynq's and know no namespace.
	Namespace string
	// KeyPrefix stands before our keys. asynq's own keys cannot have one.
	KeyPrefix string
	// ResultsKeyPrefix stands, verbatim, before result keys and channels.
	ResultsKeyPrefix string
	// Queues are the queues to take from; empty is "celery".
	Queues []string
	// Concurrency is the number of runs at one time over all servers; below 1
	// is 1.
	Concurrency int
	// Servers is the number of asynq servers in this process, 1 to 100: one
	// does at most one task per round trip to Redis. 0 is 1; there are never
	// more than Concurrency.
	Servers int
	// ResultExpires is how long results are kept; 0 is 24 h, negative for ever.
	ResultExpires time.Duration
	// PoisonAfter is how many processes may die under a message before it ends
	// in the archive, 3 to 100; 0 is 3.
	PoisonAfter int
	// Grace is how long runs may go on after the stop of Run; 0 is 20 s,
	// negative none.
	Grace time.Duration
	// AfterPark looks once more whether what a message was parked for is free
	// now; if so the oldest message of the key is brought forward. nil: never
	// looked at again before the timer.
	AfterPark func(ctx context.Context, p tasks.Park) (free bool)
	// Logger gets what happens out of the ordinary, asynq's own words included;
	// nil discards.
	Logger *slog.Logger
	// Observer is told what happens; its functions may be nil.
	Observer Observer
}

// Observer is told what the engine does. Functions must not block. Any may be
// nil.
type Observer struct {
	// Finished: a message was dealt with, by a run or without one, and its
	// result is written.
	Finished func(Finished)
	// DeadLettered: a message can never be run and went to asynq's archive.
	DeadLettered func(queue string, reason tasks.Reason)
	// LateCommit: a result was dropped since asynq had given the run up: its
	// lease or its deadline was over.
	LateCommit func(task, queue string)
	// Parked: a message was parked; reason is eta, retry, suspect, or a
	// [tasks.ParkReason].
	Parked func(queue, reason string)
	// Returned: n messages were given back to a queue after a run that does
	// not count.
	Returned func(queue string, n int)
	// Suspect: a message under which two processes have died is about to run.
	Suspect func(queue string)
	// Orphans: n tasks of a queue stand as active though asynq's recoverer
	// cannot see them; told once a minute, 0 included.
	Orphans func(queue string, n int)
	// BrokerUp: whether Redis answers, every 3 s, each second while it fails.
	BrokerUp func(up bool)
	// Reconnect: Redis answers again after it did not.
	Reconnect func()
}

// Finished tells what became of a message.
type Finished struct {
	// Task is the task's name, Queue where it was taken from.
	Task, Queue string
	// Outcome is what became of it.
	Outcome tasks.Kind
	// Reason is the outcome's, "" for none.
	Reason tasks.Reason
	// Ran is false if the message was dealt with without a run.
	Ran bool
	// Message is what was sent; of one that is malformed, as much as could be
	// read.
	Message *tasks.Task
	// Runtime is the time from the start of the run to its outcome.
	Runtime time.Duration
}

func (c *Config) defaults() {
	if c.Results == nil {
		c.Results = c.Client
	}
	if c.Namespace == "" {
		c.Namespace = tasks.DefaultNamespace
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{DefaultQueue}
	}
	c.Concurrency = max(c.Concurrency, 1)
	if c.Servers == 0 {
		c.Servers = 1
	}
	if c.PoisonAfter == 0 {
		c.PoisonAfter = MinPoisonAfter
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	c.Grace = max(c.Grace, 0)
	if c.ResultExpires == 0 {
		c.ResultExpires = DefaultResultExpires
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if c.Client == nil {
		bad("no client")
	}
	if c.PoisonAfter < MinPoisonAfter || c.PoisonAfter > MaxPoisonAfter {
		bad("poison_after is %d, %d to %d is allowed", c.PoisonAfter, MinPoisonAfter, MaxPoisonAfter)
	}
	if c.Servers < 1 || c.Servers > MaxServers {
		bad("%d servers, 1 to %d are allowed", c.Servers, MaxServers)
	}
	for i, q := range c.Queues {
		if !ValidQueue(q) {
			bad("queue %q: %s", q, QueueRule)
		}
		if slices.Contains(c.Queues[:i], q) {
			bad("queue %q is named twice", q)
		}
	}
	return errors.Join(errs...)
}

// queueRE admits no brace: asynq's keys have the queue as their cluster hash
// tag, which a brace would end.
var queueRE = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

// QueueRule says which names [ValidQueue] admits.
const QueueRule = "letters, digits and _.:- only, at most 100, on asynq"

// ValidQueue reports whether a name can be an asynq queue.
func ValidQueue(name string) bool { return queueRE.MatchString(name) }

// expirySeconds is the TTL of results as the script takes it; 0 is for ever.
func (c *Config) expirySeconds() int64 {
	if c.ResultExpires < 0 {
		return 0
	}
	return max(int64(c.ResultExpires/time.Second), 1)
}
