package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/solobeat/solobeat/lockguard"
)

// lockSeries are the series that each run with a lock touches. To look one up by
// its labels in its family costs more than to count it, so they are kept.
type lockSeries struct {
	mu sync.RWMutex // of the series; taken after Metrics.mu

	acquire, release               kept[prometheus.Counter]
	wait, held, ratio, expectRatio kept[prometheus.Observer]
	fence, holders                 kept[prometheus.Gauge]
}

// lockKey names a series: not all of it counts for each.
type lockKey struct {
	labels          lockguard.Labels
	backend, result string
}

// kept are series of one family. find looks for one in the family.
type kept[S any] struct {
	find func(lock, schedule, backend, result string) S
	all  map[lockKey]S
}

func (k *kept[S]) of(m *Metrics, l lockguard.Labels, backend, result string) S {
	key := lockKey{l, backend, result}
	if s, ok := k.noted(m, key); ok {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return k.look(m, key)
}

// ofLocked is of with Metrics.mu held, for what must not be dropped meanwhile.
func (k *kept[S]) ofLocked(m *Metrics, l lockguard.Labels) S {
	key := lockKey{labels: l}
	if s, ok := k.noted(m, key); ok {
		return s
	}
	return k.look(m, key)
}

func (k *kept[S]) noted(m *Metrics, key lockKey) (S, bool) {
	m.lockSeries.mu.RLock()
	defer m.lockSeries.mu.RUnlock()
	s, ok := k.all[key]
	return s, ok
}

// look is called with Metrics.mu held: no series is dropped between its look and
// its note. What has no series of its own is not kept, since a message's guard
// may name any lock.
func (k *kept[S]) look(m *Metrics, key lockKey) S {
	lock, schedule := m.label(m.locks, key.labels.Lock), m.label(m.schedules, key.labels.Schedule)
	s := k.find(lock, schedule, key.backend, key.result)
	if lock == other || schedule == other {
		return s
	}
	m.lockSeries.mu.Lock()
	defer m.lockSeries.mu.Unlock()
	if k.all == nil {
		k.all = map[lockKey]S{}
	}
	k.all[key] = s
	return s
}

// newLockSeries keeps nothing yet.
func (m *Metrics) newLockSeries() *lockSeries {
	s := &lockSeries{}
	s.acquire.find = func(lock, schedule, backend, result string) prometheus.Counter {
		return m.lockAcquire.WithLabelValues(lock, schedule, backend, result)
	}
	s.release.find = func(lock, _, backend, result string) prometheus.Counter {
		return m.lockRelease.WithLabelValues(lock, backend, result)
	}
	s.wait.find = func(lock, _, backend, _ string) prometheus.Observer { return m.lockWait.WithLabelValues(lock, backend) }
	s.held.find = func(lock, _, _, _ string) prometheus.Observer { return m.lockHeld.WithLabelValues(lock) }
	s.ratio.find = func(lock, schedule, _, _ string) prometheus.Observer {
		return m.lockRatio.WithLabelValues(schedule, lock)
	}
	s.expectRatio.find = func(lock, schedule, _, _ string) prometheus.Observer {
		return m.lockExpectRatio.WithLabelValues(schedule, lock)
	}
	s.fence.find = func(lock, _, _, _ string) prometheus.Gauge { return m.fence.WithLabelValues(lock) }
	s.holders.find = func(lock, _, _, _ string) prometheus.Gauge { return m.lockHolders.WithLabelValues(lock) }
	return s
}

// forget is for when series are dropped from their families. It is called with
// Metrics.mu held.
func (s *lockSeries) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range []interface{ forget() }{&s.acquire, &s.release, &s.wait, &s.held, &s.ratio, &s.expectRatio, &s.fence, &s.holders} {
		k.forget()
	}
}

func (k *kept[S]) forget() { k.all = nil }
