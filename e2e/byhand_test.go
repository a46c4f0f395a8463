package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// byHandSchedule has jobs whose ticks do not come while a test runs, on both
// engines, and one that ticks each second.
const byHandSchedule = `version: 1
defaults: {lock: {on_busy: retry}}
jobs:
  celery-report: {task: tests.tick, cron: "0 0 1 1 *", kwargs: {tick: "{{ .Tick.UTC | rfc3339 }}"}}
  asynq-report: {task: tests.tick, engine: asynq, cron: "0 0 1 1 *", kwargs: {tick: "{{ .Tick.UTC | rfc3339 }}"}}
  celery-write: {task: tests.fenced, cron: "0 0 1 1 *", retries: 0, kwargs: {id: celery-write}}
  asynq-write: {task: tests.fenced, engine: asynq, cron: "0 0 1 1 *", retries: 0, kwargs: {id: asynq-write}}
  seconds: {task: tests.effect, every: 1s, kwargs: {id: "{{ .Tick.UTC | unix }}"}}
  off: {task: tests.effect, every: 1h, enabled: false, kwargs: {id: by-hand}}
  soon: {task: tests.effect, at: "2999-01-01T00:00:00Z", kwargs: {id: never}}
`

// A run by hand is one beside the schedule's own, under the job's guards; a tick
// that is named is run as itself, and answers from its record once it is
// completed.
func TestJobsByHand(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := s.file("solobeat.yaml", "worker: {engines: [celery, asynq], concurrency: 4}\nredis: {global_keyprefix: 'p:'}\n")
	env := []string{"SOLOBEAT_CONFIG=" + conf, "SOLOBEAT_SCHEDULE_FILE=" + s.file("schedule.yaml", byHandSchedule)}
	s.worker("a", env, "--with-scheduler")
	s.worker("b", env, "--with-scheduler")

	jobs := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, out, errs := s.cli(t, env, append([]string{"jobs"}, args...)...)
		if code != want {
			t.Errorf("jobs %q: exit %d, want %d, %s", args, code, want, errs)
		}
		return strings.TrimSpace(out), errs
	}
	year := time.Now().UTC().Format("2006")
	tick := year + "-01-01T00:00:00Z"
	for _, engine := range []string{"celery", "asynq"} {
		report, write := engine+"-report", engine+"-write"
		jobs(0, "pause", report, "--reason", "on purpose") // what is paused can be run by hand
		reports := func() int {
			return len(slices.DeleteFunc(s.list("reports"), func(line string) bool { return !strings.HasPrefix(line, tick) }))
		}
		began := reports()
		for n := 1; n <= 2; n++ {
			if out, errs := jobs(0, "trigger", report, "--wait", "--by", "ops"); out != fmt.Sprintf("%q", tick) || !strings.Contains(errs, "is paused") {
				t.Errorf("%s: %s, %s", report, out, errs)
			}
		}
		if n := reports() - began; n != 2 {
			t.Errorf("%s: two runs by hand made %d reports", report, n)
		}
		for n := 1; n <= 2; n++ { // the second one is answered from the record
			if out, errs := jobs(0, "trigger", report, "--tick", tick, "--wait"); out != fmt.Sprintf("%q", tick) {
				t.Errorf("%s: %s, %s", report, out, errs)
			}
		}
		if n := reports() - began; n != 3 {
			t.Errorf("%s: a tick that was run twice by hand made %d reports", report, n-2)
		}
		out, _ := jobs(0, "history", report, "-o", "json")
		var entries []struct {
			Outcome, By string
			TaskID      string `json:"task_id"`
		}
		if err := json.Unmarshal([]byte(out), &entries); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, e := range entries {
			what := e.Outcome
			if strings.Contains(e.TaskID, "#manual:") {
				what += " by hand"
			}
			count[what]++
			if e.Outcome == "triggered" && strings.Contains(e.TaskID, "#manual:") && e.By != "ops" {
				t.Errorf("%s: triggered by %q", report, e.By)
			}
		}
		for what, want := range map[string]int{"triggered by hand": 2, "succeeded by hand": 2, "triggered": 2, "succeeded": 1, "pause": 1, "fired": 0} {
			if count[what] != want {
				t.Errorf("%s: %d entries %q, want %d: %v", report, count[what], what, want, count)
			}
		}

		// A tick that has failed is run again, and the new result is waited for.
		s.ledger.Set(t.Context(), "value:"+write, "no hash", 0)
		jobs(1, "trigger", write, "--tick", tick, "--wait")
		s.ledger.Del(t.Context(), "value:"+write)
		if out, errs := jobs(0, "trigger", write, "--tick", tick, "--wait"); out != fmt.Sprintf("%q", write) {
			t.Errorf("%s: %s, %s", write, out, errs)
		}
	}

	// A tick that is none, that is to come, a job without one, or none at all.
	if _, errs := jobs(2, "trigger", "celery-report", "--tick", year+"-05-01T12:00:00Z"); !strings.Contains(errs, year+"-01-01T00:00:00+00:00") {
		t.Error(errs)
	}
	if _, errs := jobs(2, "trigger", "soon", "--tick", "2999-01-01T00:00:00"); !strings.Contains(errs, "still to come") {
		t.Error(errs)
	}
	if _, errs := jobs(1, "trigger", "soon"); !strings.Contains(errs, "solobeat enqueue tests.effect") {
		t.Error(errs)
	}
	if _, errs := jobs(1, "trigger", "of"); !strings.Contains(errs, "did you mean off?") {
		t.Error(errs)
	}
	if out, errs := jobs(0, "trigger", "off", "--wait"); out != `"by-hand"` {
		t.Errorf("a job that is not enabled: %s, %s", out, errs)
	}
}

// A pause holds for every replica, over a restart of all of them, and is not
// made up for.
func TestJobsPause(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	env := []string{"SOLOBEAT_SCHEDULE_FILE=" + s.file("schedule.yaml", byHandSchedule)}
	a := s.worker("a", env, "--with-scheduler")
	s.worker("b", env, "--with-scheduler")
	effects := func() int { return len(s.list("effects")) }
	more := func(n int) {
		t.Helper()
		began := effects()
		testkit.Poll(t, patience, 50*time.Millisecond, func() bool { return effects() >= began+n }, "%d more runs", n)
	}
	more(2)
	type view struct {
		Job, State string
		Changed    bool
		Skipped    int
		Missed     int
		Paused     *struct{ By, Reason string }
	}
	do := func(want int, args ...string) []view {
		t.Helper()
		code, out, errs := s.cli(t, env, append([]string{"jobs"}, args...)...)
		if code != want {
			t.Fatalf("jobs %q: exit %d, %s", args, code, errs)
		}
		var views []view
		if code == 0 {
			if err := json.Unmarshal([]byte(out), &views); err != nil {
				t.Fatalf("jobs %q: %v: %s", args, err, out)
			}
		}
		return views
	}
	of := func(job string) view {
		t.Helper()
		for _, v := range do(0, "list", "-o", "json") {
			if v.Job == job {
				return v
			}
		}
		t.Fatalf("no job %s", job)
		return view{}
	}
	do(1, "pause", "seconds", "secnds", "-o", "json") // all of them or none
	if v := of("seconds"); v.Paused != nil {
		t.Error("paused beside one that is not known")
	}
	if v := do(0, "pause", "seconds", "--reason", "a move", "--by", "ops", "-o", "json"); len(v) != 1 || v[0].State != "paused" || !v[0].Changed {
		t.Errorf("%+v", v)
	}
	if v := do(0, "pause", "--all", "-o", "json"); len(v) != 7 || slices.ContainsFunc(v, func(v view) bool { return v.State != "paused" || v.Changed == (v.Job == "seconds") }) {
		t.Errorf("%+v", v)
	}
	s.idle(patience)
	ran := effects()
	skipped := func(n int) {
		t.Helper()
		testkit.Poll(t, patience, 50*time.Millisecond, func() bool { return of("seconds").Skipped >= n }, "%d skipped ticks", n)
	}
	skipped(2)
	a.Kill()
	s.worker("c", env, "--with-scheduler")
	skipped(of("seconds").Skipped + 2)
	v := of("seconds")
	if v.Missed != 0 || v.Paused == nil || v.Paused.By != "ops" || v.Paused.Reason != "a move" {
		t.Errorf("%+v", v)
	}
	if n := effects(); n != ran {
		t.Errorf("%d runs while the job was paused", n-ran)
	}
	do(0, "resume", "seconds", "-o", "json")
	more(2)
	first := s.list("effects")[ran]
	since := s.broker.HGet(t.Context(), "solobeat:default:sched:job:seconds", "since").Val()
	if unix, _, _ := strings.Cut(first, " "); unix+"000" <= since {
		t.Errorf("the first tick after the resume is %s, the job goes on since %s", first, since)
	}
}
