package lockredis

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/locktest"
)

// TestMain lets the test binary play a holder in another process.
func TestMain(m *testing.M) {
	if role := os.Getenv("LOCKREDIS_CHILD"); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}

type network struct{ *testkit.Proxy }

func (n network) DropReply() { n.DropReplyTo("evalsha") }

// harness is a server of its own, with scripts in one of their two forms.
func harness(t *testing.T, newRunner func(redisconn.Scripter) *redisconn.Runner) locktest.Harness {
	server := testkit.Redis(t)
	open := func(t testing.TB, c *redis.Client) lockguard.Backend {
		t.Helper()
		b, err := newBackend(c, newRunner(c), Options{Namespace: "test", KeyPrefix: "app:", Logger: testkit.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	admin := server.Client(t)
	must := func(t testing.TB, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return locktest.Harness{
		Backend: func(t testing.TB) lockguard.Backend { return open(t, server.Client(t)) },
		Network: func(t testing.TB) (lockguard.Backend, locktest.Network) {
			proxy := testkit.NewProxy(t, server.Addr)
			return open(t, proxy.Client(t)), network{proxy}
		},
		Delete: func(t testing.TB, key string) { must(t, admin.Del(t.Context(), key).Err()) },
		Take: func(t testing.TB, key string, ttl time.Duration) {
			must(t, admin.Set(t.Context(), key, "f00df00df00df00df00df00df00df00d", ttl).Err())
		},
		ForgetScripts: func(t testing.TB) { must(t, admin.ScriptFlush(t.Context()).Err()) },
		Flush:         func(t testing.TB) { must(t, admin.FlushAll(t.Context()).Err()) },
		Pause: func(testing.TB) func() {
			server.Pause()
			return server.Continue
		},
		Fence: lockguard.BestEffort,
	}
}

func TestConformance(t *testing.T) {
	for name, newRunner := range map[string]func(redisconn.Scripter) *redisconn.Runner{
		"flags": redisconn.NewRunner,
		"plain": redisconn.NewPlainRunner,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Exercise(t, func(t *testing.T) locktest.Harness { return harness(t, newRunner) })
		})
	}
}

// The demo runs on miniredis, whose keys run out only when it is told the time.
func TestConformanceOfMiniredis(t *testing.T) {
	t.Parallel()
	locktest.Exercise(t, func(t *testing.T) locktest.Harness {
		server := miniredis.NewMiniRedis()
		if err := server.StartAddr("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for last := time.Now(); ; {
				select {
				case <-stop:
					return
				case now := <-tick.C:
					server.FastForward(now.Sub(last))
					last = now
				}
			}
		}()
		t.Cleanup(func() { close(stop); <-done })
		open := func(t testing.TB, addr string) lockguard.Backend {
			t.Helper()
			b, err := New(testkit.RedisClient(t, addr, 0), Options{Logger: testkit.Logger(t)})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		admin := testkit.RedisClient(t, server.Addr(), 0)
		return locktest.Harness{
			Backend: func(t testing.TB) lockguard.Backend { return open(t, server.Addr()) },
			Network: func(t testing.TB) (lockguard.Backend, locktest.Network) {
				proxy := testkit.NewProxy(t, server.Addr())
				return open(t, proxy.Addr), network{proxy}
			},
			Delete: func(_ testing.TB, key string) { server.Del(key) },
			Take: func(t testing.TB, key string, ttl time.Duration) {
				if err := admin.Set(t.Context(), key, "foreign", ttl).Err(); err != nil {
					t.Fatal(err)
				}
			},
			ForgetScripts: func(t testing.TB) { admin.ScriptFlush(t.Context()) },
			Flush:         func(testing.TB) { server.FlushAll() },
			Fence:         lockguard.BestEffort,
		}
	})
}

// newGuard makes a guard on a client.
func newGuard(t testing.TB, c *redis.Client, o lockguard.Observer) (*lockguard.Guard, *Backend) {
	t.Helper()
	b, err := New(c, Options{Logger: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	g, err := lockguard.New(lockguard.Config{Backend: b, Instance: "test", Observer: o, Logger: testkit.Logger(t)})
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
	return g, b
}
