package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// A worker that is short of file descriptors parks the tasks whose programs it
// could not start; none fails by it, though none may be retried.
func TestProgramsWaitForFileDescriptors(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := s.file("solobeat.yaml", `
worker: {concurrency: 16}
tasks:
  reports.nap: {command: [sleep, "0.1"]}
`)
	var ids []string
	for range 16 {
		ids = append(ids, s.enqueue("reports.nap"))
	}
	argv := []string{"sh", "-c", `ulimit -n 64 && exec "$@"`, "sh", s.bin, "worker", "-n", "short@e2e", "-c", conf}
	w := testkit.Start(t, "short", s.env(), argv...)
	for _, id := range ids {
		s.wantState(id, "SUCCESS", 2*time.Minute)
	}
	if n := strings.Count(w.Stderr(), `"reason":"shortage"`); n == 0 {
		t.Error("the worker was never short of file descriptors")
	}
}
