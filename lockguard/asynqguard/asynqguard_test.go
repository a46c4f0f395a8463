package asynqguard_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/asynqguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/tasks"
)

// program is a plain asynq program with guards.
type program struct {
	t       *testing.T
	rdb     *redis.Client
	client  *asynq.Client
	inspect *asynq.Inspector
	locks   *lockguard.Guard
	records *idempotency.Guard
	mux     *asynq.ServeMux
}

func newProgram(t *testing.T) *program {
	t.Helper()
	rdb := testkit.Redis(t).Client(t)
	p := &program{t: t, rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), inspect: asynq.NewInspectorFromRedisClient(rdb), mux: asynq.NewServeMux()}
	b, err := lockredis.New(rdb, lockredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.locks, err = lockguard.New(lockguard.Config{Backend: b, Instance: "a", Logger: testkit.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	s, err := idemredis.New(rdb, idemredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.records, err = idempotency.New(idempotency.Config{Store: s, Instance: "a", Logger: testkit.Logger(t)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.locks.Close(ctx)
		p.records.Close()
	})
	return p
}

func (p *program) serve() {
	p.t.Helper()
	srv := asynq.NewServerFromRedisClient(p.rdb, asynq.Config{
		Concurrency: 4, TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond, LogLevel: asynq.FatalLevel,
		IsFailure: asynqguard.IsFailure, RetryDelayFunc: asynqguard.RetryDelay,
	})
	if err := srv.Start(p.mux); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(srv.Shutdown)
}

func (p *program) send(name string, opts ...asynq.Option) string {
	p.t.Helper()
	info, err := p.client.EnqueueContext(p.t.Context(), asynq.NewTask(name, nil), append([]asynq.Option{asynq.Retention(time.Hour)}, opts...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	return info.ID
}

func (p *program) info(id string) *asynq.TaskInfo {
	p.t.Helper()
	info, err := p.inspect.GetTaskInfo("default", id)
	if err != nil {
		p.t.Fatal(err)
	}
	return info
}

func (p *program) becomes(id string, want asynq.TaskState) {
	p.t.Helper()
	testkit.Poll(p.t, 30*time.Second, 10*time.Millisecond, func() bool { return p.info(id).State == want }, "%s is %s, not %s", id, p.info(id).State, want)
}

// Tasks of one key run one at a time, and waiting uses up no retry. Without the
// middleware they run side by side.
func TestLock(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	var now, most, bare, bareMost atomic.Int64
	busy := func(now, most *atomic.Int64) func(context.Context, *asynq.Task) error {
		var mu sync.Mutex
		return func(context.Context, *asynq.Task) error {
			n := now.Add(1)
			mu.Lock()
			most.Store(max(most.Load(), n))
			mu.Unlock()
			timer := time.NewTimer(200 * time.Millisecond)
			<-timer.C
			now.Add(-1)
			return nil
		}
	}
	var fences []uint64
	p.mux.Use(asynqguard.Lock(p.locks, func(t *asynq.Task) string {
		if t.Type() == "bare" {
			return ""
		}
		return "lock:" + t.Type()
	}, lockguard.WithTTL(time.Second)))
	guarded := busy(&now, &most)
	p.mux.HandleFunc("x", func(ctx context.Context, t *asynq.Task) error {
		f, ok := tasks.Fence(ctx)
		if _, held := lockguard.FromContext(ctx); !ok || !held {
			return errors.New("no lock in the context")
		}
		fences = append(fences, f) // one at a time, or the race detector says so
		return guarded(ctx, t)
	})
	p.mux.HandleFunc("bare", busy(&bare, &bareMost))
	var ids []string
	for range 4 {
		ids = append(ids, p.send("x", asynq.MaxRetry(1)))
		p.send("bare")
	}
	p.serve()
	for _, id := range ids {
		p.becomes(id, asynq.TaskStateCompleted)
		if n := p.info(id).Retried; n != 0 {
			t.Errorf("%d retries", n)
		}
	}
	if most.Load() != 1 || bareMost.Load() < 2 {
		t.Errorf("%d at once with a lock, %d without", most.Load(), bareMost.Load())
	}
	for i, f := range fences {
		if i > 0 && f <= fences[i-1] {
			t.Errorf("fences %v", fences)
		}
	}
}

// With a wait a task stays in its slot until the lock is free, and comes once;
// the lock's other options reach its handler.
func TestLockWaits(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	var came atomic.Int64
	p.mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			came.Add(1)
			return next.ProcessTask(ctx, t)
		})
	}, asynqguard.Lock(p.locks, asynqguard.ByType("lock:"), lockguard.WithTTL(time.Second), lockguard.WithWait(20*time.Second),
		lockguard.WithStallAfter(time.Second), lockguard.WithMinHold(time.Minute)))
	p.mux.HandleFunc("x", func(ctx context.Context, _ *asynq.Task) error {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for began := time.Now(); time.Since(began) < 3*time.Second; <-tick.C {
			tasks.Heartbeat(ctx)
		}
		return ctx.Err()
	})
	h, err := p.locks.TryAcquire(t.Context(), "lock:x")
	if err != nil {
		t.Fatal(err)
	}
	id := p.send("x", asynq.MaxRetry(1))
	p.serve()
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return came.Load() == 1 }, "the task comes")
	_, _ = h.Release(t.Context())
	p.becomes(id, asynq.TaskStateCompleted)
	if n := came.Load(); n != 1 || p.info(id).Retried != 0 {
		t.Errorf("it came %d times, %d retries", n, p.info(id).Retried)
	}
	if holder, err := p.locks.Inspect(t.Context(), "lock:x"); err != nil || !holder.Kept || holder.TaskID != id {
		t.Errorf("holder %+v, %v", holder, err)
	}
}

// What need not run while another does is done without a run; the lock is free
// after a panic too.
func TestLockOrSkip(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	var runs atomic.Int64
	p.mux.Use(asynqguard.LockOrSkip(p.locks, asynqguard.ByType("lock:")))
	p.mux.HandleFunc("x", func(context.Context, *asynq.Task) error { runs.Add(1); return nil })
	p.mux.HandleFunc("panics", func(context.Context, *asynq.Task) error { panic("oh") })
	other, err := p.locks.TryAcquire(t.Context(), "lock:x", lockguard.WithTaskID("somebody"))
	if err != nil {
		t.Fatal(err)
	}
	p.serve()
	p.becomes(p.send("x"), asynq.TaskStateCompleted)
	if runs.Load() != 0 {
		t.Error("it ran beside the other")
	}
	if _, err := other.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.becomes(p.send("x"), asynq.TaskStateCompleted)
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
	p.becomes(p.send("panics", asynq.MaxRetry(0)), asynq.TaskStateArchived)
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return p.rdb.Exists(t.Context(), "lock:panics").Val() == 0 }, "the lock is free")
}

// A key is done once, however often its task comes; a failure lets the next one
// try, and one for good does not.
func TestRecord(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	var charges, fails, ends atomic.Int64
	entered, free := make(chan struct{}, 1), make(chan struct{})
	p.mux.Use(
		asynqguard.Lock(p.locks, func(*asynq.Task) string { return "" }),
		asynqguard.Record(p.records, func(t *asynq.Task) string { return "pay-" + t.Type() }),
	)
	p.mux.HandleFunc("charge", func(ctx context.Context, _ *asynq.Task) error {
		if key, _ := tasks.Key(ctx); key != "pay-charge" {
			t.Errorf("key %q", key)
		}
		charges.Add(1)
		entered <- struct{}{}
		<-free
		return nil
	})
	p.mux.HandleFunc("fails", func(context.Context, *asynq.Task) error {
		if fails.Add(1) == 1 {
			return errors.New("no")
		}
		return nil
	})
	p.mux.HandleFunc("ends", func(context.Context, *asynq.Task) error { ends.Add(1); return asynq.SkipRetry })
	p.serve()
	one := p.send("charge")
	<-entered
	two := p.send("charge")
	p.becomes(two, asynq.TaskStateRetry)
	close(free)
	p.becomes(one, asynq.TaskStateCompleted)
	p.becomes(two, asynq.TaskStateCompleted)
	p.becomes(p.send("charge"), asynq.TaskStateCompleted)
	if charges.Load() != 1 {
		t.Errorf("%d charges", charges.Load())
	}
	p.becomes(p.send("fails", asynq.MaxRetry(0)), asynq.TaskStateArchived)
	p.becomes(p.send("fails"), asynq.TaskStateCompleted)
	for range 2 {
		p.becomes(p.send("ends"), asynq.TaskStateArchived)
	}
	if ends.Load() != 1 {
		t.Errorf("%d runs of a key that has failed for good", ends.Load())
	}
}

// A task that is run again after it was done, since asynq lost the word of it,
// is done once.
func TestByID(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	var runs atomic.Int64
	p.mux.Use(asynqguard.Record(p.records, asynqguard.ByID))
	p.mux.HandleFunc("x", func(context.Context, *asynq.Task) error { runs.Add(1); return nil })
	p.serve()
	id := p.send("x", asynq.TaskID("t-1"))
	p.becomes(id, asynq.TaskStateCompleted)
	if err := p.inspect.DeleteTask("default", id); err != nil {
		t.Fatal(err)
	}
	p.becomes(p.send("x", asynq.TaskID("t-1")), asynq.TaskStateCompleted)
	p.becomes(p.send("x", asynq.TaskID("t-2")), asynq.TaskStateCompleted)
	if runs.Load() != 2 {
		t.Errorf("%d runs, want one of each id", runs.Load())
	}
}

func TestHelpers(t *testing.T) {
	t.Parallel()
	wait := &asynqguard.WaitError{Left: 10 * time.Second, Cause: lockguard.ErrBusy}
	if asynqguard.IsFailure(wait) || !asynqguard.IsFailure(errors.New("x")) || asynqguard.IsFailure(nil) {
		t.Error("IsFailure")
	}
	if !errors.Is(wait, lockguard.ErrBusy) || !errors.Is(wait, asynqguard.ErrWait) {
		t.Error("what a task waits for is lost")
	}
	for _, c := range []struct{ left, low, high time.Duration }{
		{0, 800 * time.Millisecond, 1200 * time.Millisecond}, {5 * time.Second, 4 * time.Second, 6 * time.Second}, {time.Hour, 8 * time.Second, 12 * time.Second},
	} {
		if d := asynqguard.RetryDelay(0, &asynqguard.WaitError{Left: c.left, Cause: lockguard.ErrBusy}, nil); d < c.low || d > c.high {
			t.Errorf("%s left: %s", c.left, d)
		}
	}
	if d := asynqguard.RetryDelay(0, errors.New("x"), nil); d < 15*time.Second {
		t.Errorf("asynq's own delay: %s", d)
	}
}

// To adopt the guards takes less than 15 lines.
func TestTheExampleIsShort(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "example_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.Name != "serve" {
			continue
		}
		found = true
		if n := fset.Position(fn.Body.Rbrace).Line - fset.Position(fn.Body.Lbrace).Line - 1; n >= 15 {
			t.Errorf("%s has %d lines", fn.Name.Name, n)
		}
	}
	if !found {
		t.Error("serve is gone")
	}
}
