package lockredis

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
)

func startChild(t *testing.T, server *testkit.RedisServer, role string) *testkit.Proc {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Start(t, role, []string{"LOCKREDIS_CHILD=" + role, "LOCKREDIS_URL=" + server.URL(0)}, self)
}

func heldWith(t *testing.T, p *testkit.Proc) lockguard.Fence {
	t.Helper()
	m := p.WaitOutput(10*time.Second, `held with fence (\d+)`)
	n, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return lockguard.Fence(n)
}

func TestL01_KilledHolder(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	c := server.Client(t)
	g, _ := newGuard(t, c, lockguard.Observer{})
	for range 3 {
		p := startChild(t, server, "guarded")
		old := heldWith(t, p)
		p.WaitOutput(10*time.Second, `renewed: ok`)
		if ttl := c.PTTL(t.Context(), "k").Val(); ttl <= 0 || ttl > childTTL {
			t.Errorf("PTTL %v while it is held, want up to %v", ttl, childTTL)
		}
		p.Kill()
		killed := time.Now()
		h, err := g.Acquire(t.Context(), "k", lockguard.WithWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(killed); d > childTTL+500*time.Millisecond {
			t.Errorf("free %v after the kill, want at most the TTL %v after the last renewal", d, childTTL)
		}
		if fresh, _ := h.Fence(); fresh <= old {
			t.Errorf("fence %d after %d", fresh, old)
		}
		_, _ = h.Release(t.Context())
	}
}

func TestL07_HolderStoppedPastItsTTL(t *testing.T) {
	t.Parallel()
	t.Run("L07 guarded", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		server := testkit.Redis(t)
		c := server.Client(t)
		g, _ := newGuard(t, c, lockguard.Observer{})
		p := startChild(t, server, "guarded")
		old := heldWith(t, p)
		p.WaitOutput(10*time.Second, `renewed: ok`)
		p.Pause()
		h, err := g.Acquire(ctx, "k", lockguard.WithWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		fresh, _ := h.Fence()
		if fresh <= old {
			t.Errorf("fence %d after %d", fresh, old)
		}
		if err := SetFenced(ctx, c, "value", "by parent", fresh); err != nil {
			t.Fatal(err)
		}
		p.Continue()
		if code := p.Wait(10 * time.Second); code != 0 {
			t.Errorf("child: exit code %d", code)
		}
		out := p.Stdout()
		for _, want := range []string{
			"woke: context ended: true, check: lockguard: lock was lost: k",
			"cause: lockguard: lock was lost: k",
			"fenced write: lockguard: fence is stale",
			"release: not_held <nil>",
			"losses told: 1",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("the child did not tell %q; it told\n%s", want, out)
			}
		}
		if err := h.Verify(ctx); err != nil {
			t.Errorf("the new holder's lock: %v", err)
		}
		if v, f, err := GetFenced(ctx, c, "value"); v != "by parent" || f != fresh || err != nil {
			t.Errorf("value %q by fence %d, %v", v, f, err)
		}
		_, _ = h.Release(ctx)
	})
	// The control: without token, deadline and fence the same pause doubles the
	// effect and frees the other's lock.
	t.Run("L07 naive", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		server := testkit.Redis(t)
		c := server.Client(t)
		g, _ := newGuard(t, c, lockguard.Observer{})
		p := startChild(t, server, "naive")
		p.WaitOutput(10*time.Second, `held without`)
		p.Pause()
		testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool {
			return c.SetNX(ctx, "k", "parent", time.Minute).Val()
		}, "the naive lock runs out")
		c.Incr(ctx, "effects")
		p.Continue()
		p.Wait(10 * time.Second)
		if n := c.Get(ctx, "effects").Val(); n != "2" {
			t.Errorf("%s effects; the naive lock did not double, so this test sees nothing", n)
		}
		if h, err := g.TryAcquire(ctx, "k"); err != nil {
			t.Errorf("the naive DEL left the other's lock alone (%v), so this test sees nothing", err)
		} else {
			_, _ = h.Release(ctx)
		}
	})
	t.Run("L07 no lock is without TTL", func(t *testing.T) {
		t.Parallel()
		server := testkit.Redis(t)
		c := server.Client(t)
		for i := range 10 {
			p := startChild(t, server, "guarded")
			heldWith(t, p)
			if i%2 == 0 {
				p.WaitOutput(10*time.Second, `renewed: ok`)
			}
			p.Kill()
			for _, key := range c.Keys(t.Context(), "*").Val() {
				if ttl := c.PTTL(t.Context(), key).Val(); ttl == -1 {
					t.Errorf("%s has no TTL", key)
				}
			}
			c.FlushAll(t.Context())
		}
	})
}

// errors.Is through the exported sentinels only.
func TestStaleReleaseOverTheWire(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := testkit.Redis(t)
	a, _ := newGuard(t, server.Client(t), lockguard.Observer{})
	b, _ := newGuard(t, server.Client(t), lockguard.Observer{})
	h, err := a.TryAcquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	server.Client(t).Del(ctx, "k")
	next, err := b.TryAcquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Release(ctx); got != lockguard.NotHeld || err != nil {
		t.Errorf("stale Release: %v, %v", got, err)
	}
	if _, err := a.TryAcquire(ctx, "k"); !errors.Is(err, lockguard.ErrBusy) {
		t.Errorf("after a stale release: %v, want busy", err)
	}
	_, _ = next.Release(ctx)
}
