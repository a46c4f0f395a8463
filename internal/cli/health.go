package cli

import (
	"context"
	"sync/atomic"
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

// pulse notes when the engine last tried, and last managed, to reach Redis:
// its heartbeat comes every few seconds, in whatever state Redis is.
type pulse struct{ tried, reached atomic.Int64 }

func (p *pulse) beat(up bool) {
	now := time.Now().UnixNano()
	p.tried.Store(now)
	if up {
		p.reached.Store(now)
	}
}

func (p *pulse) lastTry() time.Time     { return time.Unix(0, p.tried.Load()) }
func (p *pulse) lastReached() time.Time { return time.Unix(0, p.reached.Load()) }

// health answers whether a restart would help: only if a loop is stuck. A
// broker outage or a long job is no reason to restart.
func (r *replica) health() map[string]check {
	checks := map[string]check{}
	if r.engine != nil {
		checks["worker"] = since(r.pulse.lastTry, wedgedAfter, "the worker's heartbeat")
	}
	if r.sched != nil && r.o.gate == nil {
		checks["scheduler"] = since(r.lastLoop, wedgedAfter, "the scheduler's loop")
	}
	return checks
}

// lastLoop counts from the start of the process until the loop has completed
// once: a process that has just come up is not wedged.
func (r *replica) lastLoop() time.Time {
	if last := r.sched.Status().LastLoop; !last.IsZero() {
		return last
	}
	return r.began
}

// readiness answers whether the process does its work now.
func (r *replica) readiness() map[string]check {
	checks := map[string]check{}
	if r.engine != nil {
		checks["worker"] = since(r.pulse.lastReached, staleAfter, "the worker's heartbeat to Redis")
	}
	if r.sched != nil {
		checks["scheduler"] = r.sched.Ready
	}
	return checks
}

// engineObserver counts what the engine does and feels its pulse. What
// fails without a run goes into the history here.
func (r *replica) engineObserver() celery.Observer {
	obs := r.metrics.EngineObserver()
	finished := obs.Finished
	obs.Finished = func(f celery.Finished) {
		finished(f)
		if !f.Ran && f.Outcome == tasks.Failed && f.Message != nil {
			r.history.note(worker.Run{Task: f.Message}, tasks.Outcome{Kind: f.Outcome, Reason: f.Reason})
		}
	}
	count := obs.BrokerUp
	obs.BrokerUp = func(up bool) {
		r.pulse.beat(up)
		count(up)
	}
	return obs
}

// allQueues labels what kombu keeps in one place for all queues.
const allQueues = "_all"

// depths reads the queue depths for metrics.
func (r *replica) depths(ctx context.Context) ([]metrics.QueueDepth, error) {
	admin := r.stores.admin(r.cfg.Worker.Queues)
	all, err := admin.Depths(ctx)
	if err != nil {
		return nil, err
	}
	out := []metrics.QueueDepth{
		{Queue: allQueues, State: "unacked", N: all.Unacked}, {Queue: allQueues, State: "parked", N: all.Parked},
	}
	tails, err := admin.Tails(ctx)
	if err != nil {
		return nil, err
	}
	for i, d := range all.Queues {
		out = append(out, metrics.QueueDepth{Queue: d.Queue, State: "pending", N: d.Waiting, Tails: tails[i]}, metrics.QueueDepth{Queue: d.Queue, State: "dead", N: d.Dead})
	}
	return out, nil
}

func (s *stores) admin(queues []string) *celery.Admin {
	return celery.NewAdmin(celery.AdminConfig{Broker: s.broker, Namespace: s.cfg.Namespace, KeyPrefix: s.cfg.Redis.GlobalKeyPrefix, Queues: queues})
}

// workerObserver counts runs and writes those of jobs into the history.
func (r *replica) workerObserver() worker.Observer {
	obs := r.metrics.WorkerObserver()
	count, started := obs.Finished, obs.Started
	obs.Started = func(run worker.Run) {
		started(run)
		r.history.begun(run)
	}
	obs.Finished = func(run worker.Run, out tasks.Outcome) {
		count(run, out)
		r.history.note(run, out)
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
