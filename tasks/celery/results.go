package celery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// waitPoll is how often a waiter looks at the key beside its subscription: a
// message that was published while a broken subscription was being renewed
// reaches nobody.
const waitPoll = time.Second

// confirmTime bounds the wait for the confirmation of a subscription.
const confirmTime = 2 * time.Second

func readResult(ctx context.Context, rdb *redis.Client, key string) (*wire.Result, bool, error) {
	data, err := rdb.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("celery: result %s: %w", key, err)
	}
	r, err := wire.DecodeResult(data)
	if err != nil {
		return nil, false, fmt.Errorf("celery: result %s: %w", key, err)
	}
	return r, true, nil
}

// waitResult subscribes before it looks, so nothing falls between.
func waitResult(ctx context.Context, rdb *redis.Client, key string, timeout time.Duration) (*wire.Result, bool, error) {
	if timeout <= 0 {
		r, _, err := readResult(ctx, rdb, key)
		return r, r != nil && wire.Ready(r.State), err
	}
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sub := rdb.Subscribe(wait, key)
	defer sub.Close()
	// Until the server has confirmed it, a result could pass by unheard. An
	// error is left to the reconnecting channel and the poll.
	_, _ = sub.ReceiveTimeout(wait, confirmTime)
	news := sub.Channel()
	poll := time.NewTicker(waitPoll)
	defer poll.Stop()
	var last *wire.Result
	for {
		r, found, err := readResult(wait, rdb, key)
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
			if ctx.Err() != nil {
				return last, false, ctx.Err()
			}
			return last, false, nil
		}
	}
}
