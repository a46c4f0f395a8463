package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// A worker that is short of file descriptors tries the programs again that it
// could not start; none fails by it.
func TestProgramsWaitForFileDescriptors(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := s.file("solobeat.yaml", `
worker: {concurrency: 12}
tasks:
  reports.nap: {command: [sleep, "0.3"]}
`)
	var ids []string
	for range 24 {
		ids = append(ids, s.enqueue("reports.nap"))
	}
	argv := []string{"sh", "-c", `ulimit -n 40 && exec "$@"`, "sh", s.bin, "worker", "-n", "short@e2e", "-c", conf}
	w := testkit.Start(t, "short", s.env(), argv...)
	for _, id := range ids {
		s.wantState(id, "SUCCESS", 2*time.Minute)
	}
	if n := strings.Count(w.Stderr(), "too many open files"); n == 0 {
		t.Error("the worker was never short of file descriptors")
	}
}
