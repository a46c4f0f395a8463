package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/scheduler"
)

// The engine of a job, its own or that of defaults:; celery is the scheduler's
// own "".
func TestJobEngines(t *testing.T) {
	t.Parallel()
	jobs, _, err := ParseSchedule("s", []byte(`version: 1
defaults: {engine: asynq}
jobs:
  a: {task: t, every: 1h}
  b: {task: t, every: 1h, engine: celery, idempotency: off}
`))
	if err != nil {
		t.Fatal(err)
	}
	if jobs[0].Engine != EngineAsynq || jobs[1].Engine != "" {
		t.Errorf("%q, %q", jobs[0].Engine, jobs[1].Engine)
	}
}

// A job without a queue goes to the worker's first one, which asynq must be
// able to have.
func TestTogetherFindsAQueueThatAsynqCannotHave(t *testing.T) {
	t.Parallel()
	c := load(t, "worker: {queues: [high priority]}\n", nil)
	job := func(engine, queue string) *scheduler.Job {
		return &scheduler.Job{Name: "j", Engine: engine, Queue: queue}
	}
	var ps Problems
	if _, err := Together(c, []*scheduler.Job{job(EngineAsynq, "")}); !errors.As(err, &ps) || !strings.Contains(ps[0].String(), "jobs.j.engine") {
		t.Errorf("got %v", err)
	}
	if _, err := Together(c, []*scheduler.Job{job("", ""), job(EngineAsynq, "fine")}); err != nil {
		t.Error(err)
	}
	if msg := keyProblem("asynq:{celery}:pending", nil, ""); msg == "" {
		t.Error("a key of asynq's own is taken for a lock's")
	}
}
