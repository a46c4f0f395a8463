package celery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// far is a rig whose results are on a server of their own.
type far struct {
	*rig
	results *testkit.RedisServer
	store   *redis.Client
}

func newFar(t *testing.T) *far {
	t.Helper()
	r := newRig(t)
	results := testkit.Redis(t)
	store := results.ClientDB(t, 2)
	r.client = NewClient(ClientConfig{Broker: r.rdb, Results: store})
	return &far{rig: r, results: results, store: store}
}

func (r *far) config(cfg Config) Config {
	cfg.Results = r.results.ClientDB(r.t, 2)
	return cfg
}

// careless sends a task whose sender wants no result.
func (r *rig) careless(name string) string {
	r.t.Helper()
	req, err := tasks.NewRequest(name)
	if err != nil {
		r.t.Fatal(err)
	}
	list, raw, err := r.client.Prepare(req)
	if err == nil {
		raw, err = wire.SetHeaders(raw, map[string]json.RawMessage{"ignore_result": json.RawMessage("true")})
	}
	if err == nil {
		err = r.rdb.LPush(r.t.Context(), list, raw).Err()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return req.ID
}

// Every kind of end is read on the results' server, none on the broker.
func TestResultsOnAnotherServer(t *testing.T) {
	t.Parallel()
	r := newFar(t)
	var tries atomic.Int64
	run := func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		switch d.Task.Name {
		case "bad":
			return tasks.Outcome{Kind: tasks.Failed, Err: errors.New("no")}
		case "again":
			if tries.Add(1) == 1 {
				return tasks.Outcome{Kind: tasks.Retried, Err: errors.New("not yet")}
			}
		}
		return succeed(`"done"`)
	}
	e := r.start(r.config(Config{
		Concurrency: 2, Registered: func(task string) bool { return task != "unknown" }, AckEarly: func(task string) bool { return task == "early" },
	}), fast, run)
	if err := e.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"good": wire.StateSuccess, "early": wire.StateSuccess, "bad": wire.StateFailure, "again": wire.StateSuccess, "unknown": wire.StateFailure,
	} {
		id := r.enqueue(name)
		if res := r.wait(id, 10*time.Second); res.State != want {
			t.Errorf("%s: %s, want %s", name, res.State, want)
		}
	}
	r.empty()
	if keys := r.rdb.Keys(t.Context(), "*celery-task-meta*").Val(); len(keys) > 0 {
		t.Errorf("results on the broker: %q", keys)
	}
	if ttl := r.store.TTL(t.Context(), r.store.Keys(t.Context(), "*").Val()[0]).Val(); ttl < 23*time.Hour || ttl > 24*time.Hour {
		t.Errorf("a result is kept for %s", ttl)
	}
}

// While the results' server is away nothing is acked without its result, and
// what needs none goes on, though more messages wait than there are slots.
func TestResultsServerIsAway(t *testing.T) {
	t.Parallel()
	r := newFar(t)
	w := newWitness()
	r.start(r.config(Config{Concurrency: 2}), fast, w.runner())
	r.wait(r.enqueue("warm"), 10*time.Second)
	r.results.Stop()
	var ids []string
	for range 20 {
		ids = append(ids, r.enqueue("t"))
	}
	for range 20 {
		r.careless("free")
	}
	testkit.Poll(t, 20*time.Second, 10*time.Millisecond, func() bool {
		return w.distinct() == 41 && r.number(r.rdb.HLen(t.Context(), wire.UnackedKey)) == 20
	}, "all run; those with a result are not acked")
	r.results.Restart()
	for _, id := range ids {
		if res := r.wait(id, 20*time.Second); res.State != wire.StateSuccess {
			t.Errorf("%s: %s", id, res.State)
		}
		if n := w.of(id); n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	r.empty()
}

// However many wait for the results' server, no more than the bound are held.
func TestUnstoredAreBounded(t *testing.T) {
	t.Parallel()
	r := newFar(t)
	e := r.engine(r.config(Config{}), nil)
	l := newLoop(t.Context(), t.Context(), e, &replica{})
	for i := range maxUnstored + 50 {
		e.held.add([]*item{{tag: fmt.Sprint(i)}})
		e.elsewhere.waiting.Add(1)
		if free := l.free(); i < maxUnstored && free != 1 || i > maxUnstored && free > 0 {
			t.Fatalf("%d wait: %d may be taken", i+1, free)
		}
	}
}

// A run that ends when its message has been taken over writes nothing; nor does
// a late one replace a SUCCESS.
func TestLateResultsElsewhere(t *testing.T) {
	t.Parallel()
	r := newFar(t)
	entered, leave := make(chan string, 2), make(chan struct{})
	var late atomic.Int64
	r.start(r.config(Config{Concurrency: 2, Observer: Observer{LateCommit: func(string, string) { late.Add(1) }}}), fast,
		func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
			entered <- d.Task.ID
			<-leave
			return tasks.Outcome{Kind: tasks.Failed, Err: errors.New("late")}
		})
	gone, done := r.enqueue("gone"), r.enqueue("done")
	<-entered
	<-entered
	const success = `{"status": "SUCCESS", "result": "the other's", "traceback": null, "children": []}`
	r.store.Set(t.Context(), wire.ResultKey(done), success, 0)
	for tag, v := range r.rdb.HGetAll(t.Context(), wire.UnackedKey).Val() {
		if strings.Contains(v, gone) {
			r.rdb.HDel(t.Context(), wire.UnackedKey, tag)
		}
	}
	close(leave)
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return late.Load() == 1 && r.rdb.HLen(t.Context(), wire.UnackedKey).Val() == 0 }, "one is late, the other acked")
	if got := r.store.Get(t.Context(), wire.ResultKey(done)).Val(); got != success {
		t.Errorf("a SUCCESS was replaced by %s", got)
	}
	if n := r.store.Exists(t.Context(), wire.ResultKey(gone)).Val(); n != 0 {
		t.Error("a result was written for a message of another")
	}
}

// A dead replica held a message that has killed often enough, while the
// results' server is away: its neighbours come back at once, the condemned one
// when its FAILURE can be written.
func TestTakeoverWithoutTheResultsServer(t *testing.T) {
	t.Parallel()
	r := newFar(t)
	e := r.engine(r.config(Config{}), nil)
	r.results.Stop()
	dead := NewInstance()
	killer := r.held(e, dead, 1, 2)
	neighbour := r.held(e, dead, 2, 0)
	r.rdb.ZAdd(t.Context(), e.keys.buried(), zMember(1, dead))
	r.rdb.HSet(t.Context(), e.keys.entry(dead), "node", "dead@host", "suspect", e.keys.tag(dead, 1, 0))
	w := newWitness()
	r.start(r.config(Config{}), fast, w.runner())
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return w.of(neighbour) == 1 }, "the neighbour runs")
	if n := r.rdb.XLen(t.Context(), e.keys.dead(DefaultQueue)).Val(); n != 0 {
		t.Error("a dead letter without its result")
	}
	r.results.Restart()
	if res := r.wait(killer, 20*time.Second); res.Exception == nil || res.Exception.Type != "WorkerLostError" || w.of(killer) != 0 {
		t.Errorf("%+v after %d runs", res, w.of(killer))
	}
	r.empty()
}

// held puts a message into unacked as a replica has it.
func (r *rig) held(e *Engine, instance string, n int64, deaths int) string {
	r.t.Helper()
	req, err := tasks.NewRequest("t")
	if err != nil {
		r.t.Fatal(err)
	}
	_, raw, err := r.client.Prepare(req)
	if err == nil && deaths > 0 {
		raw, err = wire.Redeliver(raw, deaths)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	tag := e.keys.tag(instance, n, 0)
	r.rdb.HSet(r.t.Context(), e.keys.unacked(), tag, "["+string(raw)+e.sources[0].suffix)
	r.rdb.ZAdd(r.t.Context(), e.keys.index(), zMember(float64(time.Now().Add(time.Minute).Unix()), tag))
	return req.ID
}

// A broker's user that may not SELECT: results in another database of the same
// server, which another user may write, count as on another server. That user's
// own refusals are found at the start.
func TestSelectRefusedCountsAsAnotherServer(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	r := rigAt(t, srv.Addr)
	user := func(db int, name string, rules ...string) *redis.Client {
		args := append([]any{"acl", "setuser", name, "reset", "on", ">p", "~*", "&*", "+@all"}, toAny(rules)...)
		if err := r.rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		c := testkit.RedisClient(t, srv.Addr, db)
		c.Options().Username, c.Options().Password = name, "p"
		return c
	}
	broker := func() *redis.Client { return user(0, "broker", "-select") }
	for denied, want := range map[string]string{"-set": "+set", "-publish": "+publish", "-evalsha": "+evalsha", "-get": "+get", "-select": "+select"} {
		err := r.engine(Config{Broker: broker(), Results: user(1, "r", denied)}, nil).Probe(t.Context())
		if !errors.Is(err, ErrProbe) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", denied, err)
		}
	}
	cfg := Config{Broker: broker(), Results: user(1, "results")}
	e := r.engine(cfg, fast)
	if err := e.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, newWitness().runner()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r.client = NewClient(ClientConfig{Broker: r.rdb, Results: testkit.RedisClient(t, srv.Addr, 1)})
	if res := r.wait(r.enqueue("t"), 10*time.Second); res.State != wire.StateSuccess {
		t.Error(res.State)
	}
	r.empty()
}
