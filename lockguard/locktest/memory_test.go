package locktest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is a bad network in front of a Memory.
type line struct {
	*locktest.Memory
	mu      sync.Mutex
	swallow bool
	delay   time.Duration
	drop    bool
}

func (l *line) Swallow()              { l.set(func() { l.swallow = true }) }
func (l *line) Delay(d time.Duration) { l.set(func() { l.delay = d }) }
func (l *line) Pass()                 { l.set(func() { l.swallow, l.delay = false, 0 }) }
func (l *line) DropReply()            { l.set(func() { l.drop = true }) }

func (l *line) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// way is one direction; reply says which.
func (l *line) way(ctx context.Context, reply bool) error {
	l.mu.Lock()
	swallow, delay, drop := l.swallow, l.delay, reply && l.drop
	if drop {
		l.drop = false
	}
	l.mu.Unlock()
	if drop {
		return locktest.ErrReplyLost
	}
	if swallow {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
		return nil
	}
}

func (l *line) TryAcquire(ctx context.Context, a lockguard.Attempt) (g lockguard.Grant, err error) {
	if err = l.way(ctx, false); err != nil {
		return lockguard.Grant{}, err
	}
	g, err = l.Memory.TryAcquire(context.WithoutCancel(ctx), a)
	if werr := l.way(ctx, true); werr != nil {
		return lockguard.Grant{}, werr
	}
	return g, err
}

func (l *line) Renew(ctx context.Context, rs []lockguard.Renewal) []lockguard.RenewResult {
	out := make([]lockguard.RenewResult, len(rs))
	err := l.way(ctx, false)
	if err == nil {
		out = l.Memory.Renew(context.WithoutCancel(ctx), rs)
		err = l.way(ctx, true)
	}
	for i := range out {
		if err != nil {
			out[i] = lockguard.RenewResult{Err: err}
		}
	}
	return out
}

func (l *line) Release(ctx context.Context, r lockguard.Ref, keep time.Duration) (x lockguard.Release, err error) {
	if err = l.way(ctx, false); err != nil {
		return lockguard.ReleaseUnknown, err
	}
	x, err = l.Memory.Release(context.WithoutCancel(ctx), r, keep)
	if werr := l.way(ctx, true); werr != nil {
		return lockguard.ReleaseUnknown, werr
	}
	return x, err
}

func TestMemory(t *testing.T) {
	locktest.Exercise(t, func(*testing.T) locktest.Harness {
		m := &locktest.Memory{}
		return locktest.Harness{
			Backend: func(testing.TB) lockguard.Backend { return m },
			Network: func(testing.TB) (lockguard.Backend, locktest.Network) {
				l := &line{Memory: m}
				return l, l
			},
			Delete: func(_ testing.TB, key string) { m.Delete(key) },
			Take:   func(_ testing.TB, key string, ttl time.Duration) { m.Take(key, ttl) },
			Fence:  lockguard.Strong,
		}
	})
}
