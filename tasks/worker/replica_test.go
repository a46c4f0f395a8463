package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// replica is a chain on a real engine.
type replica struct {
	*bench
	engine *celery.Engine
	sender *celery.Client
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error

	mu     sync.Mutex
	parked []string // reasons, as the engine told them
}

func newReplica(t *testing.T, s setup, change func(*celery.Config)) *replica {
	t.Helper()
	b := newBenchOf(t, s)
	r := &replica{bench: b, sender: celery.NewClient(celery.ClientConfig{Broker: b.client}), done: make(chan error, 1)}
	cfg := celery.Config{
		Broker: testkit.RedisClient(t, b.redis.Addr, 0), Concurrency: 4, Unlocks: s.locksAt == "", Logger: testkit.Logger(t), AfterPark: b.chain.Free,
		Registered: func(task string) bool { _, ok := b.reg.Lookup(task); return ok },
		Observer: celery.Observer{Parked: func(_, reason string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.parked = append(r.parked, reason)
		}},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.engine, err = celery.New(cfg); err != nil {
		t.Fatal(err)
	}
	b.chain.SetWakers(r.engine)
	return r
}

// start takes messages; handlers must be there by now.
func (r *replica) start() *replica {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.done <- r.engine.Run(ctx, r.chain.Run) }()
	r.t.Cleanup(func() { _ = r.stop() })
	return r
}

func (r *replica) stop() error {
	r.once.Do(func() {
		r.cancel()
		select {
		case r.err = <-r.done:
		case <-time.After(40 * time.Second):
			r.t.Error("the engine did not return")
		}
	})
	return r.err
}

func withGuard(g *tasks.Guard) tasks.Option {
	return func(r *tasks.Request) error { r.Guard = g; return nil }
}

func (r *replica) send(name, id string, opts ...tasks.Option) {
	r.t.Helper()
	if _, err := r.sender.Enqueue(context.Background(), name, append(opts, tasks.WithID(id))...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) result(id string, timeout time.Duration) *wire.Result {
	r.t.Helper()
	res, final, err := r.sender.Wait(context.Background(), id, timeout)
	if err != nil {
		r.t.Fatal(err)
	}
	if !final {
		r.t.Fatalf("no final result of %s within %v (have %+v)", id, timeout, res)
	}
	return res
}

func line(key string) string { return "solobeat:default:line:" + key }

// inLine waits until n messages are parked for the key.
func (r *replica) inLine(key string, n int) {
	r.t.Helper()
	testkit.Eventually(r.t, 20*time.Second, func() error {
		if got := r.client.ZCard(context.Background(), line(key)).Val(); got != int64(n) {
			return fmt.Errorf("%d of %d messages stand in line", got, n)
		}
		return nil
	})
}

// scripts is the number of scripts that the server has run.
func (b *bench) scripts() int {
	b.t.Helper()
	text, err := b.client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.t.Fatal(err)
	}
	n := 0
	for _, name := range []string{"evalsha", "eval"} {
		if _, rest, ok := strings.Cut(text, "cmdstat_"+name+":calls="); ok {
			calls, err := strconv.Atoi(rest[:strings.IndexByte(rest, ',')])
			if err != nil {
				b.t.Fatal(err)
			}
			n += calls
		}
	}
	return n
}

// idle waits until no message is left anywhere.
func (r *replica) idle() {
	r.t.Helper()
	testkit.Eventually(r.t, 10*time.Second, func() error {
		for _, key := range []string{"celery", "unacked", "unacked_index", "solobeat:default:parked", "solobeat:default:park"} {
			if r.client.Exists(context.Background(), key).Val() != 0 {
				return errors.New(key + " is not empty")
			}
		}
		return nil
	})
}
