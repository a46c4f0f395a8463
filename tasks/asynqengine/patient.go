package asynqengine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// patient is the shared client as asynq's servers get it. asynq asks for the
// next task again at once after an error, which would be a hot loop for as long
// as Redis is out of reach; here a script that failed rests first.
type patient struct {
	redis.UniversalClient
	stop   <-chan struct{} // ends the rests
	failed atomic.Int64    // in a row
}

// EvalSha is the call by which asynq runs every script of its own.
func (p *patient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	cmd := p.UniversalClient.EvalSha(ctx, sha, keys, args...)
	err := cmd.Err()
	if err == nil || errors.Is(err, redis.Nil) {
		p.failed.Store(0)
		return cmd
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return cmd
	}
	n := min(p.failed.Add(1), 10)
	rest := time.NewTimer(max(backoff(int(n)), 100*time.Millisecond))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-p.stop:
	}
	return cmd
}
