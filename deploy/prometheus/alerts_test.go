// Package prometheus_test runs the alert rules' own tests and keeps them and
// the metrics together.
package prometheus_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
)

// promtool tests each alert: it fires, it stays silent, it waits, it ends.
func TestM12_AlertRules(t *testing.T) {
	t.Parallel()
	promtool := testkit.Promtool(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts.test.yaml"}} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "FAILED") {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// A rule on a metric that does not exist never fires, and promtool does not
// know.
func TestRulesNameExistingMetrics(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := metrics.New(metrics.Config{
		Jobs:   []*scheduler.Job{{Name: "j", Lock: &scheduler.JobLock{}}},
		Worker: true, Scheduler: true, Queues: []string{"celery"}, Tasks: []string{"t"},
	})
	m.SchedulerObserver().Heartbeat(time.Now())
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, f := range families {
		known = append(known, f.GetName())
	}
	named := regexp.MustCompile(`solobeat_\w+`).FindAllString(string(rules), -1)
	if len(named) == 0 {
		t.Fatal("no metric is named in alerts.yaml")
	}
	for _, n := range named {
		if !slices.Contains(known, n) {
			t.Errorf("alerts.yaml names %s, which no process exports", n)
		}
	}
}
