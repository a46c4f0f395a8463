// Package redisconn is the one place where Redis clients are made and Lua
// scripts are run, for every part that talks to Redis.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script in the two forms that servers take: plain, and with
// a shebang line that carries flags (Redis 7, Valkey).
type Script struct {
	plain, flagged form
	joint          bool
}

// form is one form of a script, with the words of its command.
type form struct {
	*redis.Script
	source, hash any
}

func newForm(source string) form {
	s := redis.NewScript(source)
	return form{Script: s, source: source, hash: s.Hash()}
}

// command is EVALSHA.
func (f form) command(ctx context.Context, keys int, words []any) *redis.Cmd {
	all := make([]any, 0, 3+len(words))
	all = append(all, "evalsha", f.hash, keys)
	return command(ctx, keys, append(all, words...))
}

// inFull is EVAL of what a server did not know by its hash.
func (f form) inFull(ctx context.Context, cmd *redis.Cmd) *redis.Cmd {
	all := slices.Clone(cmd.Args())
	all[0], all[1] = "eval", f.source
	return command(ctx, all[2].(int), all)
}

func command(ctx context.Context, keys int, all []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, all...)
	if keys > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// NewScript makes a script from its source, which must not begin with a
// shebang. Flags, such as "allow-oom", are put in front where the server
// takes them: only for scripts that complete, release or move what is there,
// never for one that claims, since a full server must refuse a claim.
func NewScript(source string, flags ...string) *Script {
	s := &Script{plain: newForm(source)}
	s.flagged = s.plain
	if len(flags) > 0 {
		s.flagged = newForm("#!lua flags=" + strings.Join(flags, ",") + "\n" + source)
	}
	return s
}

// NewJointScript makes a script that does the same for several callers in one
// run: their keys and arguments stand one after the other, as many for each, and
// it returns a list with the answer, or the error, for each; for one caller it
// returns that alone. A [Batcher] gives each caller its own.
func NewJointScript(source string, flags ...string) *Script {
	s := NewScript(source, flags...)
	s.joint = true
	return s
}

// Scripter is what a [Runner] needs of a client; every go-redis client has it.
type Scripter interface {
	redis.Scripter
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// Runner runs scripts on one client. It finds out once whether the server
// takes a shebang, by loading a one-liner: versions lie (Valkey, proxies).
type Runner struct {
	client Scripter
	takes  atomic.Int32 // what it has found out
}

// What is known of a server.
const (
	unknown int32 = iota
	takesShebang
	takesNone
)

// NewRunner returns a runner on client.
func NewRunner(client Scripter) *Runner { return &Runner{client: client} }

// NewPlainRunner returns a runner that never puts a shebang in front, so that
// tests can try both forms on one server.
func NewPlainRunner(client Scripter) *Runner {
	r := &Runner{client: client}
	r.takes.Store(takesNone)
	return r
}

// Shebang reports whether the server takes scripts with a shebang line.
func (r *Runner) Shebang(ctx context.Context) (bool, error) {
	if known := r.takes.Load(); known != unknown {
		return known == takesShebang, nil
	}
	err := r.client.ScriptLoad(ctx, "#!lua flags=allow-oom\nreturn 1").Err() // two at once do no harm
	var reply redis.Error
	switch {
	case err == nil:
		r.takes.Store(takesShebang)
		return true, nil
	case errors.As(err, &reply) && !Transient(err):
		r.takes.Store(takesNone)
		return false, nil
	}
	return false, fmt.Errorf("redisconn: probe of script flags: %w", err)
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

func (r *Runner) form(s *Script, flagged bool) form {
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
