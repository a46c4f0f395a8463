package guardian

import (
	"bytes"
	"sync"
)

// Tail is an io.Writer that keeps the last bytes written to it. It is safe
// for concurrent use.
type Tail struct {
	limit int
	mu    sync.Mutex
	buf   []byte
	total int64
}

// NewTail returns a Tail that keeps limit bytes, at least one.
func NewTail(limit int) *Tail { return &Tail{limit: max(limit, 1)} }

// Write keeps the end of p; it never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	t.total += int64(n)
	if n > t.limit {
		p = p[n-t.limit:]
	}
	t.buf = append(t.buf, p...)
	// Cut only when twice the limit is held, so that many short writes do not
	// move the whole buffer each time.
	if len(t.buf) > 2*t.limit {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.limit:]...)
	}
	return n, nil
}

// Bytes returns a copy of what is kept.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.buf[max(0, len(t.buf)-t.limit):])
}

// Truncated reports whether more was written than is kept.
func (t *Tail) Truncated() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total > int64(t.limit)
}
