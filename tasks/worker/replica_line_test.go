package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// A released lock does not idle: the oldest message in its line runs at once,
// not when its timer says, be the locks on the broker's server or on another.
func TestReleaseBringsTheOldestForward(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"one server": false, "locks on another server": true} {
		t.Run(name, func(t *testing.T) {
			s := setup{redis: testkit.Redis(t)}
			if elsewhere {
				s.locksAt = testkit.Redis(t).Addr
			}
			r := newReplica(t, s, nil)
			begun, finish := make(chan string, 1), make(chan struct{})
			var began time.Time
			r.handle("report", func(context.Context, *tasks.Task) (json.RawMessage, error) {
				began = time.Now()
				begun <- "x"
				<-finish
				return nil, nil
			})
			r.start()
			g := withGuard(jobGuard(lockOf("k", tasks.OnBusyRetry), ""))
			const rounds = 25
			var idle []time.Duration
			r.send("report", "m0", g)
			<-begun
			for i := range rounds {
				r.send("report", fmt.Sprintf("m%d", i+1), g)
				r.inLine("k", 1)
				ended := time.Now()
				finish <- struct{}{}
				<-begun
				idle = append(idle, began.Sub(ended))
			}
			close(finish)
			slices.Sort(idle)
			t.Logf("from the end of one run to the start of the next: p50 %v, p90 %v", idle[rounds/2], idle[rounds*9/10])
			if p50 := idle[rounds/2]; p50 > 300*time.Millisecond { // a timer is 800 ms at least
				t.Errorf("p50 %v: the lock idles", p50)
			}
		})
	}
}

// 500 messages of one key are no herd: while the lock is held only the oldest
// one looks, and when it is free each one brings the next, in the order of the
// line.
func TestManyMessagesOfOneKeyAreNoHerd(t *testing.T) {
	t.Parallel()
	const n = 500
	r := newReplica(t, setup{}, func(c *celery.Config) { c.Concurrency = 8 })
	var mu sync.Mutex
	var ran []string
	r.handle("report", func(_ context.Context, task *tasks.Task) (json.RawMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, task.ID)
		return nil, nil
	})
	holder := r.hold("k", "somebody")
	r.start()
	for i := range n {
		r.send("report", fmt.Sprintf("m%03d", i), withGuard(jobGuard(lockOf("k", tasks.OnBusyRetry), "")))
	}
	r.inLine("k", n)
	before, begin := r.scripts(), time.Now()
	<-time.After(3 * time.Second)
	perSecond := float64(r.scripts()-before) / time.Since(begin).Seconds()
	if perSecond > 20 {
		t.Errorf("%.0f scripts a second while the lock is held: a herd", perSecond)
	}
	want := r.lineIDs("k")
	before = r.scripts()
	begin = time.Now()
	if _, err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.engine.Wake(t.Context(), "k") // as the holder's replica does
	testkit.Poll(t, 60*time.Second, 10*time.Millisecond, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == n
	}, "all ran")
	took := time.Since(begin)
	r.idle()
	each := float64(r.scripts()-before) / n
	t.Logf("%.1f scripts a second while they wait; %d runs in %v, %.1f scripts each", perSecond, n, took.Round(time.Millisecond), each)
	if each > 12 {
		t.Errorf("%.1f scripts for each run", each)
	}
	if d := cmp.Diff(want, ran); d != "" {
		t.Errorf("order of the line (-line +runs): %s", d)
	}
}

// lineIDs lists the task ids in a line, oldest first.
func (r *replica) lineIDs(key string) []string {
	r.t.Helper()
	ctx := context.Background()
	var ids []string
	for _, tag := range r.client.ZRange(ctx, line(key), 0, -1).Val() {
		raw, _, _, err := wire.ParseUnacked([]byte(r.client.HGet(ctx, "unacked", tag).Val()))
		if err != nil {
			r.t.Fatal(err)
		}
		m, err := wire.Decode(raw)
		if err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	return ids
}

// A holder that releases without a word, as redis-py does, is found out by the
// timer of the oldest.
func TestForeignLockReleasedWithoutAWord(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, nil)
	r.handle("report", ok)
	r.client.Set(t.Context(), "k", "redis-py", time.Minute)
	r.start()
	r.send("report", "id", withGuard(jobGuard(lockOf("k", tasks.OnBusyRetry), "")))
	r.inLine("k", 1)
	r.client.Del(t.Context(), "k")
	begin := time.Now()
	if res := r.result("id", 5*time.Second); res.State != wire.StateSuccess {
		t.Errorf("%+v", res)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A job's deadline passes while its message stands in a line without a timer of
// its own: it is answered then, not when the line moves.
func TestDeadlinePassesInTheLine(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, nil)
	r.handle("report", ok)
	r.hold("k", "somebody")
	r.start()
	r.send("report", "oldest", withGuard(jobGuard(lockOf("k", tasks.OnBusyRetry), "")))
	r.inLine("k", 1)
	now, err := r.client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	by := now.Add(1500 * time.Millisecond)
	g := jobGuard(lockOf("k", tasks.OnBusyRetry), "")
	g.BeginBy = by.UnixMilli()
	r.send("report", "job", withGuard(g))
	r.send("report", "app", withGuard(jobGuard(lockOf("k", tasks.OnBusyRetry), "")), tasks.WithExpires(by))
	for _, id := range []string{"job", "app"} {
		res := r.result(id, 10*time.Second)
		if res.State != wire.StateFailure || res.Exception.Type != "LockBusy" {
			t.Errorf("%s: %s %+v", id, res.State, res.Exception)
		}
	}
	if now, err = r.client.Time(t.Context()).Result(); err != nil {
		t.Fatal(err)
	}
	if late := now.Sub(by); late < 0 || late > 2*time.Second {
		t.Errorf("answered %v after the deadline", late)
	}
}

// W18: a task whose expiry passes while the only slot is busy is not run; and
// one that an earlier run has begun is, since its record tells.
func TestW18_ExpiryIsJudgedAgainAtTheStart(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, func(c *celery.Config) { c.Concurrency = 1 })
	release, begun := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	runs := map[string]int{}
	r.handle("long", func(context.Context, *tasks.Task) (json.RawMessage, error) { close(begun); <-release; return nil, nil })
	r.handle("late", func(_ context.Context, task *tasks.Task) (json.RawMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		runs[task.ID]++
		return nil, nil
	})
	r.start()
	r.send("long", "long")
	<-begun
	at := time.Now().Add(400 * time.Millisecond)
	r.send("late", "late", tasks.WithExpires(at))
	known := r.delivery("known", "late", jobGuard(nil, "known"))
	wantKind(t, r.run(known), tasks.Succeeded)
	r.send("late", "known", tasks.WithExpires(at), withGuard(jobGuard(nil, "known")))
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return time.Now().After(at) }, "they expire")
	close(release)
	if res := r.result("late", 5*time.Second); res.State != wire.StateRevoked || res.Exception.Text() != "expired" {
		t.Errorf("result %+v", res)
	}
	if res := r.result("known", 5*time.Second); res.State != wire.StateSuccess || !strings.Contains(string(res.Solobeat), "replayed") {
		t.Errorf("result %+v %s", res, res.Solobeat)
	}
	mu.Lock()
	defer mu.Unlock()
	if runs["late"] != 0 || runs["known"] != 1 {
		t.Errorf("runs %v", runs)
	}
	r.idle()
}

// A function that ignores the loss of its lock keeps its own process's attempts
// off the key, but does not make them go round and round.
func TestDeafFunctionDoesNotMakeMessagesSpin(t *testing.T) {
	t.Parallel()
	r := newReplica(t, setup{}, nil)
	finish, lost := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.handle("report", func(ctx context.Context, _ *tasks.Task) (json.RawMessage, error) {
		once.Do(func() {
			r.client.Del(context.Background(), "k")
			<-ctx.Done()
			close(lost)
			<-finish
		})
		return nil, nil
	})
	r.start()
	g := withGuard(jobGuard(lockOf("k", tasks.OnBusySkip), ""))
	r.send("report", "deaf", g)
	<-lost
	r.send("report", "next", g)
	r.inLine("k", 1)
	before := r.scripts()
	<-time.After(2 * time.Second)
	if n := r.scripts() - before; n > 60 {
		t.Errorf("%d scripts in 2 s", n)
	}
	close(finish)
	if res := r.result("next", 2*time.Second); res.State != wire.StateSuccess || res.Solobeat != nil {
		t.Errorf("%+v %s", res, res.Solobeat)
	}
}
