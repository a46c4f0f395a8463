package asynqengine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// lines are what waits for locks and records. The line of a key is a zset of who
// waits for it, by the time of the first park. Only the oldest has a timer; the
// others are due at the end of their wait, and are brought forward by asynq's
// own inspector.
type lines struct {
	rdb       redis.UniversalClient
	prefix    string // of our keys
	inspector *asynq.Inspector
}

func newLines(rdb redis.UniversalClient, keyPrefix, namespace string) lines {
	return lines{rdb: rdb, prefix: ownPrefix(keyPrefix, namespace), inspector: asynq.NewInspectorFromRedisClient(rdb)}
}

func (l lines) key(key string) string { return l.prefix + "asynq:line:" + key }
func (l lines) all() string           { return l.prefix + "asynq:lines" }

// waiter is the member of a line that a message is. A queue has no space.
func waiter(queue, id string) string { return queue + " " + id }

// join puts a message into the line of its key and says whether it is the
// oldest.
func (l lines) join(ctx context.Context, key string, first time.Time, who string) (oldest bool, err error) {
	var rank *redis.IntCmd
	_, err = l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, l.all(), key)
		p.ZAdd(ctx, l.key(key), redis.Z{Score: float64(first.UnixMicro()), Member: who})
		rank = p.ZRank(ctx, l.key(key), who)
		p.Expire(ctx, l.key(key), pastTTL)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("asynqengine: line of %s: %w", key, err)
	}
	return rank.Val() == 0, nil
}

// leave takes a message out of a line. Who wakes one that could not be taken out
// finds that it runs, or is gone.
func (l lines) leave(ctx context.Context, key, who string) error {
	return l.rdb.ZRem(ctx, l.key(key), who).Err()
}

// forward brings the oldest message of a line forward. settled is false if that
// one is just being parked, so that it must be tried once more.
func (l lines) forward(ctx context.Context, key string) (settled bool, err error) {
	for {
		who, err := l.rdb.ZRange(ctx, l.key(key), 0, 0).Result()
		switch {
		case err != nil:
			return false, fmt.Errorf("asynqengine: line of %s: %w", key, err)
		case len(who) == 0:
			return true, l.rdb.SRem(ctx, l.all(), key).Err()
		}
		queue, id, _ := strings.Cut(who[0], " ")
		info, err := l.inspector.GetTaskInfo(queue, id)
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		case err != nil:
			return false, err
		case info.State == asynq.TaskStateActive:
			return false, nil
		case info.State == asynq.TaskStatePending:
			return true, nil
		case info.State == asynq.TaskStateRetry, info.State == asynq.TaskStateScheduled:
			// It may have moved on meanwhile; whoever moved it has seen to it.
			_ = l.inspector.RunTask(queue, id)
			return true, nil
		}
		// Ended by hand, or gone: it would bar the line.
		if err := l.leave(ctx, key, who[0]); err != nil {
			return false, fmt.Errorf("asynqengine: line of %s: %w", key, err)
		}
	}
}
