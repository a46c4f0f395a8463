package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/solobeat/solobeat/lockguard"
)

// holds are those of one lock in this process.
type holds struct {
	n     int
	since time.Time // when the newest began
}

func (m *Metrics) heldStart(l lockguard.Labels, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := m.label(m.locks, l.Lock)
	m.holds[name] = holds{m.holds[name].n + 1, since}
	m.lockSeries.holders.ofLocked(m, l).Inc()
}

func (m *Metrics) heldEnd(l lockguard.Labels) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := m.label(m.locks, l.Lock)
	m.lockSeries.holders.ofLocked(m, l).Dec()
	if h := m.holds[name]; h.n > 1 {
		m.holds[name] = holds{h.n - 1, h.since}
		return
	}
	delete(m.holds, name)
	m.dropLock(name)
}

// holdCollector tells since when locks are held. It looks when it is asked: a
// series that came and went with each run would cost more than the rest of what
// is counted of it.
type holdCollector struct{ m *Metrics }

var holdStartDesc = prometheus.NewDesc("solobeat_lock_hold_start_timestamp_seconds",
	"When the hold in this process began; absent while there is none.", []string{"lock"}, nil)

// Describe implements prometheus.Collector.
func (c holdCollector) Describe(ch chan<- *prometheus.Desc) { ch <- holdStartDesc }

// Collect implements prometheus.Collector.
func (c holdCollector) Collect(ch chan<- prometheus.Metric) {
	for name, since := range c.held() {
		ch <- prometheus.MustNewConstMetric(holdStartDesc, prometheus.GaugeValue, seconds(since), name)
	}
}

func (c holdCollector) held() map[string]time.Time {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	all := make(map[string]time.Time, len(c.m.holds))
	for name, h := range c.m.holds {
		all[name] = h.since
	}
	return all
}
