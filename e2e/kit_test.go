// Package e2e runs built binaries against real servers and real Celery.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
)

// workerPkg is the stock program with the tests' handlers and fail points.
const workerPkg = "./e2e/testworker"

// stack is one broker, one ledger (a database of its own), and a folder for
// files.
type stack struct {
	t      *testing.T
	redis  *testkit.RedisServer
	broker *redis.Client // database 0: kombu's lists, our keys, results
	ledger *redis.Client // database 9: what handlers did
	dir    string
	bin    string
}

func newStack(t *testing.T, args ...string) *stack {
	t.Helper()
	s := &stack{t: t, dir: t.TempDir(), bin: testkit.Build(t, workerPkg, testkit.FailpointsTag)}
	s.redis = testkit.Redis(t, args...)
	s.broker, s.ledger = s.redis.ClientDB(t, 0), s.redis.ClientDB(t, 9)
	return s
}

// file writes a file into the stack's folder and returns its path.
func (s *stack) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// env is what every process of the stack gets.
func (s *stack) env(extra ...string) []string {
	return append([]string{
		"SOLOBEAT_REDIS_URL=" + s.redis.URL(0), "TEST_LEDGER=" + s.redis.URL(9), "SOLOBEAT_METRICS_LISTEN=127.0.0.1:0", "SOLOBEAT_LOG_FORMAT=json",
	}, extra...)
}

// worker starts a worker and waits until it is ready.
func (s *stack) worker(name string, extra []string, args ...string) *worker {
	s.t.Helper()
	w := s.workerAsync(name, extra, args...)
	w.ready()
	return w
}

// workerAsync starts a worker and does not wait.
func (s *stack) workerAsync(name string, extra []string, args ...string) *worker {
	s.t.Helper()
	argv := append([]string{s.bin, "worker", "-n", name + "@e2e"}, args...)
	return &worker{Proc: testkit.Start(s.t, name, s.env(extra...), argv...), s: s}
}

// worker is one worker process.
type worker struct {
	*testkit.Proc
	s    *stack
	addr string
}

// ready waits for the log line that tells the metrics address, which comes
// after all else is up.
func (w *worker) ready() {
	w.s.t.Helper()
	w.addr = strings.Trim(w.WaitOutput(60*time.Second, `"msg":"metrics","listen":"([^"]+)"`)[1], `"`)
}

// metricsURL is where its metrics are.
func (w *worker) metricsURL() string { return fmt.Sprintf("http://%s/metrics", w.addr) }

// list reads a list of the ledger.
func (s *stack) list(name string) []string {
	s.t.Helper()
	v, err := s.ledger.LRange(s.t.Context(), name, 0, -1).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// idle waits until nothing is queued, taken or parked.
func (s *stack) idle(timeout time.Duration) {
	s.t.Helper()
	testkit.Eventually(s.t, timeout, func() error {
		ctx := s.t.Context()
		var left []string
		for _, key := range []string{"celery", "celery\x06\x163", "celery\x06\x166", "celery\x06\x169"} {
			if n := s.broker.LLen(ctx, key).Val(); n > 0 {
				left = append(left, fmt.Sprintf("%d in list %q", n, key))
			}
		}
		if n := s.broker.HLen(ctx, "unacked").Val(); n > 0 {
			left = append(left, fmt.Sprintf("%d unacked", n))
		}
		if n := s.broker.ZCard(ctx, "unacked_index").Val(); n > 0 {
			left = append(left, fmt.Sprintf("%d in unacked_index", n))
		}
		if len(left) > 0 {
			return fmt.Errorf("not idle: %s", strings.Join(left, ", "))
		}
		return nil
	})
}
