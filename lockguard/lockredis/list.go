package lockredis

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/lockguard"
)

// listPage is how many keys one step of a list looks at.
const listPage = 500

// List implements lockguard.Lister. It scans the companion keys; an index of
// held locks would cost each acquire and each release a write, and could be
// wrong. The scan walks the whole database, in pages, without blocking it.
func (b *Backend) List(ctx context.Context) iter.Seq2[lockguard.Holder, error] {
	return func(yield func(lockguard.Holder, error) bool) {
		seen := map[string]bool{} // SCAN may return a key twice
		var cursor uint64
		for {
			names, next, err := b.client.Scan(ctx, cursor, globEscape(b.prefix)+"held*", listPage).Result()
			if err != nil {
				yield(lockguard.Holder{}, err)
				return
			}
			for holder, err := range b.holders(ctx, names, seen) {
				if !yield(holder, err) || err != nil && holder.Key == "" {
					return
				}
			}
			if next == 0 {
				return
			}
			cursor = next
		}
	}
}

func (b *Backend) holders(ctx context.Context, names []string, seen map[string]bool) iter.Seq2[lockguard.Holder, error] {
	return func(yield func(lockguard.Holder, error) bool) {
		var calls []redisconn.Call
		for _, name := range names {
			if key, ok := b.lockOf(name); ok && !seen[key] {
				seen[key] = true
				calls = append(calls, redisconn.Call{Keys: []string{key, name}})
			}
		}
		if len(calls) == 0 {
			return
		}
		for i, cmd := range b.runner.RunAll(ctx, b.read, calls) {
			key := calls[i].Keys[0]
			holder, err := decoded(key, cmd)
			switch {
			case errors.Is(err, lockguard.ErrForeignKey) || err == nil && (!holder.Held || holder.Foreign):
				continue
			case err != nil && !redisconn.Answered(err) && !errors.Is(err, errReply):
				yield(lockguard.Holder{}, err)
				return
			case err != nil: // this one's companion key is broken, the others are fine
				holder, err = lockguard.Holder{Key: key}, fmt.Errorf("lockredis: lock %q: %w", key, err)
			}
			if !yield(holder, err) {
				return
			}
		}
	}
}

func decoded(key string, cmd *redis.Cmd) (lockguard.Holder, error) {
	reply, err := cmd.Slice()
	if err != nil {
		return lockguard.Holder{}, err
	}
	return decodeRead(key, reply)
}

// globEscape makes a text match itself in SCAN's patterns.
func globEscape(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		switch s[i] {
		case '*', '?', '[', ']', '\\', '^':
			out = append(out, '\\')
		}
		out = append(out, s[i])
	}
	return string(out)
}
