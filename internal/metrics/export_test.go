package metrics

// KeptSeries is how many series of locks are kept.
func (m *Metrics) KeptSeries() int {
	m.lockSeries.mu.RLock()
	defer m.lockSeries.mu.RUnlock()
	return len(m.lockSeries.acquire.all)
}
