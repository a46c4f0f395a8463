package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/worker"
)

// LockObserver counts what lock guards report.
func (m *Metrics) LockObserver() lockguard.Observer {
	acquire := func(l lockguard.Labels, backend, result string) {
		m.lockSeries.acquire.of(m, l, backend, result).Inc()
	}
	return lockguard.Observer{
		Acquired: func(l lockguard.Labels, backend string, wait time.Duration) {
			acquire(l, backend, "acquired")
			m.lockSeries.wait.of(m, l, backend, "").Observe(wait.Seconds())
		},
		Busy:             func(l lockguard.Labels, backend string) { acquire(l, backend, "busy") },
		AcquireError:     func(l lockguard.Labels, backend string, _ error) { acquire(l, backend, "error") },
		AcquireCancelled: func(l lockguard.Labels, backend string) { acquire(l, backend, "cancelled") },
		Renewed: func(l lockguard.Labels, backend string, outcome lockguard.RenewOutcome, rtt time.Duration) {
			m.lockRenewals.WithLabelValues(m.lock(l.Lock), backend, string(outcome)).Inc()
			m.lockRenewal.WithLabelValues(backend).Observe(rtt.Seconds())
		},
		Lost: func(l lockguard.Labels, reason lockguard.Reason) {
			m.lockLost.WithLabelValues(m.schedule(l.Schedule), m.lock(l.Lock), string(reason)).Inc()
		},
		ExpiredWhileHeld: func(l lockguard.Labels) {
			m.lockExpired.WithLabelValues(m.schedule(l.Schedule), m.lock(l.Lock)).Inc()
		},
		Outlived: func(l lockguard.Labels) {
			m.lockOutlived.WithLabelValues(m.schedule(l.Schedule), m.lock(l.Lock)).Inc()
		},
		Released: func(l lockguard.Labels, backend string, result lockguard.Release) {
			m.lockSeries.release.of(m, l, backend, string(result)).Inc()
		},
		HeldStart: m.heldStart,
		HeldEnd: func(l lockguard.Labels, held time.Duration, ttlRatio, expectRatio float64) {
			m.heldEnd(l)
			m.lockSeries.held.of(m, l, "", "").Observe(held.Seconds())
			m.lockSeries.ratio.of(m, l, "", "").Observe(ttlRatio)
			m.lockSeries.expectRatio.of(m, l, "", "").Observe(expectRatio)
		},
		Fence:  func(l lockguard.Labels, f lockguard.Fence) { m.lockSeries.fence.of(m, l, "", "").Set(float64(f)) },
		Fenced: func(l lockguard.Labels) { m.fenced.WithLabelValues(m.schedule(l.Schedule), m.lock(l.Lock)).Inc() },
	}
}

// RecordObserver counts what record guards report.
func (m *Metrics) RecordObserver() idempotency.Observer {
	return idempotency.Observer{
		Decision: func(l idempotency.Labels, d idempotency.Decision) {
			m.recordDecisions.WithLabelValues(m.schedule(l.Schedule), string(d)).Inc()
		},
		Operation: func(store string, op idempotency.Operation, ok bool, took time.Duration) {
			result := "ok"
			if !ok {
				result = "error"
			}
			m.recordOperations.WithLabelValues(store, string(op), result).Inc()
			m.recordDuration.WithLabelValues(store, string(op)).Observe(took.Seconds())
		},
		Lost: func(l idempotency.Labels) { m.recordLost.WithLabelValues(m.schedule(l.Schedule)).Inc() },
		Stale: func(l idempotency.Labels, op idempotency.Operation) {
			m.recordStale.WithLabelValues(m.schedule(l.Schedule), string(op)).Inc()
		},
	}
}

// SchedulerObserver counts what the scheduler reports.
func (m *Metrics) SchedulerObserver() scheduler.Observer {
	return scheduler.Observer{
		Tick: func(s string, outcome scheduler.TickOutcome, n int) {
			m.ticks.WithLabelValues(m.schedule(s), string(outcome)).Add(float64(n))
		},
		Lag: func(s string, lag time.Duration) { m.lag.WithLabelValues(m.schedule(s)).Observe(max(0, lag.Seconds())) },
		Next: func(s string, tick time.Time) {
			if !tick.IsZero() {
				tick = tick.Add(m.delayOf(s))
			}
			m.setTime(m.nextTick, s, tick)
		},
		LastDue:   func(s string, tick time.Time) { m.setTime(m.lastDue, s, tick) },
		Heartbeat: func(at time.Time) { m.heartbeat.Set(seconds(at)) },
		StandAside: func(s string) {
			m.stoodAside.WithLabelValues(m.schedule(s), "tick").Inc()
		},
		Quarantined: func(s string, err error) {
			v := 0.0
			if err != nil {
				v = 1
			}
			m.quarantined.WithLabelValues(m.schedule(s)).Set(v)
		},
		StaleFor: func(s string, d time.Duration) { m.staleSeconds.WithLabelValues(m.schedule(s)).Set(d.Seconds()) },
	}
}

// setTime sets a per-job instant; jobs that share _other have none, since
// one value for many jobs would say nothing.
func (m *Metrics) setTime(g *prometheus.GaugeVec, schedule string, t time.Time) {
	label := m.schedule(schedule)
	switch {
	case label == other:
	case t.IsZero():
		g.DeleteLabelValues(label)
	default:
		g.WithLabelValues(label).Set(seconds(t))
	}
}

// WorkerObserver counts what the chain reports.
func (m *Metrics) WorkerObserver() worker.Observer {
	return worker.Observer{
		Started: func(r worker.Run) {
			m.inProgress.WithLabelValues(m.queue(r.Task.Queue)).Inc()
			if !r.Task.ETA.IsZero() {
				m.wait.WithLabelValues(m.task(r.Task.Name), m.queue(r.Task.Queue)).Observe(max(0, r.Waited.Seconds()))
			}
		},
		Finished: func(r worker.Run, out tasks.Outcome) {
			task, queue := m.task(r.Task.Name), m.queue(r.Task.Queue)
			if r.Executed {
				m.inProgress.WithLabelValues(queue).Dec()
				m.runtime.WithLabelValues(task, queue).Observe(r.Took.Seconds())
			}
			if out.Kind == tasks.Failed {
				m.failures.WithLabelValues(task, string(out.Reason)).Inc()
			}
			if out.Kind == tasks.Retried {
				m.retries.WithLabelValues(task, queue).Inc()
			}
		},
		WithoutLock: func(r worker.Run) { m.lockBypassed.WithLabelValues(m.schedule(r.Schedule), m.lock(r.Lock)).Inc() },
		StoodAside:  func(s, at string) { m.stoodAside.WithLabelValues(m.schedule(s), at).Inc() },
		Overdue: func(r worker.Run, ended bool) {
			if ended {
				m.overdue.WithLabelValues(m.queue(r.Task.Queue)).Dec()
			} else {
				m.overdue.WithLabelValues(m.queue(r.Task.Queue)).Inc()
			}
		},
	}
}

// EngineObserver counts what the Celery engine reports.
func (m *Metrics) EngineObserver() celery.Observer {
	return celery.Observer{
		Finished: func(f celery.Finished) {
			m.finished(celery.EngineName, f.Task, f.Queue, f.Outcome, f.Reason, f.Ran)
		},
		DeadLettered: func(queue string, _ tasks.Reason) { m.deadLettered.WithLabelValues(m.queue(queue)).Inc() },
		DeadUnlisted: func(queue string, _ tasks.Reason) { m.deadUnlisted.WithLabelValues(m.queue(queue)).Inc() },
		TakenOver:    func(n int) { m.takenOver.Add(float64(n)) },
		Buried:       func() { m.buried.Add(1) },
		LateCommit:   func(_, _ string) { m.lateCommits.Add(1) },
		Parked:       func(queue, reason string) { m.parked.WithLabelValues(m.queue(queue), reason).Inc() },
		Suspect:      func(string) { m.suspects.Add(1) },
		BrokerUp:     func(up bool) { m.Up("broker", up) },
		Reconnect:    func() { m.reconnects.Add(1) },
	}
}

// AsynqObserver counts what the asynq engine reports.
func (m *Metrics) AsynqObserver() asynqengine.Observer {
	return asynqengine.Observer{
		Finished: func(f asynqengine.Finished) {
			m.finished(asynqengine.EngineName, f.Task, f.Queue, f.Outcome, f.Reason, f.Ran)
		},
		DeadLettered: func(queue string, _ tasks.Reason) { m.deadLettered.WithLabelValues(m.queue(queue)).Inc() },
		LateCommit:   func(_, _ string) { m.lateCommits.Add(1) },
		Parked:       func(queue, reason string) { m.parked.WithLabelValues(m.queue(queue), reason).Inc() },
		Suspect:      func(string) { m.suspects.Add(1) },
		Orphans:      func(queue string, n int) { m.orphans.WithLabelValues(m.queue(queue)).Set(float64(n)) },
		BrokerUp:     func(up bool) { m.Up("broker", up) },
		Reconnect:    func() { m.reconnects.Add(1) },
	}
}

// finished counts a message that was dealt with; the chain counts the failures
// of what it has seen.
func (m *Metrics) finished(engine, task, queue string, kind tasks.Kind, reason tasks.Reason, ran bool) {
	outcome := kind.String()
	if kind == tasks.Succeeded && reason == tasks.ReasonSkipped {
		outcome = string(reason)
	}
	m.processed.WithLabelValues(m.task(task), m.queue(queue), engine, outcome).Inc()
	if kind == tasks.Failed && !ran {
		m.failures.WithLabelValues(m.task(task), string(reason)).Inc()
	}
}

const (
	depthCache  = 3 * time.Second
	readTimeout = 2 * time.Second
)

var (
	depthDesc = prometheus.NewDesc("solobeat_queue_depth", "Messages of a queue by state, over all priorities; unacked and parked of all Celery queues together are queue _all.", []string{"queue", "state"}, nil)
	ageDesc   = prometheus.NewDesc("solobeat_queue_oldest_age_seconds", "For how long the message that comes next was seen to wait; it may wait for longer. 0 for an empty queue.", []string{"queue"}, nil)
)

// cached holds what read returned at a scrape for some time. While it fails
// there is nothing.
type cached[T any] struct {
	keep time.Duration
	read func(context.Context) (T, error)

	mu   sync.Mutex
	at   time.Time
	last T
	busy bool
}

func (c *cached[T]) get() T {
	c.mu.Lock()
	if c.busy || time.Since(c.at) < c.keep {
		defer c.mu.Unlock()
		return c.last
	}
	c.busy = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	v, err := c.read(ctx)
	if err != nil {
		var none T
		v = none
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.at, c.busy = v, time.Now(), false
	return v
}

// depthCollector reads the depths at a scrape, at most every depthCache.
type depthCollector struct {
	cached[[]QueueDepth]

	mu   sync.Mutex
	ages ages
}

// Describe implements prometheus.Collector.
func (c *depthCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- depthDesc
	ch <- ageDesc
}

// Collect implements prometheus.Collector.
func (c *depthCollector) Collect(ch chan<- prometheus.Metric) {
	depths := c.get()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range depths {
		ch <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(d.N), d.Queue, d.State)
		if d.Tails != nil {
			ch <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, c.ages.oldest(d.Queue, d.Tails, time.Now()).Seconds(), d.Queue)
		}
	}
	if depths != nil {
		c.ages.forget(depths)
	}
}
