package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/testkit"
)

func storesOf(t *testing.T, log slog.Handler, broker, locks string) *stores {
	t.Helper()
	cfg := &config.Config{Worker: config.Worker{Queues: []string{"celery"}}, Redis: config.Redis{URL: broker, ResultsURL: broker, LocksURL: locks}}
	s, err := openStores(cfg, slog.New(log), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// heard is a log that tells when a message is in it, which is said once.
type heard struct {
	slog.Handler
	message string
	said    chan struct{}
}

func hear(message string) heard { return heard{slog.DiscardHandler, message, make(chan struct{})} }

func (heard) Enabled(context.Context, slog.Level) bool { return true }

func (h heard) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		close(h.said)
	}
	return nil
}

// A server of the locks that comes up late is waited for like the broker.
func TestLateLockServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	addr := testkit.FreeAddr(t)
	log := hear("redis does not answer yet")
	s := storesOf(t, log, "redis://"+miniredis.RunT(t).Addr()+"/0", "redis://"+addr+"/0")
	reached := make(chan error, 1)
	go func() { reached <- s.reach(t.Context(), 20*time.Second, s.all()...) }()
	select {
	case err := <-reached:
		t.Fatalf("not waited for: %v", err)
	case <-log.said:
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

// A frozen server takes connections and answers nothing: one try is short, and
// no try outlasts the wait by much.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, wait := range []time.Duration{0, 4 * time.Second} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			url := "redis://" + l.Addr().String() + "/0"
			s := storesOf(t, slog.DiscardHandler, url, url)
			began := time.Now()
			err := s.reach(t.Context(), wait, s.all()...)
			if took := time.Since(began); took > max(wait, tryTimeout)+1500*time.Millisecond {
				t.Errorf("it took %s", took)
			}
			if err == nil || !strings.Contains(err.Error(), "does not answer: no reply within") {
				t.Error(err)
			}
		})
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
		s := storesOf(t, slog.DiscardHandler, tc.broker, tc.locks)
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

// A server of the results that is frozen: commands name it, and wait no longer
// than they were told.
func TestFrozenResults(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	results := "redis://" + l.Addr().String() + "/0"
	file := filepath.Join(t.TempDir(), "schedule.yaml")
	if err := os.WriteFile(file, []byte("version: 1\njobs: {a: {task: t, every: 1h}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"SOLOBEAT_REDIS_URL=" + testkit.Redis(t).URL(0), "SOLOBEAT_REDIS_RESULTS_URL=" + results, "SOLOBEAT_SCHEDULE_FILE=" + file}
	for _, tc := range []struct{ args, words string }{
		{"result id", results + " does not answer"},
		{"enqueue t --wait --timeout 2500ms", results + " does not answer"},
		{"jobs trigger a --wait --timeout 1s", results + " does not answer"},
		{"jobs trigger a", "tick "}, // which needs no result
	} {
		var out, errs bytes.Buffer
		began := time.Now()
		code := Main(t.Context(), strings.Fields(tc.args), Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, env, nil)
		took := time.Since(began)
		if want := min(1, strings.Count(tc.words, "answer")); code != want || !strings.Contains(errs.String(), tc.words) || took > 7*time.Second {
			t.Errorf("%s: exit code %d after %s: %s", tc.args, code, took, errs.String())
		}
	}
}
