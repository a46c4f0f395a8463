package asynqengine

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
)

// AdminConfig is what an [Admin] is made of. Client is required.
type AdminConfig struct {
	Client redis.UniversalClient
	// Results holds the results; nil is Client.
	Results redis.UniversalClient
	// Namespace, KeyPrefix and ResultsKeyPrefix are as in [Config].
	Namespace, KeyPrefix, ResultsKeyPrefix string
	// Queues are the queues to report; empty is "celery".
	Queues []string
}

// Admin lists what is in the queues and who serves them. It changes nothing but
// the archive, and that only where it is told to.
// It counts by itself, since asynq's own queue report looks into every task's
// memory.
type Admin struct {
	cfg       AdminConfig
	inspector *asynq.Inspector
	runner    *redisconn.Runner
	archive   *redisconn.Script
	results   *resultstore.Writer
}

// NewAdmin returns an Admin. It does not connect.
func NewAdmin(cfg AdminConfig) *Admin {
	if len(cfg.Queues) == 0 {
		cfg.Queues = []string{DefaultQueue}
	}
	if cfg.Namespace == "" {
		cfg.Namespace = tasks.DefaultNamespace
	}
	if cfg.Results == nil {
		cfg.Results = cfg.Client
	}
	return &Admin{
		cfg: cfg, inspector: asynq.NewInspectorFromRedisClient(cfg.Client), runner: redisconn.NewRunner(cfg.Client),
		archive: newArchiveScript(), results: resultstore.NewWriter(cfg.Results),
	}
}

// QueueDepth is the number of tasks of one queue by asynq's states.
type QueueDepth struct {
	Queue string `json:"queue"`
	// Waiting are pending, Active those that a process has, Scheduled those
	// that wait for a time: an ETA, a retry, a lock.
	Waiting   int64 `json:"waiting"`
	Active    int64 `json:"active"`
	Scheduled int64 `json:"scheduled"`
	// Archived have failed for good. asynq keeps the newest 10,000 of 90 days
	// and drops the rest without a word.
	Archived int64 `json:"archived"`
	// Kept are done, and kept so that their ids are known.
	Kept int64 `json:"kept"`
	// Next is the id of the pending task that is given out next, "" for none.
	Next string `json:"next,omitempty"`
}

// stateKey is asynq's own key of a queue's state.
func stateKey(queue, state string) string { return "asynq:{" + queue + "}:" + state }

// Depths reads all numbers in one pipeline.
func (a *Admin) Depths(ctx context.Context) ([]QueueDepth, error) {
	cmds := make([][6]*redis.IntCmd, len(a.cfg.Queues))
	next := make([]*redis.StringCmd, len(a.cfg.Queues))
	// Each command has its own error: an empty queue has no next.
	_, _ = a.cfg.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, q := range a.cfg.Queues {
			cmds[i] = [6]*redis.IntCmd{
				p.LLen(ctx, stateKey(q, "pending")), p.LLen(ctx, stateKey(q, "active")), p.ZCard(ctx, stateKey(q, "scheduled")),
				p.ZCard(ctx, stateKey(q, "retry")), p.ZCard(ctx, stateKey(q, "archived")), p.ZCard(ctx, stateKey(q, "completed")),
			}
			next[i] = p.LIndex(ctx, stateKey(q, "pending"), -1)
		}
		return nil
	})
	all := make([]QueueDepth, len(cmds))
	for i, c := range cmds {
		for _, one := range c {
			if err := one.Err(); err != nil {
				return nil, fmt.Errorf("asynqengine: depths: %w", err)
			}
		}
		all[i] = QueueDepth{
			Queue: a.cfg.Queues[i], Waiting: c[0].Val(), Active: c[1].Val(), Scheduled: c[2].Val() + c[3].Val(),
			Archived: c[4].Val(), Kept: c[5].Val(), Next: next[i].Val(),
		}
	}
	return all, nil
}

// Worker is a process that serves queues, as asynq's registry has it.
type Worker struct {
	Host   string
	PID    int
	Queues []string
}

// Workers lists who serves queues; a process with several servers comes once
// per server.
func (a *Admin) Workers() ([]Worker, error) {
	servers, err := a.inspector.Servers()
	if err != nil {
		return nil, fmt.Errorf("asynqengine: servers: %w", err)
	}
	all := make([]Worker, 0, len(servers))
	for _, s := range servers {
		w := Worker{Host: s.Host, PID: s.PID}
		for q := range s.Queues {
			w.Queues = append(w.Queues, q)
		}
		all = append(all, w)
	}
	return all, nil
}

// Orphan is a task that stands as active and never comes back by itself.
type Orphan struct {
	ID string
	// Reason is "no lease" (asynq's recoverer looks at leases only,
	// hibiken/asynq#1144) or "no message" (its hash was evicted or deleted).
	Reason string
}

// Orphans lists the tasks of a queue that asynq's recoverer cannot see. A task
// that is just ending may be among them once; one that is listed twice is one.
func (a *Admin) Orphans(ctx context.Context, queue string) ([]Orphan, error) {
	ids, err := a.cfg.Client.LRange(ctx, stateKey(queue, "active"), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("asynqengine: active tasks of %s: %w", queue, err)
	}
	leases, messages := make([]*redis.FloatCmd, len(ids)), make([]*redis.BoolCmd, len(ids))
	_, err = a.cfg.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			leases[i] = p.ZScore(ctx, stateKey(queue, "lease"), id)
			messages[i] = p.HExists(ctx, stateKey(queue, "t:"+id), "msg")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("asynqengine: leases of %s: %w", queue, err)
	}
	var orphans []Orphan
	for i, id := range ids {
		switch {
		case !messages[i].Val() && messages[i].Err() == nil:
			orphans = append(orphans, Orphan{ID: id, Reason: "no message"})
		case errors.Is(leases[i].Err(), redis.Nil):
			orphans = append(orphans, Orphan{ID: id, Reason: "no lease"})
		}
	}
	return orphans, nil
}
