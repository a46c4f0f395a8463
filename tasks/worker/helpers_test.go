package worker_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// bench is a chain on a real Redis, and what its observers saw.
type bench struct {
	t       *testing.T
	redis   *testkit.RedisServer
	client  *redis.Client
	reg     tasks.Registry
	chain   *worker.Worker
	locks   *lockguard.Guard
	records *idempotency.Guard
	guarded *commands // what the guards have sent

	mu        sync.Mutex
	aside     []string
	runs      []worker.Run
	woken     []string
	decisions []string
}

// setup is what a test may change of a bench.
type setup struct {
	entries map[string]worker.TaskConfig
	wrap    []tasks.Middleware
	started func(worker.Run)

	withoutLock func(worker.Run)

	records  idempotency.Config
	instance string
	redis    *testkit.RedisServer // nil: one of its own
	locksAt  string               // address of the guards' store; "" is the server's
}

func newBench(t *testing.T, entries map[string]worker.TaskConfig) *bench {
	t.Helper()
	return newBenchOf(t, setup{entries: entries})
}

func newBenchOf(t *testing.T, s setup) *bench {
	t.Helper()
	b := &bench{t: t, redis: s.redis, guarded: &commands{}}
	if b.redis == nil {
		b.redis = testkit.Redis(t)
	}
	b.client = b.redis.Client(t)
	if s.locksAt == "" {
		s.locksAt = b.redis.Addr
	}
	if s.instance == "" {
		s.instance = "replica-1"
	}
	store := testkit.RedisClient(t, s.locksAt, 0)
	store.AddHook(b.guarded)
	lb, err := lockredis.New(store, lockredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b.locks, err = lockguard.New(lockguard.Config{Backend: lb, Instance: s.instance, Logger: testkit.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	if s.records.Store, err = idemredis.New(store, idemredis.Options{}); err != nil {
		t.Fatal(err)
	}
	s.records.Instance, s.records.Logger = s.instance, testkit.Logger(t)
	s.records.Observer.Decision = func(_ idempotency.Labels, d idempotency.Decision) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.decisions = append(b.decisions, string(d))
	}
	if b.records, err = idempotency.New(s.records); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = b.locks.Close(ctx)
		b.records.Close()
	})
	b.chain, err = worker.New(worker.Config{
		Registry: &b.reg, Tasks: s.entries, Logger: testkit.Logger(t), Middlewares: s.wrap,
		Locks:   map[string]*lockguard.Guard{"redis": b.locks},
		Records: map[string]*idempotency.Guard{"redis": b.records},
		Observer: worker.Observer{
			Started: s.started, WithoutLock: s.withoutLock,
			StoodAside: func(_, at string) { b.mu.Lock(); defer b.mu.Unlock(); b.aside = append(b.aside, at) },
			Finished:   func(r worker.Run, _ tasks.Outcome) { b.mu.Lock(); defer b.mu.Unlock(); b.runs = append(b.runs, r) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.chain.SetWakers(b)
	return b
}

// commands counts what a client sends, by name.
type commands struct {
	mu  sync.Mutex
	all []string
}

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(cmd)
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.note(cmds...)
		return next(ctx, cmds)
	}
}

func (c *commands) note(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range cmds {
		c.all = append(c.all, cmd.Name())
	}
}

// take returns the commands since the last take.
func (c *commands) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

// Wake implements tasks.Waker.
func (b *bench) Wake(_ context.Context, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.woken = append(b.woken, key)
}

func (b *bench) handle(name string, fn func(ctx context.Context, t *tasks.Task) (json.RawMessage, error)) {
	b.t.Helper()
	if err := b.reg.Add(name, tasks.HandlerFunc(fn)); err != nil {
		b.t.Fatal(err)
	}
}

// delivery is a message as the engine hands it over, taken now.
func (b *bench) delivery(id, name string, g *tasks.Guard, change ...func(*tasks.Delivery)) *tasks.Delivery {
	now := time.Now()
	d := &tasks.Delivery{
		Task:    &tasks.Task{ID: id, Name: name, Attempt: 1, Queue: "celery", Guard: g, Kwargs: map[string]json.RawMessage{}},
		TakenAt: now, Taken: now,
	}
	for _, c := range change {
		c(d)
	}
	return d
}

func (b *bench) run(d *tasks.Delivery) tasks.Outcome { return b.chain.Run(b.t.Context(), d) }

func lockOf(key string, busy tasks.OnBusy) *tasks.LockGuard {
	return &tasks.LockGuard{Key: key, TTLMS: 2000, OnBusy: busy}
}

func jobGuard(lock *tasks.LockGuard, record string) *tasks.Guard {
	g := &tasks.Guard{Job: "hourly", Lock: lock}
	if record != "" {
		g.Record = &tasks.RecordGuard{Key: record}
	}
	return g
}

// forget makes whatever run of the task holds the record r stale, as a takeover
// does.
func (b *bench) forget(task string) {
	b.t.Helper()
	if _, err := b.records.Store().Forget(b.t.Context(), idempotency.Key{Namespace: task, Text: "r"}, true, "test"); err != nil {
		b.t.Error(err)
	}
}

// record reads the record r of a task.
func (b *bench) record(task string) idempotency.Record {
	b.t.Helper()
	rec, _, err := b.records.Store().Peek(b.t.Context(), idempotency.Key{Namespace: task, Text: "r"})
	if err != nil {
		b.t.Fatal(err)
	}
	return rec
}

// hold takes a lock as another task.
func (b *bench) hold(key, taskID string) *lockguard.Handle {
	b.t.Helper()
	other, err := lockredis.New(b.client, lockredis.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	g, err := lockguard.New(lockguard.Config{Backend: other, Instance: "replica-2"})
	if err != nil {
		b.t.Fatal(err)
	}
	h, err := g.TryAcquire(context.Background(), key, lockguard.WithTTL(30*time.Second), lockguard.WithTaskID(taskID))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_, _ = h.Release(context.Background())
		_ = g.Close(context.Background())
	})
	return h
}

func redelivered(d *tasks.Delivery) { d.Task.Redelivered = true }

func attempt(n int) func(*tasks.Delivery) { return func(d *tasks.Delivery) { d.Task.Attempt = n } }

func zAt(at time.Time, member string) redis.Z {
	return redis.Z{Score: float64(at.UnixMicro()), Member: member}
}
