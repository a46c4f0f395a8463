package asynqengine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// What was sent is what the handler gets, all of it through our own Task: the
// context is asynq's no more.
func TestATaskArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var got witness
	r.handle("a.b", func(ctx context.Context, task *tasks.Task) (any, error) {
		got.saw(task)
		if _, ok := asynq.GetTaskID(ctx); ok {
			t.Error("a handler gets asynq's own context data")
		}
		if own, ok := tasks.FromContext(ctx); !ok || own != task {
			t.Error("the context does not hold the task")
		}
		return map[string]int64{"n": 9007199254740993}, nil
	})
	r.start(setup{})
	id := r.send("a.b", nil, tasks.WithArgs(1, "zwei <&>"), tasks.WithKwargs(map[string]any{"big": 9007199254740993, "t": "grüße 💶"}),
		tasks.WithHeaders(map[string]any{"traceparent": "00-ab-cd-01", "number": 7, "text": "7"}))
	res := r.wait(id)
	if res.State != wire.StateSuccess || string(res.Value) != `{"n": 9007199254740993}` {
		t.Errorf("result %+v", res)
	}
	want := tasks.Task{
		ID: id, Name: "a.b", Queue: DefaultQueue, Engine: EngineName, Attempt: 1,
		Args:    []json.RawMessage{json.RawMessage(`1`), json.RawMessage(`"zwei \u003c\u0026\u003e"`)},
		Kwargs:  map[string]json.RawMessage{"big": json.RawMessage(`9007199254740993`), "t": json.RawMessage(`"grüße 💶"`)},
		Headers: map[string]json.RawMessage{"traceparent": json.RawMessage(`"00-ab-cd-01"`), "number": json.RawMessage(`7`), "text": json.RawMessage(`"7"`)},
	}
	if diff := cmp.Diff([]tasks.Task{want}, got.all()); diff != "" {
		t.Error(diff)
	}
	r.becomes(id, "") // without a retention a done task leaves nothing
	if n := r.rdb.Exists(t.Context(), "solobeat:default:past:"+id).Val(); n != 0 {
		t.Error("a past is left behind")
	}
}

// A program that knows nothing of Solobeat sends JSON; its MaxRetry is the
// policy, and its Timeout ends a run.
func TestAPlainProgramsTasksRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type in struct {
		Day string `json:"day"`
	}
	err := tasks.Register(&r.reg, "report", func(_ context.Context, v in) (string, error) { return "for " + v.Day, nil })
	if err != nil {
		t.Fatal(err)
	}
	var tries witness
	r.handle("fails", func(_ context.Context, task *tasks.Task) (any, error) {
		tries.saw(task)
		return nil, tasks.Retry(errors.New("no"), 10*time.Millisecond, 2)
	})
	r.handle("slow", func(ctx context.Context, _ *tasks.Task) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	plain := asynq.NewClientFromRedisClient(r.rdb)
	send := func(name, payload string, opts ...asynq.Option) string {
		info, err := plain.EnqueueContext(t.Context(), asynq.NewTask(name, []byte(payload)), append(opts, asynq.Queue(DefaultQueue))...)
		if err != nil {
			t.Fatal(err)
		}
		return info.ID
	}
	r.start(setup{})
	if res := r.wait(send("report", `{"day": "2026-11-29"}`)); string(res.Value) != `"for 2026-11-29"` {
		t.Errorf("result %+v", res)
	}
	id := send("fails", ``, asynq.MaxRetry(9))
	if res := r.wait(id); res.State != wire.StateFailure {
		t.Errorf("result %+v", res)
	}
	if n := tries.of(id); n != 3 {
		t.Errorf("%d runs, want 3", n)
	}
	id = send("slow", `{}`, asynq.Timeout(time.Second), asynq.MaxRetry(0))
	if res := r.wait(id); res.Exception == nil || res.Exception.Type != "TimeLimitExceeded" {
		t.Errorf("result %+v, %+v", res, res.Exception)
	}
}

// A failed run is tried again as the policy says; asynq's own numbers agree,
// and what has failed for good lies in its archive.
func TestRetries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	r.handle("flaky", func(_ context.Context, task *tasks.Task) (any, error) {
		seen.saw(task)
		if task.Attempt < 3 {
			return nil, &tasks.Exception{Type: "NotYet"}
		}
		return task.Attempt, nil
	})
	r.handle("bad", func(_ context.Context, task *tasks.Task) (any, error) {
		seen.saw(task)
		return nil, &tasks.Exception{Type: "Never"}
	})
	r.handle("over", func(context.Context, *tasks.Task) (any, error) { return nil, tasks.Permanent(errors.New("no use")) })
	r.start(setup{})
	policy := tasks.WithRetries(tasks.RetryPolicy{Max: 2, BaseMS: 100})
	good, bad, over := r.send("flaky", nil, policy), r.send("bad", nil, policy), r.send("over", nil, policy)
	if res := r.wait(good); string(res.Value) != "3" {
		t.Errorf("result %+v", res)
	}
	if res := r.wait(bad); res.State != wire.StateFailure || res.Exception.Type != "Never" {
		t.Errorf("result %+v", res)
	}
	if res := r.wait(over); res.State != wire.StateFailure {
		t.Errorf("result %+v", res)
	}
	if seen.of(good) != 3 || seen.of(bad) != 3 {
		t.Errorf("%d and %d runs, want 3 and 3", seen.of(good), seen.of(bad))
	}
	for _, task := range seen.all() {
		if task.Redelivered != (task.Attempt > 1) {
			t.Errorf("attempt %d says redelivered %v", task.Attempt, task.Redelivered)
		}
	}
	r.becomes(bad, "archived")
	info, err := r.inspect.GetTaskInfo(DefaultQueue, bad)
	if err != nil || info.Retried != 2 || !strings.Contains(info.LastErr, "Never") {
		t.Errorf("asynq says %d retries, %q: %v", info.Retried, info.LastErr, err)
	}
}

// asynq keeps whole seconds and may be early by one; a task is never.
func TestETAIsNeverEarly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	early := make(chan time.Duration, 10)
	r.handle("at", func(_ context.Context, task *tasks.Task) (any, error) { early <- time.Until(task.ETA); return nil, nil })
	r.start(setup{})
	for _, d := range []time.Duration{300 * time.Millisecond, 1100 * time.Millisecond, 1900 * time.Millisecond} {
		id := r.send("at", nil, tasks.WithETA(time.Now().Add(d)))
		r.wait(id)
		if left := <-early; left > 0 || left < -3*time.Second {
			t.Errorf("an ETA in %s ran %s before it", d, left)
		}
	}
	// Brought forward by hand: it goes back until its time has come.
	id := r.send("at", nil, tasks.WithETA(time.Now().Add(2*time.Second)))
	if err := r.inspect.RunTask(DefaultQueue, id); err != nil {
		t.Fatal(err)
	}
	r.wait(id)
	if left := <-early; left > 0 {
		t.Errorf("ran %s early", left)
	}
}

// What has not begun expires; what has begun does not, not even without a
// record to say so: the naive mark, "this message is new", would revoke it.
func TestExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	entered := make(chan struct{}, 10)
	r.handle("x", func(ctx context.Context, task *tasks.Task) (any, error) {
		seen.saw(task)
		entered <- struct{}{}
		if seen.of(task.ID) == 1 {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return "again", nil
	})
	late := r.send("x", nil, tasks.WithExpires(time.Now().Add(-time.Second)))
	first := r.start(setup{cfg: Config{Grace: -1}})
	if res := r.wait(late); res.State != wire.StateRevoked || seen.of(late) != 0 {
		t.Errorf("result %+v after %d runs", res, seen.of(late))
	}
	id := r.send("x", nil, tasks.WithExpires(time.Now().Add(1500*time.Millisecond)))
	<-entered
	testkit.Poll(t, 5*time.Second, 20*time.Millisecond, func() bool {
		return time.Until(expiresOf(t, r, id)) < 0
	}, "the task expires")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	r.start(setup{})
	if res := r.wait(id); res.State != wire.StateSuccess || seen.of(id) != 2 {
		t.Errorf("result %+v after %d runs, want the second run's", res, seen.of(id))
	}
	if last := seen.all()[seen.of(id)-1]; last.Attempt != 1 || !last.Redelivered {
		t.Errorf("after a shutdown: attempt %d, redelivered %v", last.Attempt, last.Redelivered)
	}
}

func expiresOf(t *testing.T, r *rig, id string) time.Time {
	t.Helper()
	info, err := r.inspect.GetTaskInfo(DefaultQueue, id)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339Nano, info.Headers[headerExpires])
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The end of a replica: runs have the grace, then a cause; what was cancelled
// goes back at once, no attempt is counted, and another replica runs it.
func TestShutdown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	entered := make(chan string, 10)
	causes := make(chan error, 10)
	var runs atomic.Int64
	r.handle("short", func(ctx context.Context, task *tasks.Task) (any, error) {
		entered <- task.ID
		timer := time.NewTimer(300 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return "done", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	r.handle("long", func(ctx context.Context, task *tasks.Task) (any, error) {
		if runs.Add(1) > 1 {
			return task.Attempt, nil
		}
		entered <- task.ID
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	first := r.start(setup{cfg: Config{Concurrency: 2, Grace: time.Second}})
	short, long := r.send("short", nil), r.send("long", nil)
	<-entered
	<-entered
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	if res := r.wait(short); res.State != wire.StateSuccess {
		t.Errorf("within the grace: %+v", res)
	}
	if cause := <-causes; !errors.Is(cause, tasks.ErrShutdown) {
		t.Errorf("cause %v", cause)
	}
	r.start(setup{})
	if res := r.wait(long); string(res.Value) != "1" {
		t.Errorf("the second run's attempt is %s, want 1: %+v", res.Value, res)
	}
}

// A handler that does not end keeps nobody: its task is back in the queue and
// Run says so.
func TestRunsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	entered, free := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	r.handle("deaf", func(context.Context, *tasks.Task) (any, error) {
		if runs.Add(1) == 1 {
			close(entered)
			<-free
		}
		return "second", nil
	})
	first := r.start(setup{cfg: Config{Grace: -1}})
	id := r.send("deaf", nil)
	<-entered
	if err := first.stop(); !errors.Is(err, ErrRunsLeft) {
		t.Errorf("Run said %v", err)
	}
	if s := r.state(id); s != "pending" {
		t.Errorf("the task is %q", s)
	}
	close(free)
	r.start(setup{})
	r.wait(id)
}

// What can never run lies in asynq's archive with its reason, and whoever waits
// for it is told.
func TestWhatCannotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.handle("known", func(context.Context, *tasks.Task) (any, error) { return nil, nil })
	dead := make(chan tasks.Reason, 10)
	r.start(setup{cfg: Config{Observer: Observer{DeadLettered: func(_ string, reason tasks.Reason) { dead <- reason }}}})
	plain := asynq.NewClientFromRedisClient(r.rdb)
	for reason, task := range map[tasks.Reason]*asynq.Task{
		tasks.ReasonNotRegistered: asynq.NewTask("unknown", []byte(`{}`)),
		tasks.ReasonMalformed:     asynq.NewTask("known", []byte(`[1, 2]`)),
		tasks.ReasonBadGuard:      asynq.NewTaskWithHeaders("known", []byte(`{}`), map[string]string{"solobeat-v": "1", tasks.GuardHeader: `{"v": 0}`}),
	} {
		info, err := plain.EnqueueContext(t.Context(), task, asynq.Queue(DefaultQueue))
		if err != nil {
			t.Fatal(err)
		}
		res := r.wait(info.ID)
		if got := <-dead; got != reason || res.State != wire.StateFailure {
			t.Errorf("%s: told %q, result %+v", reason, got, res)
		}
		r.becomes(info.ID, "archived")
	}
}

// A guard of a later version waits for a replica that knows it; it is never run
// without.
func TestAGuardOfALaterVersionWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	r.handle("known", func(_ context.Context, task *tasks.Task) (any, error) { seen.saw(task); return nil, nil })
	parked := make(chan string, 10)
	r.start(setup{cfg: Config{Observer: Observer{Parked: func(_, reason string) { parked <- reason }}}})
	task := asynq.NewTaskWithHeaders("known", []byte(`{}`), map[string]string{"solobeat-v": "1", tasks.GuardHeader: `{"v": 99}`})
	info, err := asynq.NewClientFromRedisClient(r.rdb).EnqueueContext(t.Context(), task, asynq.Queue(DefaultQueue))
	if err != nil {
		t.Fatal(err)
	}
	if reason := <-parked; reason != "guard" {
		t.Errorf("parked for %q", reason)
	}
	r.becomes(info.ID, "retry")
	if seen.of(info.ID) != 0 {
		t.Error("it was run without its guard")
	}
}

// Messages under which processes keep dying end; asynq alone would go on for
// MaxRetry times.
func TestPoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var seen witness
	r.handle("poison", func(_ context.Context, task *tasks.Task) (any, error) { seen.saw(task); return nil, nil })
	id := r.send("poison", nil)
	// A server that counts a retry without a word of ours is what a death looks
	// like.
	died := make(chan struct{}, 10)
	srv := asynq.NewServerFromRedisClient(r.rdb, asynq.Config{
		Queues: map[string]int{DefaultQueue: 1}, Concurrency: 1, TaskCheckInterval: 10 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }, LogLevel: asynq.FatalLevel,
	})
	err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		if n, _ := asynq.GetRetryCount(ctx); n >= 3 {
			return asynq.SkipRetry
		}
		died <- struct{}{}
		return errors.New("died")
	}))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-died
	}
	r.becomes(id, "archived")
	srv.Shutdown()
	if err := r.inspect.RunTask(DefaultQueue, id); err != nil {
		t.Fatal(err)
	}
	r.start(setup{})
	if res := r.wait(id); res.Exception == nil || res.Exception.Type != "WorkerLostError" || seen.of(id) != 0 {
		t.Errorf("result %+v after %d runs", res, seen.of(id))
	}
}

// A task that asynq was told to cancel is tried again by it; what the first
// run still says is dropped, and no process counts as dead.
func TestALateOutcomeIsDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	entered, late := make(chan struct{}, 10), make(chan string, 10)
	r.handle("x", func(ctx context.Context, task *tasks.Task) (any, error) {
		if task.Redelivered {
			return "second", nil
		}
		entered <- struct{}{}
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, tasks.ErrBuried) {
			t.Errorf("cause %v", cause)
		}
		return "first", nil
	})
	var deaths atomic.Int64
	count := func(run tasks.Runner) tasks.Runner {
		return func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
			deaths.Add(int64(d.Deaths))
			return run(ctx, d)
		}
	}
	r.start(setup{runner: count, cfg: Config{Observer: Observer{LateCommit: func(task, _ string) { late <- task }}}})
	id := r.send("x", nil)
	<-entered
	testkit.Eventually(t, 10*time.Second, func() error {
		if err := r.inspect.CancelProcessing(id); err != nil {
			return err
		}
		if len(late) == 0 {
			return errors.New("nothing was dropped")
		}
		return nil
	})
	if res := r.wait(id); string(res.Value) != `"second"` || deaths.Load() != 0 {
		t.Errorf("result %s, %d deaths", res.Value, deaths.Load())
	}
}

// Several servers share the slots: never more runs than Concurrency.
func TestServersShareTheSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var now, most atomic.Int64
	free := make(chan struct{})
	r.handle("x", func(context.Context, *tasks.Task) (any, error) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-free
		now.Add(-1)
		return nil, nil
	})
	r.start(setup{cfg: Config{Concurrency: 5, Servers: 3}})
	var ids []string
	for range 12 {
		ids = append(ids, r.send("x", nil))
	}
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return now.Load() == 5 }, "five runs")
	servers, err := r.inspect.Servers()
	if err != nil || len(servers) != 3 {
		t.Errorf("%d servers: %v", len(servers), err)
	}
	close(free)
	for _, id := range ids {
		r.wait(id)
	}
	if most.Load() != 5 {
		t.Errorf("%d runs at once, want 5", most.Load())
	}
}

// Tasks that asynq's recoverer cannot see are told of, once they were seen
// twice.
func TestOrphansAreReported(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	// An id whose lease was lost (hibiken/asynq#1144), and one whose message was.
	r.rdb.HSet(ctx, "asynq:{celery}:t:o1", "msg", "x", "state", "active")
	r.rdb.LPush(ctx, "asynq:{celery}:active", "o1", "o2")
	r.rdb.ZAdd(ctx, "asynq:{celery}:lease", zAt(time.Now().Add(time.Hour), "o2"))
	told := make(chan int, 100)
	r.start(setup{cfg: Config{Observer: Observer{Orphans: func(_ string, n int) { told <- n }}}})
	if n := <-told; n != 0 {
		t.Errorf("%d at the first look, want 0", n)
	}
	if n := <-told; n != 2 {
		t.Errorf("%d at the second look, want 2", n)
	}
}
