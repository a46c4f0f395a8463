package celery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Workers are stopped and started again and again while messages come: every
// message runs, and none twice, since every stop is orderly.
func TestP02_OrderlyRestartsLoseNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n, restarts = 10_000, 50
	seen := newWitness()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			r.enqueue("t.p02", tasks.WithID(fmt.Sprintf("id-%05d", i)))
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for range restarts {
		w := r.start(Config{Concurrency: 4}, nil, seen.runner())
		<-time.After(30 * time.Millisecond)
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
	}
	r.start(Config{Concurrency: 4}, nil, seen.runner())
	testkit.Poll(t, 60*time.Second, 10*time.Millisecond, func() bool { return seen.distinct() == n }, "all ran")
	r.empty()
	if total := len(seen.order()); total != n {
		t.Errorf("%d runs of %d messages", total, n)
	}
}

func TestP03_ARunThatEndsWithinTheGraceIsAcked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	begun := make(chan struct{})
	seen := newWitness()
	w := r.start(Config{Concurrency: 1}, nil, func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		seen.saw(d.Task.ID)
		if d.Task.Name == "t.slow" {
			close(begun)
			<-time.After(500 * time.Millisecond)
			if ctx.Err() != nil {
				t.Error("cancelled within the grace")
			}
		}
		return succeed(`"done"`)
	})
	id := r.enqueue("t.slow")
	<-begun
	next := r.enqueue("t.next")
	if err := w.stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if res := r.wait(id, time.Second); res.State != wire.StateSuccess {
		t.Errorf("%+v", res)
	}
	if n := r.number(r.rdb.LLen(context.Background(), "celery")); n != 1 || seen.of(next) != 0 {
		t.Errorf("waiting %d, the next one ran %d times: taken during the stop", n, seen.of(next))
	}
	r.start(Config{}, nil, seen.runner())
	r.wait(next, 5*time.Second)
	if seen.of(id) != 1 {
		t.Errorf("ran %d times", seen.of(id))
	}
	r.empty()
}

// What was taken and not begun goes back in the order in which it came.
func TestUnstartedMessagesGoBackInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	e := r.engine(Config{}, nil)
	self, err := e.enrol(ctx, "", func(int, error) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 5 {
		want = append([]string{r.enqueue("t.q", tasks.WithID(fmt.Sprint(i)))}, want...)
	}
	before, err := r.rdb.LRange(ctx, "celery", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(ctx, ctx, e, self)
	rep, err := e.cycle(ctx, self, &cycleCall{number: 1, want: 3, sources: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	l.startAll(rep)
	l.beginStop()
	l.settleOps()
	after, err := r.rdb.LRange(ctx, "celery", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, after); d != "" { // byte for byte: no run has begun
		t.Error(d)
	}
	if d := cmp.Diff(want, ids(after)); d != "" {
		t.Error(d)
	}
	l.stop.cancel.Stop()
}

func TestP04_AKilledReplicasRunComesBackMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.dier(Config{}, func(*tasks.Delivery) bool { return true }, nil)
	id := r.enqueue("t.p04")
	<-d.dead
	second := make(chan *tasks.Delivery, 2)
	r.start(Config{}, fast, func(_ context.Context, del *tasks.Delivery) tasks.Outcome {
		second <- del
		return succeed("null")
	})
	r.wait(id, 10*time.Second)
	if del := <-second; !del.Task.Redelivered || del.Task.Attempt != 1 || del.Deaths != 1 {
		t.Errorf("%+v", del.Task)
	}
	r.empty()
	if len(second) != 0 {
		t.Error("delivered more than once")
	}
}

// A run that outlasts the grace is cancelled with a cause and handed back;
// another replica runs it once.
func TestP06_GraceEndsBeforeTheKill(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	begun := make(chan struct{})
	var taken atomic.Int64
	w := r.start(Config{Concurrency: 1, Grace: 500 * time.Millisecond}, nil, func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		taken.Add(1)
		close(begun)
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, tasks.ErrShutdown) {
			t.Errorf("cause %v", cause)
		}
		return tasks.Outcome{Kind: tasks.Returned, Begun: true, Err: context.Cause(ctx)}
	})
	id := r.enqueue("t.long")
	<-begun
	r.enqueue("t.other")
	begin := time.Now()
	if err := w.stop(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if took := time.Since(begin); took < 400*time.Millisecond || took > 2*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if taken.Load() != 1 {
		t.Error("taken after the stop")
	}
	seen := newWitness()
	r.start(Config{}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if d.Task.ID == id && (!d.Task.Redelivered || d.Task.Attempt != 1 || d.Deaths != 0 || d.Losses != 0) {
			t.Errorf("%+v %+v", d, d.Task)
		}
		seen.saw(d.Task.ID)
		return succeed("null")
	})
	r.wait(id, 5*time.Second)
	if seen.of(id) != 1 {
		t.Errorf("ran %d times", seen.of(id))
	}
	r.empty()
}

// The broker is gone when the worker is told to stop: it ends in bounded time.
func TestStopWithoutABroker(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	r := rigAt(t, srv.Addr)
	w := r.start(Config{Grace: 300 * time.Millisecond}, fast, newWitness().runner())
	r.wait(r.enqueue("t.one"), 5*time.Second)
	srv.Stop()
	begin := time.Now()
	_ = w.stop()
	if took := time.Since(begin); took > 6*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

func TestAckEarly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	begun, finish := make(chan struct{}), make(chan struct{})
	cfg := Config{AckEarly: func(task string) bool { return task == "t.early" }}
	r.start(cfg, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if d.Task.Attempt == 1 {
			close(begun)
			<-finish
			return tasks.Outcome{Kind: tasks.Retried, After: 50 * time.Millisecond, Err: errors.New("x")}
		}
		return succeed(`"ok"`)
	})
	id := r.enqueue("t.early")
	<-begun
	if n := r.number(r.rdb.HLen(ctx, "unacked")) + r.number(r.rdb.ZCard(ctx, "unacked_index")); n != 0 {
		t.Errorf("%d entries while it runs: not acked early", n)
	}
	close(finish)
	if res := r.wait(id, 5*time.Second); string(res.Value) != `"ok"` {
		t.Errorf("%+v", res)
	}
	r.empty()
}

// The broker is silent, and a run deaf, when the time for an orderly end is
// over: the replica goes all the same, since a supervisor would kill it soon.
func TestStopWithASilentBrokerAndADeafRun(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	r := rigAt(t, srv.Addr)
	begun, finish := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	w := r.start(Config{Grace: 300 * time.Millisecond, Concurrency: 1}, fast, func(context.Context, *tasks.Delivery) tasks.Outcome {
		defer close(ended)
		close(begun)
		<-finish
		return succeed("null")
	})
	r.enqueue("t.deaf")
	<-begun
	srv.Pause()
	begin := time.Now()
	if err := w.stop(); !errors.Is(err, ErrRunsLeft) {
		t.Errorf("Run returned %v", err)
	}
	// 300 ms of grace, 1 s until the exit (5 s in earnest), and a last word.
	if took := time.Since(begin); took < 1200*time.Millisecond || took > 3500*time.Millisecond {
		t.Errorf("the stop took %v", took)
	}
	srv.Continue()
	close(finish)
	<-ended
}

// So it does when a call is under way, whose time counts too.
func TestStopInACallThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	r := rigAt(t, srv.Addr)
	begun, finish := make(chan struct{}), make(chan struct{})
	slow := func(e *Engine) {
		fast(e)
		e.tune.exit, e.tune.call = 3*time.Second, 3*time.Second
	}
	w := r.start(Config{Grace: 300 * time.Millisecond}, slow, func(context.Context, *tasks.Delivery) tasks.Outcome {
		close(begun)
		<-finish
		return succeed("null")
	})
	r.enqueue("t.one")
	<-begun
	srv.Pause()
	defer srv.Continue()
	close(finish)
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return w.cycles.Load()%2 == 1 }, "a call is under way")
	begin := time.Now()
	if err := w.stop(); !errors.Is(err, ErrRunsLeft) {
		t.Errorf("Run returned %v", err)
	}
	// 300 ms of grace, 3 s until the exit, and a last word.
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// A deaf run is left: its message is taken over at once, and no death is
// counted against it.
func TestADeafRunsMessageIsTakenOverAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	w := r.start(Config{Grace: 200 * time.Millisecond, Concurrency: 1}, fast, func(context.Context, *tasks.Delivery) tasks.Outcome {
		defer close(ended)
		close(begun)
		<-finish
		return succeed(`"late"`)
	})
	second := make(chan *tasks.Delivery, 1)
	id := r.enqueue("t.deaf")
	<-begun
	r.start(Config{}, fast, func(_ context.Context, d *tasks.Delivery) tasks.Outcome { second <- d; return succeed(`"second"`) })
	if err := w.stop(); !errors.Is(err, ErrRunsLeft) {
		t.Errorf("Run returned %v", err)
	}
	begin := time.Now()
	if res := r.wait(id, 5*time.Second); string(res.Value) != `"second"` {
		t.Errorf("%+v", res)
	}
	if took := time.Since(begin); took > 1500*time.Millisecond { // a beat is 300 ms here, a burial would be 2 s
		t.Errorf("taken over after %v", took)
	}
	if d := <-second; d.Deaths != 0 || !d.Task.Redelivered || d.Task.Attempt != 1 {
		t.Errorf("%+v", d)
	}
	close(finish)
	<-ended
	r.empty()
}
