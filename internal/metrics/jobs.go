package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/solobeat/solobeat/scheduler"
)

// graceTicks are the ticks whose deadlines are looked at: with a default
// deadline it is the time until the tick after.
const graceTicks = 8

// timeJob exports what a job's own numbers say about when to worry. Jobs that
// share _other, or have no ticks to come, have none.
func (m *Metrics) timeJob(label string, j *scheduler.Job, now time.Time) {
	if label == other || j.Disabled || j.Schedule == nil {
		return
	}
	gap := scheduler.LongestGap(j.Schedule, now)
	if gap == 0 {
		return
	}
	var deadline time.Duration
	for _, tick := range scheduler.Upcoming(j.Schedule, now, graceTicks) {
		deadline = max(deadline, j.DeadlineOf(tick.At))
	}
	m.maxGap.WithLabelValues(label).Set(gap.Seconds())
	m.grace.WithLabelValues(label).Set((deadline + j.ExpectedRun()).Seconds())
}

// CollectJobs exports the instants that the store keeps of this process's
// jobs, the same on every replica, cached for some seconds. While read fails
// they are absent.
func (m *Metrics) CollectJobs(read func(ctx context.Context, jobs []string) ([]scheduler.JobState, error)) {
	var names []string
	for _, j := range m.cfg.Jobs {
		if m.schedule(j.Name) == j.Name && !j.Disabled {
			names = append(names, j.Name)
		}
	}
	m.reg.MustRegister(&jobCollector{cached[[]scheduler.JobState]{
		keep: jobCache, read: func(ctx context.Context) ([]scheduler.JobState, error) { return read(ctx, names) },
	}})
}

const jobCache = 10 * time.Second

var (
	jobLabels    = []string{"schedule"}
	successDesc  = prometheus.NewDesc("solobeat_schedule_last_success_timestamp_seconds", "When a run of the job last succeeded, on any replica.", jobLabels, nil)
	createdDesc  = prometheus.NewDesc("solobeat_schedule_created_timestamp_seconds", "Since when the job has ticks as it has them now.", jobLabels, nil)
	pausedDesc   = prometheus.NewDesc("solobeat_schedule_paused", "1 while the job is paused: its ticks are not published.", jobLabels, nil)
	acquiredDesc = prometheus.NewDesc("solobeat_schedule_last_acquired_tick_timestamp_seconds", "The newest tick that a worker has begun to run, or settled without a run.", jobLabels, nil)
)

type jobCollector struct {
	cached[[]scheduler.JobState]
}

// Describe implements prometheus.Collector.
func (c *jobCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- successDesc
	ch <- createdDesc
	ch <- acquiredDesc
	ch <- pausedDesc
}

// Collect implements prometheus.Collector.
func (c *jobCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.get() {
		paused := 0.0
		if s.Paused != nil {
			paused = 1
		}
		ch <- prometheus.MustNewConstMetric(pausedDesc, prometheus.GaugeValue, paused, s.Job)
		if !s.LastSuccess.IsZero() {
			ch <- prometheus.MustNewConstMetric(successDesc, prometheus.GaugeValue, seconds(s.LastSuccess), s.Job)
		}
		if !s.Since.IsZero() {
			ch <- prometheus.MustNewConstMetric(createdDesc, prometheus.GaugeValue, seconds(s.Since), s.Job)
		}
		if !s.LastBegun.IsZero() {
			ch <- prometheus.MustNewConstMetric(acquiredDesc, prometheus.GaugeValue, seconds(s.LastBegun), s.Job)
		}
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
