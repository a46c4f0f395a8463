package lockredis

import (
	"context"
	_ "embed" // script
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/lockguard"
)

//go:embed setfenced.lua
var setFencedSource string

// SetFenced writes a value into the hash at key, unless a larger fence has
// written there before: then it returns ErrFenced, and tells it to the Observer
// of the lock under which ctx runs. The same fence may write again. Values are
// kept until they are deleted; deleting one forgets its fence.
//
// A key of another type is ErrForeignKey. Any other error leaves it open
// whether the value was written; the call may be repeated.
func SetFenced(ctx context.Context, client redis.UniversalClient, key, value string, fence lockguard.Fence) error {
	if fence == 0 {
		return fmt.Errorf("%w: lockredis: fence is 0: the lock has none", lockguard.ErrConfig)
	}
	script := redisconn.NewScript(setFencedSource) // no flags: a full server must refuse it
	reply, err := redisconn.NewPlainRunner(client).Run(ctx, script, []string{key},
		value, strconv.FormatUint(uint64(fence), 10)).Slice()
	if err != nil {
		return fencedError("set", key, err)
	}
	code, err := codeOf(reply)
	if err != nil {
		return err
	}
	if code == 1 {
		return nil
	}
	if h, ok := lockguard.FromContext(ctx); ok {
		h.NoteFenced()
	}
	if len(reply) != 2 {
		return fmt.Errorf("%w: set fenced: %v", errReply, reply)
	}
	return fmt.Errorf("%w: %d came to %q after %s", lockguard.ErrFenced, fence, key, text(reply[1]))
}

// GetFenced reads what SetFenced wrote: the value and the fence that wrote it.
// Without a value it returns "" and 0.
func GetFenced(ctx context.Context, client redis.UniversalClient, key string) (string, lockguard.Fence, error) {
	got, err := client.HMGet(ctx, key, "value", "fence").Result()
	if err != nil {
		return "", 0, fencedError("get", key, err)
	}
	if len(got) != 2 || got[1] == nil {
		return "", 0, nil
	}
	fence, err := strconv.ParseUint(text(got[1]), 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %q holds fence %v", lockguard.ErrForeignKey, key, got[1])
	}
	return text(got[0]), lockguard.Fence(fence), nil
}

func fencedError(verb, key string, err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return fmt.Errorf("%w: %q holds no fenced value", lockguard.ErrForeignKey, key)
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		return fmt.Errorf("lockredis: %s fenced value %q: %w", verb, key, err)
	}
	return fmt.Errorf("%w: %s fenced value %q: %w", lockguard.ErrStoreUnavailable, verb, key, err)
}
