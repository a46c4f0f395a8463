package lockredis

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
)

// The format that redis-py's Lock needs and makes.
func TestKeyIsAPlainLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	g, _ := newGuard(t, c, lockguard.Observer{})
	h, err := g.TryAcquire(ctx, "report:lock", lockguard.WithTTL(9500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	value := c.Get(ctx, "report:lock").Val()
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(value) {
		t.Errorf("value %q, want the token and nothing else", value)
	}
	if ttl := c.PTTL(ctx, "report:lock").Val(); ttl < 9*time.Second || ttl > 9500*time.Millisecond {
		t.Errorf("PTTL %v, want 9.5s", ttl)
	}
	if ok := c.SetNX(ctx, "report:lock", "aaaabbbbccccddddaaaabbbbccccdddd", time.Minute).Val(); ok {
		t.Error("a foreign SET NX has got a held lock")
	}
	companion := "solobeat:default:held:{report:lock}"
	if d := c.TTL(ctx, companion).Val(); d < 23*time.Hour || d > 25*time.Hour {
		t.Errorf("companion lives for %v, want 24h", d)
	}
	if got, err := h.Release(ctx); got != lockguard.Released || err != nil {
		t.Errorf("Release: %v, %v", got, err)
	}
	// The companion stays; what it tells of the last holder is nobody else's.
	if got := c.Get(ctx, companion).Val(); got == "" {
		t.Error("the fence has gone with the release")
	}
	if !c.SetNX(ctx, "report:lock", "aaaabbbbccccddddaaaabbbbccccdddd", 0).Val() {
		t.Fatal("a foreign SET NX on a free lock")
	}
	_, err = g.TryAcquire(ctx, "report:lock")
	var busy *lockguard.BusyError
	if !errors.As(err, &busy) || !busy.Holder.Foreign || busy.RetryAfter != 0 {
		t.Errorf("a foreign lock without TTL: %v, %+v", err, busy)
	}
	long, err := g.TryAcquire(ctx, "long", lockguard.WithMaxHold(72*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.TTL(ctx, "solobeat:default:held:{long}").Val(); d < 72*time.Hour {
		t.Errorf("companion of a hold of up to 72 h lives for %v", d)
	}
	_, _ = long.Release(ctx)
}

func TestForeignKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	g, b := newGuard(t, c, lockguard.Observer{})
	c.LPush(ctx, "celery", "message")
	if _, err := g.TryAcquire(ctx, "celery"); !errors.Is(err, lockguard.ErrForeignKey) || errors.Is(err, lockguard.ErrStoreUnavailable) {
		t.Errorf("TryAcquire: %v", err)
	}
	if _, err := g.Acquire(ctx, "celery", lockguard.WithWait(time.Minute)); !errors.Is(err, lockguard.ErrForeignKey) {
		t.Errorf("Acquire waits for a queue: %v", err)
	}
	if _, err := g.Inspect(ctx, "celery"); !errors.Is(err, lockguard.ErrForeignKey) {
		t.Errorf("Inspect: %v", err)
	}
	// A key that turns into something else under its holder.
	h, err := g.TryAcquire(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	c.Del(ctx, "k")
	c.LPush(ctx, "k", "message")
	if err := h.Verify(ctx); !errors.Is(err, lockguard.ErrLost) {
		t.Errorf("Verify: %v", err)
	}
	if got, err := b.Release(ctx, lockguard.Ref{Key: "k", Token: "x"}, 0); got != lockguard.NotHeld || err != nil {
		t.Errorf("Release: %v, %v", got, err)
	}
	if n := c.LLen(ctx, "k").Val() + c.LLen(ctx, "celery").Val(); n != 2 {
		t.Errorf("%d messages of 2 are left", n)
	}
	_, _ = h.Release(ctx)
}

func TestFence(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	g, _ := newGuard(t, c, lockguard.Observer{})
	grant := func(opts ...lockguard.Option) lockguard.Fence {
		t.Helper()
		h, err := g.TryAcquire(ctx, "k", opts...)
		if err != nil {
			t.Fatal(err)
		}
		f, ok := h.Fence()
		if !ok {
			t.Error("no fence")
		}
		_, _ = h.Release(ctx)
		return f
	}
	now := c.Time(ctx).Val().UnixMicro()
	if f := grant(); int64(f) < now || int64(f) > now+time.Minute.Microseconds() {
		t.Errorf("fence %d, want the server's time in µs, about %d", f, now)
	}
	// A clock that was set back: the last number is in the future.
	future := now + time.Hour.Microseconds()
	c.Set(ctx, "solobeat:default:held:{k}", fmt.Sprintf("%d 1 token 0 0  ", future), time.Minute)
	for i := range 3 {
		if f := grant(); int64(f) != future+int64(i)+1 {
			t.Errorf("fence %d, want %d", f, future+int64(i)+1)
		}
	}
	if f := grant(lockguard.WithFenceBase(1000)); int64(f) != future+4+1000 {
		t.Errorf("fence with base: %d, want %d", f, future+1004)
	}
	if f := grant(); int64(f) != future+5 {
		t.Errorf("fence after it: %d, want %d", f, future+5)
	}
	const long = 10_000_000_000_000_000 // more digits than the clock has
	c.Set(ctx, "solobeat:default:held:{k}", fmt.Sprintf("%d 1 token 0 0  ", long), time.Minute)
	if f := grant(); f < long {
		t.Errorf("fence %d after %d", f, long)
	}
	c.FlushAll(ctx)
	if f := grant(); int64(f) < now {
		t.Errorf("fence after a flush: %d, want above %d", f, now)
	}
}

func TestTwoRoundTrips(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := testkit.Redis(t)
	g, _ := newGuard(t, server.Client(t), lockguard.Observer{})
	do := func() {
		t.Helper()
		if err := g.Do(ctx, "k", func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	do() // loads the scripts
	admin := server.Client(t)
	commands := func() int { return requests(t, admin) }
	before := commands()
	for range 100 {
		do()
	}
	if got := commands() - before; got != 200 {
		t.Errorf("%d requests for 100 short holds, want 200", got)
	}
}

// requests is how many scripts and subscriptions the server has been sent.
func requests(t *testing.T, admin *redis.Client) (n int) {
	t.Helper()
	text, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"evalsha", "eval", "script|load", "subscribe"} {
		if m := regexp.MustCompile(`cmdstat_` + regexp.QuoteMeta(name) + `:calls=(\d+)`).FindStringSubmatch(text); m != nil {
			k, _ := strconv.Atoi(m[1])
			n += k
		}
	}
	return n
}

func TestRenewalsAreBatched(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := testkit.Redis(t)
	g, _ := newGuard(t, server.Client(t), lockguard.Observer{
		Lost: func(_ lockguard.Labels, r lockguard.Reason) { t.Errorf("lost: %s", r) },
	})
	var held []*lockguard.Handle
	for i := range 300 {
		h, err := g.TryAcquire(ctx, fmt.Sprint("k", i), lockguard.WithTTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, h)
	}
	admin := server.Client(t)
	before := requests(t, admin)
	testkit.Poll(t, 20*time.Second, 10*time.Millisecond, func() bool {
		for _, h := range held {
			if h.Renewals() < 3 {
				return false
			}
		}
		return true
	}, "three renewals of each")
	// 900 renewals are 9 batches of 100; they were granted over some time, and
	// only what is due within TTL/30 goes together.
	if got := requests(t, admin) - before; got > 60 {
		t.Errorf("%d requests for 900 renewals", got)
	}
	for _, h := range held {
		if err := h.Check(); err != nil {
			t.Error(err)
		}
		_, _ = h.Release(ctx)
	}
}

func TestOneSubscriptionWhileSomebodyWaits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := testkit.Redis(t)
	admin := server.Client(t)
	holder, _ := newGuard(t, server.Client(t), lockguard.Observer{})
	g, b := newGuard(t, server.Client(t), lockguard.Observer{})
	subscribers := func() int64 { return admin.PubSubNumSub(ctx, b.channel).Val()[b.channel] }
	for round := range 2 {
		var held []*lockguard.Handle
		var wg sync.WaitGroup
		for i := range 10 {
			key := fmt.Sprint("k", i)
			h, err := holder.TryAcquire(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, h)
			wg.Go(func() {
				if err := g.Do(ctx, key, func(context.Context) error { return nil }, lockguard.WithWait(time.Minute)); err != nil {
					t.Errorf("waiter: %v", err)
				}
			})
		}
		testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.listener != nil && len(b.listener.waiters) == 10
		}, "ten wait")
		testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return subscribers() == 1 }, "one subscription")
		if round == 1 {
			// A subscription that breaks costs the waiters a second at most.
			admin.ClientKillByFilter(ctx, "TYPE", "pubsub")
		}
		for _, h := range held {
			_, _ = h.Release(ctx)
		}
		wg.Wait()
		testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return subscribers() == 0 }, "no subscription is left")
	}
}

func TestL26_FullServer(t *testing.T) {
	t.Parallel()
	for name, newRunner := range map[string]func(redisconn.Scripter) *redisconn.Runner{
		"L26 flags": redisconn.NewRunner, "L26 plain": redisconn.NewPlainRunner,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := testkit.Redis(t).Client(t)
			b, err := newBackend(c, newRunner(c), Options{})
			if err != nil {
				t.Fatal(err)
			}
			g, err := lockguard.New(lockguard.Config{Backend: b})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = g.Close(ctx) }()
			h, err := g.TryAcquire(ctx, "held")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}
			err = g.Do(ctx, "new", func(context.Context) error {
				t.Error("ran without a lock")
				return nil
			})
			if !errors.Is(err, lockguard.ErrStoreUnavailable) || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("Do: %v, want ErrStoreUnavailable that tells OOM", err)
			}
			if err := h.Verify(ctx); err != nil {
				t.Errorf("renewal: %v", err)
			}
			if got, err := g.Inspect(ctx, "held"); !got.Held || err != nil {
				t.Errorf("Inspect: %+v, %v", got, err)
			}
			if got, err := h.Release(ctx); got != lockguard.Released || err != nil {
				t.Errorf("Release: %v, %v", got, err)
			}
			if n := c.Exists(ctx, "held", "new").Val(); n != 0 {
				t.Errorf("%d lock keys are left", n)
			}
			if err := SetFenced(ctx, c, "value", "x", 1); err == nil {
				t.Error("SetFenced on a full server")
			}
		})
	}
}

func TestF12_EvictingPolicyIsWarnedAbout(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	_, b := newGuard(t, c, lockguard.Observer{})
	warnings := func() string {
		t.Helper()
		caps, err := b.Probe(ctx)
		if err != nil {
			t.Fatalf("Probe: %v", err)
		}
		return strings.Join(caps.Warnings, "\n")
	}
	if got := warnings(); got != "" {
		t.Errorf("F12 noeviction: %q", got)
	}
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl"} {
		c.ConfigSet(ctx, "maxmemory-policy", policy)
		if got := warnings(); !strings.Contains(got, policy) {
			t.Errorf("F12 %s: %q", policy, got)
		}
	}
	// A managed server that forbids it.
	c.Do(ctx, "ACL", "SETUSER", "default", "-info", "-config")
	if got := warnings(); !strings.Contains(got, "does not tell") {
		t.Errorf("F12 forbidden: %q", got)
	}
}

func TestF12_ALostReplyIsNoPolicy(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, testkit.Redis(t, "--maxmemory-policy", "allkeys-lru").Addr)
	_, b := newGuard(t, p.Client(t), lockguard.Observer{})
	p.DropReplyTo("info")
	if caps, err := b.Probe(t.Context()); err == nil {
		t.Errorf("Probe: %+v, want an error", caps)
	}
	if caps, err := b.Probe(t.Context()); err != nil || len(caps.Warnings) != 1 {
		t.Errorf("Probe: %+v, %v; want a warning", caps, err)
	}
}

func TestProbeOfADeadServer(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	g, _ := newGuard(t, server.Client(t), lockguard.Observer{})
	if caps, err := g.Probe(t.Context()); err != nil || caps.Fence != lockguard.BestEffort {
		t.Errorf("Probe: %+v, %v", caps, err)
	}
	server.Stop()
	if _, err := g.Probe(t.Context()); !errors.Is(err, lockguard.ErrStoreUnavailable) {
		t.Errorf("Probe: %v", err)
	}
	if _, err := g.TryAcquire(t.Context(), "k"); !errors.Is(err, lockguard.ErrStoreUnavailable) {
		t.Errorf("TryAcquire: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	c := testkit.RedisClient(t, "127.0.0.1:1", 0)
	for name, f := range map[string]func() error{
		"nil":       func() error { _, err := New(nil, Options{}); return err },
		"cluster":   func() error { _, err := New(cluster, Options{}); return err },
		"namespace": func() error { _, err := New(c, Options{Namespace: "a{b}"}); return err },
	} {
		if err := f(); !errors.Is(err, lockguard.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)
		}
	}
}

func TestFencedValues(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	var fenced int
	g, _ := newGuard(t, c, lockguard.Observer{Fenced: func(lockguard.Labels) { fenced++ }})
	if v, f, err := GetFenced(ctx, c, "v"); v != "" || f != 0 || err != nil {
		t.Errorf("GetFenced of nothing: %q, %d, %v", v, f, err)
	}
	for _, step := range []struct {
		fence lockguard.Fence
		ok    bool
	}{
		{9, true},
		{9, true},
		{10, true},
		{9, false},
		{100, true},
		{99, false},
		{20, false},
		{1 << 53, true},
		{1<<53 + 1, true},
		{1 << 53, false},
		{1<<63 + 5, true},
		{1<<63 + 4, false},
	} {
		err := SetFenced(ctx, c, "v", fmt.Sprint("by ", step.fence), step.fence)
		if step.ok != (err == nil) || err != nil && !errors.Is(err, lockguard.ErrFenced) {
			t.Errorf("fence %d: %v, want written: %v", step.fence, err, step.ok)
		}
		v, f, err := GetFenced(ctx, c, "v")
		if err != nil || v != fmt.Sprint("by ", f) || f < step.fence || step.ok && f != step.fence {
			t.Errorf("after fence %d: %q, %d, %v", step.fence, v, f, err)
		}
	}
	err := g.Do(ctx, "k", func(ctx context.Context) error { return SetFenced(ctx, c, "v", "x", 1) })
	if !errors.Is(err, lockguard.ErrFenced) || fenced != 1 {
		t.Errorf("under a lock: %v, told %d times", err, fenced)
	}
	if err := SetFenced(ctx, c, "v", "x", 0); !errors.Is(err, lockguard.ErrConfig) {
		t.Errorf("fence 0: %v", err)
	}
	c.Set(ctx, "text", "x", 0)
	if err := SetFenced(ctx, c, "text", "x", 1); !errors.Is(err, lockguard.ErrForeignKey) {
		t.Errorf("SetFenced on a string: %v", err)
	}
	if _, _, err := GetFenced(ctx, c, "text"); !errors.Is(err, lockguard.ErrForeignKey) {
		t.Errorf("GetFenced of a string: %v", err)
	}
}
