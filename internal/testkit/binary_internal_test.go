package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A changed source gives another file; an unchanged one the same; the tag counts.
func TestBuildBinaryIsNamedByItsContent(t *testing.T) {
	t.Parallel()
	root, dir := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(tags string) string {
		t.Helper()
		path, err := buildBinary(root, dir, ".", tags)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	says := func(path string) string {
		t.Helper()
		out, err := exec.Command(path).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	write("go.mod", "module example\n\ngo 1.26\n")
	write("main.go", "package main\n\nfunc main() { println(text) }\n")
	write("ships.go", "//go:build !"+FailpointsTag+"\n\npackage main\n\nconst text = \"ships\"\n")
	write("test.go", "//go:build "+FailpointsTag+"\n\npackage main\n\nconst text = \"fails\"\n")
	first, again, tagged := must(""), must(""), must(FailpointsTag)
	if first != again {
		t.Errorf("unchanged sources: %s, then %s", first, again)
	}
	if got := says(first); got != "ships" {
		t.Errorf("without the tag it says %q", got)
	}
	if got := says(tagged); got != "fails" {
		t.Errorf("with the tag it says %q", got)
	}
	write("ships.go", "//go:build !"+FailpointsTag+"\n\npackage main\n\nconst text = \"anew\"\n")
	if changed := must(""); changed == first || says(changed) != "anew" || says(first) != "ships" {
		t.Errorf("changed sources: %s", changed)
	}
	write("main.go", "package main\n\nfunc main() { nonsense }\n")
	if _, err := buildBinary(root, dir, ".", ""); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a build error is told as %v", err)
	}
}
