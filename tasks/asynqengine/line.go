package asynqengine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/internal/park"
)

// The line of a key: a zset of who waits for it, by the time of the first
// park. Only the oldest has a timer; the others are due at the end of their
// wait, and are brought forward by asynq's own inspector.

func (e *Engine) lineKey(key string) string { return e.key("asynq:line:" + key) }
func (e *Engine) linesKey() string          { return e.key("asynq:lines") }

// waiter is the member of a line that a message is. A queue has no space.
func waiter(queue, id string) string { return queue + " " + id }

// join puts a message into the line of its key and says whether it is the
// oldest.
func (e *Engine) join(ctx context.Context, key string, first time.Time, who string) (oldest bool, err error) {
	var rank *redis.IntCmd
	_, err = e.cfg.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, e.linesKey(), key)
		p.ZAdd(ctx, e.lineKey(key), redis.Z{Score: float64(first.UnixMicro()), Member: who})
		rank = p.ZRank(ctx, e.lineKey(key), who)
		p.Expire(ctx, e.lineKey(key), pastTTL)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("asynqengine: line of %s: %w", key, err)
	}
	return rank.Val() == 0, nil
}

// leave takes a message out of its line when it is taken.
func (e *Engine) leave(ctx context.Context, key, who string) {
	if err := e.cfg.Client.ZRem(ctx, e.lineKey(key), who).Err(); err != nil {
		e.log.Warn("a message stays in its line", "line", key, "error", err) // who wakes it next finds that it runs
	}
}

// forward brings the oldest message of a line forward. settled is false if that
// one is just being parked, so that it must be tried once more.
func (e *Engine) forward(ctx context.Context, key string) (settled bool, err error) {
	for {
		who, err := e.cfg.Client.ZRange(ctx, e.lineKey(key), 0, 0).Result()
		switch {
		case err != nil:
			return false, fmt.Errorf("asynqengine: line of %s: %w", key, err)
		case len(who) == 0:
			return true, e.cfg.Client.SRem(ctx, e.linesKey(), key).Err()
		}
		queue, id, _ := strings.Cut(who[0], " ")
		info, err := e.inspector.GetTaskInfo(queue, id)
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
			_ = e.inspector.RunTask(queue, id)
			return true, nil
		}
		e.leave(ctx, key, who[0]) // ended by hand, or gone: it would bar the line
	}
}

// Wake brings the oldest message that is parked for key forward. It returns at
// once.
func (e *Engine) Wake(_ context.Context, key string) { e.wakes.put(key) }

// mailbox collects keys, each once, until they are fetched.
type mailbox struct {
	mu   sync.Mutex
	keys map[string]bool
	news chan struct{}
}

func newMailbox() *mailbox { return &mailbox{keys: map[string]bool{}, news: make(chan struct{}, 1)} }

func (m *mailbox) put(key string) {
	m.mu.Lock()
	m.keys[key] = true
	m.mu.Unlock()
	select {
	case m.news <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := m.keys
	m.keys = map[string]bool{}
	return keys
}

// wakeLoop does what Wake asked for.
func (e *Engine) wakeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wakes.news:
		}
		for key := range e.wakes.take() {
			e.wakeOne(ctx, key)
		}
	}
}

func (e *Engine) wakeOne(ctx context.Context, key string) {
	call, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	if _, err := e.forward(call, key); err != nil && ctx.Err() == nil {
		e.log.Warn("the oldest message of a line was not brought forward", "line", key, "error", err)
	}
}

// look asks once more, after a park, whether the lock or record is free by
// now: the release may have come between the refusal and the park, which asynq
// does only after its handler has returned.
func (e *Engine) look(p tasks.Park) {
	if e.cfg.AfterPark == nil || !e.looking.start(p.Key) {
		return
	}
	e.background.Go(func() {
		defer e.looking.end(p.Key)
		for wait := 50 * time.Millisecond; wait < 2*time.Second; wait *= 2 {
			if !pause(e.stopped, wait) {
				return
			}
			call, cancel := context.WithTimeout(e.stopped, e.tune.call)
			settled := !e.cfg.AfterPark(call, p)
			if !settled {
				settled, _ = e.forward(call, p.Key)
			}
			cancel()
			if settled && wait > 100*time.Millisecond {
				return
			}
		}
	})
}

// keySet holds the keys that are being looked at.
type keySet struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (s *keySet) start(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] {
		return false
	}
	if s.keys == nil {
		s.keys = map[string]bool{}
	}
	s.keys[key] = true
	return true
}

func (s *keySet) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// sweepLines sees to it that no line waits without a timer: its oldest message
// may have been deleted by hand, or its process killed while it ran.
func (e *Engine) sweepLines(ctx context.Context) error {
	keys, err := e.cfg.Client.SMembers(ctx, e.linesKey()).Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := e.sweepLine(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// comesSoon reports whether a task runs, or will before long, without help.
func comesSoon(info *asynq.TaskInfo) bool {
	switch info.State {
	case asynq.TaskStateActive, asynq.TaskStatePending:
		return true
	case asynq.TaskStateRetry, asynq.TaskStateScheduled:
		return time.Until(info.NextProcessAt) < 2*park.Most
	default: // ended by hand
		return false
	}
}

func (e *Engine) sweepLine(ctx context.Context, key string) error {
	who, err := e.cfg.Client.ZRange(ctx, e.lineKey(key), 0, 0).Result()
	if err != nil {
		return err
	}
	if len(who) == 1 {
		queue, id, _ := strings.Cut(who[0], " ")
		info, err := e.inspector.GetTaskInfo(queue, id)
		if err == nil && comesSoon(info) {
			return nil
		}
	}
	_, err = e.forward(ctx, key)
	return err
}
