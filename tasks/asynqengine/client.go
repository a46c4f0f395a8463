package asynqengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// ErrDuplicateID: a task of that id is in the queue, or asynq still keeps it.
var ErrDuplicateID = errors.New("asynqengine: a task of this id is there already")

// minRetention is how long a tick's task is kept at least: for as long as its
// id is known the tick cannot be published twice.
const minRetention = 24 * time.Hour

// ClientConfig is what a [Client] is made of. Client is required.
type ClientConfig struct {
	// Client is the Redis of the queues; it stays the caller's to close.
	Client redis.UniversalClient
	// Results holds the results; nil is Client.
	Results redis.UniversalClient
	// Namespace, KeyPrefix and ResultsKeyPrefix are as in [Config].
	Namespace, KeyPrefix, ResultsKeyPrefix string
	// Queue is where tasks go whose sender names none; "" is "celery".
	Queue string
}

// Client sends tasks to asynq queues and reads results. It is safe for
// concurrent use.
type Client struct {
	cfg   ClientConfig
	asynq *asynq.Client
	lines lines
}

var _ tasks.Enqueuer = (*Client)(nil)

// NewClient returns a client. It does not connect.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Queue == "" {
		cfg.Queue = DefaultQueue
	}
	if cfg.Results == nil {
		cfg.Results = cfg.Client
	}
	if cfg.Namespace == "" {
		cfg.Namespace = tasks.DefaultNamespace
	}
	return &Client{
		cfg: cfg, asynq: asynq.NewClientFromRedisClient(cfg.Client), lines: newLines(cfg.Client, cfg.KeyPrefix, cfg.Namespace),
	}
}

// Enqueue sends a task and returns its id. An id that is there already is
// [ErrDuplicateID]: unlike on the other engine nothing is sent then.
func (c *Client) Enqueue(ctx context.Context, name string, opts ...tasks.Option) (string, error) {
	r, err := tasks.NewRequest(name, opts...)
	if err != nil {
		return "", err
	}
	if r.ID == "" {
		r.ID = wire.NewID()
	}
	switch sent, err := c.send(ctx, r); {
	case err != nil:
		return "", err
	case !sent:
		return "", fmt.Errorf("%w: %s", ErrDuplicateID, r.ID)
	}
	return r.ID, nil
}

// Send sends the task of a job's tick, whose id is made of both. False says
// that the id is there already: another replica has published the tick. asynq
// keeps the task for twice the tick's deadline, and for 24 h at least, so that
// whoever comes late is told.
func (c *Client) Send(ctx context.Context, r *tasks.Request) (sent bool, err error) {
	if r.ID == "" {
		return false, fmt.Errorf("asynqengine: send %s: a tick's task needs its id", r.Name)
	}
	return c.send(ctx, r, asynq.Retention(retention(r.Guard)))
}

// Prepare checks what Send would refuse without asking Redis, and fills in the
// queue.
func (c *Client) Prepare(r *tasks.Request) error {
	if r.Queue == "" {
		r.Queue = c.cfg.Queue
	}
	_, _, err := encode(r)
	return err
}

func retention(g *tasks.Guard) time.Duration {
	if g == nil || g.BeginBy == 0 || g.Tick == 0 {
		return minRetention
	}
	return max(minRetention, 2*time.Duration(g.BeginBy-g.Tick)*time.Millisecond)
}

func (c *Client) send(ctx context.Context, r *tasks.Request, more ...asynq.Option) (bool, error) {
	if r.Queue == "" {
		r.Queue = c.cfg.Queue
	}
	task, opts, err := encode(r)
	if err != nil {
		return false, err
	}
	_, err = c.asynq.EnqueueContext(ctx, task, append(opts, more...)...)
	switch {
	case errors.Is(err, asynq.ErrTaskIDConflict):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asynqengine: enqueue %s: %w", r.Name, err)
	}
	return true, nil
}

// Wake brings forward the oldest message that is parked for a lock, as a worker
// does for a lock that it has released. It is for programs that take such a lock
// by themselves; call it after the release. An error does no harm: the message
// has a timer as well, of up to 30 s.
func (c *Client) Wake(ctx context.Context, lockKey string) error {
	_, err := c.lines.forward(ctx, lockKey)
	return err
}

// Result reads the result of a task; false if there is none yet.
func (c *Client) Result(ctx context.Context, id string) (*wire.Result, bool, error) {
	return resultstore.Read(ctx, c.cfg.Results, c.resultKey(id))
}

// Wait reads the result of a task, waiting up to timeout for a final state.
// False means that none was seen, with the newest result or nil.
func (c *Client) Wait(ctx context.Context, id string, timeout time.Duration) (*wire.Result, bool, error) {
	return resultstore.Wait(ctx, c.cfg.Results, c.resultKey(id), timeout)
}

// ProbeResults tries whether results can be written; an error that is about
// permissions names the ACL rule that is missing. The name keeps probes apart.
func (c *Client) ProbeResults(ctx context.Context, name string) error {
	return resultstore.NewWriter(c.cfg.Results).Probe(ctx, c.resultKey("probe:"+name))
}

func (c *Client) resultKey(id string) string { return c.cfg.ResultsKeyPrefix + wire.ResultKey(id) }
