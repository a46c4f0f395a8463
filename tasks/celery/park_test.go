package celery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

func (r *rig) storeNow() time.Time {
	r.t.Helper()
	now, err := r.rdb.Time(context.Background()).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return now
}

func TestW01_ETARunsOnceAndNeverEarly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 60
	seen := newWitness()
	var mu sync.Mutex
	var lateness []time.Duration
	run := func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		late := r.storeNow().Sub(d.Task.ETA) // Redis is the judge
		mu.Lock()
		lateness = append(lateness, late)
		mu.Unlock()
		seen.saw(d.Task.ID)
		return succeed("null")
	}
	for range 3 {
		r.start(Config{Concurrency: 4}, nil, run)
	}
	eta := r.storeNow().Add(2 * time.Second)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = r.enqueue("t.eta", tasks.WithETA(eta.Add(time.Duration(i*7)*time.Millisecond)))
	}
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool {
		d, err := r.admin().Depths(context.Background())
		return err == nil && d.Parked == n && d.Unacked == 0 || seen.distinct() > 0
	}, "all are parked")
	scores, err := r.rdb.ZRangeWithScores(context.Background(), "unacked_index", 0, -1).Result()
	if err != nil || len(scores) == 0 {
		t.Fatal(err)
	}
	if d := scores[0].Score - float64(eta.UnixMicro())/1e6; d < -0.001 || d > 0.1 {
		t.Errorf("score of the first is %.4f s from its due time", d)
	}
	testkit.Poll(t, 10*time.Second, 5*time.Millisecond, func() bool { return seen.distinct() == n }, "all ran")
	for _, id := range ids {
		if seen.of(id) != 1 {
			t.Errorf("%s ran %d times", id, seen.of(id))
		}
	}
	slices.Sort(lateness)
	if lateness[0] < 0 {
		t.Errorf("%v early", -lateness[0])
	}
	if worst := lateness[n-1]; worst > time.Second {
		t.Errorf("%v late", worst)
	}
	t.Logf("lateness: median %v, worst %v", lateness[n/2], lateness[n-1])
	r.empty()
}

// The replica that parked a message is gone: another one runs it in time.
func TestETAOfAReplicaThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.start(Config{}, nil, newWitness().runner())
	eta := r.storeNow().Add(2500 * time.Millisecond)
	id := r.enqueue("t.eta", tasks.WithETA(eta))
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return r.number(r.rdb.ZCard(context.Background(), first.keys.parked())) == 1 }, "parked")
	_ = first.stop()
	seen := newWitness()
	r.start(Config{}, nil, seen.runner())
	r.wait(id, 5*time.Second)
	if late := r.storeNow().Sub(eta); late > time.Second || late < 0 {
		t.Errorf("%v after its time", late)
	}
	r.empty()
}

func TestRetryIsOneStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var attempts []int
	var mu sync.Mutex
	states := make(chan string, 16)
	sub := r.rdb.Subscribe(context.Background(), wire.ResultKey("retry-1"))
	defer sub.Close()
	if _, err := sub.Receive(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.start(Config{Concurrency: 2}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		mu.Lock()
		attempts = append(attempts, d.Task.Attempt)
		mu.Unlock()
		if d.Task.Attempt < 3 {
			return tasks.Outcome{Kind: tasks.Retried, After: 300 * time.Millisecond, Err: errors.New("not yet")}
		}
		return succeed(`"done"`)
	})
	r.enqueue("t.retry", tasks.WithID("retry-1"), tasks.WithPriority(7))
	for range 3 {
		m, err := sub.ReceiveMessage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		res, err := wire.DecodeResult([]byte(m.Payload))
		if err != nil {
			t.Fatal(err)
		}
		states <- res.State
		if res.State == wire.StateRetry {
			// The new message is there at the instant of RETRY.
			all, err := r.rdb.HGetAll(context.Background(), "unacked").Result()
			if err != nil || len(all) != 1 {
				t.Errorf("unacked at RETRY: %v %v", all, err)
			}
		}
	}
	close(states)
	var got []string
	for s := range states {
		got = append(got, s)
	}
	if d := cmp.Diff([]string{"RETRY", "RETRY", "SUCCESS"}, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{1, 2, 3}, attempts); d != "" {
		t.Error(d)
	}
	r.empty()
}

// fakeLock is a lock by key, outside the engine.
type fakeLock struct {
	mu     sync.Mutex
	holder map[string]string
}

func (l *fakeLock) take(key, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.holder[key]; h != "" && h != id {
		return false
	}
	l.holder[key] = id
	return true
}

func (l *fakeLock) release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holder, key)
}

func (l *fakeLock) free(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder[key] == ""
}

// timers lists the park tags of a line that have a timer of their own: those
// due before the end of their wait.
func (r *rig) timers(k keys, key string) (oldest string, timed []string) {
	r.t.Helper()
	ctx := context.Background()
	line, err := r.rdb.ZRange(ctx, k.line(key), 0, -1).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, tag := range line {
		due, err := r.rdb.ZScore(ctx, k.parked(), tag).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		if float64(r.storeNow().Add(time.Hour).UnixMicro()) > due {
			timed = append(timed, tag)
		}
	}
	if len(line) > 0 {
		oldest = line[0]
	}
	return oldest, timed
}

func TestParkedForALock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lock := &fakeLock{holder: map[string]string{"k": "someone else"}}
	seen := newWitness()
	var w *worker
	var parks atomic.Int64
	run := func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		if !lock.take("k", d.Task.ID) {
			parks.Add(1)
			return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Left: time.Minute}}
		}
		seen.saw(d.Task.ID)
		lock.release("k")
		w.Wake(ctx, "k")
		o := succeed("null")
		o.WonLock = true
		return o
	}
	w = r.start(Config{Concurrency: 4}, func(e *Engine) {}, run)
	const n = 20
	var ids []string
	for i := range n {
		ids = append(ids, r.enqueue("t.k", tasks.WithID(fmt.Sprintf("id-%02d", i))))
		testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool {
			return r.number(r.rdb.ZCard(context.Background(), w.keys.line("k"))) == int64(i+1)
		}, "message %d stands in line", i)
	}
	oldest, timed := r.timers(w.keys, "k")
	if d := cmp.Diff([]string{oldest}, timed); d != "" {
		t.Errorf("who has a timer: %s", d)
	}
	// A herd would have tried n times a second.
	if p := parks.Load(); p > n+6 {
		t.Errorf("%d refusals for %d messages", p, n)
	}
	lock.release("k")
	w.Wake(context.Background(), "k")
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return seen.distinct() == n }, "all ran within moments of the release")
	if d := cmp.Diff(ids, seen.order()); d != "" {
		t.Errorf("order of the line: %s", d)
	}
	for _, id := range ids {
		if s := r.wait(id, time.Second).State; s != wire.StateSuccess {
			t.Errorf("%s: %s", id, s)
		}
	}
	r.empty()
}

// Without any wake the oldest looks again by its timer, and when it leaves the
// next one has one.
func TestLineMovesByItsTimers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lock := &fakeLock{holder: map[string]string{"k": "someone else"}}
	seen := newWitness()
	w := r.start(Config{Concurrency: 2}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if !lock.take("k", d.Task.ID) {
			return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Left: 300 * time.Millisecond}}
		}
		if d.FirstPark.IsZero() {
			t.Error("no first park")
		}
		seen.saw(d.Task.ID)
		lock.release("k")
		o := succeed("null")
		o.WonLock = true // and nobody wakes
		return o
	})
	for i := range 3 {
		r.enqueue("t.k")
		testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool {
			return r.number(r.rdb.ZCard(context.Background(), w.keys.line("k"))) == int64(i+1)
		}, "message %d stands in line", i)
	}
	lock.release("k")
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return seen.distinct() == 3 }, "all ran by timers")
	r.empty()
}

// A message that was brought forward and leaves without having won the lock
// brings the next one.
func TestWhoLeavesTheLineBringsTheNext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var open atomic.Bool
	var left sync.Map
	var n atomic.Int64
	w := r.start(Config{Concurrency: 1}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if !open.Load() {
			return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkRecord, Key: "rec", Left: time.Hour}}
		}
		left.Store(d.Task.ID, true)
		n.Add(1)
		return succeed("1") // answered from the record: no lock was taken, nobody wakes
	})
	for i := range 5 {
		r.enqueue("t.rec")
		testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool {
			return r.number(r.rdb.ZCard(context.Background(), w.keys.line("rec"))) == int64(i+1)
		}, "message %d stands in line", i)
	}
	begin := time.Now()
	open.Store(true)
	w.Wake(context.Background(), "rec")
	testkit.Poll(t, 3*time.Second, time.Millisecond, func() bool { return n.Load() == 5 }, "the whole line left (%d)", n.Load())
	if took := time.Since(begin); took > 900*time.Millisecond {
		t.Errorf("took %v: by timers, not by one another", took)
	}
	r.empty()
}

// The lock is released between the refusal and the park: the look after the
// park finds it free.
func TestLockIsLookedAtOnceMoreAfterThePark(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lock := &fakeLock{holder: map[string]string{"k": "someone else"}}
	cfg := Config{AfterPark: func(_ context.Context, p tasks.Park) bool {
		return p.Reason == tasks.ParkLock && lock.free(p.Key)
	}}
	r.start(cfg, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if !lock.take("k", d.Task.ID) {
			lock.release("k") // its holder releases, and finds nobody in line
			return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Left: 20 * time.Second}}
		}
		o := succeed("null")
		o.WonLock = true
		return o
	})
	begin := time.Now()
	id := r.enqueue("t.k")
	r.wait(id, 5*time.Second)
	if took := time.Since(begin); took > 700*time.Millisecond {
		t.Errorf("ran after %v: it waited for its timer", took)
	}
}

func TestParkedMessagesAreAnsweredAtTheirEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.start(Config{}, nil, judged(func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Left: time.Hour, Deadline: d.Task.Expires}}
	}))
	r.enqueue("t.k") // the oldest, with a timer
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return r.number(r.rdb.ZCard(context.Background(), w.keys.line("k"))) == 1 }, "in line")
	at := r.storeNow().Add(700 * time.Millisecond)
	second := r.enqueue("t.k", tasks.WithExpires(at))
	res := r.wait(second, 5*time.Second)
	if res.State != wire.StateFailure || res.Exception.Type != "LockBusy" {
		t.Errorf("%+v", res)
	}
	if late := r.storeNow().Sub(at); late < 0 || late > 600*time.Millisecond {
		t.Errorf("answered %v after its end", late)
	}
}

func TestParkForStoreAndGuard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.engine(Config{}, nil)
	self := &replica{id: NewInstance(), ctx: context.Background()}
	src := w.keys.source("celery", 0)
	raw := []byte(envelope(t, emptyBody, nil))
	for n, base := range []int{1, 2, 4, 8, 16, 30, 30} {
		it := newItem("sb:x", self, src, string(raw), time.Now(), time.Now())
		c := w.outcome(it, tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkStore}})
		wait := c.dueIn(t)
		if lo, hi := time.Duration(base)*790*time.Millisecond, time.Duration(base)*1210*time.Millisecond; wait < lo || wait > hi {
			t.Errorf("park %d for the store: %v", n+1, wait)
		}
		if c.op.Line != "" {
			t.Error("a message that waits for a store stands in line")
		}
		raw = c.op.raw
	}
	it := newItem("sb:x", self, src, string(raw), time.Now(), time.Now())
	if !it.deliv.FirstPark.IsZero() {
		t.Error("a first park without a busy lock")
	}
	for range 3 {
		c := w.outcome(it, tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkGuard}})
		if wait := c.dueIn(t); wait < 8*time.Second-time.Second/10 || wait > 12*time.Second+time.Second/10 {
			t.Errorf("park for a guard: %v", wait)
		}
		it = newItem("sb:x", self, src, string(c.op.raw), time.Now(), time.Now())
	}
}

func (c *commit) dueIn(t *testing.T) time.Duration {
	t.Helper()
	var us int64
	if _, err := fmt.Sscan(c.op.Due, &us); err != nil {
		t.Fatal(err)
	}
	return time.Until(time.UnixMicro(us))
}

// The first park's time stays over parks and goes when the lock was won.
func TestFirstParkTravelsWithTheMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(Config{}, nil)
	self := &replica{id: NewInstance(), ctx: context.Background()}
	src := e.keys.source("celery", 3)
	at := time.Now()
	take := func(raw []byte) *item { return newItem("sb:x", self, src, string(raw), at, time.Now()) }
	busy := tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Left: time.Minute}}
	it := take([]byte(envelope(t, emptyBody, nil)))
	c := e.outcome(it, busy)
	first := take(c.op.raw).deliv.FirstPark
	if d := first.Sub(at); d < -time.Millisecond || d > time.Second {
		t.Fatalf("first park %v after the take", d)
	}
	at = at.Add(time.Hour)
	c2 := e.outcome(take(c.op.raw), busy)
	if got := take(c2.op.raw).deliv.FirstPark; !got.Equal(first) || c2.op.Order != micros(first) {
		t.Errorf("first park moved to %v", got)
	}
	back := e.outcome(take(c2.op.raw), tasks.Outcome{Kind: tasks.Returned, Begun: true, Lost: true})
	if d := take(back.op.raw).deliv; !d.FirstPark.Equal(first) || d.Losses != 1 || !d.Task.Redelivered {
		t.Errorf("returned: %+v", d)
	}
	won := e.outcome(take(c2.op.raw), tasks.Outcome{Kind: tasks.Returned, Begun: true, WonLock: true})
	if it := take(won.op.raw); !it.deliv.FirstPark.IsZero() || it.note.Key != "" {
		t.Errorf("still parked after the lock was won: %+v", it.deliv)
	}
	record := tasks.Outcome{Kind: tasks.Parked, WonLock: true, Park: tasks.Park{Reason: tasks.ParkRecord, Key: "r", Left: time.Minute}}
	r1 := take(e.outcome(take(c2.op.raw), record).op.raw)
	if !r1.deliv.FirstPark.After(first.Add(time.Minute)) {
		t.Errorf("the lock was won, the wait is still counted from %v", r1.deliv.FirstPark)
	}
	at = at.Add(time.Hour)
	if r2 := take(e.outcome(take([]byte(r1.raw)), record).op.raw); !r2.deliv.FirstPark.Equal(r1.deliv.FirstPark) || r2.note.N != 2 {
		t.Errorf("the second park for one record: first %v, number %d", r2.deliv.FirstPark, r2.note.N)
	}
	end := e.outcome(take(c2.op.raw), tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Deadline: at.Add(time.Minute)}})
	if end.op.Limit != micros(first.Add(24*time.Hour)) && end.op.Limit != micros(at.Add(time.Minute)) {
		t.Errorf("limit %s", end.op.Limit)
	}
	if c2.op.Limit != micros(first.Add(24*time.Hour)) {
		t.Errorf("limit without a deadline %s", c2.op.Limit)
	}
}

// Whoever holds a lock outside of a worker brings forward what waits for it.
func TestClientWakesWhatIsParked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := Config{Namespace: "shop", KeyPrefix: "p:"}
	var open atomic.Bool
	var parks, runs atomic.Int64
	w := r.start(cfg, nil, func(context.Context, *tasks.Delivery) tasks.Outcome {
		if !open.Load() {
			parks.Add(1)
			return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Left: time.Hour}}
		}
		runs.Add(1)
		return succeed("null")
	})
	client := NewClient(ClientConfig{Broker: r.rdb, Namespace: cfg.Namespace, KeyPrefix: cfg.KeyPrefix})
	if _, err := client.Enqueue(context.Background(), "t.k"); err != nil {
		t.Fatal(err)
	}
	testkit.Poll(t, 15*time.Second, time.Millisecond, func() bool {
		return parks.Load() == 3 && r.number(r.rdb.ZCard(context.Background(), w.keys.line("k"))) == 1
	}, "parked for the third time: for 4 s")
	open.Store(true)
	begin := time.Now()
	for _, key := range []string{"another", "k"} {
		if err := client.Wake(context.Background(), key); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return runs.Load() == 1 }, "it ran")
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("took %v: by its timer", took)
	}
}
