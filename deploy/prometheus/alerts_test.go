// Package prometheus_test runs the alert rules' own tests.
package prometheus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/internal/testkit"
)

// promtool tests each alert: it fires, it stays silent, it waits, it ends.
func TestM12_AlertRules(t *testing.T) {
	t.Parallel()
	promtool := testkit.Promtool(t)
	tests, err := filepath.Glob("*.test.yaml")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, append([]string{"test", "rules"}, tests...)} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "FAILED") {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// A rule without a test is a guess.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob("*.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range tests {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	rules, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	if len(alerts) < 20 {
		t.Fatalf("%d alerts found", len(alerts))
	}
	for _, m := range alerts {
		fires := regexp.MustCompile(`alertname: ` + m[1] + `\n +exp_alerts:`)
		if !fires.MatchString(all.String()) {
			t.Errorf("%s is never seen to fire", m[1])
		}
		if silent := "alertname: " + m[1] + "}"; m[1] != "AlwaysFiring" && !strings.Contains(all.String(), silent) {
			t.Errorf("%s is never seen to stay silent", m[1])
		}
	}
}
