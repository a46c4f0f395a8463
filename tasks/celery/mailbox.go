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
