package testkit

import (
	"io"
	"log/slog"
	"sync"
	"testing"
)

// Logger returns a logger of all levels that writes to the test's log. What is
// logged after the test has ended is dropped: a goroutine that ends a moment
// late is goleak's business, not a panic of the test binary.
func Logger(t testing.TB) *slog.Logger {
	t.Helper()
	w := &testWriter{out: t.Output()}
	t.Cleanup(w.close)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct {
	mu  sync.Mutex
	out io.Writer
}

// Write implements io.Writer.
func (w *testWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == nil {
		return len(b), nil
	}
	return w.out.Write(b)
}

func (w *testWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = nil
}
