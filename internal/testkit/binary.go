package testkit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FailpointsTag is the build tag of test binaries: fail points and clock offsets
// exist only in them.
const FailpointsTag = "solobeat_failpoints"

// builds remembers what this test process has built, by package and tag.
var builds sync.Map

type build struct {
	once sync.Once
	path string
	err  error
}

// Binary returns the path of the solobeat binary as it ships, without the race
// detector, built from the tree as it stands. It is built once per test process.
func Binary(t testing.TB) string {
	t.Helper()
	return Build(t, "./cmd/solobeat", "")
}

// TestBinary is Binary built with FailpointsTag.
func TestBinary(t testing.TB) string {
	t.Helper()
	return Build(t, "./cmd/solobeat", FailpointsTag)
}

// Build returns the path of the binary of a main package of this module, built
// as [Binary] is.
func Build(t testing.TB, pkg, tags string) string {
	t.Helper()
	v, _ := builds.LoadOrStore(pkg+" "+tags, new(build))
	b := v.(*build)
	b.once.Do(func() {
		root, err := repoRoot()
		if err != nil {
			b.err = err
			return
		}
		b.path, b.err = buildBinary(root, filepath.Join(root, ".cache", "testbin"), pkg, tags)
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

// buildBinary builds a command into a file that is named by its content, so
// that test processes share one file and none is replaced while it runs.
func buildBinary(root, dir, pkg, tags string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	// The linker is skipped when this file is up to date.
	fresh := filepath.Join(dir, filepath.Base(filepath.Join(root, pkg)))
	if tags != "" {
		fresh += "-" + tags
	}
	cmd := exec.Command("go", "build", "-o", fresh, "-tags", tags, pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	sum, err := sha(fresh)
	if err != nil {
		return "", err
	}
	sealed := fresh + "-" + sum
	if _, err := os.Stat(sealed); err != nil {
		if err := copyFile(fresh, sealed); err != nil {
			return "", err
		}
	}
	prune(dir, sealed)
	return sealed, nil
}

// prune removes sealed binaries that no running test can want any more.
func prune(dir, used string) {
	now := time.Now()
	_ = os.Chtimes(used, now, now)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > 3*time.Hour && e.Name() != "lock" {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func sha(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	tmp := to + ".tmp"
	if err := os.WriteFile(tmp, b, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, to)
}

// lock takes a file lock among processes.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(int(f.Fd())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func flock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
