package cli

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/testkit"
)

func storesOf(t *testing.T, broker, locks string) *stores {
	t.Helper()
	cfg := &config.Config{Redis: config.Redis{URL: broker, ResultsURL: broker, LocksURL: locks}}
	s, err := openStores(cfg, slog.New(slog.DiscardHandler), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// A server of the locks that comes up late is waited for like the broker.
func TestLateLockServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	addr := testkit.FreeAddr(t)
	s := storesOf(t, "redis://"+miniredis.RunT(t).Addr()+"/0", "redis://"+addr+"/0")
	reached := make(chan error, 1)
	go func() { reached <- s.reach(t.Context(), 20*time.Second, s.all()...) }()
	select {
	case err := <-reached:
		t.Fatalf("not waited for: %v", err)
	case <-time.After(700 * time.Millisecond):
	}
	late := miniredis.NewMiniRedis()
	if err := late.StartAddr(addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(late.Close)
	if err := <-reached; err != nil {
		t.Error(err)
	}
}

// Errors name the server that is away, its key, and no secret.
func TestReachNamesTheServer(t *testing.T) {
	t.Parallel()
	up, down := testkit.Redis(t), testkit.FreeAddr(t)
	for name, tc := range map[string]struct {
		broker, locks string
		code          int
		key, url      string
	}{
		"locks away":  {up.URL(0), "redis://:hush@" + down + "/3", exitFailed, "redis.locks_url", "redis://****@" + down + "/3"},
		"broker away": {"redis://:hush@" + down + "/3", "redis://:hush@" + down + "/3", exitFailed, "redis.url", "redis://****@" + down + "/3"},
		"no database": {up.URL(0), up.URL(99), exitConfig, "redis.locks_url", up.URL(99)},
	} {
		s := storesOf(t, tc.broker, tc.locks)
		err := s.reach(t.Context(), 0, s.all()...)
		var e *exitError
		if !errors.As(err, &e) || e.code != tc.code {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, tc.key) || !strings.Contains(text, tc.url) || strings.Contains(text, "hush") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
