package cli

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/asynqengine"
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
	for engine, p := range r.pulses {
		checks[pulseName(engine)] = since(p.lastTry, wedgedAfter, "the worker's heartbeat")
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
	for engine, p := range r.pulses {
		checks[pulseName(engine)] = since(p.lastReached, staleAfter, "the worker's heartbeat to Redis")
	}
	if r.sched != nil {
		checks["scheduler"] = r.sched.Ready
	}
	return checks
}

// pulseName is the name of an engine's check.
func pulseName(engine string) string {
	if engine == celery.EngineName {
		return "worker"
	}
	return "worker_" + engine
}

// felt adds an engine's pulse to what counts whether Redis answers.
func (r *replica) felt(engine string, count func(bool)) func(bool) {
	p := &pulse{}
	r.pulses[engine] = p
	return func(up bool) {
		p.beat(up)
		count(up)
	}
}

// celeryObserver counts what the engine does and feels its pulse. What fails
// without a run goes into the history here.
func (r *replica) celeryObserver() celery.Observer {
	obs := r.metrics.EngineObserver()
	finished := obs.Finished
	obs.Finished = func(f celery.Finished) {
		finished(f)
		r.failedUnrun(f.Message, f.Outcome, f.Reason, f.Ran)
	}
	obs.BrokerUp = r.felt(celery.EngineName, obs.BrokerUp)
	return obs
}

// asynqObserver is celeryObserver for the other engine.
func (r *replica) asynqObserver() asynqengine.Observer {
	obs := r.metrics.AsynqObserver()
	finished := obs.Finished
	obs.Finished = func(f asynqengine.Finished) {
		finished(f)
		r.failedUnrun(f.Message, f.Outcome, f.Reason, f.Ran)
	}
	obs.BrokerUp = r.felt(asynqengine.EngineName, obs.BrokerUp)
	return obs
}

// failedUnrun writes a failure into the history of which the chain, that tells
// of all other ends, has not heard.
func (r *replica) failedUnrun(message *tasks.Task, kind tasks.Kind, reason tasks.Reason, ran bool) {
	if !ran && kind == tasks.Failed && message != nil {
		r.history.note(worker.Run{Task: message}, tasks.Outcome{Kind: kind, Reason: reason})
	}
}

// allQueues labels what kombu keeps in one place for all queues.
const allQueues = "_all"

// depths reads the queue depths for metrics.
func (r *replica) depths(ctx context.Context) ([]metrics.QueueDepth, error) {
	var out []metrics.QueueDepth
	if r.celery != nil {
		var err error
		if out, err = r.celeryDepths(ctx); err != nil {
			return nil, err
		}
	}
	if r.asynq == nil {
		return out, nil
	}
	more, err := r.stores.asynqAdmin(r.cfg.Worker.Queues).Depths(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range more {
		for state, n := range map[string]int64{"pending": d.Waiting, "unacked": d.Active, "parked": d.Scheduled, "dead": d.Archived} {
			depth := metrics.QueueDepth{Queue: d.Queue, State: state, N: n}
			if state == "pending" {
				depth.Tails = []string{d.Next}
			}
			out = addDepth(out, depth)
		}
	}
	return out, nil
}

// addDepth adds to a queue's number: both engines may have a queue of one name.
func addDepth(all []metrics.QueueDepth, d metrics.QueueDepth) []metrics.QueueDepth {
	for i := range all {
		if all[i].Queue == d.Queue && all[i].State == d.State {
			all[i].N += d.N
			all[i].Tails = append(all[i].Tails, d.Tails...)
			return all
		}
	}
	return append(all, d)
}

func (r *replica) celeryDepths(ctx context.Context) ([]metrics.QueueDepth, error) {
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
	r := s.cfg.Redis
	return celery.NewAdmin(celery.AdminConfig{
		Broker: s.broker, Results: s.results, Namespace: s.cfg.Namespace, KeyPrefix: r.GlobalKeyPrefix, ResultsKeyPrefix: r.ResultsKeyPrefix,
		Queues: queues,
	})
}

func (s *stores) asynqAdmin(queues []string) *asynqengine.Admin {
	r := s.cfg.Redis
	return asynqengine.NewAdmin(asynqengine.AdminConfig{
		Client: s.broker, Results: s.results, Namespace: s.cfg.Namespace, KeyPrefix: r.GlobalKeyPrefix, ResultsKeyPrefix: r.ResultsKeyPrefix,
		Queues: queues,
	})
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
