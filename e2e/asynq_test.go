package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
)

// Both engines in one process, with one registry: what is sent to either runs,
// they keep each other out, and a stop in order ends both.
func TestBothEnginesInOneProcess(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := s.file("solobeat.yaml", `worker: {engines: [celery, asynq], concurrency: 4}
asynq: {servers: 2}
tasks:
  tests.sleep:
    lock: {key: "sleep:lock", on_busy: retry}
`)
	env := s.env("SOLOBEAT_CONFIG=" + conf)
	w := s.worker("w", []string{"SOLOBEAT_CONFIG=" + conf})
	for _, engine := range []string{"celery", "asynq"} {
		code, out, errs := s.cli(t, env, "enqueue", "tests.add", "--args", "[2, 3]", "--engine", engine, "--wait")
		if code != 0 || strings.TrimSpace(out) != "5" {
			t.Errorf("%s: exit %d, %q, %s", engine, code, out, errs)
		}
		code, _, errs = s.cli(t, env, "enqueue", "tests.fail", "--kwargs", `{"type": "Declined", "message": "no"}`, "--engine", engine, "--wait")
		if code != 1 || !strings.Contains(errs, "Declined") {
			t.Errorf("%s: exit %d, %s", engine, code, errs)
		}
	}
	// One lock over both engines: whoever waits in the one is woken by the other.
	for _, engines := range [][2]string{{"celery", "asynq"}, {"asynq", "celery"}} {
		first, second := "1-"+engines[0], "2-"+engines[1]
		send := func(engine, id string, seconds float64) {
			kwargs, err := json.Marshal(map[string]any{"id": id, "seconds": seconds})
			if err != nil {
				t.Fatal(err)
			}
			if code, _, errs := s.cli(t, env, "enqueue", "tests.sleep", "--id", id, "--kwargs", string(kwargs), "--engine", engine); code != 0 {
				t.Fatalf("exit %d, %s", code, errs)
			}
		}
		send(engines[0], first, 4)
		testkit.Poll(t, patience, 10*time.Millisecond, func() bool { return len(s.list("sleep:"+first)) > 0 }, "%s begins", first)
		send(engines[1], second, 0)
		code, _, errs := s.cli(t, env, "result", second, "--wait", "60s")
		if got := s.list("sleep:" + first); code != 0 || len(got) != 2 {
			t.Errorf("%s beside %s: exit %d, %s, %q", second, first, code, errs, got)
		}
	}
	code, out, errs := s.cli(t, env, "queues", "-o", "json")
	var queues struct {
		Queues []struct {
			Engine, Queue string
			Waiting, Dead int64
			Workers       []string
		}
	}
	if err := json.Unmarshal([]byte(out), &queues); code != 0 || err != nil {
		t.Fatalf("exit %d, %v, %s", code, err, errs)
	}
	var got []string
	for _, q := range queues.Queues {
		got = append(got, fmt.Sprintf("%s %s: %d waiting, %d dead, %d worker(s)", q.Engine, q.Queue, q.Waiting, q.Dead, len(q.Workers)))
	}
	want := []string{"celery celery: 0 waiting, 0 dead, 1 worker(s)", "asynq celery: 0 waiting, 1 dead, 1 worker(s)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	text := scrape(t, w.metricsURL())
	for _, line := range []string{
		`solobeat_task_processed_total{engine="asynq",outcome="succeeded",queue="celery",task="tests.add"} 1`,
		`solobeat_task_processed_total{engine="celery",outcome="succeeded",queue="celery",task="tests.add"} 1`,
		`solobeat_asynq_orphans{queue="celery"} 0`, `solobeat_queue_depth{queue="celery",state="dead"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(40 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A scheduler is killed between sending a tick's task and claiming the tick:
// the other one finds the task, and each tick runs once, none is left out.
func TestASchedulerDiesBetweenSendAndClaim(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	schedule := s.file("schedule.yaml", `version: 1
jobs:
  report:
    task: tests.tick
    engine: asynq
    every: 2s
    kwargs: {tick: "{{ .Tick.UTC | unix }}"}
`)
	env := []string{"SOLOBEAT_SCHEDULE_FILE=" + schedule, "SOLOBEAT_WORKER_ENGINES=asynq"}
	s.worker("w", env)
	dying := testkit.Start(t, "dying", s.env(append(env, "SOLOBEAT_FAILPOINTS=after-send=kill")...), s.bin, "scheduler")
	if code := dying.Wait(patience); code != -1 {
		t.Fatalf("exit %d, want a kill", code)
	}
	sent := len(s.broker.Keys(s.t.Context(), "asynq:{celery}:t:*").Val())
	claimed := s.broker.HGet(t.Context(), "solobeat:default:sched:job:report", "last").Val()
	if sent != 1 || claimed != "" {
		t.Errorf("%d tasks are sent, %q is claimed: the kill came elsewhere", sent, claimed)
	}
	testkit.Start(t, "other", s.env(env...), s.bin, "scheduler")
	testkit.Poll(t, patience, 50*time.Millisecond, func() bool { return len(s.list("reports")) >= 5 }, "five reports")
	var ticks []int64
	for _, line := range s.list("reports") {
		var tick int64
		if _, err := fmt.Sscan(line, &tick); err != nil {
			t.Fatal(err)
		}
		ticks = append(ticks, tick)
	}
	slices.Sort(ticks)
	for i := 1; i < len(ticks); i++ {
		if ticks[i]-ticks[i-1] != 2 {
			t.Errorf("ticks %v: one runs twice, or not at all", ticks)
		}
	}
}

// What a task in asynq leaves is a result that Celery's AsyncResult reads: a
// value, an exception, and that it is not there yet.
func TestAsyncResultReadsWhatAsynqRan(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	env := s.env("SOLOBEAT_WORKER_ENGINES=asynq")
	s.worker("w", []string{"SOLOBEAT_WORKER_ENGINES=asynq"})
	c := s.pyClient(testkit.Celery57, nil)
	for name, kwargs := range map[string]string{"tests.add": `{"x": 2, "y": 3}`, "tests.fail": `{"type": "Declined", "message": "no money"}`} {
		if code, _, errs := s.cli(t, env, "enqueue", name, "--id", name, "--kwargs", kwargs, "--engine", "asynq"); code != 0 {
			t.Fatalf("exit %d, %s", code, errs)
		}
	}
	var sum, failed seen
	c.call(t, `return outcome(app.AsyncResult(arg))`, "tests.add", &sum)
	if string(sum.Value) != "5" || sum.State != "SUCCESS" {
		t.Errorf("%+v", sum)
	}
	c.call(t, `return outcome(app.AsyncResult(arg))`, "tests.fail", &failed)
	if failed.Raised != "Declined" || failed.State != "FAILURE" {
		t.Errorf("%+v", failed)
	}
}
