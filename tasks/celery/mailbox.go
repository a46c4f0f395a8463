package celery

import "sync"

// mailbox hands values from many goroutines to one, in batches.
type mailbox[T any] struct {
	mu     sync.Mutex
	values []T
	signal chan struct{} // holds one token while there may be values
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{signal: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(v ...T) {
	m.mu.Lock()
	m.values = append(m.values, v...)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// take empties the box.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.values
	m.values = nil
	return v
}

// readyQueue holds taken messages for the goroutines that run them.
type readyQueue struct {
	mu     sync.Mutex
	more   *sync.Cond
	items  []*item
	closed bool

	lowAt int           // at so many items low gets its token; 0: at none
	low   chan struct{} // holds one token once the queue is low
}

func newReadyQueue() *readyQueue {
	q := &readyQueue{low: make(chan struct{}, 1)}
	q.more = sync.NewCond(&q.mu)
	return q
}

func (q *readyQueue) push(it ...*item) {
	q.mu.Lock()
	q.items = append(q.items, it...)
	q.mu.Unlock()
	if len(it) == 1 {
		q.more.Signal()
	} else {
		q.more.Broadcast()
	}
}

// pop waits for the oldest message; false once the queue is closed.
func (q *readyQueue) pop() (*item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.more.Wait()
	}
	if q.closed {
		return nil, false
	}
	it := q.items[0]
	q.items[0] = nil
	q.items = q.items[1:]
	if q.lowAt > 0 && len(q.items) <= q.lowAt {
		q.lowAt = 0
		select {
		case q.low <- struct{}{}:
		default:
		}
	}
	return it, true
}

// aboveLow reports whether the queue holds more than n items. If so, low tells
// once when it does no more.
func (q *readyQueue) aboveLow(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) <= n {
		return false
	}
	q.lowAt = max(n, 1)
	return true
}

// drain removes all messages for which cond holds, newest first.
func (q *readyQueue) drain(cond func(*item) bool) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out, keep []*item
	for _, it := range q.items {
		if cond(it) {
			out = append(out, it)
		} else {
			keep = append(keep, it)
		}
	}
	q.items = keep
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

func (q *readyQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}
