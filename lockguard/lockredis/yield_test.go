package lockredis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
)

// A handle that is yielded is over for its function and its watchdog, and holds
// the lock until somebody else has freed it.
func TestYield(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	var releases []lockguard.Release
	g, b := newGuard(t, c, lockguard.Observer{Released: func(_ lockguard.Labels, _ string, r lockguard.Release) { releases = append(releases, r) }})
	take := func(opts ...lockguard.Option) *lockguard.Handle {
		t.Helper()
		releases = nil
		h, err := g.TryAcquire(ctx, "k", opts...)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}

	h := take(lockguard.WithTTL(time.Second), lockguard.WithRenewEvery(50*time.Millisecond))
	token, channel, ok := h.Yield()
	if !ok || token != c.Get(ctx, "k").Val() || channel != b.channel {
		t.Errorf("Yield: %q, %q, %v", token, channel, ok)
	}
	if cause := context.Cause(h.Context()); !errors.Is(cause, lockguard.ErrNotHeld) {
		t.Errorf("the context's cause: %v", cause)
	}
	if !g.Occupied("k") || len(releases) > 0 {
		t.Errorf("before it is freed: occupied %v, releases %v", g.Occupied("k"), releases)
	}
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return c.Exists(ctx, "k").Val() == 0 }, "it is not renewed any more")
	h.Yielded(lockguard.Released)
	h.Yielded(lockguard.NotHeld) // the first counts
	if got, err := h.Release(ctx); got != lockguard.Released || err != nil {
		t.Errorf("Release after it: %v, %v", got, err)
	}
	if g.Occupied("k") || len(releases) != 1 {
		t.Errorf("after it: occupied %v, releases %v", g.Occupied("k"), releases)
	}

	h = take()
	if _, _, ok := h.Yield(); !ok {
		t.Error("Yield")
	}
	if got, err := h.Release(ctx); got != lockguard.Released || err != nil || c.Exists(ctx, "k").Val() != 0 {
		t.Errorf("Release of what nobody has freed: %v, %v", got, err)
	}
	h.Yielded(lockguard.NotHeld)
	if len(releases) != 1 || releases[0] != lockguard.Released {
		t.Errorf("releases %v", releases)
	}
	if _, _, ok := h.Yield(); ok {
		t.Error("a lock that is released was yielded")
	}

	h = take(lockguard.WithMinHold(time.Minute))
	if _, _, ok := h.Yield(); ok {
		t.Error("a min hold was yielded")
	}
	if _, err := h.GiveBack(ctx); err != nil {
		t.Fatal(err)
	}

	h = take()
	c.Set(ctx, "k", "another", time.Minute)
	if err := h.Verify(ctx); !errors.Is(err, lockguard.ErrLost) {
		t.Errorf("Verify: %v", err)
	}
	if _, _, ok := h.Yield(); ok {
		t.Error("a lock that is lost was yielded")
	}
	if got, err := h.Release(ctx); got != lockguard.NotHeld || err != nil || c.Get(ctx, "k").Val() != "another" {
		t.Errorf("Release of a lost lock: %v, %v", got, err)
	}
}
