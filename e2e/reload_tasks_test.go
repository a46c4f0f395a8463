package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// One worker that schedules too, whose files are changed while it runs.
func TestReload(t *testing.T) {
	t.Parallel()
	testkit.Build(t, workerPkg, testkit.FailpointsTag)
	together(t,
		subtest{"tasks change while runs go on", tasksChangeWhileRunsGoOn},
		subtest{"S20 a removed job leaves nothing behind", removedJobLeavesNothingBehind},
		subtest{"X08 reload of a file with five errors", reloadOfAFileWithFiveErrors},
	)
}

// reloading is a worker with a scheduler, and its files.
type reloading struct {
	*stack
	*worker
	read int64 // of its log
}

func startReloading(t *testing.T, config, schedule string) *reloading {
	t.Helper()
	s := newStack(t)
	s.file("solobeat.yaml", "schedule: {file: schedule.yaml}\n"+config)
	s.file("schedule.yaml", schedule)
	w := s.worker("w", nil, "-c", filepath.Join(s.dir, "solobeat.yaml"), "--with-scheduler")
	return &reloading{stack: s, worker: w}
}

// write changes both files by renaming; "" leaves one as it is.
func (r *reloading) write(config, schedule string) {
	r.stack.t.Helper()
	for name, text := range map[string]string{"solobeat.yaml": config, "schedule.yaml": schedule} {
		if text == "" {
			continue
		}
		if name == "solobeat.yaml" {
			text = "schedule: {file: schedule.yaml}\n" + text
		}
		if err := os.Rename(r.file(name+".new", text), filepath.Join(r.dir, name)); err != nil {
			r.stack.t.Fatal(err)
		}
	}
}

// hangup sends SIGHUP and waits for words in the log; it returns the log since.
func (r *reloading) hangup(words string) string {
	r.stack.t.Helper()
	r.read += int64(len(r.StderrFrom(r.read)))
	r.Signal(syscall.SIGHUP)
	return r.logged(words)
}

// logged waits for words in the log since what was read of it.
func (r *reloading) logged(words string) (text string) {
	r.stack.t.Helper()
	testkit.Poll(r.stack.t, time.Minute, 5*time.Millisecond, func() bool {
		text = r.StderrFrom(r.read)
		return strings.Contains(text, words) && strings.HasSuffix(text, "\n")
	}, "the log has %q", words)
	return text
}

// cli runs a command on the same files.
func (r *reloading) cli(args ...string) (string, int) {
	r.stack.t.Helper()
	cmd := exec.Command(r.bin, append([]string{"-c", filepath.Join(r.dir, "solobeat.yaml")}, args...)...)
	cmd.Env = testkit.Environ(r.env()...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		r.stack.t.Fatal(err)
	}
	return string(out), 0
}

func (r *reloading) metrics() string {
	r.stack.t.Helper()
	resp, err := http.Get(r.metricsURL())
	if err != nil {
		r.stack.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.stack.t.Fatal(err)
	}
	return string(b)
}

// jobNumber is a number of a job's state, 0 if there is none.
func (r *reloading) jobNumber(job, field string) int {
	r.stack.t.Helper()
	n, _ := strconv.Atoi(r.broker.HGet(r.stack.t.Context(), "solobeat:default:sched:job:"+job, field).Val())
	return n
}

const noJobs = "version: 1\njobs:\n"

// A command is added, changed and removed; a run that goes on ends as it began;
// other keys wait for a restart, and the process lives on.
func tasksChangeWhileRunsGoOn(t *testing.T) {
	program := func(text string) string {
		return fmt.Sprintf(`tasks: {"greet": {command: [/bin/sh, -c, %q]}}`+"\n", text)
	}
	const waits = "touch begun; while ! test -e go; do sleep 0.02; done; echo old"
	r := startReloading(t, program(waits), noJobs)
	id, code := r.cli("enqueue", "greet")
	if code != 0 {
		t.Fatal(id)
	}
	id = strings.TrimSpace(id)
	testkit.Poll(t, time.Minute, 5*time.Millisecond, func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "begun"))
		return err == nil
	}, "the run has begun")
	r.write(program("echo new")+"  \nworker: {concurrency: 77}\nredis: {url: 'redis://:hush-hush@localhost:1/0'}\n", "")
	log := r.hangup("configuration reloaded")
	if !strings.Contains(log, `"keys":["worker.concurrency"]`) || strings.Contains(log, "hush-hush") {
		t.Errorf("keys that are not reloaded (redis.url is the environment's): %s", log)
	}
	if out, code := r.cli("enqueue", "greet", "--wait"); code != 0 || !strings.Contains(out, "new") {
		t.Errorf("the changed task: %d %s", code, out)
	}
	r.file("go", "")
	if out, code := r.cli("result", id, "--wait", "30s"); code != 0 || !strings.Contains(out, "old") {
		t.Errorf("the run that went on: %d %s", code, out)
	}
	// Found by its content, without a signal.
	r.read += int64(len(r.StderrFrom(r.read)))
	r.write(`tasks: {"part": {command: [/bin/sh, -c, "echo added"]}}`+"\n", "")
	r.logged("configuration reloaded")
	if out, code := r.cli("enqueue", "part", "--wait"); code != 0 || !strings.Contains(out, "added") {
		t.Errorf("the added task: %d %s", code, out)
	}
	if out, code := r.cli("enqueue", "greet", "--wait"); code != 1 || !strings.Contains(out, "NotRegistered") {
		t.Errorf("the removed task: %d %s", code, out)
	}
	if m := r.metrics(); strings.Contains(m, `task="greet"`) || !strings.Contains(m, `solobeat_task_processed_total{engine="celery",outcome="succeeded",queue="celery",task="part"} 1`) {
		t.Error("series of the removed task are left, or those of the added one missing")
	}
	if !r.Alive() {
		t.Error("SIGHUP ended the worker")
	}
	r.Signal(syscall.SIGTERM)
	if code := r.Wait(time.Minute); code != 0 {
		t.Errorf("ended with %d", code)
	}
}

// S20: the next ticks of a job that was removed are silent, its keys expire,
// jobs list does not show it, and its series are gone.
func removedJobLeavesNothingBehind(t *testing.T) {
	const both = "version: 1\njobs:\n  stays: {task: say, every: 1s}\n  goes: {task: say, every: 1s, lock: {key: goes-lock}}\n"
	r := startReloading(t, `tasks: {say: {command: [/bin/echo]}}`+"\n", both)
	published := func(job string) int64 { return r.broker.XLen(t.Context(), "solobeat:default:sched:history:"+job).Val() }
	testkit.Poll(t, time.Minute, 20*time.Millisecond, func() bool { return published("goes") > 2 && published("stays") > 2 }, "both jobs run")
	if m := r.metrics(); !strings.Contains(m, `schedule="goes"`) || !strings.Contains(m, `lock="goes-lock"`) {
		t.Error("no series of the job")
	}
	r.write("", "version: 1\njobs:\n  stays: {task: say, every: 1s}\n")
	r.hangup(`"msg":"schedule replaced"`)
	r.idle(time.Minute)
	seq := func(job string) int { return r.jobNumber(job, "seq") }
	last, stays := seq("goes"), seq("stays")
	testkit.Poll(t, time.Minute, 20*time.Millisecond, func() bool { return seq("stays") >= stays+2 }, "the other job goes on")
	if now := seq("goes"); now != last {
		t.Errorf("the removed job was published: %d, then %d", last, now)
	}
	for _, key := range []string{"job:goes", "history:goes"} {
		if ttl := r.broker.PTTL(t.Context(), "solobeat:default:sched:"+key).Val(); ttl <= 0 || ttl > 31*24*time.Hour {
			t.Errorf("%s lives for %s", key, ttl)
		}
	}
	if out, code := r.cli("jobs", "list"); code != 0 || strings.Contains(out, "goes") || !strings.Contains(out, "stays") {
		t.Errorf("jobs list: %d %s", code, out)
	}
	testkit.Poll(t, 20*time.Second, 50*time.Millisecond, func() bool {
		m := r.metrics()
		return !strings.Contains(m, `"goes"`) && !strings.Contains(m, `"goes-lock"`)
	}, "its series are gone")
	if m := r.metrics(); !strings.Contains(m, `schedule="stays"`) {
		t.Error("series of the other job are gone")
	}
	if log := r.Stderr(); strings.Contains(log, `"level":"error"`) || strings.Contains(log, "schedule is empty") {
		t.Errorf("errors, or a schedule that is not empty is said to be: %s", log)
	}
	// To empty the schedule is legal, and seldom meant.
	r.write("", "version: 1\njobs: {}\n")
	if log := r.hangup(`"msg":"configuration reloaded"`); !strings.Contains(log, `"msg":"the schedule is empty now`) || !strings.Contains(log, `"jobs_gone":1`) {
		t.Errorf("no warning: %s", log)
	}
	if log := r.hangup(`"msg":"configuration reloaded"`); strings.Contains(log, "schedule is empty") {
		t.Errorf("told again: %s", log)
	}
}

// X08: a file with five mistakes is named once, with all of them, and nothing of
// it is taken; the metric says so until a good one is there.
func reloadOfAFileWithFiveErrors(t *testing.T) {
	r := startReloading(t, `tasks: {say: {command: [/bin/echo]}}`+"\n", "version: 1\njobs:\n  old: {task: say, every: 1s}\n")
	const bad = `version: 1
jobs:
  one: {task: say, every: 1s}
  two: {task: say, cron: "61 * * * *"}
  three: {every: 1s}
  four: {task: say, every: 1s, lock: {ttl: 5}}
  five: {task: say, every: 1s, kwargs: {day: "{{ .Nope }}"}}
  six: {task: say, every: 1s, misfir: once}
`
	r.write(`tasks: {say: {command: [/bin/echo]}, added: {command: [/bin/echo]}}`+"\n", bad)
	// By its content, and twice more: it is told once.
	r.logged("configuration not reloaded")
	r.read += int64(len(r.StderrFrom(r.read)))
	if !strings.Contains(r.metrics(), "solobeat_config_last_reload_successful 0") {
		t.Error("the metric does not say so")
	}
	tick := r.jobNumber("old", "last")
	testkit.Poll(t, time.Minute, 20*time.Millisecond, func() bool { return r.jobNumber("old", "last") >= tick+11_000 }, "the old file is in force for two looks more")
	if again := r.StderrFrom(r.read); strings.Contains(again, "not reloaded") {
		t.Errorf("told again: %s", again)
	}
	log := r.hangup("configuration not reloaded")
	for _, place := range []string{"4:", "5:", "6:", "7:", "8:"} {
		if !strings.Contains(log, "schedule.yaml:"+place) {
			t.Errorf("no problem of line %s in %s", place, log)
		}
	}
	if strings.Count(log, `"level":"error"`) != 1 {
		t.Errorf("not one error: %s", log)
	}
	if out, code := r.cli("enqueue", "added", "--wait"); code != 1 || !strings.Contains(out, "NotRegistered") {
		t.Errorf("half of it was taken: %d %s", code, out)
	}
	if n := r.broker.Exists(t.Context(), "solobeat:default:sched:job:one").Val(); n != 0 {
		t.Error("a job of the bad file has a state")
	}
	r.write("", strings.Join(strings.SplitAfter(bad, "\n")[:3], ""))
	r.hangup(`"msg":"schedule replaced"`)
	if !strings.Contains(r.metrics(), "solobeat_config_last_reload_successful 1") {
		t.Error("the metric does not recover")
	}
	testkit.Poll(t, time.Minute, 20*time.Millisecond, func() bool { return r.jobNumber("one", "seq") > 0 }, "the new job runs")
}
