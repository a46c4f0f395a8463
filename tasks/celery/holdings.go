package celery

import "sync"

// holdings are the messages that this replica holds, by tag.
type holdings struct {
	mu    sync.Mutex
	items map[string]*item
}

func newHoldings() *holdings { return &holdings{items: map[string]*item{}} }

func (h *holdings) add(items []*item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range items {
		h.items[it.tag] = it
	}
}

func (h *holdings) remove(it *item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.items, it.tag)
}

func (h *holdings) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.items)
}

func (h *holdings) tags() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	tags := make([]string, 0, len(h.items))
	for t := range h.items {
		tags = append(tags, t)
	}
	return tags
}
