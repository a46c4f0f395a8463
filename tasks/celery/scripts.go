package celery

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
)

var (
	//go:embed prelude.lua
	preludeLua string
	//go:embed cycle.lua
	cycleLua string
	//go:embed settle.lua
	settleLua string
	//go:embed due.lua
	dueLua string
	//go:embed wake.lua
	wakeLua string
	//go:embed register.lua
	registerLua string
	//go:embed beat.lua
	beatLua string
	//go:embed leave.lua
	leaveLua string
	//go:embed name.lua
	nameLua string
	//go:embed refresh.lua
	refreshLua string
	//go:embed sweep.lua
	sweepLua string
	//go:embed adopt.lua
	adoptLua string
	//go:embed probe.lua
	probeLua string
	//go:embed tails.lua
	tailsLua string
	//go:embed requeue.lua
	requeueLua string
)

// scripts are the engine's Lua. All but probe and register may run on a full
// server: they complete, release, or only move what is there.
type scripts struct {
	cycle, settle, due, wake, register, beat, leave, name, refresh, sweep, adopt, probe *redisconn.Script
}

func newScripts() *scripts {
	full, plain := fullScript, plainScript
	return &scripts{
		cycle: full(redisconn.UnlockSource + cycleLua), settle: full(settleLua), due: full(dueLua), wake: full(wakeLua),
		register: plain(registerLua), beat: full(beatLua), leave: full(leaveLua), name: full(nameLua),
		refresh: full(refreshLua), sweep: full(sweepLua), adopt: full(adoptLua), probe: plain(probeLua),
	}
}

func plainScript(src string) *redisconn.Script { return redisconn.NewScript(preludeLua + src) }

// fullScript may run on a full server.
func fullScript(src string) *redisconn.Script {
	return redisconn.NewScript(preludeLua+src, "allow-oom")
}

// bytesArg lets go-redis take bytes by their address: each slice or text that
// is put into an interface is allocated once more.
type bytesArg []byte

// MarshalBinary gives the bytes themselves.
func (a *bytesArg) MarshalBinary() ([]byte, error) { return *a, nil }

// errReply: a script answered in a form that it never answers in.
var errReply = errors.New("celery: unexpected reply of a script")

// reply takes a script's list reply apart; the first wrong part makes err.
type reply struct {
	parts []any
	err   error
}

func newReply(cmd *redis.Cmd) *reply {
	parts, err := cmd.Slice()
	return &reply{parts: parts, err: err}
}

func (r *reply) at(i int) any {
	if r.err != nil {
		return nil
	}
	if i >= len(r.parts) {
		r.err = fmt.Errorf("%w: %d parts, number %d is missing", errReply, len(r.parts), i)
		return nil
	}
	return r.parts[i]
}

func (r *reply) bad(i int, want string, got any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: part %d is %T, not %s", errReply, i, got, want)
	}
}

// int reads a number that came as one or as text; empty text is 0.
func (r *reply) int(i int) int64 {
	switch v := r.at(i).(type) {
	case int64:
		return v
	case string:
		if v == "" {
			return 0
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			r.bad(i, "a number", v)
		}
		return n
	default:
		r.bad(i, "a number", v)
		return 0
	}
}

func (r *reply) list(i int) []any {
	v, ok := r.at(i).([]any)
	if !ok {
		r.bad(i, "a list", v)
	}
	return v
}

func (r *reply) texts(i int) []string {
	list := r.list(i)
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			r.bad(i, "a list of texts", v)
			return nil
		}
		out = append(out, s)
	}
	return out
}

func (r *reply) ints(i int) []int64 {
	list := r.list(i)
	out := make([]int64, 0, len(list))
	for _, v := range list {
		n, ok := v.(int64)
		if !ok {
			r.bad(i, "a list of numbers", v)
			return nil
		}
		out = append(out, n)
	}
	return out
}
