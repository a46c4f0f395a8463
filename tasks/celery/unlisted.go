package celery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// UnlistedLetters are messages of one queue that could not be put into the
// stream of its dead letters: another program has put something else under that
// key, or the worker's user may not write to it. They are kept as they came,
// without a reason.
type UnlistedLetters struct {
	Queue string `json:"queue"`
	// List is the key under which they lie.
	List   string `json:"list"`
	Number int64  `json:"number"`
}

// Unlisted tells of all that lie beside the dead letters, by queue.
func (a *Admin) Unlisted(ctx context.Context) ([]UnlistedLetters, error) {
	lists, err := a.lists(ctx, "dead-raw:", func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	all := make([]UnlistedLetters, 0, len(lists))
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		all = append(all, UnlistedLetters{Queue: strings.TrimPrefix(key, a.keys.deadRaw("")), List: key, Number: lists[key]})
	}
	return all, nil
}

// RequeueUnlisted sends what lies beside a queue's dead letters to the queue
// again, as it came and the oldest first, to the end of the list of its priority
// where new messages come in. What comes meanwhile is left out. A message leaves
// in the step that sends it. The answer names the tasks of those that were sent,
// also where an error ends it.
func (a *Admin) RequeueUnlisted(ctx context.Context, queue string) ([]DeadLetter, error) {
	return a.eachUnlisted(ctx, queue, func(p redis.Pipeliner, from string, raw []byte) {
		priority := 0
		if m, err := wire.Decode(raw); err == nil {
			priority = m.Priority
		}
		p.LMove(ctx, from, a.keys.list(queue, priority), "RIGHT", "LEFT")
	})
}

// DropUnlisted deletes what lies beside a queue's dead letters for good.
func (a *Admin) DropUnlisted(ctx context.Context, queue string) ([]DeadLetter, error) {
	return a.eachUnlisted(ctx, queue, func(p redis.Pipeliner, from string, _ []byte) { p.RPop(ctx, from) })
}

// eachUnlisted does one thing to each message, the oldest first, and to as many
// as there are at its begin.
func (a *Admin) eachUnlisted(ctx context.Context, queue string, do func(p redis.Pipeliner, from string, next []byte)) ([]DeadLetter, error) {
	from := a.keys.deadRaw(queue)
	n, err := a.cfg.Broker.LLen(ctx, from).Result()
	var done []DeadLetter
	for err == nil && int64(len(done)) < n {
		var raw []byte
		err = a.cfg.Broker.Watch(ctx, func(tx *redis.Tx) (err error) {
			if raw, err = tx.LIndex(ctx, from, -1).Bytes(); err != nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { do(p, from, raw); return nil })
			return err
		}, from)
		switch {
		case errors.Is(err, redis.TxFailedErr): // somebody else changed the list meanwhile
			err = nil
		case err == nil:
			d := DeadLetter{Queue: queue, Raw: raw}
			if m, err := wire.Decode(raw); err == nil {
				d.Task, d.TaskID = m.Task, m.ID
			}
			done = append(done, d)
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) { // nil: somebody else was faster
		return done, fmt.Errorf("celery: unlisted dead letters of %s: %w", queue, err)
	}
	return done, nil
}
