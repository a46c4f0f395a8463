package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// A worker is killed when the result is written on its own server and the
// message is not acknowledged: the message comes back, the first SUCCESS stands,
// and the effect is doubled only where there is no record, which is the price of
// two servers.
func TestKilledBetweenResultAndAck(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	results := testkit.Redis(t)
	env := []string{"SOLOBEAT_REDIS_RESULTS_URL=" + results.URL(3)}
	file := s.file("solobeat.yaml", `
tasks:
  tests.fenced:
    lock: {key: "lock:{{ .Params.id }}", ttl: 2s}
    idempotency: {key: "{{ .Params.id }}"}
`)
	store := results.ClientDB(t, 3)
	for _, task := range []string{"tests.fenced", "tests.effect"} {
		id := task + "-killed"
		s.enqueue(task, kwargs(map[string]any{"id": id}), tasks.WithID(id))
		first := s.worker(task+"-first", append(env, "SOLOBEAT_FAILPOINTS=after-result@"+task+"=kill"), "-c", file)
		select {
		case <-first.Exited():
		case <-time.After(patience):
			t.Fatal("it was not killed")
		}
		before := store.Get(t.Context(), wire.ResultKey(id)).Val()
		if !strings.Contains(before, `"SUCCESS"`) || s.broker.HLen(t.Context(), "unacked").Val() != 1 {
			t.Fatalf("result %q, %d unacked: it was not killed between the two", before, s.broker.HLen(t.Context(), "unacked").Val())
		}
		second := s.worker(task+"-second", env, "-c", file)
		s.idle(patience)
		if after := store.Get(t.Context(), wire.ResultKey(id)).Val(); after != before {
			t.Errorf("%s: the first SUCCESS was replaced: %s, was %s", task, after, before)
		}
		effects := 0
		for _, line := range s.list("effects") {
			if strings.HasPrefix(line, id+" ") {
				effects++
			}
		}
		if want := map[string]int{"tests.fenced": 1, "tests.effect": 2}[task]; effects != want {
			t.Errorf("%s: %d effects, want %d", task, effects, want)
		}
		second.Kill()
		<-second.Exited()
	}
	if keys := s.broker.Keys(t.Context(), "*celery-task-meta*").Val(); len(keys) > 0 {
		t.Errorf("results on the broker: %q", keys)
	}
}

// Stock Celery clients read results on a server of its own, by polling and by
// subscription, and both engines write them there; solobeat reads them too.
func TestPythonReadsResultsElsewhere(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	results := testkit.Redis(t)
	env := []string{"SOLOBEAT_REDIS_RESULTS_URL=" + results.URL(1), "SOLOBEAT_WORKER_ENGINES=celery,asynq"}
	py := s.pyClient(testkit.Celery57, settings{"result_backend": results.URL(1)})
	s.worker("elsewhere", env)
	var got struct{ OK, Failed, Retried, Unknown seen }
	py.call(t, `
		sent = {
			"ok": send("tests.add", [2**60, 1]),
			"failed": send("tests.fail", ["PaymentDeclined", "no"]),
			"retried": send("tests.retry", [1, 0.2, "again"]),
			"unknown": send("tests.nobody"),
		}
		return {k: outcome(r) for k, r in sent.items()}
	`, nil, &got)
	if string(got.OK.Value) != "1152921504606846977" || string(got.Retried.Value) != `"again"` || got.Failed.Raised != "PaymentDeclined" || got.Unknown.Raised != "NotRegistered" {
		t.Errorf("%+v", got)
	}
	if code, out, errs := s.cli(t, env, "enqueue", "tests.add", "--args", "[1, 2]", "--engine", "asynq", "--wait"); code != 0 || strings.TrimSpace(out) != "3" {
		t.Errorf("asynq: exit %d, %s%s", code, out, errs)
	}
	if code, out, errs := s.cli(t, env, "result", got.OK.ID); code != 0 || strings.TrimSpace(out) != "1152921504606846977" {
		t.Errorf("solobeat result: exit %d, %s%s", code, out, errs)
	}
	// A dead letter that is sent again is PENDING for its client.
	if code, out, errs := s.cli(t, env, "dead", "requeue", "--all", "--engine", "celery", "--reason", "NotRegistered"); code != 0 {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	testkit.Eventually(t, patience, func() error { // the worker does not know it still
		if d := s.deadLetters(t, env...); len(d) != 1 || d[0].TaskID != got.Unknown.ID {
			return fmt.Errorf("dead letters %+v", d)
		}
		return nil
	})
	if keys := s.broker.Keys(t.Context(), "*celery-task-meta*").Val(); len(keys) > 0 {
		t.Errorf("results on the broker: %q", keys)
	}
}
