package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// owner calls what a test gives it.
type owner struct {
	Silent
	lostCause                      func(Reason, time.Time) error
	onRenew                        func(Result, time.Duration)
	onLost                         func(Reason)
	onMaxHold, onExpect, onExpired func()
}

func (o owner) LostCause(r Reason, at time.Time) error {
	if o.lostCause == nil {
		return o.Silent.LostCause(r, at)
	}
	return o.lostCause(r, at)
}

func (o owner) OnRenew(r Result, rtt time.Duration) {
	if o.onRenew != nil {
		o.onRenew(r, rtt)
	}
}

func (o owner) OnLost(r Reason) {
	if o.onLost != nil {
		o.onLost(r)
	}
}

func (o owner) OnMaxHold() { call(o.onMaxHold) }
func (o owner) OnExpect()  { call(o.onExpect) }
func (o owner) OnExpired() { call(o.onExpired) }

func call(f func()) {
	if f != nil {
		f()
	}
}

// store is what the keeper renews in; it answers by a function that a test may
// replace at any time.
type store struct {
	began time.Time

	mu     sync.Mutex
	answer func(ctx context.Context, item string) Result
	calls  [][]string
	at     []time.Duration
	ttls   []time.Duration // of the first item of each call
}

func newStore() *store { return &store{began: time.Now(), answer: renewed} }

func renewed(context.Context, string) Result { return Result{State: Renewed} }

func stuck(ctx context.Context, _ string) Result {
	<-ctx.Done()
	return Result{Err: ctx.Err()}
}

func failing(context.Context, string) Result { return Result{Err: errors.New("connection refused")} }

func (s *store) set(f func(ctx context.Context, item string) Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *store) renew(ctx context.Context, due []Due[string]) []Result {
	items := make([]string, len(due))
	for i, d := range due {
		items[i] = d.Item
	}
	s.mu.Lock()
	s.ttls = append(s.ttls, due[0].TTL)
	s.calls = append(s.calls, items)
	s.at = append(s.at, time.Since(s.began))
	answer := s.answer
	s.mu.Unlock()
	out := make([]Result, len(items))
	for i, item := range items {
		out[i] = answer(ctx, item)
	}
	return out
}

func (s *store) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

func (s *store) sizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n []int
	for _, c := range s.calls {
		n = append(n, len(c))
	}
	return n
}

// hold adds and confirms an entry.
func hold(t *testing.T, k *Keeper[string], item string, s Spec) *Entry[string] {
	t.Helper()
	e, err := k.Add(t.Context(), item, s)
	if err != nil {
		t.Fatal(err)
	}
	e.Sending()
	if !e.Confirm() {
		t.Fatal("Confirm returned false right after Sending")
	}
	return e
}

// ended returns how long after began the entry's context ended.
func ended(e *Entry[string], began time.Time) time.Duration {
	<-e.Context().Done()
	return time.Since(began)
}

func TestRenewsEachThirdOfTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		e := hold(t, k, "a", Spec{TTL: 30 * time.Second})
		time.Sleep(65 * time.Second)
		synctest.Wait()
		want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second, 50 * time.Second, 60 * time.Second}
		if d := cmp.Diff(want, s.times()); d != "" {
			t.Errorf("renewals (-want +got):\n%s", d)
		}
		if err := e.Check(); err != nil {
			t.Errorf("Check after renewals: %v", err)
		}
		if e.Renewals() != 6 {
			t.Errorf("Renewals() = %d, want 6", e.Renewals())
		}
		// 5 s after the last renewal: 30 s − 1.5 s margin − 5 s.
		if got, want := e.Remaining(), 23500*time.Millisecond; got != want {
			t.Errorf("Remaining() = %v, want %v", got, want)
		}
		e.Remove()
		time.Sleep(time.Minute)
		if n := len(s.times()); n != 6 {
			t.Errorf("%d renewals after Remove, want 0", n-6)
		}
	})
}

func TestNoRenewalForShortHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		for range 50 {
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second})
			time.Sleep(9 * time.Second)
			e.Remove()
		}
		synctest.Wait()
		if got := s.times(); len(got) != 0 {
			t.Errorf("renewals at %v, want none before TTL/3", got)
		}
	})
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		for i := range 250 {
			defer hold(t, k, fmt.Sprint(i), Spec{TTL: 30 * time.Second}).Remove()
			if i%10 == 0 {
				time.Sleep(30 * time.Millisecond) // 750 ms in all: within TTL/30
			}
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if d := cmp.Diff([]int{100, 100, 50}, s.sizes()); d != "" {
			t.Errorf("batch sizes (-want +got):\n%s", d)
		}
	})
}

func TestL08_ErrorIsNoLossTheDeadlineIs(t *testing.T) {
	const ttl = 30 * time.Second
	t.Run("store is back before the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.set(failing)
			k := NewKeeper(s.renew, Options{})
			defer k.Close()
			e := hold(t, k, "a", Spec{TTL: ttl})
			time.Sleep(27500 * time.Millisecond) // between two tries
			s.set(renewed)
			time.Sleep(2500 * time.Millisecond)
			synctest.Wait()
			if err := e.Check(); err != nil {
				t.Errorf("lost at an error: %v", err)
			}
			// From the first failure on, a try each second (min(ttl/12, 1 s)).
			if d := cmp.Diff([]time.Duration{10 * time.Second, 11 * time.Second, 12 * time.Second}, s.times()[:3]); d != "" {
				t.Errorf("tries (-want +got):\n%s", d)
			}
			e.Remove()
		})
	})
	for name, answer := range map[string]func(context.Context, string) Result{"refused": failing, "silent": stuck} {
		t.Run("store stays away: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.set(answer)
				k := NewKeeper(s.renew, Options{})
				defer k.Close()
				began := time.Now()
				var reasons []Reason
				e := hold(t, k, "a", Spec{TTL: ttl, Owner: owner{onLost: func(r Reason) { reasons = append(reasons, r) }}})
				if got, want := ended(e, began), ttl-Margin(ttl); got != want {
					t.Errorf("context ended after %v, want %v", got, want)
				}
				if !errors.Is(context.Cause(e.Context()), ErrLost) {
					t.Errorf("cause %v, want ErrLost", context.Cause(e.Context()))
				}
				if !errors.Is(e.Check(), ErrLost) {
					t.Errorf("Check %v, want ErrLost", e.Check())
				}
				n := len(s.times())
				time.Sleep(ttl)
				synctest.Wait()
				if got := len(s.times()); got != n {
					t.Errorf("%d renewals after the loss", got-n)
				}
				if d := cmp.Diff([]Reason{RenewDeadline}, reasons); d != "" {
					t.Errorf("losses (-want +got):\n%s", d)
				}
				e.Remove()
			})
		})
	}
}

// A call that ignores its context must not delay a cancel, nor another batch.
func TestStuckCallDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newStore()
		s.set(func(_ context.Context, item string) Result {
			if item == "stuck" {
				<-release
			}
			return Result{State: Renewed}
		})
		k := NewKeeper(s.renew, Options{})
		began := time.Now()
		bad := hold(t, k, "stuck", Spec{TTL: 10 * time.Second})
		time.Sleep(500 * time.Millisecond)
		good := hold(t, k, "good", Spec{TTL: 10 * time.Second})
		if got, want := ended(bad, began), 9500*time.Millisecond; got != want {
			t.Errorf("context ended after %v, want %v", got, want)
		}
		time.Sleep(time.Minute)
		if err := good.Check(); err != nil {
			t.Errorf("the other lease: %v", err)
		}
		close(release)
		synctest.Wait()
		if bad.Check() == nil {
			t.Error("an answer after the loss has revived the lease")
		}
		bad.Remove()
		good.Remove()
		k.Close()
	})
}

func TestDefiniteLossEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set(func(context.Context, string) Result { return Result{State: Lost, Reason: Taken} })
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		began := time.Now()
		var got []string
		mark := errors.New("taken by another")
		e := hold(t, k, "a", Spec{
			TTL: 30 * time.Second,
			Owner: owner{
				lostCause: func(r Reason, at time.Time) error { return fmt.Errorf("%w: %s after %v", mark, r, at.Sub(began)) },
				onLost:    func(r Reason) { got = append(got, "lost "+string(r)) },
				onExpired: func() { got = append(got, "expired") },
				onRenew:   func(r Result, _ time.Duration) { got = append(got, fmt.Sprint("renew ", r.State == Lost)) },
			},
		})
		if d := ended(e, began); d != 10*time.Second {
			t.Errorf("context ended after %v, want 10s", d)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if d := cmp.Diff([]string{"lost taken", "expired", "renew true"}, got); d != "" {
			t.Errorf("hooks (-want +got):\n%s", d)
		}
		if err := e.Check(); !errors.Is(err, mark) || err.Error() != "taken by another: taken after 10s" {
			t.Errorf("Check: %v", err)
		}
		e.Remove()
	})
}

func TestExpiredWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set(failing)
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		began := time.Now()
		var at []time.Duration
		overstays := hold(t, k, "a", Spec{TTL: 10 * time.Second, Owner: owner{onExpired: func() { at = append(at, time.Since(began)) }}})
		leaves := hold(t, k, "b", Spec{TTL: 10 * time.Second, Owner: owner{onExpired: func() { t.Error("expired after Remove") }}})
		<-leaves.Context().Done()
		leaves.Remove()
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := cmp.Diff([]time.Duration{10 * time.Second}, at); d != "" {
			t.Errorf("OnExpired at (-want +got):\n%s", d)
		}
		overstays.Remove()
	})
}

func TestL16_MaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		began := time.Now()
		var expired []time.Duration
		var maxHeld int
		e := hold(t, k, "a", Spec{
			TTL: 3 * time.Second, MaxHold: 10 * time.Second,
			Owner: owner{
				onLost:    func(r Reason) { t.Errorf("lost: %s", r) },
				onMaxHold: func() { maxHeld++ },
				onExpired: func() { expired = append(expired, time.Since(began)) },
			},
		})
		if got := ended(e, began); got != 10*time.Second {
			t.Errorf("context ended after %v, want max hold", got)
		}
		if got := context.Cause(e.Context()); !errors.Is(got, ErrMaxHold) || errors.Is(got, ErrLost) {
			t.Errorf("cause %v, want ErrMaxHold", got)
		}
		if !errors.Is(e.Check(), ErrMaxHold) {
			t.Errorf("Check %v, want ErrMaxHold", e.Check())
		}
		if left := e.Remaining(); left <= 0 {
			t.Error("nothing remains right after max hold, though the store still keeps others out")
		}
		synctest.Wait() // a renewal that was due at the same instant
		n := len(s.times())
		if n != 9 && n != 10 { // at 10 s both are due at once
			t.Errorf("%d renewals in 10 s at TTL 3 s, want 9", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.times()) != n || maxHeld != 1 {
			t.Errorf("%d renewals after max hold, told %d times", len(s.times())-n, maxHeld)
		}
		if len(expired) != 1 || expired[0] < 12*time.Second || expired[0] > 13*time.Second {
			t.Errorf("OnExpired at %v, want once, one TTL after the last renewal", expired)
		}
		e.Remove()
	})
}

func TestM12_OutlivedAtTheMoment(t *testing.T) {
	for name, answer := range map[string]func(context.Context, string) Result{"renewed": renewed, "not renewed": failing} {
		t.Run("M12 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				s.set(answer)
				k := NewKeeper(s.renew, Options{})
				defer k.Close()
				began := time.Now()
				var at []time.Duration
				e := hold(t, k, "a", Spec{
					TTL: 5 * time.Second, Expect: 7 * time.Second,
					Owner: owner{
						onExpect: func() { at = append(at, time.Since(began)) },
					},
				})
				short := hold(t, k, "b", Spec{TTL: 5 * time.Second, Expect: 7 * time.Second, Owner: owner{onExpect: func() { t.Error("short run has outlived") }}})
				time.Sleep(6 * time.Second)
				short.Remove()
				time.Sleep(6 * time.Second)
				synctest.Wait()
				if d := cmp.Diff([]time.Duration{7 * time.Second}, at); d != "" {
					t.Errorf("OnExpect at (-want +got):\n%s", d)
				}
				e.Remove()
			})
		})
	}
}

// clock is a pair of clocks whose wall a test can set.
type clock struct {
	mu   sync.Mutex
	jump time.Duration
}

func (c *clock) set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump = d
}

func (c *clock) read() (mono, wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now, now.Round(0).Add(c.jump)
}

func TestBothClocks(t *testing.T) {
	t.Run("wall jumps forward (suspend): dead", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c clock
			s := newStore()
			k := NewKeeper(s.renew, Options{Clock: c.read})
			defer k.Close()
			began := time.Now()
			checked := hold(t, k, "a", Spec{TTL: 30 * time.Second})
			noticed := hold(t, k, "b", Spec{TTL: 30 * time.Second})
			time.Sleep(time.Second)
			c.set(28 * time.Second)
			if err := checked.Check(); !errors.Is(err, ErrLost) {
				t.Errorf("Check: %v, want lost", err)
			}
			if checked.Context().Err() == nil {
				t.Error("context still runs after Check has failed")
			}
			if got := ended(noticed, began); got > time.Second+clockLook {
				t.Errorf("context ended after %v, want within %v of the jump", got, clockLook)
			}
			checked.Remove()
			noticed.Remove()
		})
	})
	t.Run("wall jumps back: ignored", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c clock
			s := newStore()
			s.set(failing)
			k := NewKeeper(s.renew, Options{Clock: c.read})
			defer k.Close()
			began := time.Now()
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second})
			time.Sleep(time.Second)
			c.set(-time.Hour)
			if got, want := ended(e, began), 28500*time.Millisecond; got != want {
				t.Errorf("context ended after %v, want %v", got, want)
			}
			e.Remove()
		})
	})
	t.Run("a small jump costs that much validity", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c clock
			s := newStore()
			s.set(failing)
			k := NewKeeper(s.renew, Options{Clock: c.read})
			defer k.Close()
			began := time.Now()
			e := hold(t, k, "a", Spec{TTL: 30 * time.Second})
			time.Sleep(time.Second)
			c.set(8 * time.Second)
			if got, want := ended(e, began), 20500*time.Millisecond; got != want {
				t.Errorf("context ended after %v, want %v", got, want)
			}
			e.Remove()
		})
	})
}

func TestLateGrantIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeeper(newStore().renew, Options{})
		defer k.Close()
		e, err := k.Add(t.Context(), "a", Spec{TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(e.Check(), ErrPending) {
			t.Errorf("Check before the grant: %v", e.Check())
		}
		e.Sending()
		time.Sleep(950 * time.Millisecond)
		if e.Confirm() {
			t.Error("a grant was taken that came when its validity was over")
		}
		e.Sending()
		if !e.Confirm() {
			t.Error("the repeated try was refused")
		}
		e.Remove()
		if e.Confirm() {
			t.Error("Confirm after Remove")
		}
	})
}

func TestDeadlineMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeeper(newStore().renew, Options{})
		defer k.Close()
		e, err := k.Add(t.Context(), "a", Spec{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := e.Deadline(); ok {
			t.Error("a deadline before the grant")
		}
		e.Sending()
		e.Confirm()
		began := time.Now()
		for i := range 3 {
			changed := e.Changed()
			at, ok := e.Deadline()
			if want := 28500*time.Millisecond + time.Duration(i)*10*time.Second; !ok || at.Sub(began) != want {
				t.Errorf("deadline %v, %v, want %v", at.Sub(began), ok, want)
			}
			<-changed
		}
		if got := time.Since(began); got != 30*time.Second {
			t.Errorf("three moves took %v, want 30s", got)
		}
		e.Remove()
		if _, ok := e.Deadline(); ok {
			t.Error("a deadline after Remove")
		}
	})
}

// The window opens when the request is sent, not when its answer comes.
func TestWindowIsMeasuredFromTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set(func(context.Context, string) Result {
			time.Sleep(4 * time.Second)
			return Result{State: Renewed}
		})
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		e, err := k.Add(t.Context(), "a", Spec{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		e.Sending()
		time.Sleep(3 * time.Second)
		e.Confirm()
		for _, want := range []time.Duration{28500 * time.Millisecond, 38500 * time.Millisecond, 48500 * time.Millisecond} {
			changed := e.Changed()
			if at, _ := e.Deadline(); at.Sub(began) != want {
				t.Errorf("deadline %v, want %v", at.Sub(began), want)
			}
			<-changed
		}
		e.Remove()
	})
}

// A result for an entry that is gone must not touch a new entry of the same
// item, whose own renewals go on (redisson#2515, redisson#3194).
func TestOldAnswerLeavesNewEntryAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		answer := make(chan Result)
		s.set(func(context.Context, string) Result { return <-answer })
		old := hold(t, k, "a", Spec{TTL: 30 * time.Second})
		time.Sleep(11 * time.Second) // its renewal is on the way
		old.Remove()
		s.set(renewed)
		fresh := hold(t, k, "a", Spec{TTL: 30 * time.Second})
		answer <- Result{State: Lost}
		time.Sleep(5 * time.Minute)
		if err := fresh.Check(); err != nil {
			t.Errorf("the new lease: %v", err)
		}
		if fresh.Renewals() != 29 && fresh.Renewals() != 30 {
			t.Errorf("%d renewals in 5 minutes, want 30", fresh.Renewals())
		}
		fresh.Remove()
	})
}

func TestRenewOutOfTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		defer k.Close()
		e := hold(t, k, "a", Spec{TTL: 30 * time.Second})
		time.Sleep(5 * time.Second)
		if err := e.Renew(t.Context()); err != nil {
			t.Errorf("Renew: %v", err)
		}
		if got, want := e.Remaining(), 28500*time.Millisecond; got != want {
			t.Errorf("Remaining %v, want %v", got, want)
		}
		s.set(failing)
		if err := e.Renew(t.Context()); err == nil || errors.Is(err, ErrLost) {
			t.Errorf("Renew with the store away: %v", err)
		}
		if err := e.Check(); err != nil {
			t.Errorf("Check: %v", err)
		}
		s.set(func(context.Context, string) Result { return Result{State: Lost} })
		if err := e.Renew(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Renew of a lost lease: %v", err)
		}
		e.Remove()
		if err := e.Renew(t.Context()); !errors.Is(err, ErrRemoved) {
			t.Errorf("Renew after Remove: %v", err)
		}
	})
}

func TestCloseAndCancelAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		k := NewKeeper(s.renew, Options{})
		e := hold(t, k, "a", Spec{TTL: 3 * time.Second})
		stop := errors.New("stop")
		k.CancelAll(stop)
		if !errors.Is(context.Cause(e.Context()), stop) {
			t.Errorf("cause %v", context.Cause(e.Context()))
		}
		time.Sleep(10 * time.Second)
		if err := e.Check(); err != nil {
			t.Errorf("a lease whose function is still ending was not renewed: %v", err)
		}
		k.Close()
		n := len(s.times())
		time.Sleep(10 * time.Second)
		if len(s.times()) != n {
			t.Error("renewed after Close")
		}
		if e.Check() == nil {
			t.Error("trusted 10 s after Close at a TTL of 3 s")
		}
		if _, err := k.Add(t.Context(), "b", Spec{TTL: time.Second}); !errors.Is(err, ErrClosed) {
			t.Errorf("Add after Close: %v", err)
		}
		e.Remove()
		if k.Len() != 0 {
			t.Errorf("%d entries are left", k.Len())
		}
	})
}

func TestSpecIsChecked(t *testing.T) {
	k := NewKeeper(newStore().renew, Options{})
	defer k.Close()
	for _, s := range []Spec{{}, {TTL: -time.Second}, {TTL: time.Second, Margin: time.Second}} {
		if _, err := k.Add(t.Context(), "a", s); err == nil {
			t.Errorf("Add took %+v", s)
		}
	}
}

// A keeper that waits for the answer of a renewal before it looks at the
// deadline lets its holder overstay; the control shows that the tests above can
// see it.
func TestControl_NaiveWatchdogOverstays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 5 * time.Second
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for {
				time.Sleep(ttl / 2)
				try, done := context.WithTimeout(ctx, ttl) // deadline of the attempt, not of the lease
				r := stuck(try, "a")
				done()
				if r.State != Renewed {
					cancel()
					return
				}
			}
		}()
		<-ctx.Done()
		if got := time.Since(began); got <= ttl {
			t.Errorf("the naive watchdog ended after %v; this control is broken", got)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	k := NewKeeper(newStore().renew, Options{})
	defer k.Close()
	e, err := k.Add(b.Context(), "a", Spec{TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	e.Sending()
	e.Confirm()
	defer e.Remove()
	for b.Loop() {
		if err := e.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
