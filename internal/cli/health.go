package cli

import (
	"context"
	"time"

	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/worker"
)

const (
	// wedgedAfter is how long a loop may take before the process counts as
	// wedged. An outage of Redis wedges nothing: the loops go on trying.
	wedgedAfter = 30 * time.Second
	// staleAfter is how old the last success may be in a ready process.
	staleAfter = 10 * time.Second
)

// health answers whether a restart would help: only if a loop is stuck. A
// broker outage or a long job is no reason to restart.
func (r *replica) health() map[string]check {
	checks := map[string]check{}
	if r.engine != nil {
		checks["worker"] = since(r.engine.LastTurn, wedgedAfter, "the worker's loop")
	}
	if r.sched != nil {
		checks["scheduler"] = since(func() time.Time { return r.sched.Health().LastTurn }, wedgedAfter, "the scheduler's loop")
	}
	return checks
}

// readiness answers whether the process does its work now.
func (r *replica) readiness() map[string]check {
	checks := map[string]check{}
	if r.engine != nil {
		checks["worker"] = since(r.engine.LastBeat, staleAfter, "the worker's heartbeat to Redis")
	}
	if r.sched != nil {
		checks["scheduler"] = func() error { return r.sched.Ready() }
	}
	return checks
}

// depths reads the queue depths for metrics.
func (r *replica) depths(ctx context.Context) ([]metrics.QueueDepth, error) {
	all, err := r.stores.admin().Depths(ctx, r.cfg.Worker.Queues)
	if err != nil {
		return nil, err
	}
	out := make([]metrics.QueueDepth, 0, len(all))
	for _, d := range all {
		out = append(out, metrics.QueueDepth{Queue: d.Queue, Pending: d.Waiting, Unacked: d.Unacked, Scheduled: d.Parked, Dead: d.Dead})
	}
	return out, nil
}

func (s *stores) admin() *celery.Admin {
	return celery.NewAdmin(celery.AdminConfig{Broker: s.broker, Namespace: s.cfg.Namespace, KeyPrefix: s.cfg.Redis.GlobalKeyPrefix})
}

// workerObserver counts runs and writes those of jobs into the history.
func (r *replica) workerObserver() worker.Observer {
	obs := r.metrics.WorkerObserver()
	count := obs.Finished
	obs.Finished = func(run worker.Run, out tasks.Outcome) {
		count(run, out)
	}
	return obs
}

func (r *replica) schedulerObserver() scheduler.Observer {
	obs := r.metrics.SchedulerObserver()
	if r.o.fired != nil {
		obs.Fired = func(_ string, tick scheduler.Occurrence, _ string) { r.o.fired(tick) }
	}
	return obs
}
