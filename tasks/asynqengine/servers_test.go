package asynqengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// works sends a guarded task that is parked, retried and done.
func works(t *testing.T, r *rig, guards redis.UniversalClient) {
	t.Helper()
	r.handle("x", func(_ context.Context, task *tasks.Task) (any, error) {
		if task.Attempt == 1 {
			return nil, errors.New("once more")
		}
		return task.Attempt, nil
	})
	r.start(setup{guards: guards})
	h := holdOn(t, guards, "k", "somebody")
	id := r.send("x", &tasks.Guard{
		Lock: &tasks.LockGuard{Key: "k", TTLMS: 3000, OnBusy: tasks.OnBusyRetry}, Record: &tasks.RecordGuard{Key: "r"},
		Retries: &tasks.RetryPolicy{Max: 1, BaseMS: 100},
	})
	r.becomes(id, "retry")
	if _, err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := r.waitFor(id, 60*time.Second); string(res.Value) != "2" {
		t.Errorf("result %+v", res)
	}
}

// The whole way on a cluster: every script and pipeline keeps to one slot.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t, "--cluster-enabled", "yes", "--cluster-config-file", filepath.Join(t.TempDir(), "nodes.conf"))
	one := server.Client(t)
	if err := one.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", "0", "16383").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}, MaxRedirects: 3})
	t.Cleanup(func() { _ = rdb.Close() })
	testkit.Eventually(t, 20*time.Second, func() error { return rdb.Set(t.Context(), "ready", "1", time.Second).Err() })
	works(t, rigOn(t, rdb), testkit.Redis(t).Client(t)) // locks are on one server ever
}

// The same through Sentinel.
func TestThroughSentinel(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	var port int
	if _, err := fmt.Sscanf(server.Addr, "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	dir, own := t.TempDir(), testkit.FreePort(t)
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor main 127.0.0.1 %d 1\n", own, dir, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Start(t, "sentinel", nil, "redis-server", conf, "--sentinel")
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{fmt.Sprintf("127.0.0.1:%d", own)}})
	t.Cleanup(func() { _ = rdb.Close() })
	testkit.Eventually(t, 20*time.Second, func() error { return rdb.Ping(t.Context()).Err() })
	works(t, rigOn(t, rdb), rdb)
}

// calls counts what a client sends.
type calls struct {
	redis.UniversalClient
	n atomic.Int64
}

func (c *calls) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	c.n.Add(1)
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// Redis goes away and comes back: nobody hammers it meanwhile, and what was
// queued after is run. asynq alone asks again at once, thousands of times a
// second.
func TestRedisGoesAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.handle("x", func(context.Context, *tasks.Task) (any, error) { return nil, nil })
	up := make(chan bool, 1000)
	client := &calls{UniversalClient: testkit.RedisClient(t, r.addr, 0)}
	r.start(setup{
		client: client,
		cfg:    Config{Concurrency: 4, Observer: Observer{BrokerUp: func(v bool) { up <- v }}},
		tune:   func(tn *tuning) { tn.beat, tn.beatFail = 50*time.Millisecond, 50*time.Millisecond },
	})
	r.wait(r.send("x", nil))
	r.server.Stop()
	for <-up {
	}
	before := client.n.Load()
	timer := time.NewTimer(2 * time.Second)
	<-timer.C
	if n := client.n.Load() - before; n > 100 {
		t.Errorf("%d scripts in 2 s without Redis", n)
	}
	r.server.Restart()
	for !<-up {
	}
	if res := r.waitFor(r.send("x", nil), 30*time.Second); res.State != wire.StateSuccess {
		t.Errorf("result %+v", res)
	}
}

// A configuration that cannot work is told as a whole.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Queues: []string{"a{b}", "x", "x"}, Servers: 101, PoisonAfter: 2})
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("%v", err)
	}
	for _, q := range []string{"celery", "high.prio-1", "a:b"} {
		if !ValidQueue(q) {
			t.Errorf("%q is refused", q)
		}
	}
	for _, q := range []string{"", "a b", "}x", "ü", "a/b"} {
		if ValidQueue(q) {
			t.Errorf("%q is taken", q)
		}
	}
	if _, _, err := encode(&tasks.Request{Name: "x", Queue: "q", ID: "1", Priority: 3}); err == nil {
		t.Error("a priority is dropped without a word")
	}
}

// headers go the way there and back.
func TestHeaderText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"plain"`, `"7"`, `7`, `"{\"a\":1}"`, `{"a":1}`, `null`, `"null"`, `"ü \" x"`, `[1,"2"]`, `""`} {
		if got := headerJSON(headerText([]byte(text))); string(got) != text {
			t.Errorf("%s came back as %s", text, got)
		}
	}
}
