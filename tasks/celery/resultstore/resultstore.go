// Package resultstore reads results where Celery keeps them: one key per task,
// whose writer also publishes it on a channel of the same name. Both engines
// write them there, so that one reader, be it ours or Celery's AsyncResult, is
// enough.
package resultstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// waitPoll is how often a waiter looks at the key beside its subscription: a
// message that was published while a broken subscription was being renewed
// reaches nobody.
const waitPoll = time.Second

// confirmTime bounds the wait for the confirmation of a subscription.
const confirmTime = 2 * time.Second

// Client is what reading needs; every go-redis client has it.
type Client interface {
	Get(ctx context.Context, key string) *redis.StringCmd
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Read reads the result under a key; false if there is none yet.
func Read(ctx context.Context, rdb Client, key string) (*wire.Result, bool, error) {
	data, err := rdb.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("result %s: %w", key, err)
	}
	r, err := wire.DecodeResult(data)
	if err != nil {
		return nil, false, fmt.Errorf("result %s: %w", key, err)
	}
	return r, true, nil
}

// Wait reads the result under a key, waiting up to timeout for a final state.
// It returns what is known then: false means that no final state was seen, with
// the newest result or nil. It subscribes before it looks, so nothing falls
// between; a timeout of 0 or less looks once and leaves nothing behind. A store
// that has not answered once is an error at the end, since nothing is known then.
func Wait(ctx context.Context, rdb Client, key string, timeout time.Duration) (*wire.Result, bool, error) {
	if timeout <= 0 {
		r, _, err := Read(ctx, rdb, key)
		return r, r != nil && wire.Ready(r.State), err
	}
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sub := rdb.Subscribe(wait, key)
	defer closeSoon(sub)
	// Until the server has confirmed it, a result could pass by unheard. An
	// error is left to the reconnecting channel and the poll.
	_, _ = sub.ReceiveTimeout(wait, confirmTime)
	news := sub.Channel()
	poll := time.NewTicker(waitPoll)
	defer poll.Stop()
	var last *wire.Result
	answered, failed := false, error(nil)
	for {
		r, found, err := Read(wait, rdb, key)
		answered = answered || err == nil
		failed = cmp.Or(failed, err)
		switch {
		case err == nil && found && wire.Ready(r.State):
			return r, true, nil
		case err == nil && found:
			last = r
		case err != nil && wait.Err() == nil && !passing(err):
			return nil, false, err
		}
		select {
		case <-news:
		case <-poll.C:
		case <-wait.Done():
			switch {
			case ctx.Err() != nil:
				return last, false, ctx.Err()
			case !answered:
				return nil, false, failed
			}
			return last, false, nil
		}
	}
}

// closeTime is how long the end of a wait waits for its subscription's.
const closeTime = 100 * time.Millisecond

// closeSoon closes a subscription. Close waits for a connection that is just
// being made anew, on a frozen server for twice the client's read timeout; who
// has waited as long as he wanted does not wait for that too.
func closeSoon(sub *redis.PubSub) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = sub.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTime):
	}
}

// passing reports whether an error may go away by itself: the network, a
// time-out, a server that is loading or failing over.
func passing(err error) bool {
	var ne net.Error
	var reply redis.Error
	var unreadable *wire.Error
	switch {
	case errors.As(err, &unreadable), errors.Is(err, redis.ErrClosed):
		return false
	case errors.As(err, &reply):
		return redisconn.Transient(err)
	case errors.As(err, &ne):
		return true
	}
	return true
}
