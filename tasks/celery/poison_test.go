package celery

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// dier is a replica that dies when it runs poison: its network is cut for
// good, like that of a process that was killed.
type dier struct {
	w    *worker
	net  *testkit.Proxy
	dead chan struct{}
}

func (r *rig) dier(cfg Config, isPoison func(*tasks.Delivery) bool, run tasks.Runner) *dier {
	d := &dier{dead: make(chan struct{})}
	var once sync.Once
	d.net = testkit.NewProxy(r.t, r.addr)
	cfg.Broker, cfg.Grace = d.net.Client(r.t), -1
	if cfg.Results != nil {
		cfg.Results = testkit.RedisClient(r.t, d.net.Addr, cfg.Results.Options().DB)
	}
	d.w = r.start(cfg, func(e *Engine) {
		fast(e)
		e.tune.call = 300 * time.Millisecond
	}, func(ctx context.Context, del *tasks.Delivery) tasks.Outcome {
		if isPoison(del) {
			once.Do(func() {
				d.net.Refuse()
				close(d.dead)
			})
		}
		select {
		case <-d.dead: // a killed process ends no run
			<-ctx.Done()
			return tasks.Outcome{Kind: tasks.Returned, Begun: true, Err: context.Cause(ctx)}
		default:
			return run(ctx, del)
		}
	})
	return d
}

// A message that kills its worker each time becomes FAILURE WorkerLostError
// and a dead letter; what was in flight beside it succeeds. poison_after 3.
func TestPoisonIsCondemnedAndItsNeighboursAreNot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	poison := func(d *tasks.Delivery) bool { return d.Task.Name == "t.poison" }
	seen := newWitness()
	slow := func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		<-time.After(400 * time.Millisecond) // in flight while the poison works
		seen.saw(d.Task.ID)
		return succeed("null")
	}
	cfg := Config{Concurrency: 30}
	first := r.dier(cfg, poison, slow)
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return first.w.self.Load() != nil }, "registered")
	var neighbours []string
	for i := range 50 {
		if i == 20 {
			r.enqueue("t.poison", tasks.WithID("poison"))
		}
		neighbours = append(neighbours, r.enqueue("t.good", tasks.WithID(fmt.Sprint("good-", i))))
	}
	// Each dead one is replaced, as an orchestrator would.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	deaths := 0
	wg.Go(func() {
		cur := first
		for {
			select {
			case <-stop:
				return
			case <-cur.dead:
				deaths++
				cur = r.dier(cfg, poison, slow)
			}
		}
	})
	res := r.wait("poison", 60*time.Second)
	if res.State != wire.StateFailure || res.Exception.Type != "WorkerLostError" {
		t.Errorf("poison: %+v", res)
	}
	for _, id := range neighbours {
		if s := r.wait(id, 30*time.Second).State; s != wire.StateSuccess {
			t.Errorf("%s: %s", id, s)
		}
	}
	close(stop)
	wg.Wait()
	if deaths != 3 {
		t.Errorf("it killed %d replicas, want 3", deaths)
	}
	dead := r.dead()
	if len(dead) != 1 || dead[0].Reason != tasks.ReasonWorkerLost || dead[0].TaskID != "poison" || dead[0].Deliveries != 3 {
		t.Errorf("dead letters: %+v", dead)
	}
	if full, err := r.admin().DeadLetter(ctx, "celery", dead[0].ID); err != nil || !strings.Contains(string(full.Raw), "t.poison") {
		t.Errorf("raw bytes: %v", err)
	}
}

// Two suspects never run at one time in a replica, and the one that runs is
// named in the registry.
func TestOneSuspectAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	type run struct{ id, named string }
	var w *worker
	var mu sync.Mutex
	var now, most int
	var runs []run
	w = r.start(Config{Concurrency: 8}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if d.Deaths >= suspectDeaths {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			tag, err := r.rdb.HGet(ctx, w.keys.entry(w.Instance()), "suspect").Result()
			if err != nil {
				t.Error(err)
			}
			raw, err := r.rdb.HGet(ctx, "unacked", tag).Result()
			if err != nil {
				t.Error(err)
			}
			<-time.After(100 * time.Millisecond)
			mu.Lock()
			runs = append(runs, run{d.Task.ID, raw})
			now--
			mu.Unlock()
		}
		return succeed("null")
	})
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return w.self.Load() != nil }, "registered")
	var ids []string
	for i := range 4 {
		raw, err := wire.Redeliver([]byte(envelope(t, emptyBody, func(m map[string]any) {
			m["headers"].(map[string]any)["id"] = fmt.Sprint("suspect-", i)
		})), 2)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, fmt.Sprint("suspect-", i))
		r.push("celery", string(raw))
	}
	plain := r.enqueue("t.ok")
	r.wait(plain, 3*time.Second) // the queue is not barred
	for _, id := range ids {
		r.wait(id, 15*time.Second)
	}
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		t.Errorf("%d suspects ran at one time", most)
	}
	for _, x := range runs {
		if !strings.Contains(x.named, `"`+x.id+`"`) {
			t.Errorf("%s ran, named was %s", x.id, x.named)
		}
	}
	r.empty()
}

func TestDeathsAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		deaths  int
		left    bool
		suspect string
		want    int
	}{
		{0, false, "", 1},
		{1, false, "", 2},
		{1, false, "other", 2},
		{2, false, "", 2},
		{2, false, "other", 2},
		{2, false, "tag", 3},
		{5, false, "tag", 6},
		{0, true, "", 0},
		{2, true, "tag", 2},
	} {
		if got := deathsAfter(c.deaths, "tag", &deadReplica{left: c.left, suspect: c.suspect}); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
