package celery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// waiters block on the lists, each on a connection of its own: one BLMOVE per
// list to the replica's in-flight list. So an idle worker polls nothing, and
// at no instant is a message in this process alone.
type waiters struct {
	client *redis.Client
	arms   []chan struct{}
	fired  chan<- int
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex
	ids []int64 // of the connections, to unblock them
}

// waiterClientIDs bounds the remembered connections per list.
const waiterClientIDs = 4

func (e *Engine) startWaiters(ctx context.Context, self *replica, fired chan<- int) *waiters {
	ctx, cancel := context.WithCancel(ctx)
	w := &waiters{fired: fired, cancel: cancel, arms: make([]chan struct{}, len(e.sources))}
	opt := *e.rdb.Options()
	opt.PoolSize = len(e.sources) + 1
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	opt.MaxRetries = -1
	opt.ContextTimeoutEnabled = true
	before := opt.OnConnect
	opt.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if before != nil {
			if err := before(ctx, cn); err != nil {
				return err
			}
		}
		if id, err := cn.ClientID(ctx).Result(); err == nil {
			w.remember(id)
		}
		return nil // where the server does not tell, closing must do
	}
	w.client = redis.NewClient(&opt)
	for i, s := range e.sources {
		w.arms[i] = make(chan struct{}, 1)
		w.wg.Go(func() { w.wait(ctx, i, s.key, self.inlists[i], e.tune.wait) })
	}
	return w
}

func (w *waiters) remember(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ids = append(w.ids, id); len(w.ids) > waiterClientIDs*len(w.arms) {
		w.ids = slices.Delete(w.ids, 0, 1)
	}
}

// arm lets a waiter block on its list. It must not be armed already.
func (w *waiters) arm(i int) { w.arms[i] <- struct{}{} }

func (w *waiters) wait(ctx context.Context, i int, list, inflight string, timeout time.Duration) {
	for failures := 0; ; {
		select {
		case <-w.arms[i]:
		case <-ctx.Done():
			return
		}
		err := w.block(ctx, list, inflight, timeout)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
		} else { // it may have moved something: have a look, but not in a hot loop
			failures++
			pause(ctx, backoff(failures))
		}
		select {
		case w.fired <- i:
		case <-ctx.Done():
			return
		}
	}
}

// block returns when a message was moved, or on an error.
func (w *waiters) block(ctx context.Context, list, inflight string, timeout time.Duration) error {
	for {
		err := w.client.BLMove(ctx, list, inflight, "RIGHT", "LEFT", timeout).Err()
		if !errors.Is(err, redis.Nil) || ctx.Err() != nil {
			return err
		}
	}
}

// stop ends all waiters. A BLMOVE that is just blocked is unblocked by the
// server, so that none moves a message after this returns; where the server
// does not know that command, its connection is closed.
func (w *waiters) stop(ctx context.Context, rdb *redis.Client) {
	w.cancel()
	ended := make(chan struct{})
	go func() { w.wg.Wait(); close(ended) }()
	w.mu.Lock()
	ids := slices.Clone(w.ids)
	w.mu.Unlock()
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = rdb.Pipelined(short, func(p redis.Pipeliner) error {
		for _, id := range ids {
			p.ClientUnblock(short, id)
		}
		return nil
	})
	select {
	case <-ended:
	case <-time.After(200 * time.Millisecond):
	}
	_ = w.client.Close()
	<-ended
}
