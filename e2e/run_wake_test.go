package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// A task that waits for a lock which no worker releases, on either engine, goes
// on as soon as it is free, as it does where a worker releases it: not by its
// timer, which is 8 s by then.
func TestWhatWaitsIsWokenFromOutside(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"celery", "asynq"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			conf := s.file("solobeat.yaml", "worker: {engines: "+engine+"}\ntasks:\n  tests.when:\n    lock: {key: shared, on_busy: retry}\n")
			env := []string{"SOLOBEAT_CONFIG=" + conf}
			w := s.worker("w", env)
			waits := func(id string) {
				t.Helper()
				if code, _, errs := s.cli(t, env, "enqueue", "tests.when", "--id", id, "--engine", engine); code != 0 {
					t.Fatalf("enqueue: exit %d: %s", code, errs)
				}
				testkit.Poll(t, 60*time.Second, 10*time.Millisecond, func() bool {
					n := 0
					for line := range strings.Lines(w.Stderr()) {
						if strings.Contains(line, `"msg":"task parked"`) && strings.Contains(line, id) {
							n++
						}
					}
					return n >= 4
				}, "the message of %s is parked for the fourth time", id)
			}
			ran := func(id string, freed time.Time) {
				t.Helper()
				if code, _, errs := s.cli(t, env, "result", id, "--wait", "30s"); code != 0 {
					t.Errorf("result of %s: exit %d: %s", id, code, errs)
				}
				if took := time.Since(freed); took > 4*time.Second { // asynq looks once in a while
					t.Errorf("%s ran %v after the release: it waited for its timer", id, took)
				}
			}
			end := filepath.Join(s.dir, "end")
			p := testkit.StartCmd(t, "run", command(s.dir, s.env(env...), testkit.Binary(t), "run", "--lock", "shared", "--",
				"sh", "-c", "echo up; while [ ! -e '"+end+"' ]; do sleep 0.05; done"))
			p.WaitOutput(20*time.Second, "up")
			waits("one")
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if code := p.Wait(10 * time.Second); code != 0 {
				t.Fatalf("exit code %d: %s", code, p.Stderr())
			}
			ran("one", time.Now())

			s.broker.Set(t.Context(), "shared", "of somebody who is gone", 0)
			waits("two")
			code, _, errs := s.cli(t, env, "locks", "release", "shared", "--yes", "--reason", "test")
			if code != 0 || !strings.Contains(errs, "redis-py") {
				t.Errorf("locks release: exit %d: %s", code, errs)
			}
			ran("two", time.Now())
		})
	}
}

// A run whose lock is released by force is cancelled as lost, and comes back;
// the next holder's fence is larger.
func TestReleaseUnderARun(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	w := s.worker("w", nil)
	guard := tasks.Guard{Job: "job", Lock: &tasks.LockGuard{Key: "shared", TTLMS: 3000, OnBusy: tasks.OnBusyRetry}}
	id := s.enqueue("tests.sleep", guarded(guard), kwargs(map[string]any{"id": "a", "seconds": 8}))
	testkit.Poll(t, patience, 10*time.Millisecond, func() bool { return len(s.list("sleep:a")) > 0 }, "it begins")
	b, err := lockredis.New(s.broker, lockredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := b.Read(t.Context(), "shared")
	if err != nil || !before.Held || before.TaskID != id {
		t.Fatalf("holder %+v, %v", before, err)
	}
	code, out, errs := s.cli(t, nil, "locks", "release", "shared", "--yes", "-o", "json")
	var told struct {
		TaskID string `json:"task_id"`
		Node   string
		Fence  uint64
	}
	if err := json.Unmarshal([]byte(out), &told); code != 0 || err != nil || told.TaskID != id || told.Fence != uint64(before.Fence) || told.Node != "w@e2e" {
		t.Errorf("exit %d, %v: %s %s", code, err, out, errs)
	}
	w.WaitOutput(10*time.Second, `"msg":"lock was lost while its function runs".*"reason":"gone"`)
	w.WaitOutput(10*time.Second, `"msg":"task returned".*"reason":"lost"`)
	s.wantState(id, wire.StateSuccess, 60*time.Second)
	if got := w.metric("solobeat_lock_lost_total", `reason="gone"`); got != 1 {
		t.Errorf("%v losses", got)
	}
	if got := w.metric("solobeat_fence"); got <= float64(before.Fence) {
		t.Errorf("fence %v after %d", got, before.Fence)
	}
}

// The lock of a worker that does not answer stands like any other: a guard that
// asks workers what they do would take its task for ended.
func TestL28_NoWorkerIsAsked(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	a := s.worker("a", []string{"SOLOBEAT_WORKER_CONCURRENCY=1"})
	lock := &tasks.LockGuard{Key: "shared", TTLMS: 60_000, OnBusy: tasks.OnBusySkip}
	send := func(name string, seconds float64) string {
		return s.enqueue("tests.sleep", guarded(tasks.Guard{Job: "job", Lock: lock}), kwargs(map[string]any{"id": name, "seconds": seconds}))
	}
	first := send("first", 1)
	testkit.Poll(t, patience, time.Millisecond, func() bool { return len(s.list("sleep:first")) > 0 }, "the first one begins")
	a.Signal(syscall.SIGSTOP)
	s.worker("b", nil)
	second := send("second", 0)
	res := s.wantState(second, wire.StateSuccess, 60*time.Second)
	if got := s.list("sleep:second"); len(got) > 0 || !strings.Contains(string(res.Solobeat), first) {
		t.Errorf("the second one ran beside the first, which does not answer: %q, %s", got, res.Solobeat)
	}
	a.Signal(syscall.SIGCONT)
	s.wantState(first, wire.StateSuccess, 90*time.Second)
	s.wantState(send("third", 0), wire.StateSuccess, 60*time.Second)
	if got := s.list("sleep:third"); len(got) != 2 {
		t.Errorf("the third one: %q", got)
	}
}
