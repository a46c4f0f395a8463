package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/metrics"
)

const (
	// watchEvery is how often a process looks at its Redis servers.
	watchEvery   = 10 * time.Second
	watchTimeout = 2 * time.Second
)

// watchStores notes every few seconds what the Redis of each role says of
// itself, for metrics: at the start its policy was checked, which an operator
// can change while it runs. The channel is closed when it has ended.
func (r *replica) watchStores(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		for {
			if seen := r.stores.look(ctx); ctx.Err() == nil {
				r.metrics.Watched(seen...)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return done
}

// look asks each server once, whatever roles it has.
func (s *stores) look(ctx context.Context) []metrics.Store {
	seen := map[*redis.Client]metrics.Store{}
	var all []metrics.Store
	for _, role := range []struct {
		name   string
		client *redis.Client
	}{{metrics.RoleBroker, s.broker}, {metrics.RoleResults, s.results}, {metrics.RoleLocks, s.locks}} {
		found, ok := seen[role.client]
		if !ok {
			found = lookAt(ctx, role.client, s.embedded)
			seen[role.client] = found
		}
		found.Role = role.name
		all = append(all, found)
	}
	return all
}

// lookAt asks one server for its time and, unless it is the demo's own, for
// its numbers. Where INFO is not allowed the policy stays unknown.
func lookAt(ctx context.Context, client *redis.Client, embedded bool) (found metrics.Store) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	began := time.Now()
	at, err := client.Time(ctx).Result()
	if err != nil {
		return found
	}
	took := time.Since(began)
	found.Up, found.Offset = true, began.Add(took/2).Sub(at)
	if embedded {
		return found
	}
	info, err := client.Info(ctx).Result()
	if err != nil {
		return found
	}
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "maxmemory_policy":
			found.Policy = value
		case "evicted_keys":
			found.Evicted, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return found
}
