package worker

import "sync"

// asideKept bounds the tasks that are remembered as stood aside for.
const asideKept = 4096

// asideMemory remembers for which tasks this replica has stood aside, so that
// each counts once, however often its message comes. A tick has one task id.
type asideMemory struct {
	mu   sync.Mutex
	seen map[string]bool
	ring []string
	next int
}

// first reports whether id was not seen before.
func (m *asideMemory) first(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[id] {
		return false
	}
	if m.seen == nil {
		m.seen = map[string]bool{}
	}
	m.seen[id] = true
	if len(m.ring) < asideKept {
		m.ring = append(m.ring, id)
		return true
	}
	delete(m.seen, m.ring[m.next])
	m.ring[m.next] = id
	m.next = (m.next + 1) % asideKept
	return true
}
