package celery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// fill sends n messages at once and returns their ids.
func (r *rig) fill(n int, opts ...tasks.Option) []string {
	r.t.Helper()
	ctx := context.Background()
	ids := make([]string, n)
	_, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			ids[i] = fmt.Sprintf("id-%05d", i)
			req, err := tasks.NewRequest("t.fill", append(opts, tasks.WithID(ids[i]), tasks.WithPriority(i%10))...)
			if err != nil {
				return err
			}
			list, msg, err := r.client.Prepare(req)
			if err != nil {
				return err
			}
			p.LPush(ctx, list, msg)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// Connections die and replies get lost at random instants, while two workers
// serve a queue through the bad network: every message runs, all registries end
// empty, and so do all locks, each of which is told of once.
func TestNothingIsLostOnABadNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen, locks := newWitness(), newMailbox[*leftLock]()
	run := func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		seen.saw(d.Task.ID)
		l := r.left(fmt.Sprintf("lock:%s:%d", d.Task.ID, seen.of(d.Task.ID)))
		locks.put(l)
		switch {
		case d.Task.Attempt == 1 && rand.IntN(20) == 0:
			return leaving(tasks.Outcome{Kind: tasks.Retried, After: 20 * time.Millisecond, Err: errors.New("again")}, l)
		case !d.Task.Redelivered && rand.IntN(20) == 0:
			return leaving(tasks.Outcome{Kind: tasks.Returned, Begun: true, Err: errors.New("back")}, l)
		}
		return leaving(succeed("null"), l)
	}
	var nets []*testkit.Proxy
	for range 2 {
		net := testkit.NewProxy(t, r.addr)
		nets = append(nets, net)
		r.start(Config{Concurrency: 4, Broker: net.Client(t), Unlocks: true}, func(e *Engine) {
			e.tune.call = 500 * time.Millisecond
			e.tune.wait = time.Second
		}, run)
	}
	var all []string
	kills := 0
	armed := make([]int, len(nets))
	for round := range 60 {
		batch := r.fillFrom(round*40, 40)
		all = append(all, batch...)
		for i, net := range nets {
			kills++
			switch n := rand.IntN(4); {
			case n == 0:
				net.CloseAll()
			case armed[i] > net.Dropped(): // the last one waits for its request
			case n == 1:
				net.DropReplyTo("blmove")
				armed[i]++
			default:
				net.DropReplyTo("evalsha")
				armed[i]++
			}
		}
		<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
	testkit.Poll(t, 30*time.Second, 10*time.Millisecond, func() bool { return seen.distinct() == len(all) }, "all of %d ran", len(all))
	twice := 0
	for _, id := range all {
		if seen.of(id) > 1 {
			twice++
		}
	}
	dropped := 0
	for _, net := range nets {
		dropped += net.Dropped()
	}
	t.Logf("%d messages, %d faults, %d replies lost, %d ran more than once (retries and returns among them)", len(all), kills, dropped, twice)
	r.empty()
	for _, id := range all {
		r.wait(id, 10*time.Second)
	}
	r.allFreed(locks.take())
}

// allFreed checks that each lock has come to one end, and that those which were
// not to be released by themselves are free.
func (r *rig) allFreed(locks []*leftLock) {
	r.t.Helper()
	ends := map[string]int{}
	for _, l := range locks {
		end := l.end(r.t)
		ends[end]++
		if len(l.ends) > 0 {
			r.t.Errorf("%s ended as %s and as %s", l.Key, end, <-l.ends)
		}
		if held := r.number(r.rdb.Exists(context.Background(), l.Key)); held != 0 && end != "left" {
			r.t.Errorf("%s ended as %s and is held", l.Key, end)
		}
	}
	if ends["freed"] == 0 || ends["not held"] > 0 {
		r.t.Errorf("ends of locks: %v", ends)
	}
	r.t.Logf("ends of locks: %v", ends)
}

func (r *rig) fillFrom(from, n int) []string {
	r.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = r.enqueue("t.fill", tasks.WithID(fmt.Sprintf("id-%05d", from+i)), tasks.WithPriority(i%10))
	}
	return ids
}

// popThenRegister is what a naive worker does: it pops, then registers. Lost
// between the two is lost for good.
func TestNaivePopThenRegisterLoses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	net := testkit.NewProxy(t, r.addr)
	rdb := net.Client(t)
	const n = 100
	r.fill(n)
	ctx := context.Background()
	got := map[string]bool{}
	for i := range n {
		if i%4 == 0 {
			net.DropReplyTo("brpop")
		}
		v, err := rdb.BRPop(ctx, time.Second, QueueKeys("", "celery")...).Result()
		if err != nil {
			continue // reconnects, like kombu
		}
		if err := rdb.HSet(ctx, "unacked", fmt.Sprint("tag", i), v[1]).Err(); err == nil {
			got[v[1]] = true
		}
	}
	left := int64(0)
	for _, key := range QueueKeys("", "celery") {
		left += r.number(r.rdb.LLen(ctx, key))
	}
	if lost := n - len(got) - int(left); lost < n/5 {
		t.Errorf("only %d of %d were lost: the test shows nothing", lost, n)
	}
}

// A cycle whose reply was lost is answered, under its number, with what it
// took, and takes nothing more. With a number that only this process counts
// (naive), entries would be overwritten.
func TestRepeatedCycleReturnsTheSameMessages(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"flags", "plain"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			ctx := context.Background()
			e := r.engine(Config{}, nil)
			if form == "plain" {
				e.redis = redisconn.NewPlainRunner(e.rdb)
			}
			self, err := e.enrol(ctx, "", func(int, error) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			want := r.fill(10)
			r.push("celery", "no envelope")
			call := &cycleCall{number: 1, want: 7, sources: []int{0, 1, 2, 3}}
			first, err := e.cycle(ctx, self, call)
			if err != nil {
				t.Fatal(err)
			}
			again, err := e.cycle(ctx, self, call)
			if err != nil {
				t.Fatal(err)
			}
			if first.repeated || !again.repeated || first.taken != again.taken {
				t.Fatalf("first %d (repeated %v), again %d (repeated %v)", first.taken, first.repeated, again.taken, again.repeated)
			}
			tags := map[string]string{}
			for _, it := range first.items(0, first.taken) {
				tags[it.tag] = it.raw
			}
			for _, it := range again.items(0, again.taken) {
				if tags[it.tag] != it.raw || it.deliv == nil || it.src.key == "" {
					t.Errorf("%s differs", it.tag)
				}
			}
			late, err := e.cycle(ctx, self, &cycleCall{number: 0, want: 7, sources: []int{0}})
			if err != nil || late.taken != 0 {
				t.Errorf("a call that arrives after a later one took %v %v", late, err)
			}
			second, err := e.cycle(ctx, self, &cycleCall{number: 2, want: 100, sources: []int{0, 1, 2, 3}})
			if err != nil {
				t.Fatal(err)
			}
			if n := first.taken + second.taken; n != len(want) {
				t.Errorf("%d of %d were taken", n, len(want))
			}
			if n := r.number(r.rdb.HLen(ctx, "unacked")); n != int64(len(want)) {
				t.Errorf("%d entries in unacked", n)
			}
			if err := r.rdb.Del(ctx, e.keys.replicas(), e.keys.calls()).Err(); err != nil {
				t.Fatal(err)
			}
			buried, err := e.cycle(ctx, self, &cycleCall{number: 3, want: 1, sources: []int{0}})
			if err != nil || !buried.buried {
				t.Errorf("unregistered: %+v %v", buried, err)
			}
		})
	}
}

// In-flight lists are emptied: what fits is taken, the rest goes back to the
// end it came from.
func TestInFlightIsTakenFirstAndHandedBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	e := r.engine(Config{}, nil)
	self, err := e.enrol(ctx, "", func(int, error) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	msg := func(id string) string {
		return envelope(t, emptyBody, func(m map[string]any) { m["headers"].(map[string]any)["id"] = id })
	}
	r.push("celery", msg("c"), msg("d"))
	r.push(self.inlists[0], msg("a"), msg("b"))
	rep, err := e.cycle(ctx, self, &cycleCall{number: 1, want: 1, sources: []int{0}})
	if err != nil || rep.taken != 1 || rep.items(0, rep.taken)[0].taskID() != "a" || rep.back != 1 {
		t.Fatalf("%+v %v", rep, err)
	}
	rep, err = e.cycle(ctx, self, &cycleCall{number: 2, want: 9, sources: []int{0}})
	if err != nil || rep.taken != 3 || rep.full {
		t.Fatalf("%+v %v", rep, err)
	}
	for i, want := range []string{"b", "c", "d"} {
		if got := rep.items(0, rep.taken)[i].taskID(); got != want {
			t.Errorf("number %d is %s, want %s", i, got, want)
		}
	}
	r.push(self.inlists[0], msg("x"))
	rep, err = e.cycle(ctx, self, &cycleCall{number: 3, want: 0, sources: []int{0}})
	if err != nil || rep.taken != 0 || rep.back != 1 || r.number(r.rdb.LLen(ctx, "celery")) != 1 {
		t.Errorf("without a free slot: %+v %v", rep, err)
	}
}

// SUCCESS is not overwritten; all else is; the channel gets the key's bytes,
// and only what was written.
func TestResultsAreStoredAsCeleryDoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	e := r.engine(Config{ResultExpires: time.Hour}, nil)
	self, err := e.enrol(ctx, "", func(int, error) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	sub := r.rdb.PSubscribe(ctx, "*")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	it := &item{acked: true, src: e.sources[0]}
	store := func(n int64, value string) {
		t.Helper()
		if _, err := e.cycle(ctx, self, &cycleCall{number: n, acks: []*commit{{it: it, key: "celery-task-meta-x", result: []byte(value)}}}); err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		old, value string
		written    bool
	}{
		{``, `{"status": "RETRY"}`, true},
		{`{"status": "RETRY"}`, `{"status": "FAILURE"}`, true},
		{`{"status": "FAILURE"}`, `{"status": "SUCCESS", "result": 1}`, true},
		{`{"status": "SUCCESS", "result": 1}`, `{"status": "FAILURE"}`, false},
		{`{"status":"SUCCESS","result":1}`, `{"status": "SUCCESS", "result": 2}`, false},
		{`{"result": 1, "status": "SUCCESS"}`, `{"status": "FAILURE"}`, false},
		{`{"result": {"status": "SUCCESS"}, "status": "PROGRESS"}`, `{"status": "FAILURE"}`, true},
		{`{"status": "PROGRESS", "result": {"status": "SUCCESS"}}`, `{"status": "FAILURE"}`, true},
		{`no json`, `{"status": "FAILURE"}`, true},
	}
	for i, s := range steps {
		if s.old != "" {
			if err := r.rdb.Set(ctx, "celery-task-meta-x", s.old, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		store(int64(i+1), s.value)
		got, err := r.rdb.Get(ctx, "celery-task-meta-x").Result()
		if err != nil || got == s.value != s.written {
			t.Errorf("%s over %s: %s %v", s.value, s.old, got, err)
		}
		if !s.written {
			continue
		}
		m, err := sub.ReceiveMessage(ctx)
		if err != nil || m.Channel != "celery-task-meta-x" || m.Payload != s.value {
			t.Errorf("published %v %v", m, err)
		}
		if ttl, err := r.rdb.TTL(ctx, "celery-task-meta-x").Result(); err != nil || ttl < 59*time.Minute || ttl > time.Hour {
			t.Errorf("TTL %v %v", ttl, err)
		}
	}
	if err := r.rdb.Del(ctx, "celery-task-meta-x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.rdb.LPush(ctx, "celery-task-meta-x", "a list").Err(); err != nil {
		t.Fatal(err)
	}
	store(100, `{"status": "FAILURE"}`) // a foreign key must not stop the engine
}

// An idle worker polls nothing.
func TestIdleCommandsPerSecond(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	w := r.start(Config{Concurrency: 4}, nil, newWitness().runner())
	r.wait(r.enqueue("t.one"), 5*time.Second)
	r.empty()
	commands := func() (n int64) {
		t.Helper()
		info, err := r.rdb.InfoMap(ctx, "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(info["Stats"]["total_commands_processed"], &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const span = 12 * time.Second
	from, begin := commands(), time.Now()
	testkit.Poll(t, span+5*time.Second, 500*time.Millisecond, func() bool { return time.Since(begin) >= span }, "it idles")
	rate := float64(commands()-from-1) / time.Since(begin).Seconds()
	t.Logf("%.2f commands a second, inner calls included", rate)
	if rate > 5 {
		t.Errorf("%.2f commands a second while idle", rate)
	}
	_ = w.stop()
}

// A replica takes no more than it has slots for when tasks are long, so that
// others get the rest.
func TestLongTasksAreNotHoarded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	block := make(chan struct{})
	var active atomic.Int64
	w := r.start(Config{Concurrency: 2}, nil, func(context.Context, *tasks.Delivery) tasks.Outcome {
		active.Add(1)
		<-block
		return succeed("1")
	})
	defer close(block)
	r.fill(50)
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return active.Load() == 2 }, "both slots run")
	if n := r.number(r.rdb.HLen(context.Background(), "unacked")); n != 2 {
		t.Errorf("%d are held with 2 slots", n)
	}
	_ = w
}

// After a rush of short tasks, long ones that were taken ahead go back.
func TestWhatWasTakenAheadGoesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	block := make(chan struct{})
	defer close(block)
	var long atomic.Int64
	w := r.start(Config{Concurrency: 2}, func(e *Engine) { e.tune.hoard = 200 * time.Millisecond }, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if d.Task.Name == "t.long" {
			long.Add(1)
			<-block
		}
		return succeed("1")
	})
	for i := range 3000 {
		r.push(r.prepare(map[bool]string{true: "t.long", false: "t.short"}[i >= 2000]))
	}
	testkit.Poll(t, 20*time.Second, time.Millisecond, func() bool { return long.Load() == 2 }, "two long ones run")
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return w.held.len() == 2 }, "it holds no more than it runs")
	if n := r.number(r.rdb.LLen(context.Background(), "celery")); n != 998 {
		t.Errorf("%d wait for others, want 998", n)
	}
}

// A full server refuses new messages, but what runs is completed.
func TestFullServerTakesResultsAndAcks(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t, "--maxmemory-policy", "noeviction")
	r := rigAt(t, srv.Addr)
	ctx := context.Background()
	begun, finish := make(chan struct{}), make(chan struct{})
	r.start(Config{}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if d.Task.Name == "t.first" {
			close(begun)
			<-finish
		}
		return succeed(`"done"`)
	})
	id := r.enqueue("t.first")
	<-begun
	second := r.enqueue("t.second")
	if err := r.rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Enqueue(ctx, "t.third"); err == nil || !redis.HasErrorPrefix(err, "OOM") && !redis.HasErrorPrefix(errors.Unwrap(err), "OOM") {
		t.Errorf("enqueue on a full server: %v", err)
	}
	close(finish)
	for _, id := range []string{id, second} {
		if res := r.wait(id, 5*time.Second); res.State != wire.StateSuccess {
			t.Errorf("%+v", res)
		}
	}
	r.empty()
}
