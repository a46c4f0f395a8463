package celery

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// rig is one Redis with a client of it, for tests that start engines.
type rig struct {
	t      *testing.T
	addr   string
	rdb    *redis.Client
	client *Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	srv := testkit.Redis(t)
	return rigAt(t, srv.Addr)
}

func rigAt(t *testing.T, addr string) *rig {
	t.Helper()
	rdb := testkit.RedisClient(t, addr, 0)
	return &rig{t: t, addr: addr, rdb: rdb, client: NewClient(ClientConfig{Broker: rdb})}
}

// worker is an engine that runs; its test ends it.
type worker struct {
	*Engine
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

// fast shortens the times that a test would wait for. The ratios stay.
func fast(e *Engine) {
	e.tune.beat, e.tune.beatRetry = 300*time.Millisecond, 100*time.Millisecond
	e.tune.sweep = time.Second
	e.tune.beatTTL, e.tune.stallQuiet, e.tune.freshQuiet = 2*time.Second, 3*time.Second, 0
	e.tune.stallAge = time.Second
	e.tune.exit = time.Second
	e.tune.wait = time.Second
}

func (r *rig) engine(cfg Config, tune func(*Engine)) *Engine {
	r.t.Helper()
	if cfg.Broker == nil {
		cfg.Broker = testkit.RedisClient(r.t, r.addr, 0)
	}
	if cfg.Logger == nil {
		cfg.Logger = testkit.Logger(r.t)
	}
	e, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if tune != nil {
		tune(e)
	}
	return e
}

func (r *rig) start(cfg Config, tune func(*Engine), run tasks.Runner) *worker {
	r.t.Helper()
	e := r.engine(cfg, tune)
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{Engine: e, t: r.t, cancel: cancel, done: make(chan error, 1)}
	go func() { w.done <- e.Run(ctx, run) }()
	r.t.Cleanup(func() { _ = w.stop() })
	return w
}

// stop ends the worker in order and returns what Run said.
func (w *worker) stop() error {
	w.once.Do(func() {
		w.cancel()
		select {
		case w.err = <-w.done:
		case <-time.After(40 * time.Second):
			w.err = errors.New("Run did not return")
			w.t.Error(w.err)
		}
	})
	return w.err
}

func (r *rig) enqueue(name string, opts ...tasks.Option) string {
	r.t.Helper()
	id, err := r.client.Enqueue(context.Background(), name, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// prepare makes a message without sending it, and names its list.
func (r *rig) prepare(task string) (list, msg string) {
	r.t.Helper()
	req, err := tasks.NewRequest(task)
	if err != nil {
		r.t.Fatal(err)
	}
	list, raw, err := r.client.Prepare(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return list, string(raw)
}

// wait waits for a final state.
func (r *rig) wait(id string, timeout time.Duration) *wire.Result {
	r.t.Helper()
	res, ok, err := r.client.Wait(context.Background(), id, timeout)
	if err != nil {
		r.t.Fatal(err)
	}
	if !ok {
		r.t.Fatalf("no final result of %s within %v (have %+v)", id, timeout, res)
	}
	return res
}

func (r *rig) number(cmd *redis.IntCmd) int64 {
	r.t.Helper()
	n, err := cmd.Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// empty waits until nothing is left in unacked, its index and the registries
// of takes.
func (r *rig) empty() {
	r.t.Helper()
	ctx := context.Background()
	k := keys{namespace: tasks.DefaultNamespace}
	testkit.Eventually(r.t, 10*time.Second, func() error {
		for _, n := range []struct {
			name string
			n    int64
		}{
			{"unacked", r.number(r.rdb.HLen(ctx, k.unacked()))},
			{"unacked_index", r.number(r.rdb.ZCard(ctx, k.index()))},
			{"parked", r.number(r.rdb.ZCard(ctx, k.parked()))},
			{"park info", r.number(r.rdb.HLen(ctx, k.parkInfo()))},
			{"buried", r.number(r.rdb.ZCard(ctx, k.buried()))},
		} {
			if n.n != 0 {
				return errors.New(n.name + " is not empty")
			}
		}
		inflight, err := r.rdb.Keys(ctx, k.own("inflight:*")).Result()
		if err == nil && len(inflight) > 0 {
			err = errors.New("in-flight lists are not empty")
		}
		return err
	})
}

// witness counts runs outside the engine.
type witness struct {
	mu   sync.Mutex
	runs map[string]int
	all  []string
}

func newWitness() *witness { return &witness{runs: map[string]int{}} }

func (w *witness) saw(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[id]++
	w.all = append(w.all, id)
}

func (w *witness) of(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id]
}

func (w *witness) distinct() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs)
}

func (w *witness) order() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.all...)
}

// runner succeeds at once with null.
func (w *witness) runner() tasks.Runner {
	return func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		w.saw(d.Task.ID)
		return succeed("null")
	}
}

// judged ends what has expired before it begins, as the chain does.
func judged(run tasks.Runner) tasks.Runner {
	return func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		switch e := d.Task.Expires; {
		case e.IsZero() || d.Begun() || d.StoreNow().Before(e):
			return run(ctx, d)
		case d.FirstPark.IsZero():
			return tasks.Outcome{Kind: tasks.Revoked, Reason: "expired"}
		default:
			return tasks.Outcome{Kind: tasks.Failed, Err: &tasks.Exception{Type: "LockBusy"}, Reason: "LockBusy"}
		}
	}
}

func succeed(result string) tasks.Outcome {
	return tasks.Outcome{Kind: tasks.Succeeded, Result: json.RawMessage(result)}
}

func zMember(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
