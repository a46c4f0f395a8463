package schedredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/scheduler"
)

// Pause implements [scheduler.Admin].
func (s *State) Pause(ctx context.Context, job, by, reason string) (scheduler.Pause, bool, error) {
	return s.runPause(ctx, "pause", job, by, reason)
}

// Resume implements [scheduler.Admin].
func (s *State) Resume(ctx context.Context, job, by, reason string) (scheduler.Pause, bool, error) {
	return s.runPause(ctx, "resume", job, by, reason)
}

func (s *State) runPause(ctx context.Context, op, job, by, reason string) (scheduler.Pause, bool, error) {
	v, err := s.runner.Run(ctx, s.pause, []string{s.jobKey(job), s.historyKey(job)}, op, by, reason).Slice()
	if err != nil {
		return scheduler.Pause{}, false, fmt.Errorf("schedredis: %s job %q: %w", op, job, err)
	}
	p, changed, err := decodePause(v)
	if err != nil {
		return p, false, fmt.Errorf("schedredis: %s job %q: %w", op, job, err)
	}
	return p, changed, nil
}

// decodePause reads what pause.lua returns; its header is the contract.
func decodePause(v []any) (p scheduler.Pause, changed bool, err error) {
	switch {
	case len(v) == 1 && text(v, 0) == "UNKNOWN":
		return p, false, scheduler.ErrUnknownJob
	case len(v) != 5 || text(v, 0) != "OK":
		return p, false, fmt.Errorf("the script answered %v", v)
	}
	return scheduler.Pause{Since: instant(text(v, 2)), By: text(v, 3), Reason: text(v, 4)}, v[1] == int64(1), nil
}

// NoteTrigger implements [scheduler.Admin].
func (s *State) NoteTrigger(ctx context.Context, job string, e scheduler.HistoryEntry) error {
	return s.addHistory(ctx, job, "outcome", e.Outcome, "tick", millis(e.Tick), "label", e.Label, "count", 1, "by", e.By, "task", e.TaskID, "late", 0)
}

// The bounds of a job's history; claim.lua, pause.lua and registry.lua keep the
// same.
const (
	historyEntries = 50
	historyKept    = 7 * 24 * time.Hour
)

func (s *State) addHistory(ctx context.Context, job string, values ...any) error {
	key := s.historyKey(job)
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, &redis.XAddArgs{Stream: key, MaxLen: historyEntries, Values: values})
		p.PExpire(ctx, key, historyKept)
		return nil
	})
	if err != nil {
		return fmt.Errorf("schedredis: history of job %q: %w", job, err)
	}
	return nil
}
