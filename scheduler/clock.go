package scheduler

import (
	"context"
	"sync"
	"time"
)

const (
	callTimeout   = 2 * time.Second  // bounds every call to the store
	syncEvery     = 30 * time.Second // between two readings of the store's clock
	syncTrips     = 5                // round trips of one reading; the best counts
	clockMismatch = 500 * time.Millisecond
)

// storeClock estimates the store's clock. Between two readings it follows the
// local monotonic clock, so that a step of the local wall clock moves nothing;
// a suspend, during which the monotonic clock may stand still, shows as a
// difference between the two and asks for a new reading.
type storeClock struct {
	state State
	local func() time.Time

	mu    sync.Mutex
	base  time.Time // local, with monotonic reading
	store time.Time // the store's clock at base
}

// now is the store's clock, as far as known.
func (c *storeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store.Add(c.local().Sub(c.base))
}

// due tells that a new reading is due.
func (c *storeClock) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.local()
	elapsed := now.Sub(c.base)
	wall := now.Round(0).Sub(c.base.Round(0))
	return c.store.IsZero() || elapsed >= syncEvery || (wall-elapsed).Abs() > clockMismatch
}

// expire makes a new reading due.
func (c *storeClock) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = c.base.Add(-syncEvery)
	c.store = c.store.Add(-syncEvery)
}

// sync reads the store's clock; the shortest of several round trips is the
// most exact one.
func (c *storeClock) sync(ctx context.Context) error {
	var best time.Duration
	var base, store time.Time
	for i := range syncTrips {
		sent := c.local()
		at, err := nowWithin(ctx, c.state)
		if err != nil {
			if i > 0 {
				break
			}
			return err
		}
		trip := c.local().Sub(sent)
		if i == 0 || trip < best {
			best, base, store = trip, sent.Add(trip/2), at
		}
		if trip < time.Millisecond {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.store = base, store
	return nil
}

// check compares what a reply tells about the store's clock, sent and received
// at these local times, with the estimate, and asks for a new reading if they
// cannot both be right.
func (c *storeClock) check(sent, received, store time.Time) {
	c.mu.Lock()
	early := c.store.Add(sent.Sub(c.base)).Add(-clockMismatch)
	late := c.store.Add(received.Sub(c.base)).Add(clockMismatch)
	c.mu.Unlock()
	if store.Before(early) || store.After(late) {
		c.expire()
	}
}

func nowWithin(ctx context.Context, s State) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.Now(ctx)
}
