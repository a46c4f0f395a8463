package redisconn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// fewFlights are the calls on their way beside which another one starts at
	// once, mostFlights the most that there are.
	fewFlights  = 2
	mostFlights = 8
	// patience is how long a call may be on its way before the next one does
	// not wait for it: to a server so far away, calls of their own cost less
	// than the wait.
	patience = 500 * time.Microsecond
)

// Batcher runs scripts on one client. What is asked for while others are on
// their way waits for one of them and is then sent together, in one pipeline:
// with many callers that spares most of the system calls on both sides, and a
// single caller does not notice it. It is safe for concurrent use.
type Batcher struct {
	runner *Runner

	mu       sync.Mutex
	flying   int
	departed time.Time // the last flight
	queue    []*ride
}

// ride is one run of a script that waits, or is on its way with others.
type ride struct {
	ctx    context.Context
	script *Script
	call   Call
	late   func(*redis.Cmd)

	cmd  *redis.Cmd
	done chan struct{} // closed once cmd is set
	left bool          // the caller is gone; under Batcher.mu
}

// NewBatcher returns a batcher on a runner.
func NewBatcher(runner *Runner) *Batcher { return &Batcher{runner: runner} }

// Run is [Runner.Run]. It returns at the end of ctx; what had been sent by then
// with others may still be carried out, and late, unless nil, is then called
// with the answer, on a goroutine that it must not block.
func (b *Batcher) Run(ctx context.Context, late func(*redis.Cmd), s *Script, keys []string, args ...any) *redis.Cmd {
	b.mu.Lock()
	if now := time.Now(); b.mayStart(now) {
		b.flying++
		b.departed = now
		if len(b.queue) == 0 {
			b.mu.Unlock()
			defer b.landed(ctx)
			return b.runner.runOne(ctx, s, keys, args)
		}
		r := b.enqueue(ctx, late, s, keys, args)
		rides := b.board()
		b.mu.Unlock()
		go b.fly(ctx, rides)
		return b.await(r)
	}
	r := b.enqueue(ctx, late, s, keys, args)
	b.mu.Unlock()
	return b.await(r)
}

func (b *Batcher) mayStart(now time.Time) bool {
	return b.flying < fewFlights || b.flying < mostFlights && now.Sub(b.departed) > patience
}

func (b *Batcher) enqueue(ctx context.Context, late func(*redis.Cmd), s *Script, keys []string, args []any) *ride {
	r := &ride{ctx: ctx, script: s, call: Call{Keys: keys, Args: args}, late: late, done: make(chan struct{})}
	b.queue = append(b.queue, r)
	return r
}

// board takes those who wait and are still there.
func (b *Batcher) board() []*ride {
	rides := make([]*ride, 0, len(b.queue))
	for _, r := range b.queue {
		if !r.left {
			rides = append(rides, r)
		}
	}
	b.queue = nil
	return rides
}

func (b *Batcher) await(r *ride) *redis.Cmd {
	select {
	case <-r.done:
		return r.cmd
	case <-r.ctx.Done():
	}
	b.mu.Lock()
	r.left = true
	b.mu.Unlock()
	cmd := redis.NewCmd(r.ctx)
	cmd.SetErr(r.ctx.Err())
	return cmd
}

// landed ends a flight, or lets those who wait take its place.
func (b *Batcher) landed(ctx context.Context) {
	b.mu.Lock()
	rides := b.board()
	if len(rides) == 0 {
		b.flying--
		b.mu.Unlock()
		return
	}
	b.departed = time.Now()
	b.mu.Unlock()
	go b.fly(ctx, rides)
}

// fly sends rides in one pipeline. It goes on until the last of them would have
// given up; of ctx, which is anyone's, only the values are used.
func (b *Batcher) fly(ctx context.Context, rides []*ride) {
	defer b.landed(ctx)
	ctx = context.WithoutCancel(ctx)
	if end, ok := lastDeadline(rides); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	b.runner.runRides(ctx, rides)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rides {
		close(r.done)
		if r.left && r.late != nil {
			go r.late(r.cmd)
		}
	}
}

// lastDeadline is false if one of them has none.
func lastDeadline(rides []*ride) (last time.Time, ok bool) {
	for _, r := range rides {
		end, ok := r.ctx.Deadline()
		if !ok {
			return last, false
		}
		if end.After(last) {
			last = end
		}
	}
	return last, true
}

func (r *Runner) runOne(ctx context.Context, s *Script, keys []string, args []any) *redis.Cmd {
	cmd := r.Run(ctx, s, keys, args...)
	if !s.joint {
		return cmd
	}
	if list, err := cmd.Slice(); err == nil && len(list) == 1 { // no other command is made for one
		if own, ok := list[0].(error); ok {
			cmd.SetErr(own)
		} else {
			cmd.SetVal(list[0])
		}
		return cmd
	}
	return answers(ctx, cmd, 1)[0]
}

// answers takes the answer of a joint script apart.
func answers(ctx context.Context, joint *redis.Cmd, n int) []*redis.Cmd {
	list, err := joint.Slice()
	if err == nil && len(list) != n {
		err = fmt.Errorf("redisconn: %d answers of a script for %d callers", len(list), n)
	}
	cmds := make([]*redis.Cmd, n)
	for i := range cmds {
		cmds[i] = redis.NewCmd(ctx)
		if err != nil {
			cmds[i].SetErr(err)
			continue
		}
		if own, ok := list[i].(error); ok {
			cmds[i].SetErr(own)
			continue
		}
		cmds[i].SetVal(list[i])
	}
	return cmds
}

// group is what one command is sent for.
type group struct {
	script *Script
	call   Call
	rides  []*ride
}

// grouped joins the rides of each joint script; all others have a command of
// their own.
func grouped(rides []*ride) []*group {
	var groups []*group
	joint := map[*Script]*group{}
	for _, one := range rides {
		g := joint[one.script]
		if g == nil {
			g = &group{script: one.script}
			groups = append(groups, g)
			if one.script.joint {
				joint[one.script] = g
			}
		}
		g.rides = append(g.rides, one)
		g.call.Keys = append(g.call.Keys, one.call.Keys...)
		g.call.Args = append(g.call.Args, one.call.Args...)
	}
	return groups
}

func (r *Runner) runRides(ctx context.Context, rides []*ride) {
	groups := grouped(rides)
	cmds := make([]*redis.Cmd, len(groups))
	flagged, err := r.Shebang(ctx)
	if err == nil {
		_, _ = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, g := range groups {
				cmds[i] = r.form(g.script, flagged).EvalSha(ctx, p, g.call.Keys, g.call.Args...)
			}
			return nil
		})
	}
	for i, g := range groups {
		switch {
		case err != nil:
			cmds[i] = redis.NewCmd(ctx)
			cmds[i].SetErr(err)
		case redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT"):
			cmds[i] = r.form(g.script, flagged).Eval(ctx, r.client, g.call.Keys, g.call.Args...)
		}
		if !g.script.joint {
			g.rides[0].cmd = cmds[i]
			continue
		}
		for j, cmd := range answers(ctx, cmds[i], len(g.rides)) {
			g.rides[j].cmd = cmd
		}
	}
}
