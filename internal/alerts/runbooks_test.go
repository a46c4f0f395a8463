package alerts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/internal/alerts"
	"github.com/solobeat/solobeat/internal/testkit"
)

// Every alert has a runbook that is its own, and every runbook an alert.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testkit.RepoRoot(t), "deploy", "runbooks")
	known := exported(t)
	named := map[string]bool{}
	for _, a := range alerts.All() {
		named[filepath.Base(a.Runbook())] = true
		if !strings.HasSuffix(a.RunbookURL(), "/"+a.Runbook()) {
			t.Errorf("%s links to %s, and its runbook is %s", a.Name, a.RunbookURL(), a.Runbook())
		}
		b, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), a.Runbook()))
		if err != nil {
			t.Errorf("%s has no runbook: %v", a.Name, err)
			continue
		}
		text := string(b)
		for _, part := range []string{"# " + a.Name + "\n", "\n## First steps\n\n1. ", "\n## What helps\n\n"} {
			if !strings.Contains("\n"+text, part) {
				t.Errorf("the runbook of %s has no %q", a.Name, part)
			}
		}
		for _, m := range regexp.MustCompile(`solobeat_\w+`).FindAllString(text, -1) {
			if known[m] == nil {
				t.Errorf("the runbook of %s names %s, which no process exports", a.Name, m)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !named[f.Name()] {
			t.Errorf("%s is the runbook of no alert", f.Name())
		}
	}
}

// The page lists the alerts that there are, with their severity and runbook.
func TestAlertsOfPages(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| \[(\w+)\]\(\.\./(deploy/runbooks/\w+\.md)\) \| (\w+) \|`).FindAllStringSubmatch(string(b), -1)
	all := alerts.All()
	if len(rows) != len(all) {
		t.Fatalf("the page has %d alerts, and there are %d", len(rows), len(all))
	}
	for i, a := range all {
		if rows[i][1] != a.Name || rows[i][2] != a.Runbook() || rows[i][3] != a.Severity {
			t.Errorf("row %d: %q, want %s, %s, %s", i, rows[i][1:], a.Name, a.Runbook(), a.Severity)
		}
	}
}
