package celery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// EngineName is what [tasks.Task.Engine] holds for tasks of this engine.
const EngineName = "celery"

// Defaults of a [Config].
const (
	// DefaultQueue is the queue of Celery's own default.
	DefaultQueue = "celery"
	// DefaultResultExpires is how long results are kept, as in Celery.
	DefaultResultExpires = 24 * time.Hour
	// DefaultGrace is how long running tasks may go on after a stop.
	DefaultGrace = 20 * time.Second
	// MinPoisonAfter is the smallest number of deaths that condemn a message.
	MinPoisonAfter = 3
)

// ErrConfig is wrapped by every error about a [Config].
var ErrConfig = errors.New("celery: bad configuration")

// Config is what an [Engine] is made of. Broker is required.
type Config struct {
	// Broker is the Redis that holds the queues. Use a client that does not
	// repeat commands by itself.
	Broker *redis.Client
	// Results is the Redis that holds the results; nil is the broker's own
	// database. In another database of the broker's server they are still
	// written in the step that acknowledges their messages; on another server
	// just before it.
	Results *redis.Client
	// Namespace keeps deployments on one Redis apart; "" is "default".
	Namespace string
	// KeyPrefix stands before every key and channel on the broker (kombu's
	// global_keyprefix).
	KeyPrefix string
	// ResultsKeyPrefix stands, verbatim, before result keys and channels.
	ResultsKeyPrefix string
	// Queues are the queues to take from; empty is "celery".
	Queues []string
	// Concurrency is the number of runs at one time; below 1 is 1.
	Concurrency int
	// NodeName is the replica's Celery node name, name@host; "" is
	// solobeat@<host>. A live replica of that name makes this one name-2@host.
	NodeName string
	// Instance is the instance id, 32 hex digits; "" makes a random one. It
	// changes when the replica was buried by its peers.
	Instance string
	// ResultExpires is how long results are kept; 0 is 24 h, negative for ever.
	ResultExpires time.Duration
	// PoisonAfter is how many replicas may die under a message before it is
	// a dead letter; at least 3, 0 is 3.
	PoisonAfter int
	// Grace is how long runs may go on after the stop of Run; 0 is 20 s,
	// negative none.
	Grace time.Duration
	// AckEarly says for which tasks the ack comes before the run: a kill
	// loses the run. nil: for none.
	AckEarly func(task string) bool
	// Registered says whether a task has a handler; nil: every one has.
	Registered func(task string) bool
	// AfterPark looks once more whether what a message was parked for is free
	// now; if so the oldest message of the key is brought forward. It closes
	// the gap between a refused lock and the park. It is called off the
	// engine's loop, once per key and batch, with the Park of the outcome;
	// nil: never looked at again before the timer.
	AfterPark func(ctx context.Context, p tasks.Park) (free bool)
	// Unlocks says that the runs' locks, all of them, lie in the broker's database,
	// so that the engine frees them in the step that acknowledges their messages: that spares
	// a round trip, and who reads the result finds the lock free.
	Unlocks bool
	// Logger gets what happens out of the ordinary; nil discards.
	Logger *slog.Logger
	// Observer is told what happens; its functions may be nil.
	Observer Observer
	// Version is what worker events tell as sw_ver; "" is "0".
	Version string
}

// Observer is told what the engine does. Functions must not block: most are
// called on the engine's only loop. Any may be nil.
type Observer struct {
	// Taken: n messages came from a queue.
	Taken func(queue string, n int)
	// Finished: a message was dealt with, by a run or without one, and Redis
	// has confirmed it.
	Finished func(Finished)
	// DeadLettered: a message went to the queue's dead letters.
	DeadLettered func(queue string, reason tasks.Reason)
	// DeadUnlisted: a message could not be put into the queue's dead letters, and
	// is kept as it came in a list beside them, see [Admin.Unlisted].
	DeadUnlisted func(queue string, reason tasks.Reason)
	// TakenOver: n messages of a dead replica were put back by this one.
	TakenOver func(n int)
	// Buried: peers took this replica for dead.
	Buried func()
	// LateCommit: a result was dropped since its message is no longer ours.
	LateCommit func(task, queue string)
	// Parked: a message was parked; reason is eta, retry, suspect, or a
	// [tasks.ParkReason].
	Parked func(queue, reason string)
	// Returned: n messages were given back to a queue without a run, or after
	// one that does not count.
	Returned func(queue string, n int)
	// Suspect: a message under which two replicas have died is about to run.
	Suspect func(queue string)
	// BrokerUp: whether the broker answers, told with every heartbeat (3 s, or
	// each second while it fails) and at once when it changes.
	BrokerUp func(up bool)
	// Reconnect: the broker answers again after it did not.
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
	// Message is what was sent, nil if it could not be decoded.
	Message *tasks.Task
	// Runtime is the time from the start of the run to its outcome.
	Runtime time.Duration
}

func (c *Config) defaults() {
	if c.Namespace == "" {
		c.Namespace = tasks.DefaultNamespace
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{DefaultQueue}
	}
	if c.Concurrency < 1 {
		c.Concurrency = 1
	}
	if c.NodeName == "" {
		c.NodeName = DefaultNodeName()
	}
	if c.Instance == "" {
		c.Instance = NewInstance()
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
	if c.Version == "" {
		c.Version = "0"
	}
}

func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if c.Broker == nil {
		bad("no broker client")
	}
	if c.PoisonAfter < MinPoisonAfter {
		bad("poison_after is %d, at least %d is needed", c.PoisonAfter, MinPoisonAfter)
	}
	if name, host, ok := strings.Cut(c.NodeName, "@"); !ok || name == "" || host == "" {
		bad("node name %q: name@host is needed", c.NodeName)
	}
	if !validInstance(c.Instance) {
		bad("instance %q: 32 hex digits are needed", c.Instance)
	}
	for i, q := range c.Queues {
		if q == "" || strings.Contains(q, wire.Sep) || strings.ContainsRune(q, 0) {
			bad("queue %q is no queue name", q)
		}
		if slices.Contains(c.Queues[:i], q) {
			bad("queue %q is named twice", q)
		}
	}
	return errors.Join(errs...)
}

// DefaultNodeName is solobeat@<host>.
func DefaultNodeName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return "solobeat@" + host
}

// expirySeconds is the TTL of results as scripts take it; 0 is for ever.
func (c *Config) expirySeconds() int64 {
	if c.ResultExpires < 0 {
		return 0
	}
	return max(int64(c.ResultExpires/time.Second), 1)
}
