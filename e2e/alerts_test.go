package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/alerts"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
)

// The alerts and the dashboards, with a real Prometheus and a real
// Alertmanager.
func TestAlerts(t *testing.T) {
	t.Parallel()
	testkit.Build(t, workerPkg, testkit.FailpointsTag)
	together(t,
		subtest{"M12 an alert reaches a webhook while the run goes on", alertReachesWebhook},
		subtest{"of a job's success", alertsOfSuccess},
		subtest{"M14 every panel shows something", panelsShowSomething},
	)
}

// prometheus scrapes a worker each second and evaluates the shipped rules, in
// which change may replace windows that are too long for a test.
func (s *stack) prometheus(w *worker, alertmanager string, change ...string) *testkit.PrometheusServer {
	s.t.Helper()
	rules := strings.NewReplacer(change...).Replace(text(s.t, "deploy/prometheus/alerts.yaml"))
	for i := 0; i < len(change); i += 2 {
		if !strings.Contains(rules, change[i+1]) {
			s.t.Fatalf("the rules have no %s", change[i])
		}
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - {job_name: solobeat, static_configs: [{targets: [%s]}]}
`, s.file("alerts.yaml", rules), w.addr)
	if alertmanager != "" {
		config += fmt.Sprintf("alerting: {alertmanagers: [{static_configs: [{targets: [%s]}]}]}\n", strings.TrimPrefix(alertmanager, "http://"))
	}
	return testkit.Prometheus(s.t, config)
}

// message is what Alertmanager sends to a webhook, as far as it is looked at.
type message struct {
	Alerts []struct {
		Status      string
		Labels      map[string]string
		Annotations map[string]string
	}
}

// webhook keeps the alerts that it was sent, and whether the run went on when
// they came.
type webhook struct {
	mu   sync.Mutex
	came []delivery
}

type delivery struct {
	name, status        string
	labels, annotations map[string]string
	runsOn              bool
}

func newWebhook(t *testing.T, runsOn func() bool) (*webhook, string) {
	t.Helper()
	h := &webhook{}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, a := range m.Alerts {
			h.came = append(h.came, delivery{a.Labels["alertname"], a.Status, a.Labels, a.Annotations, runsOn()})
		}
	}))
	t.Cleanup(srv.Close)
	return h, srv.URL
}

// first is the first delivery of an alert with a status.
func (h *webhook) first(name, status string) (delivery, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.came {
		if d.name == name && d.status == status {
			return d, true
		}
	}
	return delivery{}, false
}

// A job outlives its lock's TTL of 4 s, and runs for 20 s: the alert arrives
// at a webhook while the job still runs, and resolves when that is past. Only
// the 15 minutes for which the shipped rule looks back are shortened.
func alertReachesWebhook(t *testing.T) {
	s := newStack(t)
	ledger := s.redis.ClientDB(t, 9)
	ended := func() bool { return ledger.LLen(t.Context(), "reports").Val() > 0 }
	hook, url := newWebhook(t, func() bool { return !ended() })
	am := testkit.Alertmanager(t, fmt.Sprintf(`
route: {receiver: hook, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: hook, webhook_configs: [{url: %q}]}]
`, url))
	schedule := s.file("schedule.yaml", fmt.Sprintf(`version: 1
jobs:
  report:
    task: tests.tick
    at: %q
    lock: {key: "report:lock", ttl: 4s}
    kwargs: {tick: "{{ .Tick.UTC | unix }}", seconds: 20}
`, time.Now().Add(15*time.Second).UTC().Format(time.RFC3339)))
	w := s.worker("w", []string{"SOLOBEAT_SCHEDULE_FILE=" + schedule}, "--with-scheduler")
	s.prometheus(w, am.URL, "(increase(solobeat_lock_outlived_total[15m]))", "(increase(solobeat_lock_outlived_total[30s]))")

	const name = "JobOutlivedLockTTL"
	testkit.Poll(t, 60*time.Second, 20*time.Millisecond, func() bool { return len(s.list("started")) > 0 }, "the run starts")
	began := time.Now()
	testkit.Poll(t, 60*time.Second, 50*time.Millisecond, func() bool { _, ok := hook.first(name, "firing"); return ok }, "the alert arrives")
	fired, _ := hook.first(name, "firing")
	t.Logf("the alert arrived %s after the start of a run of 20 s with a TTL of 4 s", time.Since(began).Round(100*time.Millisecond))
	if !fired.runsOn {
		t.Error("the alert arrived when the job had ended")
	}
	for label, want := range map[string]string{"schedule": "report", "lock": "report:lock", "severity": "warning"} {
		if fired.labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, fired.labels[label], want)
		}
	}
	_, runbook, _ := strings.Cut(fired.annotations["runbook_url"], "/blob/main/")
	if _, err := os.Stat(filepath.Join(testkit.RepoRoot(t), runbook)); err != nil || runbook == "" {
		t.Errorf("the alert's runbook is %q: %v", fired.annotations["runbook_url"], err)
	}
	if want := "1 run(s) of report passed the expected time of lock report:lock"; !strings.HasPrefix(fired.annotations["description"], want) {
		t.Errorf("the alert says %q", fired.annotations["description"])
	}
	testkit.Poll(t, 90*time.Second, 50*time.Millisecond, func() bool { _, ok := hook.first(name, "resolved"); return ok }, "the alert resolves")
	if resolved, _ := hook.first(name, "resolved"); resolved.runsOn {
		t.Error("it resolved while the job ran")
	}
	t.Logf("it resolved %s after the start", time.Since(began).Round(100*time.Millisecond))
	for _, quiet := range []string{"LockLost", "LockExpiredWhileHeld", "SplitBrain", "TickRunTwice", "NoSchedulerAlive", "ScheduleNoSuccess"} {
		if d, ok := hook.first(quiet, "firing"); ok {
			t.Errorf("%s fired: %v", quiet, d.labels)
		}
	}
	if _, ok := hook.first("AlwaysFiring", "firing"); !ok {
		t.Error("AlwaysFiring did not arrive")
	}
}

// A new job whose every run fails raises ScheduleNoSuccess, one that was never
// due does not; a success resolves it; and when the job is blocked it comes
// back, though the last run had succeeded.
func alertsOfSuccess(t *testing.T) {
	s := newStack(t)
	schedule := s.file("schedule.yaml", `version: 1
jobs:
  flaky:
    task: flaky
    every: 3s
    misfire: {deadline: 10s}
    lock: {key: "flaky:lock", ttl: 2s}
  yearly:
    task: flaky
    cron: "0 0 1 1 *"
`)
	ready := filepath.Join(s.dir, "ready")
	conf := s.file("solobeat.yaml", fmt.Sprintf("schedule: {file: %s}\ntasks: {flaky: {command: [test, -e, %s]}}\n", schedule, ready))
	w := s.worker("w", nil, "-c", conf, "--with-scheduler")
	prom := s.prometheus(w, "")
	fires := func(t *testing.T, job string) bool {
		t.Helper()
		return len(mustQuery(t, prom, fmt.Sprintf("ALERTS{alertname=%q,alertstate=%q,schedule=%q}", "ScheduleNoSuccess", "firing", job))) > 0
	}
	wait := func(t *testing.T, want bool, what string) {
		t.Helper()
		testkit.Poll(t, 90*time.Second, 200*time.Millisecond, func() bool { return fires(t, "flaky") == want }, "%s", what)
	}
	t.Run("M02 a new job that never succeeds", func(t *testing.T) {
		testkit.Poll(t, 60*time.Second, 100*time.Millisecond, func() bool {
			return len(mustQuery(t, prom, "solobeat_schedule_created_timestamp_seconds")) == 2
		}, "both jobs have a series from the load on")
		if n := len(mustQuery(t, prom, "solobeat_schedule_last_success_timestamp_seconds")); n != 0 {
			t.Errorf("%d jobs have succeeded before any run", n)
		}
		wait(t, true, "the alert fires")
		if fires(t, "yearly") {
			t.Error("a job that was never due fires")
		}
	})
	t.Run("M04 a success resolves the alert", func(t *testing.T) {
		if err := os.WriteFile(ready, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wait(t, false, "the alert resolves")
	})
	t.Run("M01 a job that has stopped succeeding", func(t *testing.T) {
		if n := len(mustQuery(t, prom, `solobeat_schedule_last_success_timestamp_seconds{schedule="flaky"}`)); n != 1 {
			t.Errorf("%d series of the last success", n)
		}
		if err := s.broker.Set(t.Context(), "flaky:lock", "somebody", 0).Err(); err != nil {
			t.Fatal(err)
		}
		wait(t, true, "the alert is back, though the last run had succeeded")
		if fires(t, "yearly") {
			t.Error("a job that was never due fires")
		}
	})
}

func mustQuery(t *testing.T, prom *testkit.PrometheusServer, expr string) []map[string]string {
	t.Helper()
	found, err := prom.Query(expr)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Each query of each panel finds series in a Prometheus that scrapes a worker
// of both engines with some traffic.
func panelsShowSomething(t *testing.T) {
	s := newStack(t)
	schedule := s.file("schedule.yaml", `version: 1
jobs:
  report:
    task: tests.tick
    every: 2s
    kwargs: {tick: "{{ .Tick.UTC | unix }}", seconds: 1.2}
    lock: {key: "report:lock", ttl: 1s, renew: 300ms}
`)
	w := s.worker("w", []string{"SOLOBEAT_SCHEDULE_FILE=" + schedule, "SOLOBEAT_WORKER_ENGINES=celery,asynq"}, "--with-scheduler")
	prom := s.prometheus(w, "")
	queries := map[string]string{}
	for _, d := range alerts.Dashboards() {
		for _, section := range d.Sections {
			for _, p := range section.Panels {
				for i, target := range p.Targets {
					name := fmt.Sprintf("%s / %s / %s / %c", d.Title, section.Title, p.Title, 'A'+i)
					queries[name] = strings.NewReplacer("$__rate_interval", "10s", "$schedule", "report").Replace(target.Expr)
				}
			}
		}
	}
	all := len(queries)
	began := time.Now()
	for round := 0; len(queries) > 0; round++ {
		s.enqueue("tests.add", kwargs(map[string]any{"x": 1, "y": round}), tasks.WithETA(time.Now().Add(200*time.Millisecond)))
		s.enqueue("tests.fail", kwargs(map[string]any{"message": "deliberate"}))
		s.enqueue("tests.retry", kwargs(map[string]any{"times": 1, "countdown": 0.1, "value": 1}))
		for name, expr := range queries {
			if found := mustQuery(t, prom, expr); len(found) > 0 {
				delete(queries, name)
			}
		}
		if time.Since(began) > 90*time.Second {
			for _, name := range slices.Sorted(maps.Keys(queries)) {
				t.Errorf("%s shows nothing: %s", name, queries[name])
			}
			return
		}
		testkit.Poll(t, 10*time.Second, 50*time.Millisecond, func() bool { return time.Since(began) > time.Duration(round)*time.Second }, "the next round")
	}
	t.Logf("%d queries of both dashboards found series within %s", all, time.Since(began).Round(100*time.Millisecond))
}
