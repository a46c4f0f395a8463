// Package redisconn is the one place where Redis clients are made and Lua
// scripts are run, for every part that talks to Redis.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script in the two forms that servers take: plain, and with
// a shebang line that carries flags (Redis 7, Valkey).
type Script struct {
	plain, flagged *redis.Script
	joint          bool
}

// NewScript makes a script from its source, which must not begin with a
// shebang. Flags, such as "allow-oom", are put in front where the server
// takes them: only for scripts that complete, release or move what is there,
// never for one that claims, since a full server must refuse a claim.
func NewScript(source string, flags ...string) *Script {
	s := &Script{plain: redis.NewScript(source)}
	s.flagged = s.plain
	if len(flags) > 0 {
		s.flagged = redis.NewScript("#!lua flags=" + strings.Join(flags, ",") + "\n" + source)
	}
	return s
}

// NewJointScript makes a script that does the same for several callers in one
// run: their keys and arguments stand one after the other, as many for each, and
// it returns a list with the answer, or the error, for each. A [Batcher] gives
// each caller its own.
func NewJointScript(source string, flags ...string) *Script {
	s := NewScript(source, flags...)
	s.joint = true
	return s
}

// Scripter is what a [Runner] needs of a client; every go-redis client has it.
type Scripter interface {
	redis.Scripter
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// Runner runs scripts on one client. It finds out once whether the server
// takes a shebang, by loading a one-liner: versions lie (Valkey, proxies).
type Runner struct {
	client Scripter

	mu      sync.Mutex
	probed  bool
	shebang bool
}

// NewRunner returns a runner on client.
func NewRunner(client Scripter) *Runner { return &Runner{client: client} }

// NewPlainRunner returns a runner that never puts a shebang in front, so that
// tests can try both forms on one server.
func NewPlainRunner(client Scripter) *Runner { return &Runner{client: client, probed: true} }

// Shebang reports whether the server takes scripts with a shebang line.
func (r *Runner) Shebang(ctx context.Context) (bool, error) {
	r.mu.Lock()
	if r.probed {
		defer r.mu.Unlock()
		return r.shebang, nil
	}
	r.mu.Unlock() // never hold a mutex across I/O; two probes at once do no harm
	err := r.client.ScriptLoad(ctx, "#!lua flags=allow-oom\nreturn 1").Err()
	var reply redis.Error
	switch {
	case err == nil:
	case errors.As(err, &reply) && !Transient(err):
	default:
		return false, fmt.Errorf("redisconn: probe of script flags: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probed, r.shebang = true, err == nil
	return r.shebang, nil
}

// Run runs the script: EVALSHA, and EVAL if the server does not know it yet.
func (r *Runner) Run(ctx context.Context, s *Script, keys []string, args ...any) *redis.Cmd {
	flagged, err := r.Shebang(ctx)
	if err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	return r.form(s, flagged).Run(ctx, r.client, keys, args...)
}

func (r *Runner) form(s *Script, flagged bool) *redis.Script {
	if flagged {
		return s.flagged
	}
	return s.plain
}

// Call is one run of a script in a batch.
type Call struct {
	Keys []string
	Args []any
}

// RunAll runs the script once per call in one pipeline. The commands come
// back in the order of the calls, each with its own error; what failed with
// NOSCRIPT was run again by EVAL.
func (r *Runner) RunAll(ctx context.Context, s *Script, calls []Call) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(calls))
	flagged, err := r.Shebang(ctx)
	if err != nil {
		for i := range cmds {
			cmds[i] = redis.NewCmd(ctx)
			cmds[i].SetErr(err)
		}
		return cmds
	}
	script := r.form(s, flagged)
	_, _ = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range calls {
			cmds[i] = script.EvalSha(ctx, p, c.Keys, c.Args...)
		}
		return nil
	})
	for i, c := range calls {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = script.Eval(ctx, r.client, c.Keys, c.Args...)
		}
	}
	return cmds
}

// Transient reports whether a server's error reply says "not now" rather than
// "no": a slow script, a loading or failing-over server (redisson#3332).
func Transient(err error) bool {
	for _, p := range []string{"BUSY", "LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS"} {
		if redis.HasErrorPrefix(err, p+" ") || redis.HasErrorPrefix(err, p) {
			return true
		}
	}
	return false
}
