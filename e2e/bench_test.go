package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// The benchmarks are a module of their own, which `go test ./...` does not see:
// a tiny run shows that every group still works beside its peers. It measures
// nothing.
func TestBenchRuns(t *testing.T) {
	t.Parallel()
	testkit.Python(t, testkit.Celery57)
	bench := filepath.Join(testkit.RepoRoot(t), "bench")
	if code := testkit.Start(t, "bench-tests", nil, "go", "-C", bench, "test", "./...").Wait(5 * time.Minute); code != 0 {
		t.Errorf("its own tests: exit code %d", code)
	}
	p := testkit.Start(t, "bench", nil, "go", "-C", bench, "run", ".", "-tiny")
	if code := p.Wait(5 * time.Minute); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	table := p.Stdout()
	const lines = 21
	if n := strings.Count(table, " | not judged |\n"); n != lines {
		t.Errorf("%d lines, want %d:\n%s", n, lines, table)
	}
	if n := strings.Count(table, "Showing nodes"); n != 1 {
		t.Errorf("%d profiles, want 1:\n%s", n, table)
	}
	if strings.Contains(table, "NaN") || strings.Contains(table, "Inf") {
		t.Errorf("a figure is none:\n%s", table)
	}
}
