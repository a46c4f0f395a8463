package alerts_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/solobeat/solobeat/internal/alerts"
	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
)

// exported is every family that a process can export, with its labels. What a
// histogram exports is there by each of its names.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	m := metrics.New(metrics.Config{})
	m.CollectDepths(func(context.Context) ([]metrics.QueueDepth, error) { return nil, nil })
	m.CollectJobs(func(context.Context, []string) ([]scheduler.JobState, error) { return nil, nil })
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		m.Registry().Describe(descs)
	}()
	re := regexp.MustCompile(`fqName: "(solobeat_\w+)".*variableLabels: \{([^}]*)\}`)
	all := map[string][]string{}
	for d := range descs {
		if f := re.FindStringSubmatch(d.String()); f != nil {
			all[f[1]] = strings.FieldsFunc(f[2], func(r rune) bool { return r == ',' })
		}
	}
	if len(all) < 50 {
		t.Fatalf("%d families", len(all))
	}
	return all
}

var (
	selector = regexp.MustCompile(`(solobeat_\w+)(?:\{([^}]*(?:[{][{][^}]*)?)\})?`)
	matcher  = regexp.MustCompile(`(\w+)(?:=|!=|=~|!~)"`)
	by       = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// family is the family of a series' name.
func family(name string, known map[string][]string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if f, ok := strings.CutSuffix(name, suffix); ok && known[f] != nil {
			return f
		}
	}
	return name
}

// unknownNames lists what a query names and no process exports.
func unknownNames(query string, known map[string][]string) (bad []string) {
	labels := []string{"le", "job", "instance", "__name__"}
	for _, m := range selector.FindAllStringSubmatch(query, -1) {
		name := family(m[1], known)
		if _, ok := known[name]; !ok {
			bad = append(bad, "metric "+m[1])
		}
		labels = append(labels, known[name]...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(known[name], l[1]) {
				bad = append(bad, fmt.Sprintf("label %s of %s", l[1], name))
			}
		}
	}
	for _, m := range by.FindAllStringSubmatch(query, -1) {
		for _, l := range strings.Split(m[1], ",") {
			if l = strings.TrimSpace(l); l != "" && !slices.Contains(labels, l) {
				bad = append(bad, "label "+l)
			}
		}
	}
	return bad
}

func TestUnknownNamesAreFound(t *testing.T) {
	t.Parallel()
	known := exported(t)
	for query, want := range map[string]int{
		`sum by (schedule, lock) (increase(solobeat_lock_lost_total[10m]))`:                       0,
		`histogram_quantile(0.99, sum by (le) (rate(solobeat_schedule_lag_seconds_bucket[15m])))`: 0,
		`max by (role) (solobeat_broker_up{role="locks"}) and on (role) vector(1)`:                0,
		`increase(solobeat_lock_lots_total[10m])`:                                                 1,
		`sum by (job_name) (solobeat_lock_holders)`:                                               1,
		`solobeat_queue_depth{status="pending"}`:                                                  1,
		`solobeat_lock_lost_bucket`:                                                               1,
		`sum by (schedule) (solobeat_queue_depth)`:                                                1,
	} {
		if got := unknownNames(query, known); len(got) != want {
			t.Errorf("%s: found %q, want %d", query, got, want)
		}
	}
}

// queries are all queries, by what asks them.
func queries() map[string]string {
	all := map[string]string{}
	for _, a := range alerts.All() {
		all["alert "+a.Name] = a.Query
	}
	for _, d := range alerts.Dashboards() {
		for _, s := range d.Sections {
			for _, p := range s.Panels {
				for i, target := range p.Targets {
					all[fmt.Sprintf("panel %s / %s / %s / %d", d.UID, s.Title, p.Title, i)] = target.Expr
				}
			}
		}
	}
	return all
}

// M14: what an alert or a panel names is exported, with these labels.
func TestM14_QueriesNameWhatIsExported(t *testing.T) {
	t.Parallel()
	known := exported(t)
	all := queries()
	for _, who := range slices.Sorted(maps.Keys(all)) {
		for _, bad := range unknownNames(all[who], known) {
			t.Errorf("%s names %s, which no process exports", who, bad)
		}
	}
}

// M14: what is exported is looked at by an alert or a panel.
func TestM14_WhatIsExportedIsLookedAt(t *testing.T) {
	t.Parallel()
	known := exported(t)
	seen := map[string]bool{}
	for _, query := range queries() {
		for _, m := range selector.FindAllStringSubmatch(query, -1) {
			seen[family(m[1], known)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !seen[name] {
			t.Errorf("%s is exported, and no alert and no panel looks at it", name)
		}
	}
}

// Legends name labels that their queries leave.
func TestLegendsNameLabels(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, d := range alerts.Dashboards() {
		for _, s := range d.Sections {
			for _, p := range s.Panels {
				for _, target := range p.Targets {
					var left []string
					if m := by.FindStringSubmatch(target.Expr); m != nil {
						left = strings.Split(m[1], ", ")
					}
					for _, l := range name.FindAllStringSubmatch(target.Legend, -1) {
						if !slices.Contains(left, l[1]) {
							t.Errorf("%s, %s: legend %q of %s", d.UID, p.Title, target.Legend, target.Expr)
						}
					}
				}
			}
		}
	}
}

// promtool takes every panel's query for PromQL.
func TestPanelQueriesAreQueries(t *testing.T) {
	t.Parallel()
	var groups []alerts.Group
	all := queries()
	for i, who := range slices.Sorted(maps.Keys(all)) {
		expr := strings.ReplaceAll(all[who], "$__rate_interval", "1m")
		groups = append(groups, alerts.Group{Name: fmt.Sprint(i), Alerts: []alerts.Alert{{Name: "A", Query: "(" + expr + ")", Op: alerts.Above}}})
	}
	rules, err := alerts.Rules(groups)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), testkit.Promtool(t), "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
