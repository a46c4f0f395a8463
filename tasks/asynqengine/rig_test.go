package asynqengine

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
	"github.com/solobeat/solobeat/tasks/worker"
)

// rig is one Redis with a client of the engine and asynq's own inspector.
type rig struct {
	t       *testing.T
	server  *testkit.RedisServer
	addr    string
	rdb     redis.UniversalClient
	client  *Client
	inspect *asynq.Inspector
	reg     tasks.Registry
}

func newRig(t *testing.T) *rig {
	t.Helper()
	server := testkit.Redis(t)
	r := rigOn(t, server.Client(t))
	r.server, r.addr = server, server.Addr
	return r
}

func rigOn(t *testing.T, rdb redis.UniversalClient) *rig {
	t.Helper()
	return &rig{
		t: t, rdb: rdb, client: NewClient(ClientConfig{Client: rdb}), inspect: asynq.NewInspectorFromRedisClient(rdb),
	}
}

// replica is an engine with a chain on it; its test ends it.
type replica struct {
	*Engine
	t       *testing.T
	chain   *worker.Worker
	locks   *lockguard.Guard
	records *idempotency.Guard
	cancel  context.CancelFunc
	done    chan error
	once    sync.Once
	err     error
}

// setup is what a test may change of a replica.
type setup struct {
	cfg     Config
	entries map[string]worker.TaskConfig
	tune    func(*tuning)
	observe worker.Observer
	// client is the replica's own; nil is one of the rig's server.
	client redis.UniversalClient
	// guards is the store of locks and records; nil is client.
	guards redis.UniversalClient
	// runner wraps the chain.
	runner func(tasks.Runner) tasks.Runner
}

// fast shortens the times that a test would wait for.
func fast(t *tuning) {
	t.check, t.forward, t.janitor, t.exit = 10*time.Millisecond, 50*time.Millisecond, 500*time.Millisecond, time.Second
	t.patience = 10 * time.Second
}

func (r *rig) start(s setup) *replica {
	r.t.Helper()
	rep := r.prepare(s)
	ctx, cancel := context.WithCancel(context.Background())
	rep.cancel, rep.done = cancel, make(chan error, 1)
	run := tasks.Runner(rep.chain.Run)
	if s.runner != nil {
		run = s.runner(run)
	}
	go func() { rep.done <- rep.Run(ctx, run) }()
	r.t.Cleanup(func() { _ = rep.stop() })
	return rep
}

func (r *rig) prepare(s setup) *replica {
	r.t.Helper()
	t := r.t
	rdb := s.client
	if rdb == nil && r.addr != "" {
		rdb = testkit.RedisClient(t, r.addr, 0)
	} else if rdb == nil {
		rdb = r.rdb
	}
	rep := &replica{t: t}
	if s.guards == nil {
		s.guards = rdb
	}
	lb, err := lockredis.New(s.guards, lockredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rep.locks, err = lockguard.New(lockguard.Config{Backend: lb, Instance: wire.NewID(), Logger: testkit.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	store, err := idemredis.New(s.guards, idemredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rep.records, err = idempotency.New(idempotency.Config{Store: store, Instance: wire.NewID(), Logger: testkit.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	s.cfg.Client = rdb
	if s.cfg.Logger == nil {
		s.cfg.Logger = testkit.Logger(t)
	}
	s.cfg.AfterPark = func(ctx context.Context, p tasks.Park) bool { return rep.chain.Free(ctx, p) }
	if rep.Engine, err = New(s.cfg); err != nil {
		t.Fatal(err)
	}
	fast(&rep.tune)
	if s.tune != nil {
		s.tune(&rep.tune)
	}
	rep.chain, err = worker.New(worker.Config{
		Registry: &r.reg, Tasks: s.entries, Logger: testkit.Logger(t), Observer: s.observe,
		Locks:       map[string]*lockguard.Guard{"redis": rep.locks},
		Records:     map[string]*idempotency.Guard{"redis": rep.records},
		Middlewares: []tasks.Middleware{rep.Middleware()},
	})
	if err != nil {
		t.Fatal(err)
	}
	rep.chain.SetWakers(rep.Engine)
	return rep
}

// stop ends the replica in order and returns what Run said.
func (rep *replica) stop() error {
	rep.once.Do(func() {
		rep.cancel()
		select {
		case rep.err = <-rep.done:
		case <-time.After(60 * time.Second):
			rep.err = errors.New("Run did not return")
			rep.t.Error(rep.err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = rep.locks.Close(ctx)
		rep.records.Close()
	})
	return rep.err
}

func (r *rig) handle(name string, fn func(ctx context.Context, t *tasks.Task) (any, error)) {
	r.t.Helper()
	err := r.reg.Add(name, tasks.HandlerFunc(func(ctx context.Context, t *tasks.Task) (json.RawMessage, error) {
		v, err := fn(ctx, t)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	}))
	if err != nil {
		r.t.Fatal(err)
	}
}

// send enqueues a task, with a guard if there is one.
func (r *rig) send(name string, g *tasks.Guard, opts ...tasks.Option) string {
	r.t.Helper()
	if g != nil {
		opts = append(opts, func(req *tasks.Request) error { req.Guard = g; return nil })
	}
	id, err := r.client.Enqueue(r.t.Context(), name, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// wait waits for a final result.
func (r *rig) wait(id string) *wire.Result {
	r.t.Helper()
	return r.waitFor(id, 20*time.Second)
}

func (r *rig) waitFor(id string, d time.Duration) *wire.Result {
	r.t.Helper()
	res, ok, err := r.client.Wait(r.t.Context(), id, d)
	if err != nil || !ok {
		r.t.Fatalf("no final result of %s (have %+v): %v", id, res, err)
	}
	return res
}

// state is asynq's own state of a task, "" if it is gone.
func (r *rig) state(id string) string {
	r.t.Helper()
	info, err := r.inspect.GetTaskInfo(DefaultQueue, id)
	switch {
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		return ""
	case err != nil:
		r.t.Fatal(err)
	}
	return info.State.String()
}

// becomes waits for asynq's state of a task.
func (r *rig) becomes(id, want string) {
	r.t.Helper()
	testkit.Poll(r.t, 20*time.Second, 10*time.Millisecond, func() bool { return r.state(id) == want }, "%s is %q, not %q", id, r.state(id), want)
}

// hold takes a lock as another task.
func (r *rig) hold(key, taskID string) *lockguard.Handle {
	r.t.Helper()
	return holdOn(r.t, r.rdb, key, taskID)
}

func holdOn(t *testing.T, rdb redis.UniversalClient, key, taskID string) *lockguard.Handle {
	t.Helper()
	b, err := lockredis.New(rdb, lockredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := lockguard.New(lockguard.Config{Backend: b, Instance: "other"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := g.TryAcquire(context.Background(), key, lockguard.WithTTL(60*time.Second), lockguard.WithTaskID(taskID))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = h.Release(context.Background())
		_ = g.Close(context.Background())
	})
	return h
}

func lockOf(key string, busy tasks.OnBusy) *tasks.Guard {
	return &tasks.Guard{Lock: &tasks.LockGuard{Key: key, TTLMS: 3000, OnBusy: busy}}
}

func recordOf(key string) *tasks.Guard {
	return &tasks.Guard{Record: &tasks.RecordGuard{Key: key}}
}

// witness counts runs outside the engine.
type witness struct {
	mu   sync.Mutex
	runs map[string]int
	seen []tasks.Task
}

func (w *witness) saw(t *tasks.Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs == nil {
		w.runs = map[string]int{}
	}
	w.runs[t.ID]++
	w.seen = append(w.seen, *t)
}

func (w *witness) of(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id]
}

func (w *witness) all() []tasks.Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]tasks.Task(nil), w.seen...)
}
