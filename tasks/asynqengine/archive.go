package asynqengine

import (
	"cmp"
	"context"
	_ "embed" // for the script
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// ErrNoArchived: no task of that id is in the archive, or somebody else has
// just requeued or dropped it.
var ErrNoArchived = errors.New("asynqengine: no such task in the archive")

//go:embed archive.lua
var archiveLua string

// newArchiveScript may run on a full server: it moves what is there, or makes
// room.
func newArchiveScript() *redisconn.Script { return redisconn.NewScript(archiveLua, "allow-oom") }

// Archived is a task that has failed for good.
type Archived struct {
	ID, Queue, Task string
	// Reason is one word where the engine knows one, Detail the last error.
	Reason tasks.Reason
	Detail string
	At     time.Time
	// Payload is what its sender gave.
	Payload []byte
	// Expires is after when it may not begin any more, zero for never.
	Expires time.Time
}

// ArchiveQueues lists the queues that asynq knows.
func (a *Admin) ArchiveQueues(ctx context.Context) ([]string, error) {
	queues, err := a.cfg.Client.SMembers(ctx, "asynq:queues").Result()
	if err != nil {
		return nil, fmt.Errorf("asynqengine: queues: %w", err)
	}
	slices.Sort(queues)
	return queues, nil
}

// ArchiveIDs lists the ids in a queue's archive, oldest first.
func (a *Admin) ArchiveIDs(ctx context.Context, queue string) ([]string, error) {
	ids, err := a.cfg.Client.ZRange(ctx, stateKey(queue, "archived"), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("asynqengine: archive of %s: %w", queue, err)
	}
	return ids, nil
}

// Archived reads one task of a queue's archive; [ErrNoArchived] if it is not
// there.
func (a *Admin) Archived(queue, id string) (*Archived, error) {
	info, err := a.inspector.GetTaskInfo(queue, id)
	switch {
	case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		return nil, fmt.Errorf("%w: %q in queue %q", ErrNoArchived, id, queue)
	case err != nil:
		return nil, fmt.Errorf("asynqengine: task %s of %s: %w", id, queue, err)
	case info.State != asynq.TaskStateArchived:
		return nil, fmt.Errorf("%w: %q in queue %q is %s", ErrNoArchived, id, queue, info.State)
	}
	t := &Archived{
		ID: id, Queue: queue, Task: info.Type, Reason: reasonOf(info.LastErr), Detail: info.LastErr, At: info.LastFailedAt.UTC(),
		Payload: info.Payload,
	}
	if m, err := decode(info.Type, info.Payload, info.Headers); err == nil {
		t.Expires = m.task.Expires
		if g := m.task.Guard; g != nil && g.BeginBy > 0 {
			if by := time.UnixMilli(g.BeginBy).UTC(); t.Expires.IsZero() || by.Before(t.Expires) {
				t.Expires = by
			}
		}
	}
	return t, nil
}

// reasonOf finds the word that the engine begins its errors with.
func reasonOf(text string) tasks.Reason {
	word, _, _ := strings.Cut(text, ":")
	word = word[strings.LastIndexByte(word, '.')+1:]
	for _, r := range []tasks.Reason{
		tasks.ReasonNotRegistered, tasks.ReasonBadGuard, tasks.ReasonLockConfig, tasks.ReasonRecordConfig, tasks.ReasonMalformed,
		tasks.ReasonWorkerLost, tasks.ReasonLockBusy, tasks.ReasonLockLost,
	} {
		if string(r) == word {
			return r
		}
	}
	return tasks.ReasonFailed
}

// Requeue sends a task of the archive again, behind what waits: with its guard
// and its times, and with attempts, deaths, losses and parks forgotten. Its
// result is taken back unless it is a SUCCESS. [ErrNoArchived] if it is not
// there any more.
func (a *Admin) Requeue(ctx context.Context, queue, id string) error {
	info, err := a.inspector.GetTaskInfo(queue, id)
	if err != nil || info.State != asynq.TaskStateArchived {
		_, err = a.Archived(queue, id)
		return cmp.Or(err, ErrNoArchived)
	}
	// asynq's own count of retries stays; what is known to be no death is taken
	// off it. This is of another cluster slot, and harmless if nothing follows.
	past, err := json.Marshal(&past{Counted: info.Retried})
	if err == nil {
		err = a.cfg.Client.Set(ctx, ownPrefix(a.cfg.KeyPrefix, a.cfg.Namespace)+"past:"+id, past, pastTTL).Err()
	}
	if err == nil {
		err = a.results.Forget(ctx, a.cfg.ResultsKeyPrefix+wire.ResultKey(id))
	}
	if err != nil {
		return fmt.Errorf("asynqengine: requeue %s: %w", id, err)
	}
	return a.act(ctx, queue, id, "requeue")
}

// Drop deletes a task of the archive for good. Its result stays.
func (a *Admin) Drop(ctx context.Context, queue, id string) error {
	return a.act(ctx, queue, id, "drop")
}

func (a *Admin) act(ctx context.Context, queue, id, what string) error {
	keys := []string{stateKey(queue, "t:"+id), stateKey(queue, "archived"), stateKey(queue, "pending")}
	n, err := a.runner.Run(ctx, a.archive, keys, id, what).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("asynqengine: %s %s: %w", what, id, err)
	}
	if n == 0 {
		return fmt.Errorf("%w: %q in queue %q", ErrNoArchived, id, queue)
	}
	return nil
}
