package locktest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/solobeat/solobeat/lockguard"
)

const shortTTL = lockguard.MinTTL

// attempt makes one with a token that is new each time.
func (s *suite) attempt(key string) lockguard.Attempt {
	return lockguard.Attempt{
		Key: key, Token: fmt.Sprintf("%032x", s.keys.Add(1)), TTL: 30 * time.Second, MaxHold: time.Hour,
		TaskID: "task-1", Instance: "instance-1",
	}
}

// acquire must win.
func acquire(t testing.TB, b lockguard.Backend, a lockguard.Attempt) lockguard.Grant {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), a)
	if err != nil {
		t.Fatalf("TryAcquire %s: %v", a.Key, err)
	}
	return g
}

// refused must lose to another holder.
func refused(t testing.TB, b lockguard.Backend, a lockguard.Attempt) lockguard.BusyError {
	t.Helper()
	_, err := b.TryAcquire(t.Context(), a)
	var busy *lockguard.BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("TryAcquire of a held lock: %v, want *BusyError", err)
	}
	return *busy
}

func release(t testing.TB, b lockguard.Backend, a lockguard.Attempt, want lockguard.Release) {
	t.Helper()
	got, err := b.Release(t.Context(), lockguard.Ref{Key: a.Key, Token: a.Token}, 0)
	if got != want || err != nil {
		t.Errorf("Release: %v, %v, want %v", got, err, want)
	}
}

func renewal(a lockguard.Attempt) lockguard.Renewal {
	return lockguard.Renewal{Ref: lockguard.Ref{Key: a.Key, Token: a.Token}, TTL: a.TTL}
}

// backend exercises the back end alone.
func (s *suite) backend(t *testing.T) {
	run := func(name string, f func(t *testing.T, b lockguard.Backend)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, s.Backend(t))
		})
	}
	run("probe", s.probe)
	run("one holder at a time", s.oneHolder)
	run("again and again", s.againAndAgain)
	run("the holder is told", s.holderIsTold)
	run("own token is accepted", s.ownToken)
	run("fences grow", s.fencesGrow)
	run("a dead holder's lock runs out", s.runsOut)
	run("renewal", s.renewal)
	run("batch of renewals", s.batch)
	run("stale release", s.staleRelease)
	run("foreign holder", s.foreign)
	run("many tries, one winner", s.oneWinner)
	run("bad numbers", s.badNumbers)
	run("min hold", s.minHold)
	run("release by force", s.byForce)
	run("names", s.names)
	run("list", s.list)
}

func (s *suite) probe(t *testing.T, b lockguard.Backend) {
	caps, err := b.Probe(t.Context())
	if err != nil || caps.Fence != s.Fence {
		t.Errorf("Probe: %+v, %v, want fence %q", caps, err, s.Fence)
	}
	if b.Name() == "" {
		t.Error("Name is empty")
	}
}

func (s *suite) oneHolder(t *testing.T, b lockguard.Backend) {
	other := s.Backend(t)
	a, rival := s.attempt(s.key()), s.attempt("")
	rival.Key = a.Key
	acquire(t, b, a)
	for range 3 {
		refused(t, other, rival)
		refused(t, b, rival)
	}
	elsewhere := s.attempt(s.key())
	acquire(t, other, elsewhere)
	release(t, other, elsewhere, lockguard.Released)
	release(t, other, rival, lockguard.NotHeld)
	release(t, b, a, lockguard.Released)
	acquire(t, other, rival)
	release(t, other, rival, lockguard.Released)
}

func (s *suite) againAndAgain(t *testing.T, b lockguard.Backend) {
	key := s.key()
	for range 10 {
		a, rival := s.attempt(key), s.attempt(key)
		acquire(t, b, a)
		refused(t, b, rival)
		release(t, b, a, lockguard.Released)
	}
}

func (s *suite) holderIsTold(t *testing.T, b lockguard.Backend) {
	a := s.attempt(s.key())
	a.FenceBase = 7
	if h := holder(t, b, a.Key); h.Held || h.Key != a.Key {
		t.Errorf("Read of a free lock: %+v", h)
	}
	before := time.Now()
	g := acquire(t, b, a)
	for name, h := range map[string]lockguard.Holder{
		"Read": holder(t, b, a.Key), "BusyError": refused(t, b, s.attempt(a.Key)).Holder,
	} {
		if h.Left <= 25*time.Second || h.Left > a.TTL {
			t.Errorf("%s: left %v, want about %v", name, h.Left, a.TTL)
		}
		if h.Since.Before(before.Add(-time.Minute)) || h.Since.After(before.Add(time.Minute)) {
			t.Errorf("%s: since %v, want about %v", name, h.Since, before)
		}
		h.Left, h.Since = 0, time.Time{}
		diff(t, name, lockguard.Holder{Key: a.Key, Held: true, TaskID: "task-1", Instance: "instance-1", Fence: g.Fence}, h)
	}
	if busy := refused(t, b, s.attempt(a.Key)); busy.RetryAfter <= 0 || busy.RetryAfter > a.TTL {
		t.Errorf("RetryAfter %v, want the TTL left", busy.RetryAfter)
	}
	release(t, b, a, lockguard.Released)
	if h := holder(t, b, a.Key); h.Held || h.TaskID != "" || h.Fence != 0 {
		t.Errorf("Read of a freed lock: %+v", h)
	}
}

func (s *suite) ownToken(t *testing.T, b lockguard.Backend) {
	a := s.attempt(s.key())
	a.TTL = shortTTL
	first := acquire(t, b, a)
	a.TTL = 30 * time.Second
	if again := acquire(t, b, a); again != first {
		t.Errorf("the same token got %+v, then %+v", first, again)
	}
	if h := holder(t, b, a.Key); h.Left < 25*time.Second {
		t.Errorf("left %v: the repeated attempt has not set the full TTL", h.Left)
	}
	refused(t, b, s.attempt(a.Key))
	release(t, b, a, lockguard.Released)
}

func (s *suite) fencesGrow(t *testing.T, b lockguard.Backend) {
	if s.Fence == lockguard.NoFence {
		return
	}
	key, last := s.key(), lockguard.Fence(0)
	for i := range 50 {
		a := s.attempt(key)
		g := acquire(t, b, a)
		if g.Fence <= last {
			t.Fatalf("grant %d: fence %d after %d", i, g.Fence, last)
		}
		last = g.Fence
		release(t, b, a, lockguard.Released)
	}
	a := s.attempt(key)
	a.FenceBase = 1 << 53
	g := acquire(t, b, a)
	if g.Fence <= last+1<<53 {
		t.Errorf("fence %d does not hold the base 2^53 and the number after %d", g.Fence, last)
	}
	release(t, b, a, lockguard.Released)
	// The base is not in the next number.
	b2 := s.attempt(key)
	if g := acquire(t, b, b2); g.Fence >= 1<<53 {
		t.Errorf("the base is still in fence %d", g.Fence)
	}
	release(t, b, b2, lockguard.Released)
}

func (s *suite) runsOut(t *testing.T, b lockguard.Backend) {
	a, next := s.attempt(s.key()), s.attempt("")
	a.TTL, next.Key = shortTTL, a.Key
	began := time.Now()
	first := acquire(t, b, a)
	var second lockguard.Grant
	eventually(t, shortTTL+time.Second, func() bool {
		var err error
		second, err = b.TryAcquire(t.Context(), next)
		return err == nil
	}, "the next one gets the lock")
	if d := time.Since(began); d < shortTTL-20*time.Millisecond {
		t.Errorf("got after %v at a TTL of %v", d, shortTTL)
	}
	if s.Fence != lockguard.NoFence && second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	release(t, b, a, lockguard.NotHeld)
	if !holder(t, b, a.Key).Held {
		t.Error("the dead holder's release has freed the new one's lock")
	}
}

func (s *suite) renewal(t *testing.T, b lockguard.Backend) {
	a := s.attempt(s.key())
	a.TTL = shortTTL
	acquire(t, b, a)
	state := func(r lockguard.Renewal) lockguard.RenewResult {
		t.Helper()
		rs := b.Renew(t.Context(), []lockguard.Renewal{r})
		if len(rs) != 1 {
			t.Fatalf("%d results for one renewal", len(rs))
		}
		return rs[0]
	}
	for began := time.Now(); time.Since(began) < shortTTL+500*time.Millisecond; {
		diff(t, "renewal", lockguard.RenewResult{State: lockguard.Renewed}, state(renewal(a)))
		refused(t, b, s.attempt(a.Key))
		<-time.After(50 * time.Millisecond)
	}
	// It sets the TTL, it does not add to it; a shorter one too.
	long := renewal(a)
	long.TTL = time.Minute
	for range 3 {
		state(long)
	}
	if h := holder(t, b, a.Key); h.Left > time.Minute || h.Left < 50*time.Second {
		t.Errorf("left %v after renewals with 1m", h.Left)
	}
	state(renewal(a))
	if h := holder(t, b, a.Key); h.Left > shortTTL {
		t.Errorf("left %v after a renewal with %v", h.Left, shortTTL)
	}
	rival := renewal(s.attempt(a.Key))
	diff(t, "another's renewal", lockguard.RenewResult{State: lockguard.RenewLost, Reason: lockguard.ReasonTaken}, state(rival))
	release(t, b, a, lockguard.Released)
	diff(t, "renewal after release", lockguard.RenewResult{State: lockguard.RenewLost, Reason: lockguard.ReasonGone}, state(renewal(a)))
	if holder(t, b, a.Key).Held {
		t.Error("a renewal has locked a free key")
	}
}

func (s *suite) batch(t *testing.T, b lockguard.Backend) {
	var rs []lockguard.Renewal
	var want []lockguard.RenewResult
	for i := range 100 {
		a := s.attempt(s.key())
		result := lockguard.RenewResult{State: lockguard.Renewed}
		switch i % 3 {
		case 0:
			acquire(t, b, a)
		case 1:
			result = lockguard.RenewResult{State: lockguard.RenewLost, Reason: lockguard.ReasonGone}
		case 2:
			acquire(t, b, s.attempt(a.Key))
			result = lockguard.RenewResult{State: lockguard.RenewLost, Reason: lockguard.ReasonTaken}
		}
		rs, want = append(rs, renewal(a)), append(want, result)
	}
	diff(t, "results", want, b.Renew(t.Context(), rs))
	if got := b.Renew(t.Context(), nil); len(got) != 0 {
		t.Errorf("an empty batch: %v", got)
	}
}

func (s *suite) staleRelease(t *testing.T, b lockguard.Backend) {
	a := s.attempt(s.key())
	release(t, b, a, lockguard.NotHeld) // never obtained
	acquire(t, b, a)
	s.Delete(t, a.Key)
	release(t, b, a, lockguard.NotHeld)
	next := s.attempt(a.Key)
	acquire(t, b, next)
	release(t, b, a, lockguard.NotHeld)
	if h := holder(t, b, a.Key); !h.Held || h.Foreign {
		t.Errorf("after a stale release: %+v", h)
	}
	release(t, b, next, lockguard.Released)
	release(t, b, next, lockguard.NotHeld)
}

func (s *suite) foreign(t *testing.T, b lockguard.Backend) {
	a := s.attempt(s.key())
	acquire(t, b, a) // leaves data of its own behind
	s.Take(t, a.Key, time.Minute)
	for name, h := range map[string]lockguard.Holder{
		"Read": holder(t, b, a.Key), "BusyError": refused(t, b, s.attempt(a.Key)).Holder,
	} {
		if h.Left <= 0 || h.Left > time.Minute {
			t.Errorf("%s: left %v", name, h.Left)
		}
		h.Left = 0
		diff(t, name, lockguard.Holder{Key: a.Key, Held: true, Foreign: true}, h)
	}
	diff(t, "renewal", []lockguard.RenewResult{{State: lockguard.RenewLost, Reason: lockguard.ReasonTaken}},
		b.Renew(t.Context(), []lockguard.Renewal{renewal(a)}))
	release(t, b, a, lockguard.NotHeld)
	if !holder(t, b, a.Key).Held {
		t.Error("the foreign lock was freed")
	}
}

func (s *suite) oneWinner(t *testing.T, b lockguard.Backend) {
	key := s.key()
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 100 {
		a := s.attempt(key)
		wg.Go(func() {
			_, err := b.TryAcquire(t.Context(), a)
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, lockguard.ErrBusy):
				t.Errorf("TryAcquire: %v", err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of 100 tries have won", won.Load())
	}
}

func (s *suite) badNumbers(t *testing.T, b lockguard.Backend) {
	for _, ttl := range []time.Duration{-time.Second, 0, time.Microsecond, time.Millisecond, shortTTL - time.Millisecond} {
		a := s.attempt(s.key())
		a.TTL = ttl
		if _, err := b.TryAcquire(t.Context(), a); !errors.Is(err, lockguard.ErrConfig) {
			t.Errorf("TryAcquire with ttl %v: %v, want ErrConfig", ttl, err)
		}
		a.TTL = shortTTL
		acquire(t, b, a)
		a.TTL = ttl
		if r := b.Renew(t.Context(), []lockguard.Renewal{renewal(a)}); r[0].State != lockguard.RenewUnknown || !errors.Is(r[0].Err, lockguard.ErrConfig) {
			t.Errorf("Renew with ttl %v: %+v, want ErrConfig", ttl, r[0])
		}
		if !holder(t, b, a.Key).Held {
			t.Errorf("a renewal with ttl %v has freed the lock", ttl)
		}
	}
}

// Keys are verbatim: no two may share anything, whatever is in them.
func (s *suite) names(t *testing.T, b lockguard.Backend) {
	base := s.key()
	var as []lockguard.Attempt
	for _, name := range []string{
		"", "{a}", "a", "{{a}}", "{}a", "a}", "}a{", "x{a}y{b}", " with space", "ünï", "*", "a:b", "line\nbreak", "nul\x00byte", "{", "}",
	} {
		a := s.attempt(base + name)
		a.TaskID = "task of " + name
		acquire(t, b, a)
		as = append(as, a)
	}
	for _, a := range as {
		if h := holder(t, b, a.Key); h.Key != a.Key || h.TaskID != a.TaskID {
			t.Errorf("holder of %q: %+v", a.Key, h)
		}
	}
	for _, a := range as {
		release(t, b, a, lockguard.Released)
	}
}

func (s *suite) list(t *testing.T, b lockguard.Backend) {
	lister, ok := b.(lockguard.Lister)
	if !ok {
		return
	}
	base := s.key()
	want := map[string]string{}
	for _, name := range []string{":1", ":{2}", ":3}", ":4 *"} {
		a := s.attempt(base + name)
		a.TaskID = name
		acquire(t, b, a)
		want[a.Key] = a.TaskID
	}
	freed, taken := s.attempt(base+":freed"), s.attempt(base+":taken")
	acquire(t, b, freed)
	release(t, b, freed, lockguard.Released)
	acquire(t, b, taken)
	s.Take(t, taken.Key, time.Minute)
	got := map[string]string{}
	for h, err := range lister.List(t.Context()) {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if len(h.Key) > len(base) && h.Key[:len(base)+1] == base+":" {
			if _, twice := got[h.Key]; twice || !h.Held || h.Left <= 0 {
				t.Errorf("listed %+v, twice: %v", h, twice)
			}
			got[h.Key] = h.TaskID
		}
	}
	diff(t, "List", want, got)
	for _, err := range lister.List(t.Context()) {
		if err != nil {
			t.Errorf("List: %v", err)
		}
		break // must not go on
	}
}
