package redisconn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/internal/testkit"
)

// With memory full a script without flags must not claim, and one with
// allow-oom must still release: that is what the flags are for.
func TestFlagsOnAFullServer(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t, "--maxmemory", "1mb", "--maxmemory-policy", "noeviction").Client(t)
	ctx := t.Context()
	for c.Append(ctx, "filler", strings.Repeat("x", 100_000)).Err() == nil {
	}
	claim := redisconn.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")
	complete := redisconn.NewScript("return redis.call('SET', KEYS[1], ARGV[1])", "allow-oom")
	r := redisconn.NewRunner(c)
	if yes, err := r.Shebang(ctx); err != nil || !yes {
		t.Fatalf("shebang %v, %v: Redis 7 takes it", yes, err)
	}
	if err := r.Run(ctx, claim, []string{"k"}, "v").Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("claim on a full server: %v, want OOM", err)
	}
	if err := r.Run(ctx, complete, []string{"k"}, "v").Err(); err != nil {
		t.Errorf("complete on a full server: %v", err)
	}
	plain := redisconn.NewPlainRunner(c)
	if err := plain.Run(ctx, complete, []string{"k"}, "v").Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("the plain form on a full server: %v, want OOM: the flag would be without effect", err)
	}
}

// A server without shebangs gets the plain form, found by trying.
func TestNoShebang(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	c := testkit.RedisClient(t, m.Addr(), 0)
	r := redisconn.NewRunner(c)
	s := redisconn.NewScript("return ARGV[1]", "allow-oom")
	if got, err := r.Run(t.Context(), s, nil, "x").Text(); err != nil || got != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	if yes, err := r.Shebang(t.Context()); err != nil || yes {
		t.Errorf("shebang %v, %v", yes, err)
	}
}

// After SCRIPT FLUSH (a failover, a restart) batches and single runs go on.
func TestNoScript(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	r := redisconn.NewRunner(c)
	s := redisconn.NewScript("return ARGV[1]")
	for range 2 {
		if got, err := r.Run(t.Context(), s, nil, "one").Text(); err != nil || got != "one" {
			t.Errorf("single: %q, %v", got, err)
		}
		cmds := r.RunAll(t.Context(), s, []redisconn.Call{{Args: []any{"a"}}, {Args: []any{"b"}}, {Args: []any{"c"}}})
		var got []string
		for _, cmd := range cmds {
			text, err := cmd.Text()
			if err != nil {
				t.Error(err)
			}
			got = append(got, text)
		}
		if strings.Join(got, "") != "abc" {
			t.Errorf("batch: %v, want a b c in order", got)
		}
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A probe that gets no answer is asked again, and runs nothing meanwhile.
func TestProbeIsRepeated(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	p := testkit.NewProxy(t, srv.Addr)
	c := p.Client(t)
	r := redisconn.NewRunner(c)
	s := redisconn.NewScript("return 1", "allow-oom")
	p.Refuse()
	if err := r.Run(t.Context(), s, nil).Err(); err == nil {
		t.Fatal("a script ran without a server")
	}
	p.Pass()
	if err := r.Run(t.Context(), s, nil).Err(); err != nil {
		t.Errorf("after the server is back: %v", err)
	}
}

// No error of Open repeats a password.
func TestOpenHidesPasswords(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"redis://user:s3cret@host:port/0", "redis://user:s3cret@host/0?db=x", "http://user:s3cret@host", "redis://user:s3%zzcret@host",
		"redis://user:s3/cret@host/0", "redis://user:s3cret@host/notadb", "s3cret",
	} {
		_, err := redisconn.Open(redisconn.Options{URL: raw})
		if err == nil {
			t.Errorf("%s was accepted", raw)
			continue
		}
		if strings.Contains(raw, "@") && (strings.Contains(err.Error(), "s3") || strings.Contains(err.Error(), "cret")) {
			t.Errorf("%s: the error shows the password: %v", raw, err)
		}
	}
}

// What a client speaks is told by the server: RESP2 unless the URL says otherwise.
func TestProtocol(t *testing.T) {
	t.Parallel()
	url := testkit.Redis(t).URL(0)
	for option, want := range map[string]string{"": "resp=2", "?protocol=2": "resp=2", "?protocol=3": "resp=3"} {
		c, err := redisconn.Open(redisconn.Options{URL: url + option})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		info, err := c.Do(t.Context(), "client", "info").Text()
		if err != nil || !strings.Contains(info, want) {
			t.Errorf("with %q: %s, %v; want %s", option, info, err, want)
		}
	}
}

func TestTransient(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	busy := c.Do(t.Context(), "EVAL", "return redis.error_reply('BUSY a script runs')", 0).Err()
	if !redisconn.Transient(busy) {
		t.Errorf("%v is not now, not no", busy)
	}
	wrong := c.Do(t.Context(), "EVAL", "return redis.error_reply('WRONGTYPE no')", 0).Err()
	if redisconn.Transient(wrong) || redisconn.Transient(errors.New("other")) {
		t.Error("a definite error is taken for a passing one")
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t, "--maxmemory-policy", "allkeys-lru").Client(t)
	if p, err := redisconn.Policy(t.Context(), c); err != nil || p != "allkeys-lru" {
		t.Errorf("policy %q, %v", p, err)
	}
}

func TestSameAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"redis://h:1/0", "redis://h:1/2", true},
		{"redis://h:1", "redis://h:2", false},
		{"redis://h:1", "rediss://h:1", false},
		{"redis://localhost:1/0", "redis://127.0.0.1:1/1", true},
		{"redis://[::1]:1", "redis://localhost:1", true},
	} {
		a, errA := redis.ParseURL(c.a)
		b, errB := redis.ParseURL(c.b)
		if errA != nil || errB != nil || redisconn.SameAddress(a, b) != c.same {
			t.Errorf("%s, %s: %v, %v; servers are told apart by host, port and transport, not by database", c.a, c.b, errA, errB)
		}
	}
}
