// Package metrics is the one source of Solobeat's metrics: it names every
// family, bounds every label and fills the observers of the packages that
// know nothing of Prometheus.
//
// Rules that every family keeps: no label named job or instance (Prometheus
// owns them), none with a host, id, key or date; task names are registered
// ones, else _unknown; above [MaxJobs] jobs the rest is _other; counters of
// rare events are born at zero, since increase() cannot see a series that is
// born at one; an event is counted when it happens, not when its run ends.
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
)

// MaxJobs is the number of jobs that get series of their own; the rest share
// the label value _other.
const MaxJobs = 1000

const (
	other   = "_other"
	unknown = "_unknown"
	none    = "none"
)

// Lock is one configured lock, by name.
type Lock struct {
	// Schedule is the job that has it, "" for a task's lock.
	Schedule string
	// Name is the key as configured.
	Name string
	// TTL is its time to live.
	TTL time.Duration
}

// Config says which names have series of their own.
type Config struct {
	// Version is the program's.
	Version string
	// Jobs are the schedule's entries.
	Jobs []*scheduler.Job
	// Namespace and KeyPrefix are the deployment's, for default lock names.
	Namespace, KeyPrefix string
	// Locks are the locks of the worker's tasks: entries.
	Locks []Lock
	// Tasks are the registered task names, Queues the worker's queues.
	Tasks, Queues []string
	// Engines are the worker's; empty is celery.
	Engines []string
	// Concurrency is the worker's number of slots; 0 if it has none.
	Concurrency int
	// Worker and Scheduler say which roles the process has.
	Worker, Scheduler bool
}

// Metrics holds a registry of its own; two in one process do not meet.
type Metrics struct {
	reg *prometheus.Registry
	cfg Config

	mu        sync.Mutex
	schedules map[string]string // configured name → label value
	tasks     map[string]bool
	queues    map[string]bool
	locks     map[string]string
	holds     map[string]holds // by label value of the lock
	stores    map[string]Store
	delays    map[string]time.Duration // by job: its part of its jitter
	leaving   map[string]bool          // locks that are no more and held
	hash      string                   // of the configuration

	lockSeries *lockSeries
	families
}

// New registers every family of the roles and gives rare counters their
// zeros.
func New(cfg Config) *Metrics {
	m := &Metrics{
		reg: prometheus.NewRegistry(), cfg: cfg,
		schedules: map[string]string{}, tasks: map[string]bool{}, queues: map[string]bool{}, locks: map[string]string{},
		holds: map[string]holds{}, stores: map[string]Store{}, delays: map[string]time.Duration{},
		leaving: map[string]bool{},
	}
	m.families, m.lockSeries = newFamilies(m.reg), m.newLockSeries()
	m.reg.MustRegister(holdCollector{m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.buildInfo.WithLabelValues(cfg.Version, runtime.Version()).Set(1)
	for _, t := range cfg.Tasks {
		m.tasks[t] = true
	}
	for _, q := range cfg.Queues {
		m.queues[q] = true
	}
	m.zeroJobs(cfg.Jobs)
	m.zeroLocks(cfg.Locks)
	if cfg.Worker {
		m.zeroWorker()
	}
	return m
}

// Registry returns the registry, for tests and for further collectors.
func (m *Metrics) Registry() *prometheus.Registry { return m.reg }

// Handler serves /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

func (m *Metrics) zeroJobs(jobs []*scheduler.Job) {
	for i, j := range jobs {
		label := j.Name
		if i >= MaxJobs {
			label = other
		}
		m.mu.Lock()
		m.schedules[j.Name], m.delays[j.Name] = label, j.Delay()
		m.mu.Unlock()
		if i > MaxJobs {
			continue
		}
		if j.Lock != nil {
			name := m.lockName(j)
			if i >= MaxJobs {
				name = other
			}
			ttl := j.Lock.TTL
			if ttl == 0 {
				ttl = lockguard.DefaultTTL
			}
			m.zeroLock(Lock{Schedule: label, Name: name, TTL: ttl})
		}
		for _, d := range recordDecisions {
			m.recordDecisions.WithLabelValues(label, string(d))
		}
		m.recordLost.WithLabelValues(label)
		m.runTwice.WithLabelValues(label)
		for _, op := range recordOperations {
			m.recordStale.WithLabelValues(label, string(op))
		}
		for _, at := range []string{"tick", "lock", "record"} {
			m.stoodAside.WithLabelValues(label, at)
		}
		if m.cfg.Scheduler {
			for _, o := range tickOutcomes {
				m.ticks.WithLabelValues(label, string(o))
			}
			m.info.WithLabelValues(label, j.Task, m.queueOf(j)).Set(1)
			m.staleSeconds.WithLabelValues(label)
			m.quarantined.WithLabelValues(label)
			m.timeJob(label, j, time.Now())
		}
	}
}

// queueOf is where a job's messages go: its own queue, else the first one.
func (m *Metrics) queueOf(j *scheduler.Job) string {
	switch {
	case j.Queue != "":
		return j.Queue
	case len(m.cfg.Queues) > 0:
		return m.cfg.Queues[0]
	default:
		return celery.DefaultQueue
	}
}

func (m *Metrics) zeroLocks(locks []Lock) {
	for _, l := range locks {
		m.zeroLock(l)
	}
}

func (m *Metrics) zeroLock(l Lock) {
	m.mu.Lock()
	if len(m.locks) >= 2*MaxJobs {
		l.Name = other
	}
	m.locks[l.Name] = l.Name
	m.mu.Unlock()
	schedule := scheduleOr(l.Schedule)
	if l.TTL > 0 {
		m.lockTTL.WithLabelValues(l.Name).Set(l.TTL.Seconds())
	}
	m.lockOutlived.WithLabelValues(schedule, l.Name)
	m.lockExpired.WithLabelValues(schedule, l.Name)
	m.lockBypassed.WithLabelValues(schedule, l.Name)
	m.fenced.WithLabelValues(schedule, l.Name)
	for _, r := range lockguard.Reasons() {
		m.lockLost.WithLabelValues(schedule, l.Name, string(r))
	}
	for _, r := range renewOutcomes {
		m.lockRenewals.WithLabelValues(l.Name, "redis", string(r))
	}
	for _, r := range acquireResults {
		m.lockAcquire.WithLabelValues(l.Name, schedule, "redis", r)
	}
	m.lockHolders.WithLabelValues(l.Name)
}

func scheduleOr(s string) string {
	if s == "" {
		return none
	}
	return s
}

func (m *Metrics) zeroWorker() {
	m.concurrency.Set(float64(m.cfg.Concurrency))
	m.zeroTasks(append([]string{unknown}, m.cfg.Tasks...))
	for _, q := range m.cfg.Queues {
		m.inProgress.WithLabelValues(q)
		m.overdue.WithLabelValues(q)
		m.deadLettered.WithLabelValues(q)
		m.deadUnlisted.WithLabelValues(q)
		if slices.Contains(m.cfg.Engines, asynqengine.EngineName) {
			m.orphans.WithLabelValues(q)
		}
	}
	for _, c := range []lazyCounter{m.takenOver, m.buried, m.lateCommits, m.suspects, m.reconnects} {
		c.Add(0)
	}
}

func (m *Metrics) zeroTasks(names []string) {
	for _, t := range names {
		for _, q := range m.cfg.Queues {
			for _, e := range m.engines() {
				for _, o := range []string{"succeeded", "failed"} {
					m.processed.WithLabelValues(t, q, e, o)
				}
			}
			m.retries.WithLabelValues(t, q)
		}
	}
}

func (m *Metrics) engines() []string {
	if len(m.cfg.Engines) == 0 {
		return []string{celery.EngineName}
	}
	return m.cfg.Engines
}

// schedule bounds the label: a configured job's name, none for no job, else
// _other. A message's guard may name any job.
func (m *Metrics) schedule(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.label(m.schedules, name)
}

// lock bounds the label as schedule does.
func (m *Metrics) lock(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.label(m.locks, name)
}

// label gives a name that is not configured here a series of its own while
// there is room: a worker without the schedule file still runs its jobs. It is
// called with mu held.
func (m *Metrics) label(known map[string]string, name string) string {
	if name == "" {
		return none
	}
	if label, ok := known[name]; ok {
		return label
	}
	if len(known) >= MaxJobs {
		return other
	}
	known[name] = name
	return name
}

func (m *Metrics) task(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tasks[name] {
		return name
	}
	return unknown
}

func (m *Metrics) queue(name string) string {
	if m.queues[name] {
		return name
	}
	return other
}

// RanTwice counts a tick of a job that ran to success a second time.
func (m *Metrics) RanTwice(job string) { m.runTwice.WithLabelValues(m.schedule(job)).Inc() }

// Up notes whether the store of a role (broker, locks, results)
// answered its last probe.
func (m *Metrics) Up(role string, up bool) {
	v := 0.0
	if up {
		v = 1
	}
	m.brokerUp.WithLabelValues(role).Set(v)
}

// QueueDepth is the number of messages of one queue in one state: pending
// (in the lists of all priorities), unacked (being worked on), parked
// (waiting in Redis for a time), dead (in the dead letters).
type QueueDepth struct {
	Queue, State string
	N            int64
	// Tails are digests of the messages that the queue's lists give out next,
	// "" for an empty list; nil says nothing of their age.
	Tails []string
}

// CollectDepths exports what read returns, cached for some seconds. While
// read fails the series are absent: a frozen queue length is worse than none.
func (m *Metrics) CollectDepths(read func(context.Context) ([]QueueDepth, error)) {
	m.reg.MustRegister(&depthCollector{cached: cached[[]QueueDepth]{keep: depthCache, read: read}, ages: ages{map[string]time.Time{}}})
}
