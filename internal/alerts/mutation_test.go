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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/alerts"
	"github.com/solobeat/solobeat/internal/testkit"
)

// equivalent are mutants that no input can tell from the rule, by alert and
// what was changed, with the reason.
var equivalent = map[string]string{
	"AlwaysFiring: threshold -1":              "1 is above both",
	"QueueBacklog: max → sum at 61":           "all replicas read one length from the broker, so their slopes have one sign",
	"RedisUnsafeMemoryPolicy: threshold -1":   "the value is always 1",
	"RedisUnsafeMemoryPolicy: max → sum at 0": "the value is always 1, and is not told",
	"TargetDown: min → max at 0":              "up has one series for each job and instance",
}

// mutant is an alert with one change.
type mutant struct {
	alerts.Alert
	what string
}

// mutants changes one thing at a time: threshold, comparison, for, severity,
// and in the query aggregations, labels, matchers, ranges, numbers, operators.
func mutants(a alerts.Alert) (all []mutant) {
	add := func(what string, change func(*alerts.Alert)) {
		m := mutant{a, what}
		change(&m.Alert)
		all = append(all, m)
	}
	for _, v := range thresholds(a.Threshold) {
		add(fmt.Sprintf("threshold %g", v), func(m *alerts.Alert) { m.Threshold = v })
	}
	flipped := map[alerts.Op]alerts.Op{alerts.Above: alerts.Below, alerts.Below: alerts.Above}[a.Op]
	add("comparison "+string(flipped), func(m *alerts.Alert) { m.Op = flipped })
	for _, d := range waits(a.For) {
		add("for "+d.String(), func(m *alerts.Alert) { m.For = d })
	}
	severity := alerts.Warning
	if a.Severity == alerts.Warning {
		severity = alerts.Critical
	}
	add("severity "+severity, func(m *alerts.Alert) { m.Severity = severity })
	for _, q := range mutateQuery(a.Query) {
		add(q[0], func(m *alerts.Alert) { m.Query = q[1] })
	}
	return all
}

// thresholds are near enough to be mistaken for the right one: a step away
// where the numbers are small and whole, else a fifth to a quarter.
func thresholds(v float64) []float64 {
	if v == 0 || v == 1 {
		return []float64{v - 1, v + 1}
	}
	return []float64{v * 0.8, v * 1.25}
}

func waits(d time.Duration) []time.Duration {
	switch d {
	case 0:
		return []time.Duration{time.Minute}
	case time.Minute:
		return []time.Duration{0, 2 * d}
	default:
		return []time.Duration{0, d / 2, 2 * d}
	}
}

// change is a pattern and what its whole match becomes.
type change struct {
	pattern *regexp.Regexp
	to      func(match []string) []string
}

func swap(from string, to map[string]string) change {
	return change{regexp.MustCompile(from), func(m []string) []string { return []string{to[m[0]]} }}
}

var changes = []change{
	swap(`\b(sum|max|min|count)\b`, map[string]string{"sum": "max", "max": "sum", "min": "max", "count": "sum"}),
	swap(` (and|or|unless|-|/) `, map[string]string{" and ": " or ", " or ": " and ", " unless ": " and ", " - ": " + ", " / ": " * "}),
	{regexp.MustCompile(`\bby \(([^)]+)\)`), dropEach("by (", ")")},
	{regexp.MustCompile(`(\w+)(=~|!=|!~|=)"([^"]*)"`), func(m []string) []string {
		to := []string{m[1] + m[2] + `"` + m[3] + `_"`}
		if alternatives := strings.Split(m[3], "|"); len(alternatives) > 1 {
			for i := range alternatives {
				rest := slices.Delete(slices.Clone(alternatives), i, i+1)
				to = append(to, m[1]+m[2]+`"`+strings.Join(rest, "|")+`"`)
			}
		} else if m[1] != "__name__" {
			to = append(to, `instance!="none"`) // as good as no matcher
		}
		return to
	}},
	{regexp.MustCompile(`\[(\d+)([md])\]`), func(m []string) []string {
		n, _ := strconv.Atoi(m[1])
		unit := map[string]time.Duration{"m": time.Minute, "d": 24 * time.Hour}[m[2]]
		ms := func(d time.Duration) string { return fmt.Sprintf("[%dms]", d.Milliseconds()) }
		return []string{ms(time.Duration(n) * unit / 2), ms(time.Duration(n) * unit * 2)}
	}},
	{regexp.MustCompile(`([<>]|==) (\d+)`), func(m []string) []string { return []string{m[1] + " " + m[2] + "1"} }},
	swap(`\b0\.99\b`, map[string]string{"0.99": "0.5"}),
}

// dropEach leaves out one of a list after the other.
func dropEach(before, after string) func([]string) []string {
	return func(m []string) (to []string) {
		names := strings.Split(m[1], ", ")
		for i := range names {
			to = append(to, before+strings.Join(slices.Delete(slices.Clone(names), i, i+1), ", ")+after)
		}
		return to
	}
}

// mutateQuery returns pairs: what was changed, and the query then.
func mutateQuery(q string) (all [][2]string) {
	for _, c := range changes {
		for _, at := range c.pattern.FindAllStringSubmatchIndex(q, -1) {
			var groups []string
			for i := 0; i < len(at); i += 2 {
				groups = append(groups, q[at[i]:at[i+1]])
			}
			for _, to := range c.to(groups) {
				what := fmt.Sprintf("%s → %s at %d", strings.TrimSpace(groups[0]), strings.TrimSpace(to), at[0])
				all = append(all, [2]string{what, q[:at[0]] + to + q[at[1]:]})
			}
		}
	}
	return all
}

// suite is a file of promtool tests, as far as it is taken apart here.
type suite struct {
	RuleFiles []string       `yaml:"rule_files"`
	Interval  string         `yaml:"evaluation_interval"`
	Tests     []suiteTest    `yaml:"tests"`
	Rest      map[string]any `yaml:",inline"`
}

type suiteTest struct {
	Alerts []map[string]any `yaml:"alert_rule_test"`
	Rest   map[string]any   `yaml:",inline"`
}

// suites are the test files, cut down to what looks at one alert each.
func suites(t *testing.T, alert string) (cut []suite) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.RepoRoot(t), "deploy", "prometheus", "*.test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var s suite
		if err := yaml.Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		var tests []suiteTest
		for _, g := range s.Tests {
			g.Alerts = slices.DeleteFunc(g.Alerts, func(a map[string]any) bool { return a["alertname"] != alert })
			if len(g.Alerts) > 0 {
				tests = append(tests, g)
			}
		}
		if s.Tests = tests; len(tests) > 0 {
			cut = append(cut, s)
		}
	}
	if len(cut) == 0 {
		t.Fatalf("%s has no tests", alert)
	}
	return cut
}

// write writes a rule file with the alert and the tests that look at it; it
// returns the test files.
func write(t *testing.T, dir, name string, a alerts.Alert, cut []suite) (tests []string) {
	t.Helper()
	rules, err := alerts.Rules([]alerts.Group{{Name: "g", Alerts: []alerts.Alert{a}}})
	if err != nil {
		t.Fatal(err)
	}
	save := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(name+".yaml", rules)
	for i, s := range cut {
		s.RuleFiles = []string{name + ".yaml"}
		b, err := yaml.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		test := fmt.Sprintf("%s.%d.test.yaml", name, i)
		save(test, b)
		tests = append(tests, test)
	}
	return tests
}

// results runs test files in two processes and returns for each what promtool
// said of it: SUCCESS, or a report of failures.
func results(ctx context.Context, t *testing.T, dir string, tests []string) map[string]string {
	t.Helper()
	promtool := testkit.Promtool(t)
	all := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for part := range slices.Chunk(tests, (len(tests)+1)/2) {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, promtool, append([]string{"test", "rules"}, part...)...)
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput() // mutants are to fail
			mu.Lock()
			defer mu.Unlock()
			for _, report := range strings.Split(string(out), "Unit Testing:  ")[1:] {
				name, said, _ := strings.Cut(report, "\n")
				all[strings.TrimSpace(name)] = strings.TrimSpace(said)
			}
		})
	}
	wg.Wait()
	return all
}

// Each alert is changed in every way of mutants, and the promtool tests must
// notice, but for mutants that are the same rule in other words.
func TestMutants(t *testing.T) {
	t.Parallel()
	began := time.Now()
	dir := t.TempDir()
	var tests []string
	owner := map[string]string{} // test file → mutant
	rules := map[string]alerts.Alert{}
	for i, a := range alerts.All() {
		cut := suites(t, a.Name)
		for j, m := range append([]mutant{{a, ""}}, mutants(a)...) {
			id := a.Name + ": " + m.what
			if _, twice := rules[id]; twice {
				t.Fatalf("two mutants are called %q", id)
			}
			rules[id] = m.Alert
			for _, file := range write(t, dir, fmt.Sprintf("%d-%d", i, j), m.Alert, cut) {
				owner[file] = id
				tests = append(tests, file)
			}
		}
	}
	said := results(t.Context(), t, dir, tests)
	killed := map[string]bool{}
	for file, id := range owner {
		report, ok := said[file]
		if !ok {
			t.Fatalf("promtool said nothing of %s (%s)", file, id)
		}
		if strings.Contains(report, "could not parse") || strings.Contains(report, "error parsing") {
			t.Fatalf("%s is no rule: %s\n%s", id, rules[id].Expr(), report)
		}
		killed[id] = killed[id] || report != "SUCCESS"
	}
	alive := 0
	for _, id := range slices.Sorted(maps.Keys(rules)) {
		original := strings.HasSuffix(id, ": ")
		_, same := equivalent[id]
		switch {
		case original && killed[id]:
			t.Errorf("%sthe rule itself fails its tests", id)
		case original:
		case killed[id] && same:
			t.Errorf("%s: is listed as equivalent, and was killed", id)
		case !killed[id] && !same:
			t.Errorf("%s: lives: %s, for %s, %s", id, rules[id].Expr(), rules[id].For, rules[id].Severity)
		case !killed[id]:
			alive++
		}
	}
	for id := range equivalent {
		if _, ok := rules[id]; !ok {
			t.Errorf("%q is listed as equivalent, and is no mutant", id)
		}
	}
	all := len(alerts.All())
	t.Logf("%d alerts, %d mutants, %d killed, %d equivalent, %s",
		all, len(rules)-all, len(rules)-all-alive, alive, time.Since(began).Round(100*time.Millisecond))
}
