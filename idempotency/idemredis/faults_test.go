package idemredis_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
	"github.com/solobeat/solobeat/internal/testkit"
)

var day = idempotency.Key{Namespace: "reports.daily", Text: "report:2026-10-25"}

func claim(t *testing.T, s idempotency.Store, k idempotency.Key, o idempotency.ClaimOptions) (idempotency.Verdict, idempotency.Claim) {
	t.Helper()
	v, c, _, err := s.Claim(t.Context(), k, idempotency.NewOwner(), o)
	if err != nil {
		t.Fatal(err)
	}
	return v, c
}

// TestI06_CheckThenSet shows that the crowd of the suite catches a store that
// looks first and writes then: it lets several in.
func TestI06_CheckThenSet(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	naive := func(key string) bool {
		n, err := c.Exists(t.Context(), key).Result()
		if err != nil {
			t.Error(err)
		}
		if n > 0 {
			return false
		}
		if err := c.Set(t.Context(), key, "in progress", 0).Err(); err != nil {
			t.Error(err)
		}
		return true
	}
	const crowd, most = 200, 20 // on a busy machine one crowd may come in single file
	for n := range most {
		start := make(chan struct{})
		var wg sync.WaitGroup
		var winners atomic.Int64
		for range crowd {
			wg.Go(func() {
				<-start
				if naive(fmt.Sprintf("naive-%d", n)) {
					winners.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if winners.Load() > 1 {
			t.Logf("check-then-set let %d of %d in", winners.Load(), crowd)
			return
		}
	}
	t.Fatalf("check-then-set let one in, %d times: the crowd is too tame to show a double run", most)
}

// TestF12_Eviction: a policy that evicts is refused for records, also where only
// keys with a time to live are evicted and where CONFIG is forbidden.
func TestF12_Eviction(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"noeviction", "allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := testkit.Redis(t, "--maxmemory-policy", policy, "--rename-command", "CONFIG", "")
			c := server.Client(t)
			if err := c.ConfigGet(t.Context(), "maxmemory-policy").Err(); err == nil {
				t.Fatal("CONFIG is not forbidden")
			}
			// Assuming is for what cannot be read; it allows nothing.
			err := newStore(t, c, idemredis.Options{AssumeNoEviction: true}).Check(t.Context())
			if policy == "noeviction" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, idempotency.ErrUnsafeEviction) || !strings.Contains(err.Error(), policy) || !strings.Contains(err.Error(), "set maxmemory-policy to noeviction") {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// TestF12_Unreadable: what cannot be checked is a warning only.
func TestF12_Unreadable(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t, "--maxmemory-policy", "allkeys-lru")
	if err := server.Client(t).Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info", "-config").Err(); err != nil {
		t.Fatal(err)
	}
	app := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "app", Password: "pw", MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { _ = app.Close() })
	mini := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { _ = mini.Close() })
	for name, c := range map[string]*redis.Client{"forbidden": app, "embedded": mini} {
		for _, assume := range []bool{false, true} {
			var log bytes.Buffer
			s := newStore(t, c, idemredis.Options{AssumeNoEviction: assume, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if warned := strings.Contains(log.String(), "maxmemory-policy"); warned == assume {
				t.Errorf("%s: assumed %v, log %q", name, assume, log.String())
			}
		}
	}
}

// TestF12_LostReply: a server whose answer is lost on the way may evict, so it
// is not taken for one that does not tell.
func TestF12_LostReply(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, testkit.Redis(t, "--maxmemory-policy", "allkeys-lru").Addr)
	s := newStore(t, p.Client(t), idemredis.Options{})
	p.DropReplyTo("info")
	if err := s.Check(t.Context()); !errors.Is(err, idempotency.ErrStoreUnavailable) {
		t.Errorf("Check: %v, want ErrStoreUnavailable", err)
	}
	if err := s.Check(t.Context()); !errors.Is(err, idempotency.ErrUnsafeEviction) {
		t.Errorf("Check: %v, want ErrUnsafeEviction", err)
	}
}

// TestMemoryFull: a full server refuses a new claim and still lets a run that
// has had its effect be told, in both forms of the scripts.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain scripts %v", plain), func(t *testing.T) {
			t.Parallel()
			c := testkit.Redis(t, "--maxmemory-policy", "noeviction").Client(t)
			s := newStore(t, c, idemredis.Options{})
			if plain {
				s.Plain()
			}
			name := func(text string) idempotency.Key { return idempotency.Key{Namespace: "t", Text: text} }
			held := map[string]idempotency.Claim{}
			for _, n := range []string{"renew", "complete", "release", "fail", "vanished"} {
				_, held[n] = claim(t, s, name(n), idempotency.ClaimOptions{})
			}
			_, done := claim(t, s, name("done"), idempotency.ClaimOptions{})
			if err := s.Complete(t.Context(), done, idempotency.NewResult([]byte(`"kept"`)), time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := c.Del(t.Context(), keyOf("default", name("vanished"))).Err(); err != nil {
				t.Fatal(err)
			}
			if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}
			if err := c.Set(t.Context(), "k", "v", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
				t.Fatalf("the server is not full: %v", err)
			}
			_, _, _, err := s.Claim(t.Context(), name("new"), idempotency.NewOwner(), idempotency.ClaimOptions{})
			if !errors.Is(err, idempotency.ErrStoreUnavailable) || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("a new claim on a full server: %v", err)
			}
			if v, _ := claim(t, s, name("done"), idempotency.ClaimOptions{}); v != idempotency.Replay {
				t.Errorf("a finished key on a full server: %v", v)
			}
			if r := s.Renew(t.Context(), []idempotency.RenewItem{{Claim: held["renew"]}}); r[0].Err != nil {
				t.Errorf("renew: %v", r[0].Err)
			}
			big := idempotency.NewResult(bytes.Repeat([]byte("1"), 1000))
			if err := s.Complete(t.Context(), held["complete"], big, time.Hour); err != nil {
				t.Errorf("complete: %v", err)
			}
			if err := s.Complete(t.Context(), held["vanished"], big, time.Hour); !errors.Is(err, idempotency.ErrRecordLost) {
				t.Errorf("complete of a record that has vanished: %v", err)
			}
			if err := s.Release(t.Context(), held["release"], idempotency.Failure{Code: "E", Msg: "m"}, time.Minute); err != nil {
				t.Errorf("release: %v", err)
			}
			if err := s.Fail(t.Context(), held["fail"], idempotency.Failure{Code: "E", Msg: "m"}, time.Minute); err != nil {
				t.Errorf("fail: %v", err)
			}
			if _, err := s.Forget(t.Context(), name("done"), false, "full"); err != nil {
				t.Errorf("forget: %v", err)
			}
			for _, n := range []string{"complete", "vanished"} {
				if rec, _, err := s.Peek(t.Context(), name(n)); err != nil || rec.State != idempotency.Completed || len(rec.Result.Data) != 1000 {
					t.Errorf("%s: %+v, %v", n, rec.State, err)
				}
			}
		})
	}
}

func keyOf(ns string, k idempotency.Key) string {
	h := k.Hash()
	return "solobeat:" + ns + ":record:{" + hex.EncodeToString(h[:]) + "}"
}

// TestLayout: only our own keys, all with a time to live, both of one record in
// one slot, the prefix in front, and no compact form lost to a long result.
func TestLayout(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	s := newStore(t, c, idemredis.Options{Namespace: "shop", KeyPrefix: "app1:"})
	_, a := claim(t, s, day, idempotency.ClaimOptions{TaskID: "t1", Instance: "i1", Fingerprint: strings.Repeat("ab", 32)})
	if err := s.Complete(t.Context(), a, idempotency.NewResult(bytes.Repeat([]byte("1"), 300)), 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	record := "app1:" + keyOf("shop", day)
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{record: true, record + ":r": true}
	got := map[string]bool{}
	for _, k := range keys {
		got[k] = true
		ttl := c.PTTL(t.Context(), k).Val()
		if ttl <= 47*time.Hour || ttl > 48*time.Hour {
			t.Errorf("%s lives for %v", k, ttl)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if enc := c.ObjectEncoding(t.Context(), record).Val(); enc != "listpack" {
		t.Errorf("the record is stored as %s", enc)
	}
	if _, err := s.Forget(t.Context(), day, false, "why"); err != nil {
		t.Fatal(err)
	}
	if n := c.Exists(t.Context(), record+":r").Val(); n != 0 || c.Exists(t.Context(), record).Val() != 1 {
		t.Error("a forgotten record keeps its result, or is gone")
	}
	// Another namespace, and another prefix, do not see it.
	for _, o := range []idemredis.Options{{Namespace: "shop"}, {KeyPrefix: "app1:"}, {Namespace: "sho*", KeyPrefix: "app1:"}} {
		other, err := idemredis.New(c, o)
		if err != nil {
			continue
		}
		for rec, err := range other.List(t.Context()) {
			t.Errorf("%+v lists %v, %v", o, rec.Key, err)
		}
	}
	for _, bad := range []string{"a b", "a:b", "ü", strings.Repeat("x", 65)} {
		if _, err := idemredis.New(c, idemredis.Options{Namespace: bad}); err == nil {
			t.Errorf("namespace %q was accepted", bad)
		}
	}
}

// TestStoreDown: no answer is an error of its own for every call, never a
// verdict.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	s := newStore(t, server.Client(t), idemredis.Options{})
	_, c := claim(t, s, day, idempotency.ClaimOptions{})
	server.Stop()
	ctx := t.Context()
	_, _, _, claimErr := s.Claim(ctx, day, idempotency.NewOwner(), idempotency.ClaimOptions{})
	_, _, peekErr := s.Peek(ctx, day)
	_, getErr := s.Get(ctx, day.Hash())
	_, forgetErr := s.Forget(ctx, day, true, "")
	errs := map[string]error{
		"claim": claimErr, "peek": peekErr, "get": getErr, "forget": forgetErr, "check": s.Check(ctx),
		"abandon":  s.Abandon(ctx, day, c.Owner),
		"renew":    s.Renew(ctx, []idempotency.RenewItem{{Claim: c}})[0].Err,
		"complete": s.Complete(ctx, c, idempotency.Result{}, time.Hour),
		"release":  s.Release(ctx, c, idempotency.Failure{}, 0),
		"fail":     s.Fail(ctx, c, idempotency.Failure{}, time.Hour),
	}
	for _, err := range s.List(ctx) {
		errs["list"] = err
	}
	if errs["list"] == nil {
		t.Error("list of a store that is down yields nothing at all")
	}
	for name, err := range errs {
		if !errors.Is(err, idempotency.ErrStoreUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestScriptsForgotten: a failover or SCRIPT FLUSH loses the scripts, not the
// calls.
func TestScriptsForgotten(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	s := newStore(t, c, idemredis.Options{})
	_, held := claim(t, s, day, idempotency.ClaimOptions{})
	if err := c.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	items := make([]idempotency.RenewItem, 100)
	for i := range items {
		items[i].Claim = held
	}
	for i, r := range s.Renew(t.Context(), items) {
		if r.Err != nil {
			t.Fatalf("item %d: %v", i, r.Err)
		}
	}
}
