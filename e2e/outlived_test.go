package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/alerts"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Runs that are longer than they should be, and what /metrics tells of them.
func TestOutlived(t *testing.T) {
	t.Parallel()
	testkit.Build(t, workerPkg, testkit.FailpointsTag)
	together(t,
		subtest{"M12 counted while the run goes on", countedWhileItRuns},
		subtest{"L16 cancelled at max_hold", func(t *testing.T) { maxHold(t, false) }},
		subtest{"L16 deaf past max_hold", func(t *testing.T) { maxHold(t, true) }},
		subtest{"M05 series do not grow", seriesDoNotGrow},
	)
}

// A job outlives its lock's TTL: 0 before, 1 after, and the run still goes on.
// The alerts name only what a real worker of both engines exports.
func countedWhileItRuns(t *testing.T) {
	s := newStack(t)
	schedule := s.file("schedule.yaml", `version: 1
jobs:
  report:
    task: tests.tick
    every: 5s
    lock: {key: "report:lock", ttl: 4s}
    kwargs: {tick: "{{ .Tick.UTC | unix }}", seconds: 12}
`)
	w := s.worker("w", []string{"SOLOBEAT_SCHEDULE_FILE=" + schedule, "SOLOBEAT_WORKER_ENGINES=celery,asynq"}, "--with-scheduler")
	outlived := func() float64 {
		text := scrape(t, w.metricsURL())
		m := regexp.MustCompile(`(?m)^solobeat_lock_outlived_total\{lock="report:lock",schedule="report"\} (\S+)$`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no series of the job's lock in\n%s", text)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if n := outlived(); n != 0 {
		t.Fatalf("%v before the first run", n)
	}
	testkit.Poll(t, 30*time.Second, 5*time.Millisecond, func() bool { return len(s.list("started")) > 0 }, "the run starts")
	began := time.Now()
	zeros := 0
	testkit.Poll(t, 11*time.Second, 50*time.Millisecond, func() bool {
		n := outlived()
		if n == 0 {
			zeros++
		}
		return n == 1
	}, "the counter goes to 1")
	age := time.Since(began)
	n := outlived()
	if n != 1 || zeros == 0 || age < 3*time.Second || len(s.list("reports")) != 0 {
		t.Errorf("outlived is %v after %s and %d zeros, with %d runs ended", n, age, zeros, len(s.list("reports")))
	}
	if n := w.metric("solobeat_lock_holders", `lock="report:lock"`); n != 1 {
		t.Errorf("%v holders: the run does not go on under its lock", n)
	}
	t.Logf("counted %s after the start of a run of 12 s with a TTL of 4 s", age.Round(100*time.Millisecond))
	testkit.Poll(t, 30*time.Second, 50*time.Millisecond, func() bool { return len(s.list("reports")) > 0 }, "the run ends")
	if n := w.metric("solobeat_lock_lost_total") + w.metric("solobeat_lock_expired_while_held_total"); n != 0 {
		t.Errorf("%v locks lost or expired: renewal did not go on", n)
	}
	named := map[string]bool{}
	for _, a := range alerts.All() {
		for _, name := range regexp.MustCompile(`solobeat_\w+`).FindAllString(a.Query, -1) {
			named[name] = true
		}
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		text := scrape(t, w.metricsURL())
		for name := range named {
			if !regexp.MustCompile(`(?m)^` + name + `(\{| )`).MatchString(text) {
				return fmt.Errorf("an alert names %s, of which the worker exports no series", name)
			}
		}
		return nil
	})
}

// TTL 3 s, max_hold 10 s, a handler of 15 s: the lock is renewed for 10 s, then
// the run is cancelled for max_hold, which is a failed run and no loss. One
// that does not listen keeps no lock either, and counts as overdue.
func maxHold(t *testing.T, deaf bool) {
	s := newStack(t)
	w := s.worker("w", nil, "-c", s.file("solobeat.yaml", "tasks: {tests.sleep: {lock: {key: \"held\", ttl: 3s, max_hold: 10s}}}\n"))
	seconds := map[bool]int{false: 15, true: 28}[deaf]
	id := s.enqueue("tests.sleep", kwargs(map[string]any{"id": "x", "seconds": seconds, "deaf": deaf}))
	testkit.Poll(t, 20*time.Second, 5*time.Millisecond, func() bool { return len(s.list("sleep:x")) == 1 }, "the run starts")
	began := time.Now()
	held := func() bool { return s.broker.Exists(t.Context(), "held").Val() == 1 }
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return !held() }, "the lock ends")
	age := time.Since(began)
	t.Logf("the lock ended after %s", age.Round(100*time.Millisecond))
	if age < 9*time.Second || age > 15*time.Second {
		t.Errorf("the lock ended after %s, want 10 s to 13 s", age)
	}
	if deaf {
		testkit.Poll(t, 20*time.Second, 100*time.Millisecond, func() bool { return w.metric("solobeat_tasks_overdue") == 1 }, "the run counts as overdue")
		s.result(id, 40*time.Second)
		testkit.Poll(t, 10*time.Second, 100*time.Millisecond, func() bool { return w.metric("solobeat_tasks_overdue") == 0 }, "nothing is overdue any more")
	} else {
		s.wantState(id, wire.StateFailure, 20*time.Second)
		if got := strings.Join(s.list("sleep:x"), "\n"); !strings.Contains(got, "cancelled") || !strings.Contains(got, "max_hold") {
			t.Errorf("the run was not told why: %q", got)
		}
	}
	if n := w.metric("solobeat_lock_lost_total"); n != 0 {
		t.Errorf("%v locks counted as lost", n)
	}
	if n := w.metric("solobeat_lock_outlived_total"); n != 1 {
		t.Errorf("outlived %v times", n)
	}
}

// labelSets are the series of a scrape without their values, ours only.
func labelSets(text string) []string {
	var sets []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "solobeat_") {
			sets = append(sets, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	slices.Sort(sets)
	return sets
}

// M05: restarts with new node names, random task ids, payment ids in lock
// keys, and names of tasks that nobody registered add no series.
func seriesDoNotGrow(t *testing.T) {
	s := newStack(t)
	conf := s.file("solobeat.yaml", `
worker: {concurrency: 20}
tasks:
  tests.sleep: {lock: {key: "payment:{{ .Params.id }}"}, idempotency: {key: "{{ .Params.id }}"}}
`)
	traffic := func(round int) {
		var ids []string
		for i := range 60 {
			unique := fmt.Sprintf("pay-%d-%d", round, i)
			ids = append(
				ids,
				s.enqueue("tests.sleep", kwargs(map[string]any{"id": unique, "seconds": 0})),
				s.enqueue("no.such.task."+unique, tasks.WithID(unique)),
				s.enqueue("tests.fail", kwargs(map[string]any{"message": unique, "type": "Error" + strconv.Itoa(i)})),
			)
		}
		for _, id := range ids {
			s.result(id, time.Minute)
		}
	}
	var first []string
	round := 0
	for restart := range 3 {
		w := s.worker(fmt.Sprintf("node-%d", restart), nil, "-c", conf)
		for range 2 {
			traffic(round)
			round++
			// The outcome is counted a moment after the result can be read.
			testkit.Poll(t, 20*time.Second, 50*time.Millisecond, func() bool {
				return int(w.metric("solobeat_task_processed_total"))%180 == 0
			}, "all outcomes are counted")
			text := scrape(t, w.metricsURL())
			sets := labelSets(text)
			if first == nil {
				first = sets
			}
			if diff := cmp.Diff(first, sets); diff != "" {
				t.Errorf("restart %d, round %d: other series than before (-first +now):\n%s", restart, round, diff)
			}
			for _, bad := range []string{"pay-", "node-", "no.such.task", `job="`, `instance="`} {
				if i := strings.Index(text, bad); i >= 0 {
					t.Errorf("%q stands in a label: %s", bad, text[max(0, i-100):min(len(text), i+100)])
				}
			}
		}
		w.Signal(syscall.SIGTERM)
		w.Wait(40 * time.Second)
	}
	t.Logf("%d series, the same after %d restarts and %d messages", len(first), 3, round*180)
}
