package resultstore

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
)

var (
	//go:embed prelude.lua
	preludeLua string
	//go:embed store.lua
	storeLua string
	//go:embed forget.lua
	forgetLua string
)

// ErrRefused: the server answers, but does not allow what results need.
var ErrRefused = errors.New("the server does not allow what results need")

// Writer writes results on the server that it was made for. It is safe for
// concurrent use.
type Writer struct {
	client        redisconn.Scripter
	runner        *redisconn.Runner
	store, forget *redisconn.Script
}

// NewWriter returns a writer. It does not connect. Both scripts may run on a
// full server: they complete what was taken, or make room.
func NewWriter(client redisconn.Scripter) *Writer {
	return &Writer{
		client: client, runner: redisconn.NewRunner(client), store: redisconn.NewScript(preludeLua+storeLua, "allow-oom"),
		forget: redisconn.NewScript(preludeLua+forgetLua, "allow-oom"),
	}
}

// Entry is a result to be written, encoded.
type Entry struct {
	Key   string
	Value []byte
}

// Write stores results in one round trip, each as Celery stores one: never
// over a SUCCESS, and published after. The TTL is in seconds, 0 is for ever.
// The errors come in the order of the entries.
func (w *Writer) Write(ctx context.Context, ttl int64, entries ...Entry) []error {
	calls := make([]redisconn.Call, len(entries))
	for i, e := range entries {
		calls[i] = redisconn.Call{Keys: []string{e.Key}, Args: []any{e.Value, ttl}}
	}
	cmds := w.runner.RunAll(ctx, w.store, calls)
	errs := make([]error, len(entries))
	for i, e := range entries {
		if err := cmds[i].Err(); err != nil {
			errs[i] = fmt.Errorf("result %s: %w", e.Key, err)
		}
	}
	return errs
}

// Forget takes a result back, so that its task counts as PENDING again, unless
// it is a SUCCESS.
func (w *Writer) Forget(ctx context.Context, key string) error {
	if err := w.runner.Run(ctx, w.forget, []string{key}).Err(); err != nil {
		return fmt.Errorf("result %s: %w", key, err)
	}
	return nil
}

// Probe tries on a key, which it takes back, whether results can be written:
// the commands by themselves, since a script does not say which one was refused,
// then the scripts. An error that wraps [ErrRefused] is about permissions, and
// names the ACL rule that is missing.
func (w *Writer) Probe(ctx context.Context, key string) error {
	cmds, err := w.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, key)
		p.Set(ctx, key, "1", probeTTL)
		p.Publish(ctx, key, "1")
		p.Del(ctx, key)
		return nil
	})
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return refused(err, "")
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) { // no connection could be made ready
		return refused(err, "")
	}
	err = w.Write(ctx, 1, Entry{Key: key, Value: []byte("{}")})[0]
	if err == nil {
		err = w.Forget(ctx, key)
	}
	return refused(err, "+eval +evalsha")
}

const probeTTL = 5 * time.Second

func refused(err error, commands string) error {
	if err == nil || !redisconn.Denied(err.Error()) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRefused, redisconn.WithCure(err, redisconn.PermissionCure(err.Error(), commands)))
}
