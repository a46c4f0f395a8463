package asynqengine

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/internal/park"
)

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
	if _, err := e.lines.forward(call, key); err != nil && ctx.Err() == nil {
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
				settled, _ = e.lines.forward(call, p.Key)
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
	keys, err := e.cfg.Client.SMembers(ctx, e.lines.all()).Result()
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
	who, err := e.cfg.Client.ZRange(ctx, e.lines.key(key), 0, 0).Result()
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
	_, err = e.lines.forward(ctx, key)
	return err
}
