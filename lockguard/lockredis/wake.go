package lockredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// listener is the one subscription of a Backend, while somebody waits.
type listener struct {
	pubsub  *redis.PubSub
	ready   chan struct{} // closed when subscribed, or err is set
	err     error
	waiters map[string]map[chan struct{}]struct{}
}

// Wake implements lockguard.Waker. All waiters of a Backend share one
// subscription; it ends with the last of them.
func (b *Backend) Wake(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	l := b.listener
	if l == nil {
		l = &listener{
			pubsub:  b.client.Subscribe(context.WithoutCancel(ctx)),
			ready:   make(chan struct{}),
			waiters: map[string]map[chan struct{}]struct{}{},
		}
		b.listener = l
		go b.listen(context.WithoutCancel(ctx), l)
	}
	if l.waiters[key] == nil {
		l.waiters[key] = map[chan struct{}]struct{}{}
	}
	l.waiters[key][c] = struct{}{}
	b.mu.Unlock()

	end := func() { b.unwait(l, key, c) }
	select {
	case <-l.ready:
		if l.err != nil {
			end()
			return nil, nil, l.err
		}
		return c, end, nil
	case <-ctx.Done():
		end()
		return nil, nil, fmt.Errorf("lockredis: subscribe: %w", context.Cause(ctx))
	}
}

func (b *Backend) unwait(l *listener, key string, c chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(l.waiters[key], c)
	if len(l.waiters[key]) == 0 {
		delete(l.waiters, key)
	}
	if len(l.waiters) == 0 {
		if b.listener == l {
			b.listener = nil
		}
		_ = l.pubsub.Close() // ends listen; closing twice is harmless
	}
}

// listen runs until the last waiter closes the subscription. An error ends it:
// its waiters look each second, the next one subscribes anew.
func (b *Backend) listen(ctx context.Context, l *listener) {
	subscribed := false
	fail := func(err error) {
		b.mu.Lock()
		if b.listener == l {
			b.listener = nil
		}
		b.mu.Unlock()
		if !subscribed {
			l.err = fmt.Errorf("lockredis: subscribe: %w", err)
			close(l.ready)
		}
		_ = l.pubsub.Close()
	}
	if err := l.pubsub.Subscribe(ctx, b.channel); err != nil {
		fail(err)
		return
	}
	for {
		message, err := l.pubsub.Receive(ctx)
		if err != nil {
			if !errors.Is(err, redis.ErrClosed) {
				b.log.Debug("subscription to releases has ended", "error", err)
			}
			fail(err)
			return
		}
		switch m := message.(type) {
		case *redis.Subscription:
			if !subscribed {
				subscribed = true
				close(l.ready)
			}
		case *redis.Message:
			b.tell(l, m.Payload)
		}
	}
}

func (b *Backend) tell(l *listener, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range l.waiters[key] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
