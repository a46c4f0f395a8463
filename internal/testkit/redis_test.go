package testkit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

func TestRedisServersArePrivate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, b := testkit.Redis(t), testkit.Redis(t, "--databases", "3")
	if err := a.Client(t).Set(ctx, "k", "a", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Client(t).Exists(ctx, "k").Result(); err != nil || n != 0 {
		t.Errorf("the second server has the first one's key (%d, %v)", n, err)
	}
	if err := b.ClientDB(t, 3).Ping(ctx).Err(); err == nil {
		t.Error("the argument --databases 3 was not obeyed")
	}
	if got, want := a.URL(1), "redis://"+a.Addr+"/1"; got != want {
		t.Errorf("URL %q, want %q", got, want)
	}
	save, err := a.Client(t).ConfigGet(ctx, "save").Result()
	if err != nil || save["save"] != "" {
		t.Errorf("the server saves to disk: %v, %v", save, err)
	}
}

func TestRedisPauseContinueStopRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := testkit.Redis(t)
	c := s.Client(t)
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := c.Ping(short).Err(); !isTimeout(err) {
		t.Errorf("a paused server: %v, want a timeout", err)
	}
	s.Continue()
	if got, err := c.Get(ctx, "k").Result(); err != nil || got != "v" {
		t.Errorf("after the pause: %q, %v", got, err)
	}
	addr := s.Addr
	s.Stop()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("a stopped server answers")
	}
	s.Restart()
	if n, err := s.Client(t).Exists(ctx, "k").Result(); err != nil || n != 0 || s.Addr != addr {
		t.Errorf("after the restart: %d keys, %v, %s (was %s)", n, err, s.Addr, addr)
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func TestRedisEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var pid int
	t.Run("inner", func(t *testing.T) {
		s := testkit.Redis(t)
		s.Pause() // also a paused one
		pid = s.Pid()
	})
	if !gone(pid) {
		t.Errorf("server %d still runs", pid)
	}
}

func TestFreePortIsNeitherStandardNorHandedOutTwice(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 500 {
		port := testkit.FreePort(t)
		if port < 20000 || port >= 32768 || port == 26379 || port == 27017 {
			t.Fatalf("port %d", port)
		}
		if seen[port] {
			t.Errorf("port %d was handed out twice", port)
		}
		seen[port] = true
	}
}

// With an append-only file what was answered is there again, after a kill and
// after an end in order.
func TestRedisKeepsItsDataInAnAOF(t *testing.T) {
	t.Parallel()
	s := testkit.Redis(t, testkit.AOF(t)...)
	for i, end := range []func(){s.Stop, s.Shutdown} {
		c := s.Client(t)
		if n, err := c.Incr(t.Context(), "n").Result(); err != nil || n != int64(i+1) {
			t.Fatalf("n = %d, %v; want %d", n, err, i+1)
		}
		end()
		s.Restart()
	}
	if n, err := s.Client(t).Get(t.Context(), "n").Int(); err != nil || n != 2 {
		t.Errorf("n = %d, %v; want 2", n, err)
	}
}
