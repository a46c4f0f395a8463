package celery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

func TestClientSendsWhatWorkersRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	c := NewClient(ClientConfig{Broker: r.rdb, KeyPrefix: "kp:", Queue: "reports"})
	at := time.Now().Add(time.Hour)
	id, err := c.Enqueue(ctx, "t.send", tasks.WithArgs(1, "é"), tasks.WithKwargs(map[string]any{"n": 1e300}),
		tasks.WithPriority(4), tasks.WithExpires(at), tasks.WithHeaders(map[string]any{"tenant": "x"}), tasks.WithRetries(tasks.RetryPolicy{Max: 2}))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := r.rdb.LPop(ctx, "kp:reports\x06\x163").Result()
	if err != nil {
		t.Fatal(err)
	}
	m, err := wire.Decode([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	g, err := tasks.DecodeGuard(m.Headers[wire.HeaderGuard])
	if err != nil || g.Retries == nil || g.Retries.Max != 2 {
		t.Errorf("guard %+v %v", g, err)
	}
	if m.ID != id || m.Task != "t.send" || m.Priority != 4 || m.RoutingKey != "reports" || string(m.Headers["tenant"]) != `"x"` ||
		m.Expires.Sub(at).Abs() > time.Millisecond || string(m.Args[1]) != `"\u00e9"` {
		t.Errorf("%+v", m)
	}
	for _, set := range []string{"kp:_kombu.binding.reports", "kp:_kombu.binding_permanent.reports"} {
		if members, err := r.rdb.SMembers(ctx, set).Result(); err != nil || cmp.Diff([]string{"reports\x06\x16\x06\x16reports"}, members) != "" {
			t.Errorf("%s: %q %v", set, members, err)
		}
	}
	// No arguments: empty, never null.
	if _, err := c.Enqueue(ctx, "t.none"); err != nil {
		t.Fatal(err)
	}
	raw, err = r.rdb.LPop(ctx, "kp:reports").Result()
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ Body []byte }
	if err := json.Unmarshal([]byte(raw), &e); err != nil || !strings.HasPrefix(string(e.Body), `[[], {}, {`) {
		t.Errorf("body %s %v", e.Body, err)
	}
	if _, err := c.Enqueue(ctx, "bad name"); !errors.Is(err, tasks.ErrBadName) {
		t.Error(err)
	}
}

func TestR04_WaitersSurviveALostSubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	const n = 20
	var wg sync.WaitGroup
	var got atomic.Int64
	for i := range n {
		wg.Go(func() {
			res, ok, err := r.client.Wait(ctx, fmt.Sprint("r04-", i), 8*time.Second)
			if err != nil || !ok || string(res.Value) != "42" {
				t.Errorf("waiter %d: %+v %v %v", i, res, ok, err)
				return
			}
			got.Add(1)
		})
	}
	pubsubs := func() int64 {
		n, err := r.rdb.PubSubNumSub(ctx, wire.ResultKey("r04-0"), wire.ResultKey("r04-19")).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n[wire.ResultKey("r04-0")] + n[wire.ResultKey("r04-19")]
	}
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return pubsubs() == 2 }, "all subscribed")
	if err := r.rdb.Do(ctx, "client", "kill", "type", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	r.start(Config{Concurrency: 4}, nil, func(context.Context, *tasks.Delivery) tasks.Outcome { return succeed("42") })
	for i := range n {
		r.enqueue("t.r04", tasks.WithID(fmt.Sprint("r04-", i)))
	}
	wg.Wait()
	if got.Load() != n {
		t.Errorf("%d of %d returned", got.Load(), n)
	}
}

// The bytes on the channel are those of the key, and the key is there first.
func TestR04_KeyBeforeChannel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	sub := r.rdb.PSubscribe(ctx, "celery-task-meta-*")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	r.start(Config{}, nil, newWitness().runner())
	for range 20 {
		r.enqueue("t.r04")
		m, err := sub.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := r.rdb.Get(ctx, m.Channel).Result(); err != nil || v != m.Payload {
			t.Errorf("key %q (%v), channel %q", v, err, m.Payload)
		}
	}
}

func TestR08_DateDone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	r.start(Config{}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		switch d.Task.Name {
		case "t.fail":
			return tasks.Outcome{Kind: tasks.Failed, Err: errors.New("no")}
		case "t.retry":
			return tasks.Outcome{Kind: tasks.Retried, After: time.Hour, Err: errors.New("later")}
		case "t.revoke":
			return tasks.Outcome{Kind: tasks.Revoked, Reason: "missed"}
		}
		return succeed("1")
	})
	for name, state := range map[string]string{"t.ok": wire.StateSuccess, "t.fail": wire.StateFailure, "t.retry": wire.StateRetry, "t.revoke": wire.StateRevoked} {
		id := r.enqueue(name)
		var meta map[string]any
		testkit.Eventually(t, 5*time.Second, func() error {
			b, err := r.rdb.Get(ctx, wire.ResultKey(id)).Bytes()
			if err != nil {
				return err
			}
			return json.Unmarshal(b, &meta)
		})
		if meta["status"] != state {
			t.Errorf("%s: %v", name, meta["status"])
		}
		text, _ := meta["date_done"].(string)
		if state == wire.StateRetry {
			if meta["date_done"] != nil {
				t.Errorf("RETRY has date_done %v", meta["date_done"])
			}
			continue
		}
		at, err := time.Parse("2006-01-02T15:04:05.000000+00:00", text)
		if err != nil || time.Since(at).Abs() > time.Minute {
			t.Errorf("%s: date_done %q: %v", name, text, err)
		}
	}
}

func TestR09_ZeroTimeoutPollsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	begin := time.Now()
	if res, ok, err := r.client.Wait(ctx, "unfinished", 0); res != nil || ok || err != nil {
		t.Errorf("%v %v %v", res, ok, err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v", took)
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for i := range 100 {
				short, cancel := context.WithTimeout(ctx, time.Duration(i%5)*time.Millisecond)
				_, _, _ = r.client.Wait(short, "unfinished", time.Minute)
				cancel()
			}
		})
	}
	wg.Wait()
	testkit.Eventually(t, 5*time.Second, func() error {
		list, err := r.rdb.Do(ctx, "client", "list", "type", "pubsub").Text()
		if err == nil && strings.TrimSpace(list) != "" {
			err = errors.New("left over: " + list)
		}
		return err
	})
	// A final result that is there already is returned at once.
	r.start(Config{}, nil, newWitness().runner())
	id := r.enqueue("t.ok")
	r.wait(id, 5*time.Second)
	if _, ok, err := r.client.Wait(ctx, id, 0); !ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
}

func TestM08_EmptyQueuesAreZero(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.admin("never-used", "celery")
	want := &Depths{Queues: []QueueDepth{{Queue: "never-used"}, {Queue: "celery"}}}
	check := func() {
		t.Helper()
		got, err := a.Depths(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	check()
	r.fill(20)
	want.Queues[1].Waiting = 20 // over all four lists
	check()
	r.start(Config{}, nil, newWitness().runner())
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { d, err := a.Depths(context.Background()); return err == nil && d.Queues[1].Waiting == 0 }, "drained")
	r.empty()
	want.Queues[1].Waiting = 0
	check()
	if d, err := a.DeadLetters(context.Background(), 0); err != nil || d == nil || len(d) != 0 {
		t.Errorf("%v %v", d, err)
	}
	if _, err := a.DeadLetter(context.Background(), "celery", "1-1"); !errors.Is(err, ErrNoDeadLetter) {
		t.Error(err)
	}
	if _, err := a.DeadLetter(context.Background(), "celery", "bad id"); !errors.Is(err, ErrNoDeadLetter) {
		t.Error(err)
	}
}

func TestM11_BrokerUpGoesDownAndUp(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	r := rigAt(t, srv.Addr)
	ups := make(chan bool, 100)
	var reconnects atomic.Int64
	up := func(up bool) {
		select {
		case ups <- up:
		default: // it is told again; an observer that blocks would keep the engine from ending
		}
	}
	r.start(Config{Observer: Observer{BrokerUp: up, Reconnect: func() { reconnects.Add(1) }}}, fast, newWitness().runner())
	next := func(want bool) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			select {
			case up := <-ups:
				if up == want {
					return
				}
			case <-deadline:
				t.Fatalf("not told that it is up: %v", want)
			}
		}
	}
	next(true)
	srv.Stop()
	next(false)
	for range 3 { // told again and again, so that no gauge is stale
		next(false)
	}
	srv.Restart()
	next(true)
	r.wait(r.enqueue("t.ok"), 5*time.Second) // consumes again, in a new registry
	if reconnects.Load() != 1 {
		t.Errorf("%d reconnects", reconnects.Load())
	}
}

func TestEventsTellThatTheWorkerIsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	sub := r.rdb.PSubscribe(ctx, "kp:/0.celeryev/worker.*")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	w := r.start(Config{KeyPrefix: "kp:", NodeName: "w@h"}, func(e *Engine) { e.tune.event = 50 * time.Millisecond }, newWitness().runner())
	for _, want := range []string{"worker.online", "worker.heartbeat", "worker.heartbeat"} {
		m, err := sub.ReceiveMessage(ctx)
		if err != nil || m.Channel != "kp:/0.celeryev/"+want || !strings.Contains(m.Payload, `"hostname": "w@h"`) {
			t.Errorf("%v %v", m, err)
		}
	}
	_ = w.stop()
	for {
		m, err := sub.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Channel == "kp:/0.celeryev/worker.offline" {
			return
		}
	}
}

func TestResultsInAnotherDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	one := testkit.RedisClient(t, r.addr, 1)
	e := r.engine(Config{Results: one, ResultsKeyPrefix: "pre_", KeyPrefix: "kp:"}, nil)
	if err := e.Probe(ctx); err != nil {
		t.Fatal(err)
	}
	r.start(Config{Results: one, ResultsKeyPrefix: "pre_", KeyPrefix: "kp:", Registered: func(n string) bool { return n == "t.ok" }}, nil, newWitness().runner())
	c := NewClient(ClientConfig{Broker: r.rdb, Results: one, KeyPrefix: "kp:", ResultsKeyPrefix: "pre_"})
	for name, state := range map[string]string{"t.ok": wire.StateSuccess, "t.unknown": wire.StateFailure} {
		id, err := c.Enqueue(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		res, ok, err := c.Wait(ctx, id, 5*time.Second)
		if err != nil || !ok || res.State != state {
			t.Errorf("%s: %+v %v %v", name, res, ok, err)
		}
		if n := r.number(one.Exists(ctx, "pre_celery-task-meta-"+id)); n != 1 {
			t.Error("not under its prefix in database 1")
		}
	}
	for _, key := range r.rdb.Keys(ctx, "*").Val() {
		if !strings.HasPrefix(key, "kp:") {
			t.Errorf("key %q in the broker's database has no prefix", key)
		}
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	r := rigAt(t, srv.Addr)
	ctx := context.Background()
	if err := r.engine(Config{}, nil).Probe(ctx); err != nil {
		t.Error(err)
	}
	if n := r.number(r.rdb.DBSize(ctx)); n != 0 {
		t.Errorf("the probe left %d keys", n)
	}
	as := func(rules ...string) (broker, results *Engine) {
		t.Helper()
		args := append([]any{"acl", "setuser", "u", "reset", "on", ">p", "~*", "&*", "+@all"}, toAny(rules)...)
		if err := r.rdb.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
		b := testkit.RedisClient(t, srv.Addr, 0)
		b.Options().Username, b.Options().Password = "u", "p"
		o := testkit.RedisClient(t, srv.Addr, 1)
		return r.engine(Config{Broker: b}, nil), r.engine(Config{Broker: b, Results: o}, nil)
	}
	for _, c := range []struct{ denied, rule string }{
		{"-set", "+set"},
		{"-publish", "+publish"},
		{"-evalsha", "+eval +evalsha"},
		{"-eval", "+eval"},
		{"-xadd", "+xadd"},
		{"-hset", "+hset"},
		{"-zadd", "+zadd"},
		{"-rpop", "+rpop"},
		{"-time", "+time"},
	} {
		_, e := as(c.denied)
		if err := r.rdb.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		err := e.Probe(ctx)
		if !errors.Is(err, ErrProbe) || !redisconn.Answered(err) || !strings.Contains(err.Error(), "the ACL rule "+c.rule) || redisconn.Cure(err) != "" {
			t.Errorf("%s: %v", c.denied, err)
		}
	}
	if e, _ := as("-select"); e.Probe(ctx) != nil {
		t.Error("SELECT is needed for results in the same database")
	}
	if keys := r.rdb.Keys(ctx, "*").Val(); len(keys) > 0 {
		t.Errorf("the probes left %q", keys)
	}
	far := r.engine(Config{Results: testkit.RedisClient(t, srv.Addr, 99)}, nil)
	if err := far.Probe(ctx); !errors.Is(err, ErrProbe) {
		t.Errorf("a database that is not there: %v", err)
	}
	srv.Stop()
	if err := r.engine(Config{}, nil).Probe(ctx); err == nil || errors.Is(err, ErrProbe) {
		t.Errorf("no server: %v", err)
	}
}

func toAny(s []string) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := New(Config{Broker: r.rdb, PoisonAfter: 2, NodeName: "nohost", Instance: "x", Queues: []string{"a", "a", "b\x06\x163", ""}})
	if !errors.Is(err, ErrConfig) {
		t.Fatal(err)
	}
	for _, want := range []string{"poison_after is 2", "nohost", `instance "x"`, `"a" is named twice`, `\x06`, `queue ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no broker")
	}
}

// The embedded store of the demo does all that the engine needs.
func TestEmbeddedStore(t *testing.T) {
	t.Parallel()
	srv := miniredis.RunT(t)
	r := rigAt(t, srv.Addr())
	ctx := context.Background()
	one := testkit.RedisClient(t, srv.Addr(), 1)
	cfg := Config{Results: one, Concurrency: 4, Registered: func(n string) bool { return n != "t.unknown" }}
	if err := r.engine(cfg, nil).Probe(ctx); err != nil {
		t.Fatal(err)
	}
	lock := &fakeLock{holder: map[string]string{}}
	run := func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		switch {
		case d.Task.Name == "t.retry" && d.Task.Attempt == 1:
			return tasks.Outcome{Kind: tasks.Retried, After: 100 * time.Millisecond, Err: errors.New("x")}
		case d.Task.Name == "t.busy" && !lock.take("k", "x"):
			return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Left: 300 * time.Millisecond}}
		case d.Task.Name == "t.back" && !d.Task.Redelivered:
			return tasks.Outcome{Kind: tasks.Returned, Begun: true}
		}
		return succeed("1")
	}
	lock.take("k", "other")
	a := r.start(cfg, fast, run)
	c := NewClient(ClientConfig{Broker: r.rdb, Results: one})
	send := func(name string, opts ...tasks.Option) string {
		t.Helper()
		id, err := c.Enqueue(ctx, name, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ids := []string{send("t.ok"), send("t.retry"), send("t.busy"), send("t.back"), send("t.eta", tasks.WithETA(time.Now().Add(500*time.Millisecond)))}
	unknown := send("t.unknown")
	r.push("celery", "no envelope")
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return r.number(r.rdb.ZCard(ctx, a.keys.line("k"))) == 1 }, "one is parked for the lock")
	lock.release("k")
	a.Wake(ctx, "k")
	for _, id := range ids {
		if res, ok, err := c.Wait(ctx, id, 10*time.Second); err != nil || !ok || res.State != wire.StateSuccess {
			t.Errorf("%+v %v %v", res, ok, err)
		}
	}
	if res, ok, err := c.Wait(ctx, unknown, 5*time.Second); err != nil || !ok || res.State != wire.StateFailure {
		t.Errorf("%+v %v %v", res, ok, err)
	}
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return len(r.dead()) == 2 }, "two dead letters")
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	r.empty()

	// Killed, and taken over.
	d := r.dier(cfg, func(d *tasks.Delivery) bool { return d.Task.Name == "t.kill" }, run)
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return d.w.self.Load() != nil }, "registered")
	kill := send("t.kill")
	<-d.dead
	r.start(cfg, fast, run)
	if res, ok, err := c.Wait(ctx, kill, 10*time.Second); err != nil || !ok || res.State != wire.StateSuccess {
		t.Errorf("%+v %v %v", res, ok, err)
	}
}

// A digest stands for the message that comes next, on each of a queue's lists;
// on the demo's embedded store too.
func TestTails(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) { digests(t, testkit.Redis(t).Client(t)) })
	t.Run("embedded", func(t *testing.T) { digests(t, testkit.RedisClient(t, miniredis.RunT(t).Addr(), 0)) })
}

func digests(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	admin := NewAdmin(AdminConfig{Broker: rdb, Queues: []string{"celery", "slow"}})
	tails := func() [][]string {
		t.Helper()
		got, err := admin.Tails(ctx)
		if err != nil || len(got) != 2 || len(got[0]) != 4 || len(got[1]) != 4 {
			t.Fatalf("%q, %v", got, err)
		}
		return got
	}
	if got := tails(); got[0][0] != "" || got[1][3] != "" {
		t.Errorf("empty queues: %q", got)
	}
	rdb.LPush(ctx, "slow", "first", "second")
	first := tails()[1][0]
	rdb.LPush(ctx, "slow", "third")
	if again := tails()[1][0]; first == "" || again != first {
		t.Errorf("%q, then %q", first, again)
	}
	rdb.RPop(ctx, "slow")
	if next := tails()[1][0]; next == first || next == "" {
		t.Errorf("the next message has digest %q", next)
	}
}
