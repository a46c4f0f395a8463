package cli

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/redisconn"
)

// allRights names the page that has the ACL rules that are enough.
const allRights = "all rights that are needed: docs/operations.md#redis"

// refusalOf is what a server said of a permission that is missing, "" for any
// other error.
func refusalOf(err error) string {
	var reply redis.Error
	if errors.As(err, &reply) && redisconn.Denied(reply.Error()) {
		return reply.Error()
	}
	return ""
}

// rightsCure names the permissions that a server's refusal is about, "" if it is
// about none, or its text has them. Of a script a server tells only that it may
// not do something; then the user's commands are tried.
func rightsCure(ctx context.Context, s *stores, err error) string {
	text := refusalOf(err)
	if text == "" || strings.Contains(err.Error(), "ACL rule") || redisconn.Cure(err) != "" {
		return ""
	}
	if cure := redisconn.PermissionCure(text, ""); cure != "" {
		return cure
	}
	var rules []string
	for _, client := range []*redis.Client{s.broker, s.results, s.locks} {
		for _, name := range refused(ctx, client, s.cfg) {
			rules = append(rules, "+"+name)
		}
	}
	slices.Sort(rules)
	return redisconn.PermissionCure(text, strings.Join(slices.Compact(rules), " "))
}

// withRights adds to a command's error what permission is missing.
func (c *program) withRights(ctx context.Context, err error) error {
	if c.cfg == nil || refusalOf(err) == "" {
		return err
	}
	s, fail := openStores(c.cfg, slog.New(slog.DiscardHandler), "rights")
	if fail != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryTimeout)
	defer cancel()
	return redisconn.WithCure(err, rightsCure(ctx, s, err))
}

// scriptCommands are the commands that scripts use, each with arguments behind a
// key that are enough for a server to look at the user's permissions.
func scriptCommands() map[string][]any {
	none := []any{}
	return map[string][]any{
		"del": none, "exists": none, "get": none, "hgetall": none, "hkeys": none, "hlen": none, "llen": none, "persist": none, "pttl": none,
		"rpop": none, "type": none, "xlen": none, "zcard": none,
		"hdel": {"f"}, "hexists": {"f"}, "hget": {"f"}, "hmget": {"f"}, "lindex": {0}, "lpush": {"v"}, "pexpire": {1}, "publish": {"v"},
		"rpush": {"v"}, "sadd": {"v"}, "set": {"v"}, "xdel": {"0-1"}, "zrem": {"v"}, "zscore": {"v"},
		"hincrby": {"f", 1}, "hset": {"f", "v"}, "xrange": {"-", "+"}, "xtrim": {"MAXLEN", 1}, "zadd": {1, "v"}, "zrange": {0, 0},
		"zrangebyscore": {0, 0}, "xadd": {"*", "f", "v"}, "lmove": {"k", "LEFT", "LEFT"},
	}
}

// refused are the commands of scripts that a user may not run. They are queued in
// a transaction, where a server looks at permissions, and then discarded: nothing
// is run.
func refused(ctx context.Context, client *redis.Client, cfg *config.Config) []string {
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Do(ctx, "multi")
		p.Do(ctx, "discard")
		return nil
	})
	if err != nil { // what is not queued would be run
		return nil
	}
	key := cfg.Redis.GlobalKeyPrefix + "solobeat:" + cfg.Namespace + ":rights"
	tried := map[string]*redis.Cmd{}
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Do(ctx, "multi")
		tried["time"] = p.Do(ctx, "time")
		for name, rest := range scriptCommands() {
			args := append([]any{name, key}, rest...)
			if name == "lmove" {
				args[2] = key
			}
			tried[name] = p.Do(ctx, args...)
		}
		p.Do(ctx, "discard")
		return nil
	})
	var names []string
	for name, cmd := range tried {
		if cmd.Err() != nil && redisconn.Denied(cmd.Err().Error()) && strings.Contains(cmd.Err().Error(), "'"+name+"'") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
