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

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// stopped starts an engine behind a proxy whose network can be cut: to its
// peers it is dead, and it does not know.
func (r *rig) stopped(cfg Config, tune func(*Engine), run tasks.Runner) (*worker, *testkit.Proxy) {
	r.t.Helper()
	p := testkit.NewProxy(r.t, r.addr)
	cfg.Broker = p.Client(r.t)
	w := r.start(cfg, func(e *Engine) {
		fast(e)
		e.tune.call = 500 * time.Millisecond
		if tune != nil {
			tune(e)
		}
	}, run)
	return w, p
}

func ids(raws []string) []string {
	var out []string
	for _, raw := range raws {
		m, err := wire.Decode([]byte(raw))
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		out = append(out, m.ID)
	}
	return out
}

// What a dead replica held comes back to the lists and the end it came from,
// in the order in which it would have been served.
func TestTakeoverRestoresListsEndsAndOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	block := make(chan struct{})
	defer close(block)
	hold := func(context.Context, *tasks.Delivery) tasks.Outcome {
		<-block
		return tasks.Outcome{Kind: tasks.Returned, Begun: true}
	}
	var all [2][]string
	for p := range 2 {
		for i := range 3 {
			all[p] = append(all[p], fmt.Sprintf("p%d-%d", p*9, i))
			r.enqueue("t.hold", tasks.WithID(all[p][i]), tasks.WithPriority(p*9))
		}
	}
	w, net := r.stopped(Config{Concurrency: 6}, nil, hold)
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return w.Active() == 6 }, "all run")
	foreign := `["x", "", "celery"]`
	if err := r.rdb.HSet(ctx, "unacked", "python-tag", foreign).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.rdb.RPush(ctx, w.keys.inflight(w.Instance(), "celery"), envelope(t, emptyBody, func(m map[string]any) {
		m["headers"].(map[string]any)["id"] = "in-flight"
	})).Err(); err != nil {
		t.Fatal(err)
	}
	net.Refuse()
	r.enqueue("t.hold", tasks.WithID("waiting"))
	// A peer that takes nothing: its queue is another one.
	r.start(Config{Queues: []string{"other"}}, fast, hold)
	testkit.Poll(t, 10*time.Second, 5*time.Millisecond, func() bool { return r.number(r.rdb.HLen(ctx, "unacked")) == 1 }, "taken over")
	for p, want := range [][]string{{"waiting", "in-flight", "p0-2", "p0-1", "p0-0"}, {"p9-2", "p9-1", "p9-0"}} {
		testkit.Eventually(t, 5*time.Second, func() error {
			list, err := r.rdb.LRange(ctx, wire.QueueKey("celery", p*9), 0, -1).Result()
			if err != nil {
				return err
			}
			if d := cmp.Diff(want, ids(list)); d != "" {
				return errors.New(d)
			}
			for _, raw := range list[len(list)-len(all[p]):] {
				m, err := wire.Decode([]byte(raw))
				if n, _ := m.HeaderInt(wire.HeaderDeliveries); err != nil || !m.Redelivered || n != 1 {
					return fmt.Errorf("%s: redelivered %v, %d deaths", m.ID, m.Redelivered, n)
				}
			}
			return nil
		})
	}
	if v, err := r.rdb.HGet(ctx, "unacked", "python-tag").Result(); err != nil || v != foreign {
		t.Errorf("Python's entry: %s %v", v, err)
	}
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return r.number(r.rdb.ZCard(ctx, w.keys.buried())) == 0 }, "the burial ended")
	if n := r.number(r.rdb.Exists(ctx, w.keys.entry(w.Instance()))); n != 0 {
		t.Error("the dead replica's entry is left")
	}
	net.Pass()
}

// A replica that was stopped past its burial wakes: its run is cancelled with
// a cause, its late commit is dropped, and it goes on as a new one. A naive
// worker, which writes its result unconditionally, overwrites the second run's.
func TestLateCommitIsDropped(t *testing.T) {
	t.Parallel()
	for _, naive := range []bool{false, true} {
		t.Run(map[bool]string{false: "engine", true: "naive write overwrites"}[naive], func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			begun, finish := make(chan struct{}), make(chan struct{})
			causes := make(chan error, 1)
			var late, buried atomic.Int64
			cfg := Config{Observer: Observer{LateCommit: func(string, string) { late.Add(1) }, Buried: func() { buried.Add(1) }}}
			w, net := r.stopped(cfg, nil, func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
				if d.Task.Name != "t.once" {
					return succeed("null")
				}
				close(begun)
				<-finish
				if naive {
					b, err := wire.EncodeResult(&wire.Result{TaskID: d.Task.ID, State: wire.StateSuccess, Value: json.RawMessage(`"first"`), DateDone: time.Now()})
					if err != nil {
						t.Error(err)
					}
					if err := r.rdb.Set(context.Background(), wire.ResultKey(d.Task.ID), b, 0).Err(); err != nil {
						t.Error(err)
					}
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return succeed(`"first"`)
			})
			id := r.enqueue("t.once")
			<-begun
			old := w.Instance()
			net.Swallow()
			net.CloseAll()
			r.start(Config{}, fast, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
				if d.Task.Name == "t.once" && (!d.Task.Redelivered || d.Deaths != 1) {
					t.Errorf("second run: redelivered %v, deaths %d", d.Task.Redelivered, d.Deaths)
				}
				return succeed(`"second"`)
			})
			if res := r.wait(id, 15*time.Second); string(res.Value) != `"second"` {
				t.Errorf("result %s", res.Value)
			}
			net.Pass()
			net.CloseAll()
			close(finish)
			if cause := <-causes; !errors.Is(cause, tasks.ErrBuried) {
				t.Errorf("cause %v", cause)
			}
			testkit.Poll(t, 10*time.Second, 5*time.Millisecond, func() bool { return late.Load() == 1 }, "its commit was dropped")
			want := map[bool]string{false: `"second"`, true: `"first"`}[naive]
			if res := r.wait(id, time.Second); string(res.Value) != want {
				t.Errorf("result %s, want %s", res.Value, want)
			}
			testkit.Poll(t, 10*time.Second, 5*time.Millisecond, func() bool { return w.Instance() != old }, "a new instance")
			if buried.Load() != 1 {
				t.Errorf("buried %d times", buried.Load())
			}
			again := r.enqueue("t.more")
			r.wait(again, 5*time.Second)
			r.empty()
		})
	}
}

// A stall of Redis longer than the registry's TTL buries nobody alive.
func TestStallOfRedisBuriesNobody(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	r := rigAt(t, srv.Addr)
	var buried atomic.Int64
	var ran sync.Map
	var failed atomic.Int64
	cfg := Config{Concurrency: 4, Observer: Observer{Buried: func() { buried.Add(1) }}}
	tune := func(e *Engine) {
		fast(e)
		e.tune.call = time.Second
	}
	run := func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		select {
		case <-ctx.Done():
			failed.Add(1)
		case <-time.After(50 * time.Millisecond):
		}
		ran.Store(d.Task.ID, true)
		return succeed("null")
	}
	var ws []*worker
	for range 4 {
		ws = append(ws, r.start(cfg, tune, run))
	}
	const n = 400
	for range n {
		r.enqueue("t.work")
	}
	srv.Pause()
	stall := time.Now()
	testkit.Poll(t, 10*time.Second, 50*time.Millisecond, func() bool { return time.Since(stall) > 4*time.Second }, "two TTLs pass")
	srv.Continue()
	count := func() (c int) { ran.Range(func(any, any) bool { c++; return true }); return c }
	testkit.Poll(t, 30*time.Second, 20*time.Millisecond, func() bool { return count() == n }, "all ran")
	if b := buried.Load(); b != 0 {
		t.Errorf("%d replicas were buried alive", b)
	}
	if f := failed.Load(); f != 0 {
		t.Errorf("%d runs were cancelled", f)
	}
	for _, w := range ws {
		_ = w.stop()
	}
	r.empty()
}

// The rule in the beat script, on its own: who has just slept itself buries
// nobody, who has just registered neither, and who is fresh does.
func TestBurialRules(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	e := r.engine(Config{}, nil)
	self, err := e.enrol(ctx, "", func(int, error) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	now := func() float64 { return float64(r.storeNow().UnixMicro()) / 1e6 }
	set := func(id string, until float64) {
		if err := r.rdb.ZAdd(ctx, e.keys.replicas(), zMember(until, id)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	l := newLoop(ctx, ctx, e, self)
	busy := &takeovers{running: map[string]bool{}}
	beat := func() bool { // whether "victim" was buried
		t.Helper()
		set("victim", now()-1)
		if err := e.beat(ctx, l, busy); err != nil {
			t.Fatal(err)
		}
		busy.wg.Wait()
		score, err := r.rdb.ZScore(ctx, e.keys.replicas(), "victim").Result()
		return err != nil || score == 0
	}
	if beat() {
		t.Error("buried by a replica that has just registered")
	}
	quiet := func(at float64) {
		if err := r.rdb.HSet(ctx, e.keys.entry(self.id), "quiet", fmt.Sprintf("%.6f", at)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	quiet(now() - 0.001)
	if !beat() {
		t.Error("not buried by a replica in good order")
	}
	set(self.id, now()+10-6) // own beat is 6 s old
	if beat() {
		t.Error("buried by a replica that has slept")
	}
	if beat() {
		t.Error("buried right after the sleep")
	}
	q, err := r.rdb.HGet(ctx, e.keys.entry(self.id), "quiet").Float64()
	if err != nil || q < now()+14 || q > now()+15.1 {
		t.Errorf("quiet until %v from now (%v)", q-now(), err)
	}
	quiet(now() - 0.001)
	set(self.id, now()+10-4) // 4 s old is no stall
	if !beat() {
		t.Error("not buried after a beat 4 s ago")
	}
	// An own entry past its end that nobody has buried just goes on.
	set(self.id, now()-3)
	beat()
	if s, err := r.rdb.ZScore(ctx, e.keys.replicas(), self.id).Result(); err != nil || s < now()+9 {
		t.Errorf("a late beat of a replica that nobody buried: %v %v", s, err)
	}
	if err := r.rdb.ZRem(ctx, e.keys.replicas(), self.id).Err(); err != nil {
		t.Fatal(err)
	}
	if err := e.beat(ctx, l, busy); err != nil || len(l.buried) != 1 {
		t.Errorf("being buried is not told: %v", err)
	}
}

// A replica that marked itself left is taken over at the next beat, without a
// death being counted.
func TestLeftIsNoDeath(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	begun, block := make(chan struct{}), make(chan struct{})
	w := r.start(Config{Grace: 50 * time.Millisecond}, fast, func(context.Context, *tasks.Delivery) tasks.Outcome {
		close(begun)
		<-block // ignores its cancelling
		return succeed("1")
	})
	defer close(block)
	id := r.enqueue("t.stubborn")
	<-begun
	if err := w.stop(); !errors.Is(err, ErrRunsLeft) {
		t.Errorf("Run returned %v", err)
	}
	left := time.Now()
	deliveries := make(chan *tasks.Delivery, 1)
	r.start(Config{}, fast, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		deliveries <- d
		return succeed("2")
	})
	d := <-deliveries
	if d.Deaths != 0 || !d.Task.Redelivered {
		t.Errorf("deaths %d, redelivered %v", d.Deaths, d.Task.Redelivered)
	}
	if took := time.Since(left); took > 1500*time.Millisecond {
		t.Errorf("taken over after %v, the TTL is 2 s", took)
	}
	r.wait(id, 5*time.Second)
	r.empty()
}

// The registry lost its data: the janitor finds what its replicas held.
func TestJanitorFindsOrphans(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	k := keys{namespace: tasks.DefaultNamespace}
	other := keys{namespace: "other"}
	put := func(tag, value string) {
		if err := r.rdb.HSet(ctx, k.unacked(), tag, value).Err(); err != nil {
			t.Fatal(err)
		}
		if err := r.rdb.ZAdd(ctx, k.index(), zMember(float64(time.Now().Add(time.Hour).Unix()), tag)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(id string) string {
		return "[" + envelope(t, emptyBody, func(m map[string]any) {
			m["headers"].(map[string]any)["id"] = id
		}) + wire.UnackedSuffix("", "celery")
	}
	orphan := NewInstance()
	put(k.tag(orphan, 5001, 0), entry("orphan"))
	put(k.tag(orphan, 5002, 3), "[no json at all, \"\", \"celery\"]")
	put(k.parkTag(orphan, 1, 0), entry("parked"))
	put(other.tag(NewInstance(), 1, 0), entry("other deployment"))
	put(other.parkTag(NewInstance(), 1, 0), entry("other deployment, parked"))
	put("python", entry("python"))
	seen := newWitness()
	r.start(Config{}, func(e *Engine) { fast(e); e.tune.janitor = 200 * time.Millisecond }, seen.runner())
	for _, id := range []string{"orphan", "parked"} {
		r.wait(id, 10*time.Second)
	}
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return len(r.dead()) == 1 }, "what cannot be read is a dead letter")
	rest, err := r.rdb.HKeys(ctx, k.unacked()).Result()
	if err != nil || len(rest) != 3 {
		t.Errorf("left in unacked: %v %v", rest, err)
	}
	for _, tag := range rest {
		if tag != "python" && !strings.HasSuffix(tag, ":other") {
			t.Errorf("%s is left", tag)
		}
	}
	if seen.distinct() != 2 {
		t.Errorf("ran: %v", seen.order())
	}
}

// The registry's data are lost under a live replica: it starts anew and takes
// its own old messages over.
func TestRegistryLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	var runs atomic.Int64
	first := make(chan struct{})
	w := r.start(Config{Concurrency: 2}, fast, func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		if runs.Add(1) == 1 {
			close(first)
			<-ctx.Done()
			return tasks.Outcome{Kind: tasks.Returned, Begun: true, Err: context.Cause(ctx)}
		}
		if d.Deaths != 0 {
			t.Errorf("%d deaths", d.Deaths)
		}
		return succeed("1")
	})
	id := r.enqueue("t.lost")
	<-first
	if err := r.rdb.Del(ctx, w.keys.replicas(), w.keys.calls(), w.keys.entry(w.Instance())).Err(); err != nil {
		t.Fatal(err)
	}
	r.wait(id, 10*time.Second)
	r.empty()
}

func TestNodeNameOfALiveReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := newWitness().runner()
	a := r.start(Config{NodeName: "w@h"}, fast, run)
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return a.self.Load() != nil }, "a is registered")
	b := r.start(Config{NodeName: "w@h"}, fast, run)
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return b.self.Load() != nil }, "b is registered")
	if a.NodeName() != "w@h" || b.NodeName() != "w-2@h" {
		t.Errorf("%s and %s", a.NodeName(), b.NodeName())
	}
	reps, err := r.admin().Replicas(context.Background())
	if err != nil || len(reps) != 2 || reps[0].Node != "w-2@h" || reps[1].Node != "w@h" || reps[0].Queues[0] != "celery" {
		t.Errorf("%+v %v", reps, err)
	}
	_ = a.stop()
	c := r.start(Config{NodeName: "w@h"}, fast, run)
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return c.self.Load() != nil }, "c is registered")
	if c.NodeName() != "w@h" {
		t.Errorf("the name of one that left is %s", c.NodeName())
	}
}
