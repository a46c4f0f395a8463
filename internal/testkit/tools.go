package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Celery is a version of Celery with the packages of its time, in a virtual
// environment that `make setup` has made.
type Celery string

// The versions there are: the oldest wire that is a peer, and the newest.
const (
	Celery52 Celery = "celery-5.2"
	Celery57 Celery = "celery-5.7"
)

// Python returns the path of a Python interpreter that has this Celery. Start
// Celery itself with "-m", "celery".
func Python(t testing.TB, version Celery) string {
	t.Helper()
	dir := filepath.Join(RepoRoot(t), ".cache", "venv", string(version))
	// The stamp is written last, so an install that broke off does not count.
	if _, err := os.Stat(filepath.Join(dir, "stamp")); err != nil {
		t.Fatalf("no virtual environment %s; run: make setup", version)
	}
	return filepath.Join(dir, "bin", "python")
}

// Promtool returns the path of Prometheus's promtool.
func Promtool(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not installed; run: make setup")
	}
	return path
}
