package celery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// ClientConfig is what a [Client] is made of. Broker is required.
type ClientConfig struct {
	// Broker holds the queues.
	Broker *redis.Client
	// Results holds the results; nil is the broker's own database.
	Results *redis.Client
	// Namespace, KeyPrefix and ResultsKeyPrefix are as in [Config].
	Namespace, KeyPrefix, ResultsKeyPrefix string
	// Queue is where tasks go whose sender names none; "" is "celery".
	Queue string
}

// Client sends tasks to Celery queues and reads results. It is safe for
// concurrent use.
type Client struct {
	cfg    ClientConfig
	keys   keys
	runner *redisconn.Runner
	wake   *redisconn.Script

	mu    sync.Mutex
	bound map[string]bool // queues whose binding was written
}

var _ tasks.Enqueuer = (*Client)(nil)

// NewClient returns a client. It does not connect.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Queue == "" {
		cfg.Queue = DefaultQueue
	}
	if cfg.Namespace == "" {
		cfg.Namespace = tasks.DefaultNamespace
	}
	if cfg.Results == nil {
		cfg.Results = cfg.Broker
	}
	return &Client{
		cfg: cfg, bound: map[string]bool{}, runner: redisconn.NewRunner(cfg.Broker), wake: fullScript(wakeLua),
		keys: keys{prefix: cfg.KeyPrefix, namespace: cfg.Namespace, results: cfg.ResultsKeyPrefix},
	}
}

// Enqueue sends a task and returns its id. An error after the message may
// have been sent says so by being no [tasks] error: sending again may send
// twice.
func (c *Client) Enqueue(ctx context.Context, name string, opts ...tasks.Option) (string, error) {
	r, err := tasks.NewRequest(name, opts...)
	if err != nil {
		return "", err
	}
	if err := c.Send(ctx, r); err != nil {
		return "", err
	}
	return r.ID, nil
}

// Send sends the task of a request, in which it fills in ID and Queue where they
// are empty. Its errors are those of Enqueue.
func (c *Client) Send(ctx context.Context, r *tasks.Request) error {
	list, msg, err := c.Prepare(r)
	if err != nil {
		return err
	}
	if err := c.bind(ctx, r.Queue); err != nil {
		return fmt.Errorf("celery: enqueue %s: %w", r.Name, err)
	}
	if err := c.cfg.Broker.LPush(ctx, list, msg).Err(); err != nil {
		return fmt.Errorf("celery: enqueue %s: %w", r.Name, err)
	}
	return nil
}

// Prepare builds the message of a request and names the list, prefix
// included, to whose left end it belongs. It fills in the request's ID and
// Queue where they are empty. Whoever pushes the message also calls
// [Client.Bind] once for the queue.
func (c *Client) Prepare(r *tasks.Request) (listKey string, message []byte, err error) {
	if r.Queue == "" {
		r.Queue = c.cfg.Queue
	}
	if wire.ReservedQueue(r.Queue) {
		return "", nil, fmt.Errorf("celery: enqueue %s: queue %q would be a key of Celery's or Solobeat's own: choose another name", r.Name, r.Queue)
	}
	if r.ID == "" {
		r.ID = wire.NewID()
	}
	m := &wire.Message{
		ID: r.ID, Task: r.Name, Args: r.Args, Kwargs: r.Kwargs, ETA: r.ETA, Expires: r.Expires,
		Priority: r.Priority, RoutingKey: r.Queue, Headers: r.Headers,
	}
	if r.Guard != nil {
		text, err := r.Guard.Encode()
		if err != nil {
			return "", nil, fmt.Errorf("celery: enqueue %s: %w", r.Name, err)
		}
		m.Headers = withHeader(r.Headers, wire.HeaderGuard, text)
	}
	if message, err = wire.Encode(m); err != nil {
		return "", nil, fmt.Errorf("celery: enqueue %s: %w", r.Name, err)
	}
	return c.keys.list(r.Queue, r.Priority), message, nil
}

// Bind writes the queue's binding once per client, so that kombu's tools see
// the queue.
func (c *Client) Bind(ctx context.Context, queue string) error { return c.bind(ctx, queue) }

func (c *Client) bind(ctx context.Context, queue string) error {
	c.mu.Lock()
	done := c.bound[queue]
	c.mu.Unlock()
	if done {
		return nil
	}
	if err := bindQueue(ctx, c.cfg.Broker, c.keys.prefix, queue); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound[queue] = true
	return nil
}

// bindQueue writes the binding of a default direct queue into both of kombu's
// sets.
func bindQueue(ctx context.Context, rdb *redis.Client, prefix, queue string) error {
	set, permanent := wire.BindingKeys(queue)
	member := wire.BindingMember(queue, "", queue)
	cmds, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, prefix+set, member)
		p.SAdd(ctx, prefix+permanent, member)
		return nil
	})
	if redis.HasErrorPrefix(err, "EXECABORT") { // it does not say why: the command does
		refused := func(c redis.Cmder) bool { return c.Err() != nil && !redis.HasErrorPrefix(c.Err(), "EXECABORT") }
		if i := slices.IndexFunc(cmds, refused); i >= 0 {
			err = cmds[i].Err()
		}
	}
	if err != nil {
		return fmt.Errorf("celery: binding of queue %s: %w", queue, err)
	}
	return nil
}

// Result reads the result of a task; false if there is none yet.
func (c *Client) Result(ctx context.Context, id string) (*wire.Result, bool, error) {
	return resultstore.Read(ctx, c.cfg.Results, c.keys.result(id))
}

// Wake brings forward the oldest message that is parked for a lock, as a worker
// does for a lock that it has released. It is for programs that take such a lock
// by themselves; call it after the release. An error does no harm: the message
// has a timer as well, of up to 30 s.
func (c *Client) Wake(ctx context.Context, lockKey string) error {
	keys := append(c.keys.parkedAt(), c.keys.line(lockKey))
	if err := c.runner.Run(ctx, c.wake, keys).Err(); err != nil {
		return fmt.Errorf("celery: wake %s: %w", lockKey, err)
	}
	return nil
}

// Wait reads the result of a task, waiting up to timeout for a final state.
// It returns what is known then: false means that no final state was seen,
// with the newest result (a RETRY for instance) or nil. A timeout of 0 or less
// looks once and leaves nothing behind.
func (c *Client) Wait(ctx context.Context, id string, timeout time.Duration) (*wire.Result, bool, error) {
	return resultstore.Wait(ctx, c.cfg.Results, c.keys.result(id), timeout)
}
