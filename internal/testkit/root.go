package testkit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const module = "module github.com/solobeat/solobeat"

// RepoRoot returns the folder that holds the module's go.mod.
func RepoRoot(t testing.TB) string {
	t.Helper()
	dir, err := repoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte(module+"\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("testkit: no go.mod of this module above the working directory")
		}
		dir = parent
	}
}
