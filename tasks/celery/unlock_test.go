package celery

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
)

// leftLock is a lock that a run has left to the engine.
type leftLock struct {
	tasks.Unlock
	ends chan string
}

func newLeftLock() *leftLock {
	l := &leftLock{ends: make(chan string, 10)}
	l.Ended = func(by tasks.Waker, end tasks.UnlockEnd) {
		if _, ok := by.(*Engine); !ok {
			l.ends <- "by nobody"
		}
		l.ends <- map[tasks.UnlockEnd]string{
			tasks.UnlockFreed: "freed", tasks.UnlockNotHeld: "not held", tasks.UnlockUnknown: "unknown", tasks.UnlockLeft: "left",
		}[end]
	}
	return l
}

// left takes a lock and leaves it.
func (r *rig) left(key string, lines ...string) *leftLock {
	r.t.Helper()
	l := newLeftLock()
	l.Key, l.Token, l.Channel, l.Lines = key, "token-"+key, "releases", lines
	if err := r.rdb.Set(context.Background(), key, l.Token, time.Minute).Err(); err != nil {
		r.t.Error(err)
	}
	return l
}

func (l *leftLock) end(t *testing.T) string {
	t.Helper()
	select {
	case end := <-l.ends:
		return end
	case <-time.After(10 * time.Second):
		t.Fatalf("nobody has told of the end of lock %q", l.Key)
		return ""
	}
}

func leaving(out tasks.Outcome, l *leftLock) tasks.Outcome {
	out.Unlock = &l.Unlock
	return out
}

// Who reads the result finds the lock free: it goes in the same step. What has
// another token by then is left alone.
func TestLockIsFreedWithTheResult(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t)
	heard := r.rdb.Subscribe(ctx, "releases")
	defer heard.Close()
	if _, err := heard.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	locks := make(chan *leftLock, 3)
	r.start(Config{Concurrency: 2, Unlocks: true}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if !d.Unlocks {
			t.Error("the engine does not offer to free locks")
		}
		l := r.left("lock of " + d.Task.ID)
		defer func() { locks <- l }()
		switch d.Task.ID {
		case "failed":
			return leaving(tasks.Outcome{Kind: tasks.Failed, Err: errors.New("no")}, l)
		case "taken":
			r.rdb.Set(ctx, l.Key, "another", time.Minute)
		}
		return leaving(succeed("1"), l)
	})
	for id, want := range map[string]string{"succeeded": "freed", "failed": "freed", "taken": "not held"} {
		r.enqueue("t.lock", tasks.WithID(id))
		l := <-locks
		r.wait(id, 10*time.Second)
		value := r.rdb.Get(ctx, l.Key).Val()
		if end := l.end(t); end != want {
			t.Errorf("%s: %s, want %s", id, end, want)
		}
		if want == "not held" {
			if value != "another" {
				t.Errorf("%s: the other's lock is %q", id, value)
			}
			continue
		}
		if value != "" {
			t.Errorf("%s: there is the result, and still the lock %q", id, value)
		}
		if m, err := heard.ReceiveMessage(ctx); err != nil || m.Payload != l.Key {
			t.Errorf("%s: waiters are told %v, %v", id, m, err)
		}
	}
	r.empty()
}

// What waits for the lock is brought forward in the step that frees it, and not
// before.
func TestFreedLockBringsItsLineForward(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t)
	var held *leftLock
	begun, end, free := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	w := r.start(Config{Concurrency: 2, Unlocks: true}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		switch {
		case d.Task.ID == "holder":
			held = r.left("k", "k")
			close(begun)
			<-end
			return leaving(succeed("1"), held)
		case r.rdb.Exists(ctx, "k").Val() == 1 && d.FirstPark.IsZero():
			return tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock, Key: "k", Left: time.Hour}}
		}
		free <- r.rdb.Exists(ctx, "k").Val() == 0
		return succeed("2")
	})
	r.enqueue("t.lock", tasks.WithID("holder"))
	<-begun
	tag := r.standInLine(w, "k", 1)[0]
	later := float64(r.storeNow().Add(time.Hour).UnixMicro())
	if err := r.rdb.ZAdd(ctx, w.keys.parked(), zMember(later, tag)).Err(); err != nil { // no timer of its own
		t.Fatal(err)
	}
	close(end)
	select {
	case ok := <-free:
		if !ok {
			t.Error("the message came forward before the lock was free")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the line was not brought forward: its timer is far")
	}
	r.wait("line-0", 10*time.Second)
	if got := held.end(t); got != "freed" {
		t.Errorf("the lock: %s", got)
	}
	r.empty()
}

// A lock whose message no ack ends, and one whose run outlives the engine, are
// released by themselves.
func TestLocksThatNoAckFrees(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	locks := make(chan *leftLock, 1)
	r.start(Config{Concurrency: 2, Unlocks: true}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		if d.Task.Attempt > 1 {
			return succeed("1")
		}
		l := r.left("lock of " + d.Task.ID)
		locks <- l
		switch d.Task.ID {
		case "dead":
			return leaving(tasks.Outcome{Kind: tasks.Failed, DeadLetter: true, Err: errors.New("no")}, l)
		case "retried":
			return leaving(tasks.Outcome{Kind: tasks.Retried, Err: errors.New("again")}, l)
		}
		return leaving(tasks.Outcome{Kind: tasks.Succeeded, Result: json.RawMessage("no JSON")}, l)
	})
	for id, want := range map[string]string{"dead": "left", "retried": "left", "no JSON": "freed"} {
		r.enqueue("t.lock", tasks.WithID(id))
		if got := (<-locks).end(t); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}

func TestLockOfARunThatOutlivesTheEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	begun, end, locks := make(chan struct{}), make(chan struct{}), make(chan *leftLock, 1)
	w := r.start(Config{Concurrency: 2, Unlocks: true, Grace: -1}, fast, func(context.Context, *tasks.Delivery) tasks.Outcome {
		l := r.left("k")
		close(begun)
		<-end
		locks <- l
		return leaving(succeed("1"), l)
	})
	r.enqueue("t.lock")
	<-begun
	if err := w.stop(); !errors.Is(err, ErrRunsLeft) {
		t.Errorf("Run: %v", err)
	}
	close(end)
	if got := (<-locks).end(t); got != "left" {
		t.Errorf("the lock: %s", got)
	}
}

// So is one whose ack no server has answered until the engine had to end: that of
// a call which was under way, and that of a run which ended later.
func TestLocksOfAcksThatAreNotAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	net := testkit.NewProxy(t, r.addr)
	begun, locks := make(chan struct{}), make(chan *leftLock, 2)
	end := map[string]chan struct{}{"first": make(chan struct{}), "second": make(chan struct{})}
	w := r.start(Config{Concurrency: 2, Unlocks: true, Grace: -1, Broker: net.Client(t)}, fast, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		l := r.left("lock of " + d.Task.ID)
		begun <- struct{}{}
		<-end[d.Task.ID]
		locks <- l
		return leaving(succeed("1"), l)
	})
	r.enqueue("t.lock", tasks.WithID("first"))
	r.enqueue("t.lock", tasks.WithID("second"))
	<-begun
	<-begun
	net.Refuse()
	close(end["first"])
	first := <-locks
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return w.cycles.Load()%2 == 1 }, "a call is under way")
	close(end["second"])
	second := <-locks
	_ = w.stop()
	if a, b := first.end(t), second.end(t); a != "left" || b != "left" {
		t.Errorf("the locks: %s, %s", a, b)
	}
}

// Whoever has one slot, or results that no script of the broker can write, frees
// locks before the message is settled.
func TestWhoFreesNoLocks(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]func(*rig) Config{
		"not asked": func(*rig) Config { return Config{Concurrency: 2} },
		"one slot":  func(*rig) Config { return Config{Concurrency: 1, Unlocks: true} },
		"results elsewhere": func(*rig) Config {
			return Config{Concurrency: 2, Unlocks: true, Results: testkit.Redis(t).Client(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			offers := make(chan bool, 1)
			r.start(cfg(r), nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
				offers <- d.Unlocks
				return succeed("1")
			})
			r.enqueue("t.lock")
			select {
			case offer := <-offers:
				if offer {
					t.Error("the engine offers to free the lock")
				}
			case <-time.After(10 * time.Second):
				t.Fatal("no run")
			}
		})
	}
}

// After a lost reply nobody knows which try has freed a lock; what is sure is
// told, and what the server refused is released by itself.
func TestEndsOfUnlocks(t *testing.T) {
	t.Parallel()
	e := &Engine{}
	for name, tc := range map[string]struct {
		codes    []int64
		repeated bool
		unsure   bool
		want     []string
	}{
		"first try":         {codes: []int64{1, 0, -1, -2}, want: []string{"freed", "not held", "not held", "left"}},
		"second try":        {codes: []int64{1, 0, -1, -2}, unsure: true, want: []string{"freed", "unknown", "unknown", "left"}},
		"was done, no list": {repeated: true, unsure: true, want: []string{"unknown", "unknown", "unknown", "unknown"}},
	} {
		c := &cycleCall{}
		var locks []*leftLock
		for range tc.want {
			l := newLeftLock()
			locks, c.unlocks = append(locks, l), append(c.unlocks, &l.Unlock)
		}
		e.unlocked(c, &cycleReply{repeated: tc.repeated, unlocked: tc.codes}, tc.unsure)
		var got []string
		for _, l := range locks {
			got = append(got, l.end(t))
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
