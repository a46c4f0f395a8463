package idemredis_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency/idemredis"
	"github.com/solobeat/solobeat/idempotency/idemtest"
	"github.com/solobeat/solobeat/internal/testkit"
)

func newStore(t *testing.T, c redis.UniversalClient, o idemredis.Options) *idemredis.Store {
	t.Helper()
	s, err := idemredis.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func harness(t *testing.T, addr string, o idemredis.Options) idemtest.Harness {
	t.Helper()
	c := testkit.RedisClient(t, addr, 0)
	proxy := testkit.NewProxy(t, addr)
	return idemtest.Harness{
		Store:     newStore(t, c, o),
		Lossy:     newStore(t, testkit.RedisClient(t, proxy.Addr, 0), o),
		LoseReply: func() { proxy.DropReplyTo("evalsha") },
		Wipe: func() {
			if err := c.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// TestConformance runs the suite against a real server, with scripts that carry
// flags and with plain ones, and against the embedded server of the demo.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		idemtest.Run(t, func(t *testing.T) idemtest.Harness {
			return harness(t, testkit.Redis(t).Addr, idemredis.Options{})
		})
	})
	t.Run("redis plain scripts", func(t *testing.T) {
		t.Parallel()
		idemtest.Run(t, func(t *testing.T) idemtest.Harness {
			return harness(t, testkit.Redis(t).Addr, idemredis.Options{Namespace: "shop-2", Prefix: "a[b]*:", PlainScripts: true})
		})
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		idemtest.Run(t, func(t *testing.T) idemtest.Harness {
			m := miniredis.RunT(t)
			h := harness(t, m.Addr(), idemredis.Options{AssumeNoEviction: true})
			last := time.Now()
			h.Tick = func() { // its keys expire by hand, its TIME runs
				now := time.Now()
				m.FastForward(now.Sub(last))
				last = now
			}
			return h
		})
	})
}
