package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe to which nobody writes would hold up the command for ever; a link to a
// file, as Kubernetes mounts them, is read.
func TestOnlyFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, file, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("namespace: linked\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", dir} {
		_, _, config := Load(path, nil)
		_, _, schedule := LoadSchedule(path)
		for _, err := range []error{config, schedule} {
			if err == nil || !strings.HasPrefix(err.Error(), path+": it is no regular file") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	url := filepath.Join(dir, "url.yaml")
	if err := os.WriteFile(url, []byte("redis: {url_file: pipe}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(url, nil); err == nil || !strings.Contains(err.Error(), "pipe: it is no regular file") {
		t.Errorf("url_file: %v", err)
	}
	if c, _, err := Load(link, nil); err != nil || c.Namespace != "linked" {
		t.Errorf("a link to a file: %v", err)
	}
}

// A URL in the place of a path is masked as anywhere else.
func TestPathsAreMasked(t *testing.T) {
	t.Parallel()
	const path = "redis://user:s3cr@h"
	_, _, config := Load(path, nil)
	_, _, schedule := LoadSchedule(path)
	for _, err := range []error{config, schedule} {
		if err == nil || strings.Contains(err.Error(), "s3cr") {
			t.Error(err)
		}
	}
}
