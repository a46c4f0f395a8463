package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/solobeat/solobeat/scheduler"
)

// vector is a family with labels.
type vector interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

// Loaded notes that the configuration of this hash is in force since at.
func (m *Metrics) Loaded(hash string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hash != "" && m.hash != hash {
		m.configInfo.DeleteLabelValues(m.hash)
	}
	m.hash = hash
	m.configInfo.WithLabelValues(hash).Set(1)
	m.configOK.Set(1)
	m.configLoaded.Set(seconds(at))
}

// NotLoaded notes that the files were read and not put in force.
func (m *Metrics) NotLoaded() { m.configOK.Set(0) }

// SetJobs makes these the jobs that have series of their own. Those that are no
// more lose theirs; what still comes of their runs counts as _other.
func (m *Metrics) SetJobs(jobs []*scheduler.Job) {
	m.mu.Lock()
	before, left := m.cfg.Jobs, map[string]*scheduler.Job{}
	for i, j := range jobs {
		if i < MaxJobs {
			left[j.Name] = j
		}
	}
	m.cfg.Jobs = jobs
	for i, was := range before {
		if i >= MaxJobs {
			break
		}
		now := left[was.Name]
		switch {
		case now == nil:
			m.schedules[was.Name] = other
			delete(m.delays, was.Name)
			m.drop("schedule", was.Name)
		case now.Task != was.Task || m.queueOf(now) != m.queueOf(was):
			m.info.DeletePartialMatch(prometheus.Labels{"schedule": was.Name})
		}
		if now != nil && now.Disabled {
			for _, g := range []*prometheus.GaugeVec{m.maxGap, m.grace, m.nextTick} {
				g.DeleteLabelValues(was.Name)
			}
		}
	}
	m.dropLocks(m.jobLocks(before))
	m.mu.Unlock()
	m.zeroJobs(jobs)
}

// SetTasks makes these the tasks and the locks of tasks that have series of
// their own; those that are no more lose theirs.
func (m *Metrics) SetTasks(tasks []string, locks []Lock) {
	m.mu.Lock()
	before, beforeLocks := m.tasks, m.cfg.Locks
	m.cfg.Tasks, m.cfg.Locks, m.tasks = tasks, locks, map[string]bool{}
	for _, t := range tasks {
		m.tasks[t] = true
	}
	for t := range before {
		if !m.tasks[t] {
			m.drop("task", t)
		}
	}
	m.dropLocks(beforeLocks)
	m.mu.Unlock()
	m.zeroLocks(locks)
	if m.cfg.Worker {
		m.zeroTasks(tasks)
	}
}

// drop deletes the series of one value of a label. The task of a job's info is
// the job's, whether this worker has the task or not.
func (m *Metrics) drop(label, value string) {
	defer m.lockSeries.forget()
	for _, v := range m.vectors {
		if label != "task" || v != vector(m.info) {
			v.DeletePartialMatch(prometheus.Labels{label: value})
		}
	}
}

// dropLocks deletes the series of those of the locks that are no more. One that
// is held now goes when its run ends.
func (m *Metrics) dropLocks(before []Lock) {
	left := map[string]bool{}
	for _, l := range append(m.jobLocks(m.cfg.Jobs), m.cfg.Locks...) {
		left[l.Name] = true
		delete(m.leaving, l.Name)
	}
	for _, l := range before {
		if !left[l.Name] {
			m.leaving[l.Name] = true
			m.dropLock(l.Name)
		}
	}
}

// dropLock deletes the series of a lock that is no more, unless it is held.
func (m *Metrics) dropLock(name string) {
	if !m.leaving[name] || m.holds[name].n > 0 {
		return
	}
	delete(m.leaving, name)
	m.locks[name] = other
	m.drop("lock", name)
}

// jobLocks are the locks of jobs that have series of their own.
func (m *Metrics) jobLocks(jobs []*scheduler.Job) (all []Lock) {
	for i, j := range jobs {
		if i < MaxJobs && j.Lock != nil {
			all = append(all, Lock{Schedule: j.Name, Name: m.lockName(j)})
		}
	}
	return all
}

// lockName is the name of a job's lock: its key as configured.
func (m *Metrics) lockName(j *scheduler.Job) string {
	if j.Lock.Key != "" {
		return j.Lock.Key
	}
	return m.cfg.KeyPrefix + "solobeat:" + m.cfg.Namespace + ":lock:" + j.Name
}

// jobNames are the jobs whose state is exported.
func (m *Metrics) jobNames() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, j := range m.cfg.Jobs {
		if i < MaxJobs && !j.Disabled {
			names = append(names, j.Name)
		}
	}
	return names
}

func (m *Metrics) delayOf(job string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.delays[job]
}
