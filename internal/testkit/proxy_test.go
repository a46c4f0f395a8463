package testkit_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
)

type proxied struct {
	proxy   *testkit.Proxy
	through *redis.Client // through the proxy, connected
	direct  *redis.Client
}

func newProxied(t *testing.T) proxied {
	t.Helper()
	s := testkit.Redis(t)
	p := testkit.NewProxy(t, s.Addr)
	x := proxied{proxy: p, through: p.Client(t), direct: s.Client(t)}
	if err := x.through.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x proxied) set(t *testing.T, key string, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return x.through.Set(ctx, key, "v", 0).Err()
}

func (x proxied) exists(t *testing.T, key string) bool {
	t.Helper()
	n, err := x.direct.Exists(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

const (
	brief = 100 * time.Millisecond
	long  = 10 * time.Second
)

func TestProxyPasses(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	big := make([]byte, 1<<20)
	if err := x.through.Set(t.Context(), "big", big, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := x.through.Get(t.Context(), "big").Bytes(); err != nil || len(got) != len(big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// The reply is lost, the effect is not: what a caller must be ready for.
func TestProxyDropsOneReply(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.DropNextReply()
	if err := x.set(t, "a", long); err == nil {
		t.Error("the reply arrived")
	}
	if !x.exists(t, "a") {
		t.Error("the request did not arrive")
	}
	if err := x.set(t, "b", long); err != nil {
		t.Errorf("the second request: %v", err)
	}
	if got := x.proxy.Dropped(); got != 1 {
		t.Errorf("%d dropped, want 1", got)
	}
}

func TestProxyDropsTheReplyToAMatch(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	if err := x.set(t, "target", long); err != nil { // before it is armed
		t.Fatal(err)
	}
	x.proxy.DropReplyTo("target")
	if err := x.set(t, "other", long); err != nil {
		t.Errorf("a request without the text: %v", err)
	}
	if err := x.set(t, "target", long); err == nil {
		t.Error("the reply to the match arrived")
	}
	if err := x.set(t, "target", long); err != nil {
		t.Errorf("it was to lose one reply only: %v", err)
	}
}

func TestProxySwallows(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.Swallow()
	if err := x.set(t, "a", brief); !isTimeout(err) {
		t.Errorf("swallowed: %v, want a timeout", err)
	}
	x.proxy.Pass()
	if err := x.set(t, "b", long); err != nil {
		t.Errorf("after Pass: %v", err)
	}
	if x.exists(t, "a") {
		t.Error("a swallowed request arrived")
	}
}

func TestProxyHoldsUntilPass(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.Hold()
	if err := x.set(t, "a", brief); !isTimeout(err) {
		t.Errorf("held: %v, want a timeout", err)
	}
	if x.exists(t, "a") {
		t.Error("a held request arrived before Pass")
	}
	x.proxy.Pass()
	testkit.Poll(t, long, time.Millisecond, func() bool { return x.exists(t, "a") }, "the held request arrives late")
}

// A late request arrives though its sender has hung up.
func TestProxyHoldsOneRequest(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	h := x.proxy.HoldRequest("late")
	if err := x.set(t, "late", brief); !isTimeout(err) {
		t.Errorf("held: %v, want a timeout", err)
	}
	<-h.Seen
	if err := x.set(t, "other", long); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if x.exists(t, "late") {
		t.Error("the held request arrived before its release")
	}
	h.Release()
	h.Release()
	testkit.Poll(t, long, time.Millisecond, func() bool { return x.exists(t, "late") }, "the held request arrives late")
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.Delay(30 * time.Millisecond)
	start := time.Now()
	if err := x.set(t, "a", long); err != nil {
		t.Fatal(err)
	}
	if got := time.Since(start); got < 60*time.Millisecond {
		t.Errorf("there and back in %v, want 60ms or more", got)
	}
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.Refuse()
	for range 3 {
		if err := x.set(t, "a", long); err == nil {
			t.Error("a refusing proxy served")
		}
	}
	x.proxy.Pass()
	if err := x.set(t, "a", long); err != nil {
		t.Errorf("after Pass: %v", err)
	}
	x.proxy.CloseAll()
	if err := x.set(t, "b", long); err == nil {
		t.Log("the client had noticed the closed connection by itself")
	}
	if err := x.set(t, "b", long); err != nil {
		t.Errorf("a new connection after CloseAll: %v", err)
	}
}

// A text that arrives in two pieces is found; what came before it was armed is not.
func TestProxyMatchesAcrossChunks(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.Delay(0)
	conn, err := dialer().DialContext(t.Context(), "tcp", x.proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	held := x.proxy.HoldRequest("halves")
	for _, part := range []string{"SET hal", "ves 1\r\n"} {
		if _, err := conn.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
		if part == "SET hal" {
			select {
			case <-held.Seen:
				t.Fatal("half a text was taken for all of it")
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	<-held.Seen
	held.Release()
	testkit.Poll(t, long, time.Millisecond, func() bool { return x.exists(t, "halves") }, "the request arrives")
}

// Each lost reply is one whose request was done, and some of a reply may come.
func TestProxyLosesRepliesAtRandom(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.LoseReplies(3, 1)
	failed := 0
	for range 200 {
		if err := x.through.Incr(t.Context(), "n").Err(); err != nil {
			failed++
		}
	}
	x.proxy.Pass()
	// A handshake may meet a loss as well: then its command was never sent.
	if lost := x.proxy.Dropped(); lost < 20 || failed < 20 || failed > lost {
		t.Errorf("%d losses, %d failures of 200", lost, failed)
	}
	done, err := x.through.Get(t.Context(), "n").Int()
	if err != nil || done <= 200-failed {
		t.Errorf("%d done of %d that were answered, %v: no request of a lost reply was done", done, 200-failed, err)
	}
}

func TestProxyCutsIdleConnections(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.IdleLimit(brief, false)
	testkit.Poll(t, long, time.Millisecond, func() bool { return x.proxy.IdleCuts() == 1 }, "the idle connection is cut")
	if err := x.set(t, "a", long); err == nil {
		t.Log("the client has seen the end of its connection before it used it")
	}
	if err := x.set(t, "b", long); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestProxyForgetsIdleConnections(t *testing.T) {
	t.Parallel()
	x := newProxied(t)
	x.proxy.IdleLimit(brief, true)
	testkit.Poll(t, long, time.Millisecond, func() bool { return x.proxy.IdleCuts() == 1 }, "the idle connection is forgotten")
	if err := x.set(t, "a", brief); err == nil || x.exists(t, "a") {
		t.Errorf("the forgotten connection answers: %v", err)
	}
	if err := x.set(t, "b", long); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}
