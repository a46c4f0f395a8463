package celery

import (
	"sync"
	"time"
)

// storeClock is the clock of the Redis server as last read, carried on by the
// local monotonic clock. It lags by at most the reply's way, so that nothing
// is early by the server's clock.
type storeClock struct {
	mu    sync.Mutex
	store time.Time
	local time.Time
}

// set notes a reading (µs since the epoch) that has just arrived.
func (c *storeClock) set(us int64) (store, local time.Time) {
	store, local = time.UnixMicro(us).UTC(), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store, c.local = store, local
	return store, local
}

// now is the server's clock; before the first reading the local one.
func (c *storeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.store.IsZero() {
		return time.Now().UTC()
	}
	return c.store.Add(time.Since(c.local))
}
