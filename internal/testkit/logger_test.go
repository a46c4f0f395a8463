package testkit_test

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/solobeat/solobeat/internal/testkit"
)

func dialer() *net.Dialer { return &net.Dialer{} }

func TestLoggerOutlivesItsTest(t *testing.T) {
	t.Parallel()
	var log *slog.Logger
	t.Run("inner", func(t *testing.T) { log = testkit.Logger(t) })
	log.Info("after the end of its test: dropped, no panic")
}

func TestRepoRoot(t *testing.T) {
	t.Parallel()
	root := testkit.RepoRoot(t)
	if rel, err := filepath.Rel(root, "."); err == nil && rel != "" {
		if filepath.Base(root) == "testkit" {
			t.Errorf("root %s", root)
		}
	}
}
