package asynqengine

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/celery/wire"
	"github.com/solobeat/solobeat/tasks/worker"
)

// everySecond is a job of this engine.
func everySecond(t *testing.T, name, task string) *scheduler.Job {
	t.Helper()
	j := &scheduler.Job{Name: name, Task: task, Engine: EngineName, Spec: scheduler.SpecConfig{Every: "1s"}}
	var err error
	if j.Schedule, _, err = scheduler.ParseSpec(j.Spec); err != nil {
		t.Fatal(err)
	}
	return j
}

// fleet is a number of schedulers with one file, and what they published.
type fleet struct {
	mu    sync.Mutex
	fired []string // task ids
	aside int
	wg    sync.WaitGroup
	stop  context.CancelFunc
}

func (r *rig) schedule(n int, jobs ...*scheduler.Job) *fleet {
	r.t.Helper()
	f := &fleet{}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = func() { cancel(); f.wg.Wait() }
	r.t.Cleanup(f.stop)
	for range n {
		rdb := testkit.RedisClient(r.t, r.addr, 0)
		s, err := scheduler.New(scheduler.Config{
			Jobs: jobs, State: schedredis.New(rdb, schedredis.Options{}), Publisher: celery.NewClient(celery.ClientConfig{Broker: rdb}),
			Senders: map[string]scheduler.Sender{EngineName: NewClient(ClientConfig{Client: rdb})},
			ID:      strings.ReplaceAll(wire.NewID(), "-", ""), Logger: testkit.Logger(r.t),
			Observer: scheduler.Observer{
				Fired: func(_ string, _ scheduler.Occurrence, id string) {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.fired = append(f.fired, id)
				},
				StandAside: func(string) {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.aside++
				},
			},
		})
		if err != nil {
			r.t.Fatal(err)
		}
		f.wg.Go(func() { _ = s.Run(ctx) })
	}
	return f
}

func (f *fleet) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.fired)
}

// Three replicas schedule and work: each tick has one task, whose id is made of
// job and tick, and one run. asynq's own scheduler, three times, makes three.
func TestA01_EachReplicaSchedulesAndEachTickHasOneTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen, naive witness
	r.handle("tick", func(_ context.Context, task *tasks.Task) (any, error) { seen.saw(task); return nil, nil })
	r.handle("naive", func(_ context.Context, task *tasks.Task) (any, error) { naive.saw(task); return nil, nil })
	j := everySecond(t, "j", "tick")
	for range 3 {
		r.start(setup{})
		own := asynq.NewSchedulerFromRedisClient(r.rdb, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
		if _, err := own.Register("@every 1s", asynq.NewTask("naive", nil), asynq.Queue(DefaultQueue)); err != nil {
			t.Fatal(err)
		}
		if err := own.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(own.Shutdown)
	}
	f := r.schedule(3, j)
	testkit.Poll(t, 60*time.Second, 50*time.Millisecond, func() bool { return len(f.list()) >= 10 && f.asideNow() >= 10 }, "ten ticks")
	f.stop()
	fired := f.list()
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(seen.all()) >= len(fired) }, "all run")
	ticks := map[int64]bool{}
	for _, task := range seen.all() {
		if task.ID != scheduler.TaskID("default", "j", task.Guard.Label) {
			t.Errorf("%s is not the id of %s", task.ID, task.Guard.Label)
		}
		if ticks[task.Guard.Tick] || seen.of(task.ID) != 1 {
			t.Errorf("%s ran twice", task.Guard.Label)
		}
		ticks[task.Guard.Tick] = true
	}
	if len(ticks) != len(fired) {
		t.Errorf("%d ticks ran, %d were published", len(ticks), len(fired))
	}
	st, err := schedredis.New(r.rdb, schedredis.Options{}).Load(t.Context(), []string{"j"})
	if err != nil || st[0].Seq != int64(len(fired)) {
		t.Errorf("the store counts %d: %v", st[0].Seq, err)
	}
	seconds := map[int64]int{}
	for _, task := range naive.all() {
		_ = task
		seconds[0]++
	}
	if seconds[0] < 2*len(fired) {
		t.Errorf("three of asynq's schedulers made %d tasks for about %d ticks: no duplicates, so this test shows nothing", seconds[0], len(fired))
	}
}

func (f *fleet) asideNow() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.aside
}

// A replica dies after it has sent a tick's task and before it has claimed the
// tick: another finds the task, claims the tick and sends nothing.
func TestATickThatIsSentAndNotClaimed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	r.handle("tick", func(_ context.Context, task *tasks.Task) (any, error) { seen.saw(task); return nil, nil })
	j := everySecond(t, "j", "tick")
	tick := j.Schedule.Next(time.Now().Add(3 * time.Second))
	req, err := j.Request("default", tick)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if sent, err := r.client.Send(t.Context(), req); err != nil || sent != want {
			t.Fatalf("send %d: %v, %v", i+1, sent, err)
		}
	}
	r.start(setup{})
	r.wait(req.ID) // done and kept: the id stays known
	f := r.schedule(2, j)
	testkit.Poll(t, 30*time.Second, 20*time.Millisecond, func() bool {
		st, err := schedredis.New(r.rdb, schedredis.Options{}).Load(t.Context(), []string{"j"})
		return err == nil && st[0].Last.After(tick.At)
	}, "the tick after")
	f.stop()
	if slices.Contains(f.list(), req.ID) {
		t.Error("a replica says that it has published the tick")
	}
	if seen.of(req.ID) != 1 {
		t.Errorf("%d runs", seen.of(req.ID))
	}
	info, err := r.inspect.GetTaskInfo(DefaultQueue, req.ID)
	if err != nil || info.Retention < 24*time.Hour || info.MaxRetry < 1 {
		t.Errorf("retention %s, MaxRetry %d: %v", info.Retention, info.MaxRetry, err)
	}
}

// The first run fails for good and lies in the archive, where its id is taken:
// the next ticks have ids of their own. A fixed id is refused.
func TestA02_AFailedTickDoesNotBlockTheNext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	r.handle("tick", func(_ context.Context, task *tasks.Task) (any, error) {
		seen.saw(task)
		return nil, tasks.Permanent(errors.New("no"))
	})
	r.start(setup{})
	f := r.schedule(1, everySecond(t, "j", "tick"))
	testkit.Poll(t, 30*time.Second, 20*time.Millisecond, func() bool { return len(seen.all()) >= 3 }, "three ticks")
	f.stop()
	for _, task := range seen.all()[:3] {
		r.becomes(task.ID, "archived")
	}
	first := seen.all()[0].ID
	_, err := asynq.NewClientFromRedisClient(r.rdb).EnqueueContext(t.Context(), asynq.NewTask("tick", nil), asynq.Queue(DefaultQueue), asynq.TaskID(first))
	if !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("a fixed id after an archived run: %v", err)
	}
	if _, err := r.client.Enqueue(t.Context(), "tick", tasks.WithID(first)); !errors.Is(err, ErrDuplicateID) {
		t.Errorf("an id that is there: %v", err)
	}
}

// With the asynq that is pinned, a unique task that is deleted frees its key.
func TestA03_ADeletedUniqueTaskFreesItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	plain := asynq.NewClientFromRedisClient(r.rdb)
	send := func() (*asynq.TaskInfo, error) {
		return plain.EnqueueContext(t.Context(), asynq.NewTask("x", []byte(`{"n": 1}`)), asynq.Queue(DefaultQueue), asynq.Unique(time.Minute))
	}
	info, err := send()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := send(); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("the second: %v", err)
	}
	if err := r.inspect.DeleteTask(DefaultQueue, info.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := send(); err != nil {
		t.Errorf("after the first was deleted: %v", err)
	}
}

// Redis stands still for 40 s under a long run: its lock is over, its context
// ends, and it runs once more, with a larger fence; the first one's is refused.
func TestA05_RedisStandsStillUnderALongRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type run struct {
		fence uint64
		cause error
	}
	runs := make(chan run, 5)
	entered := make(chan struct{}, 5)
	var n atomic.Int64
	r.handle("long", func(ctx context.Context, _ *tasks.Task) (any, error) {
		fence, _ := tasks.Fence(ctx)
		if n.Add(1) > 1 {
			runs <- run{fence: fence}
			return "second", nil
		}
		entered <- struct{}{}
		timer := time.NewTimer(60 * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
			runs <- run{fence: fence}
			return "first", nil
		case <-ctx.Done():
			runs <- run{fence, context.Cause(ctx)}
			return nil, ctx.Err()
		}
	})
	client := testkit.RedisClient(t, r.addr, 0)
	r.start(setup{client: client})
	id := r.send("long", &tasks.Guard{Lock: &tasks.LockGuard{Key: "k", TTLMS: 10_000, OnBusy: tasks.OnBusyRetry}})
	<-entered
	paused := time.Now()
	if err := r.rdb.Do(t.Context(), "CLIENT", "PAUSE", "40000", "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	first := <-runs
	if !errors.Is(first.cause, lockguard.ErrLost) || time.Since(paused) > 15*time.Second {
		t.Errorf("cause %v after %s", first.cause, time.Since(paused))
	}
	testkit.Poll(t, 90*time.Second, 100*time.Millisecond, func() bool { return r.rdb.Ping(t.Context()).Err() == nil }, "Redis goes on")
	res := r.waitFor(id, 240*time.Second)
	second := <-runs
	t.Logf("run again %s after the pause began", time.Since(paused).Round(time.Second))
	if string(res.Value) != `"second"` || n.Load() != 2 {
		t.Errorf("result %+v after %d runs", res, n.Load())
	}
	if first.fence == 0 || second.fence <= first.fence {
		t.Errorf("fences %d, %d", first.fence, second.fence)
	}
	if err := lockredis.SetFenced(t.Context(), r.rdb, "resource", "second", lockguard.Fence(second.fence)); err != nil {
		t.Error(err)
	}
	if err := lockredis.SetFenced(t.Context(), r.rdb, "resource", "first", lockguard.Fence(first.fence)); !errors.Is(err, lockguard.ErrFenced) {
		t.Errorf("the first run's write: %v", err)
	}
}

// A handler ignores that its context has ended: its lock is renewed no longer
// than max_hold, others go on, and the lost slot shows.
func TestA06_AHandlerIgnoresItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	free := make(chan struct{})
	var n atomic.Int64
	r.handle("deaf", func(context.Context, *tasks.Task) (any, error) {
		if n.Add(1) == 1 {
			<-free
		}
		return nil, nil
	})
	overdue := make(chan bool, 2)
	first, depth := r.start(setup{
		observe: worker.Observer{Overdue: func(_ worker.Run, ended bool) { overdue <- ended }},
	}), NewAdmin(AdminConfig{Client: r.rdb})
	guard := &tasks.Guard{TimeoutMS: 1000, Lock: &tasks.LockGuard{Key: "k", TTLMS: 1000, MaxHoldMS: 2000, OnBusy: tasks.OnBusyRetry}}
	deaf := r.send("deaf", guard)
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return n.Load() == 1 }, "the first run")
	began := time.Now()
	r.start(setup{})
	second := r.send("deaf", guard)
	r.waitFor(second, 30*time.Second)
	if d := time.Since(began); d < time.Second || d > 20*time.Second {
		t.Errorf("the second ran after %s", d)
	}
	// The second's result is there just before asynq is told of its end.
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool {
		d, err := depth.Depths(t.Context())
		return err == nil && d[0].Active == 1
	}, "the lost slot shows")
	if r.state(deaf) != "active" || first.Active() != 1 {
		t.Errorf("the lost slot does not show: %s, %d active", r.state(deaf), first.Active())
	}
	select {
	case ended := <-overdue:
		if ended {
			t.Error("told only when it ended")
		}
	case <-time.After(30 * time.Second):
		t.Error("nobody was told of a handler that does not end")
	}
	close(free)
	r.wait(deaf)
}

// kill -9 of the only worker: asynq's lease and its recoverer decide, not the 30
// minutes of its default timeout.
func TestA08_ComesBackAfterAKill(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.handle("x", func(_ context.Context, task *tasks.Task) (any, error) {
		return map[string]any{"attempt": task.Attempt, "redelivered": task.Redelivered}, nil
	})
	dead := testkit.Start(t, "worker", []string{childRole + "=worker", childAddr + "=" + r.addr}, os.Args[0])
	id := r.send("x", nil)
	dead.WaitOutput(20*time.Second, "began "+id)
	dead.Kill()
	killed := time.Now()
	r.start(setup{tune: func(tn *tuning) { *tn = defaultTuning() }})
	res := r.waitFor(id, 240*time.Second)
	t.Logf("run again %s after the kill", time.Since(killed).Round(time.Second))
	if string(res.Value) != `{"attempt": 1, "redelivered": true}` {
		t.Errorf("result %s", res.Value)
	}
	if d := time.Since(killed); d > 150*time.Second {
		t.Errorf("it took %s", d)
	}
}

// The zone of a job is the job's, whatever the host's and asynq's own are.
func TestA10_EachJobHasItsOwnZone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := testkit.Start(t, "zones", []string{childRole + "=zones", childAddr + "=" + r.addr, "TZ=Asia/Shanghai"}, os.Args[0])
	if code := p.Wait(30 * time.Second); code != 0 {
		t.Fatalf("exit %d", code)
	}
	lines := strings.Split(strings.TrimSpace(p.Stdout()), "\n")
	want := [][2]string{{"2026-11-30T09:00:00+09:00", "2026-11-30"}, {"2026-11-30T09:00:00-05:00", "2026-11-30"}}
	if len(lines) != len(want) {
		t.Fatalf("%q", lines)
	}
	for i, line := range lines {
		id, rest, _ := strings.Cut(line, " ")
		if !strings.HasSuffix(rest, "+0800") {
			t.Errorf("the host's zone is not Shanghai's: %s", rest)
		}
		info, err := r.inspect.GetTaskInfo(DefaultQueue, id)
		if err != nil {
			t.Fatal(err)
		}
		g, err := tasks.DecodeGuard([]byte(info.Headers[tasks.GuardHeader]))
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, want[i][0])
		if err != nil || g.Label != want[i][0] && !strings.HasPrefix(g.Label, "2026-11-30T09:00") || !time.UnixMilli(g.Tick).Equal(at) {
			t.Errorf("label %q, tick %s, want %s", g.Label, time.UnixMilli(g.Tick).UTC(), want[i][0])
		}
		if string(info.Payload) != `{"day":"`+want[i][1]+`"}` {
			t.Errorf("payload %s", info.Payload)
		}
	}
}

// asynq keeps 10,000 archived tasks and drops the oldest without a word: before
// that, the depths show how full the archive is.
func TestA12_TheArchiveIsCountedBeforeItIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := NewAdmin(AdminConfig{Client: r.rdb})
	plain := asynq.NewClientFromRedisClient(r.rdb)
	archived := func(n int) int64 {
		t.Helper()
		var wg sync.WaitGroup
		for part := range 10 {
			wg.Go(func() {
				for range n / 10 {
					if _, err := plain.EnqueueContext(t.Context(), asynq.NewTask("x", nil), asynq.Queue(DefaultQueue)); err != nil {
						t.Error(part, err)
						return
					}
				}
			})
		}
		wg.Wait()
		if _, err := r.inspect.ArchiveAllPendingTasks(DefaultQueue); err != nil {
			t.Fatal(err)
		}
		d, err := admin.Depths(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d[0].Archived
	}
	if n := archived(9000); n != 9000 {
		t.Errorf("%d of 9,000 are counted", n)
	}
	if n := archived(2000); n >= 11_000 || n < 9000 {
		t.Errorf("%d of 11,000 are kept; asynq's bound is gone, and this case with it", n)
	}
}

// A Celery list and an asynq queue of one name in one database have no key in
// common: to empty one leaves the other.
func TestA13_QueuesOfOneName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	other := celery.NewClient(celery.ClientConfig{Broker: testkit.RedisClient(t, r.addr, 0), Queue: "default"})
	mine := NewClient(ClientConfig{Client: r.rdb, Queue: "default"})
	var first string // of the asynq queue
	for _, c := range []tasks.Enqueuer{other, mine} {
		for n := range 3 {
			id, err := c.Enqueue(ctx, "x")
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				first = id
			}
		}
	}
	depths := func() [2]int64 {
		d, err := NewAdmin(AdminConfig{Client: r.rdb, Queues: []string{"empty", "default"}}).Depths(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d[0].Next != "" || d[1].Waiting > 0 && d[1].Next != first {
			t.Errorf("next are %q and %q, want %q", d[0].Next, d[1].Next, first)
		}
		return [2]int64{r.rdb.LLen(ctx, "default").Val(), d[1].Waiting}
	}
	if got := depths(); got != [2]int64{3, 3} {
		t.Fatalf("%v", got)
	}
	if _, err := r.inspect.DeleteAllPendingTasks("default"); err != nil {
		t.Fatal(err)
	}
	if got := depths(); got != [2]int64{3, 0} {
		t.Errorf("asynq's was emptied: %v", got)
	}
	var err error
	if first, err = mine.Enqueue(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	r.rdb.Del(ctx, "default")
	if got := depths(); got != [2]int64{0, 1} {
		t.Errorf("Celery's was emptied: %v", got)
	}
}
