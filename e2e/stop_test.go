package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
)

// A run that ignores its context does not keep the process: it goes 5 s after
// the grace, whatever a second signal says, its lock runs out, and the next
// replica runs the task as the same attempt.
func TestStopUnderADeafRun(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := s.file("solobeat.yaml", `
worker: {concurrency: 2, grace: 1s}
tasks:
  tests.sleep:
    lock: {key: "sleep:{{ .Params.id }}", ttl: 2s}
    idempotency: {key: "{{ .Params.id }}"}
`)
	first := s.worker("first", nil, "-c", conf)
	s.enqueue("tests.sleep", kwargs(map[string]any{"id": "a", "seconds": 60, "deaf": true}), tasks.WithID("deaf"))
	started := func(n int) {
		t.Helper()
		testkit.Poll(t, 30*time.Second, 10*time.Millisecond, func() bool { return len(s.list("sleep:a")) >= n }, "%d starts", n)
	}
	started(1)
	second := s.worker("second", nil, "-c", conf)
	begin := time.Now()
	first.Signal(syscall.SIGTERM)
	time.AfterFunc(500*time.Millisecond, func() { first.Signal(syscall.SIGTERM) })
	select {
	case <-first.Exited():
	case <-time.After(20 * time.Second):
		t.Fatal("the process stays")
	}
	took := time.Since(begin)
	if took < 5500*time.Millisecond || took > 8*time.Second {
		t.Errorf("it went after %v, want 1 s of grace and 5 s", took)
	}
	if code := first.State().ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	started(2)
	t.Logf("went after %v, run again %v later", took.Round(time.Millisecond), (time.Since(begin) - took).Round(time.Millisecond))
	if since := time.Since(begin) - took; since > 6*time.Second { // at once, or when the lock's 2 s are over
		t.Errorf("run again %v after the exit", since)
	}
	if lines := s.list("sleep:a"); lines[1] != "start "+strconv.Itoa(second.Pid) {
		t.Errorf("ledger %q", lines)
	}
	if strings.Contains(second.Stderr(), `"deaths":1`) {
		t.Error("an orderly end was counted as a death")
	}
	second.Signal(syscall.SIGKILL)
}
