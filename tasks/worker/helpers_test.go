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
	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// bench is a chain on a real Redis, and what its observers saw.
type bench struct {
	t      *testing.T
	redis  *testkit.RedisServer
	client *redis.Client
	reg    tasks.Registry
	chain  *worker.Worker
	locks  *lockguard.Guard

	mu    sync.Mutex
	aside []string
	runs  []worker.Run
	woken []string
}

func newBench(t *testing.T, entries map[string]worker.TaskConfig) *bench {
	t.Helper()
	b := &bench{t: t, redis: testkit.Redis(t)}
	b.client = b.redis.Client(t)
	lb, err := lockredis.New(b.client, lockredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b.locks, err = lockguard.New(lockguard.Config{Backend: lb, Instance: "replica-1", Logger: testkit.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	st, err := idemredis.New(b.client, idemredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	records, err := idempotency.New(idempotency.Config{Store: st, Instance: "replica-1", Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = b.locks.Close(ctx)
		records.Close()
	})
	b.chain, err = worker.New(worker.Config{
		Registry: &b.reg, Tasks: entries, Logger: testkit.Logger(t),
		Locks:   map[string]*lockguard.Guard{"redis": b.locks},
		Records: map[string]*idempotency.Guard{"redis": records},
		Observer: worker.Observer{
			StoodAside: func(_, at string) { b.mu.Lock(); defer b.mu.Unlock(); b.aside = append(b.aside, at) },
			Finished:   func(r worker.Run, _ tasks.Outcome) { b.mu.Lock(); defer b.mu.Unlock(); b.runs = append(b.runs, r) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.chain.SetWaker(b)
	return b
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

func mustKey(t *testing.T, text string) *render.Template {
	t.Helper()
	k, err := render.Parse("key", text, render.Key)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// forget makes whatever run holds the record stale, as a takeover does.
func (b *bench) forget(string) {
	b.t.Helper()
	st, err := idemredis.New(b.client, idemredis.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := st.Forget(b.t.Context(), idempotency.Key{Namespace: "report", Text: "r"}, true, "test"); err != nil {
		b.t.Fatal(err)
	}
}
