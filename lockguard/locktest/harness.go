package locktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/lockguard"
)

// Harness gives the suite a store of its own, which no other test uses.
type Harness struct {
	// Backend makes a back end on the store, as another replica would.
	Backend func(t testing.TB) lockguard.Backend
	// Network makes a back end that reaches the store through a network which
	// the test can break; required.
	Network func(t testing.TB) (lockguard.Backend, Network)
	// Delete drops a lock behind everybody's back.
	Delete func(t testing.TB, key string)
	// Take gives a lock to a foreign holder, whoever held it.
	Take func(t testing.TB, key string, ttl time.Duration)
	// ForgetScripts makes the server forget what it has cached of programs;
	// nil if there is no such thing.
	ForgetScripts func(t testing.TB)
	// Flush loses all data of the store; nil if that cannot happen. It comes
	// in tests that run alone.
	Flush func(t testing.TB)
	// Pause stops the server, the returned function lets it go on; nil if that
	// cannot be done. It comes in tests that run alone.
	Pause func(t testing.TB) (resume func())
	// Fence is what Probe must promise.
	Fence lockguard.FenceKind
}

// Network is a bad network between a back end and its store.
type Network interface {
	// Swallow throws away all bytes until Pass, connections stay open.
	Swallow()
	// Delay holds all bytes for d until Pass.
	Delay(d time.Duration)
	// Pass ends both.
	Pass()
	// DropReply loses the reply to the next request, which is done. No request
	// is on the way when it is called, and the back end was used before.
	DropReply()
}

// suite is one run of Exercise.
type suite struct {
	Harness
	keys atomic.Int64
}

// Exercise runs the suite. newHarness is called once for what runs in parallel
// and once for each test that interferes with the whole store. The shortest TTL
// is one second; the suite takes about ten.
func Exercise(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	t.Run("together", func(t *testing.T) {
		s := &suite{Harness: newHarness(t)}
		s.backend(t)
		s.guard(t)
		s.network(t)
	})
	t.Run("alone", func(t *testing.T) {
		(&suite{}).alone(t, newHarness)
	})
}

// key is a name that no other test uses.
func (s *suite) key() string { return fmt.Sprintf("locktest:%d", s.keys.Add(1)) }

// newGuard makes a guard that is closed at the end of the test, and records what
// it tells.
func newGuard(t testing.TB, b lockguard.Backend) (*lockguard.Guard, *record) {
	t.Helper()
	r := &record{}
	g, err := lockguard.New(lockguard.Config{Backend: b, Instance: t.Name(), Observer: r.observer()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return g, r
}

// record counts what an Observer is told.
type record struct {
	mu       sync.Mutex
	renewed  map[lockguard.RenewOutcome]int
	lost     []lockguard.Reason
	expired  int
	outlived int
	cleanups []lockguard.Release
}

func (r *record) observer() lockguard.Observer {
	r.renewed = map[lockguard.RenewOutcome]int{}
	locked := func(f func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
	}
	return lockguard.Observer{
		Renewed: func(_ lockguard.Labels, _ string, o lockguard.RenewOutcome, _ time.Duration) {
			locked(func() { r.renewed[o]++ })
		},
		Lost: func(_ lockguard.Labels, reason lockguard.Reason) {
			locked(func() { r.lost = append(r.lost, reason) })
		},
		ExpiredWhileHeld: func(lockguard.Labels) { locked(func() { r.expired++ }) },
		Outlived:         func(lockguard.Labels) { locked(func() { r.outlived++ }) },
		Cleanup: func(_ lockguard.Labels, _ string, x lockguard.Release) {
			locked(func() { r.cleanups = append(r.cleanups, x) })
		},
	}
}

func (r *record) get() (renewed map[lockguard.RenewOutcome]int, lost []lockguard.Reason, cleanups []lockguard.Release) {
	r.mu.Lock()
	defer r.mu.Unlock()
	renewed = map[lockguard.RenewOutcome]int{}
	for k, v := range r.renewed {
		renewed[k] = v
	}
	return renewed, slices.Clone(r.lost), slices.Clone(r.cleanups)
}

// eventually waits until f is true.
func eventually(t testing.TB, within time.Duration, f func() bool, what string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		late := time.Now().After(deadline)
		if f() {
			return
		}
		if late {
			t.Fatalf("not within %v: %s", within, fmt.Sprintf(what, args...))
		}
		<-tick.C
	}
}

// holder reads who holds a key.
func holder(t testing.TB, b lockguard.Backend, key string) lockguard.Holder {
	t.Helper()
	h, err := b.Read(t.Context(), key)
	if err != nil {
		t.Fatalf("Read %s: %v", key, err)
	}
	return h
}

// diff reports a difference.
func diff(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if d := cmp.Diff(want, got, opts...); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// stalls watches how late this process's timers fire, as on a machine that has
// too much to do, and returns the worst so far.
func stalls(t *testing.T) func() time.Duration {
	t.Helper()
	const step = 2 * time.Millisecond
	start := time.Now()
	var worst, began atomic.Int64 // the beginning of the timer that runs, since start
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			began.Store(int64(time.Since(start)))
			select {
			case <-time.After(step):
				worst.Store(max(worst.Load(), int64(time.Since(start)-step)-began.Load()))
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return func() time.Duration { // one that is late by now counts too
		return time.Duration(max(worst.Load(), int64(time.Since(start)-step)-began.Load()))
	}
}
