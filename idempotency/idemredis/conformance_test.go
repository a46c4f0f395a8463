package idemredis_test

import (
	"sync/atomic"
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

func harness(t *testing.T, addr string, db int, o idemredis.Options, plain bool) idemtest.Harness {
	t.Helper()
	c := testkit.RedisClient(t, addr, db)
	proxy := testkit.NewProxy(t, addr)
	store, lossy := newStore(t, c, o), newStore(t, testkit.RedisClient(t, proxy.Addr, db), o)
	if plain {
		store.Plain()
		lossy.Plain()
	}
	return idemtest.Harness{
		Store:     store,
		Lossy:     lossy,
		LoseReply: func() { proxy.DropReplyTo("evalsha") },
		Wipe: func() {
			if err := c.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// TestConformance runs the suite against a real server, with scripts that carry
// flags and with plain ones, and against the embedded server of the demo.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		o     idemredis.Options
		plain bool
	}{
		"redis":               {},
		"redis plain scripts": {idemredis.Options{Namespace: "shop-2", KeyPrefix: "a[b]*:"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.Redis(t, "--databases", "100")
			var db atomic.Int32 // one for each test
			idemtest.Run(t, func(t *testing.T) idemtest.Harness {
				return harness(t, server.Addr, int(db.Add(1)), row.o, row.plain)
			})
		})
	}
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		idemtest.Run(t, func(t *testing.T) idemtest.Harness {
			m := miniredis.RunT(t)
			h := harness(t, m.Addr(), 0, idemredis.Options{AssumeNoEviction: true}, false)
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
