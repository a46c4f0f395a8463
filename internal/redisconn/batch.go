package redisconn

import (
	"context"
	"fmt"
	"runtime"
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
	patience = 2 * time.Millisecond
)

// Batcher runs scripts on one client. What is asked for while others are on
// their way waits for one of them and is then sent together, in one pipeline:
// with many callers that spares most of the system calls on both sides, and a
// single caller does not notice it. It is safe for concurrent use.
type Batcher struct {
	runner *Runner
	spare  sync.Pool // of rides that are over

	mu       sync.Mutex
	flying   int
	departed time.Time // the last flight
	queue    []*ride
}

// ride is one run of a script that waits, or is on its way with others.
type ride struct {
	ctx    context.Context
	script *Script
	keys   int
	words  []any
	late   Late

	answer any
	err    error
	landed chan struct{} // gets one once the answer is there, unless the caller is gone
	left   bool          // the caller is gone; under Batcher.mu
}

// Late is told of an answer that came after its caller had gone.
type Late func(answer any, err error)

// NewBatcher returns a batcher on a runner.
func NewBatcher(runner *Runner) *Batcher {
	return &Batcher{runner: runner, spare: sync.Pool{New: func() any { return &ride{landed: make(chan struct{}, 1)} }}}
}

// Run runs a script and returns its answer, or the error in its place. Of the
// words so many are keys, the others arguments; they must not be changed any
// more. It returns at the end of ctx; what had been sent by then with others may
// still be carried out, and late, unless nil, is then called with the answer, on
// a goroutine of its own.
func (b *Batcher) Run(ctx context.Context, late Late, s *Script, keys int, words ...any) (any, error) {
	b.mu.Lock()
	starts := b.flying < fewFlights || b.flying < mostFlights && time.Since(b.departed) > patience
	if starts {
		b.flying++
		b.noteDeparture()
		if len(b.queue) == 0 {
			b.mu.Unlock()
			return b.alone(ctx, s, keys, words)
		}
	}
	r := b.spare.Get().(*ride)
	r.ctx, r.script, r.keys, r.words, r.late = ctx, s, keys, words, late
	b.queue = append(b.queue, r)
	if starts {
		go b.fly(ctx, b.board())
	}
	b.mu.Unlock()
	return b.await(r)
}

// noteDeparture reads the clock only where somebody will ask for it.
func (b *Batcher) noteDeparture() {
	if b.flying >= fewFlights {
		b.departed = time.Now()
	}
}

// alone is the flight of one caller.
func (b *Batcher) alone(ctx context.Context, s *Script, keys int, words []any) (any, error) {
	defer func() {
		if rides := b.next(); len(rides) > 0 {
			go b.fly(ctx, rides)
		}
	}()
	flagged, err := b.runner.Shebang(ctx)
	if err != nil {
		return nil, err
	}
	form := b.runner.form(s, flagged)
	cmd := form.command(ctx, keys, words)
	if err := b.runner.client.Process(ctx, cmd); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = form.inFull(ctx, cmd)
		_ = b.runner.client.Process(ctx, cmd)
	}
	return cmd.Result()
}

// board takes those who wait and are still there. Called with b.mu held.
func (b *Batcher) board() []*ride {
	rides := make([]*ride, 0, len(b.queue))
	for _, r := range b.queue {
		if !r.left {
			rides = append(rides, r)
		}
	}
	clear(b.queue)
	b.queue = b.queue[:0]
	return rides
}

// next ends a flight, or returns those who take its place.
func (b *Batcher) next() []*ride {
	b.mu.Lock()
	defer b.mu.Unlock()
	rides := b.board()
	if len(rides) == 0 {
		b.flying--
		return nil
	}
	b.noteDeparture()
	return rides
}

func (b *Batcher) await(r *ride) (any, error) {
	select {
	case <-r.landed:
		return b.unboard(r)
	case <-r.ctx.Done():
	}
	b.mu.Lock()
	select {
	case <-r.landed:
		b.mu.Unlock()
		return b.unboard(r)
	default:
	}
	r.left = true
	b.mu.Unlock()
	return nil, r.ctx.Err()
}

// unboard takes the answer and keeps the ride for another caller.
func (b *Batcher) unboard(r *ride) (any, error) {
	answer, err := r.answer, r.err
	*r = ride{landed: r.landed}
	b.spare.Put(r)
	return answer, err
}

// fly sends rides, each time in one pipeline, until nobody waits any more. Of
// ctx, which is anyone's, only the values are used.
func (b *Batcher) fly(ctx context.Context, rides []*ride) {
	for len(rides) > 0 {
		b.flight(ctx, rides)
		b.mu.Lock()
		for _, r := range rides {
			switch {
			case !r.left:
				r.landed <- struct{}{}
			case r.late != nil:
				go r.late(r.answer, r.err)
			}
		}
		b.mu.Unlock()
		runtime.Gosched() // who has just landed and is busy may come along again
		rides = b.next()
	}
}

// flight goes on until the last of the rides would have given up.
func (b *Batcher) flight(ctx context.Context, rides []*ride) {
	ctx = context.WithoutCancel(ctx)
	if end, ok := lastDeadline(rides); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	b.runner.runRides(ctx, rides)
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

// group is what one command is sent for.
type group struct {
	script *Script
	rides  []*ride
	keys   int
	words  int
	cmd    *redis.Cmd
}

// grouped joins the rides of each joint script; all others have a command of
// their own.
func grouped(rides []*ride) []group {
	groups := make([]group, 0, 4)
next:
	for _, one := range rides {
		if one.script.joint {
			for i := range groups {
				if g := &groups[i]; g.script == one.script {
					g.add(one)
					continue next
				}
			}
		}
		groups = append(groups, group{script: one.script})
		groups[len(groups)-1].add(one)
	}
	return groups
}

func (g *group) add(r *ride) {
	g.rides = append(g.rides, r)
	g.keys += r.keys
	g.words += len(r.words)
}

// joined are the words of all rides, the keys first.
func (g *group) joined() []any {
	if len(g.rides) == 1 {
		return g.rides[0].words
	}
	words := make([]any, 0, g.words)
	for _, r := range g.rides {
		words = append(words, r.words[:r.keys]...)
	}
	for _, r := range g.rides {
		words = append(words, r.words[r.keys:]...)
	}
	return words
}

// answer gives each ride its own.
func (g *group) answer(reply any, err error) {
	if len(g.rides) == 1 {
		g.rides[0].answer, g.rides[0].err = reply, err
		return
	}
	list, ok := reply.([]any)
	if err == nil && (!ok || len(list) != len(g.rides)) {
		err = fmt.Errorf("redisconn: %d answers of a script for %d callers", len(list), len(g.rides))
	}
	for i, r := range g.rides {
		if err != nil {
			r.err = err
		} else if own, ok := list[i].(error); ok {
			r.err = own
		} else {
			r.answer = list[i]
		}
	}
}

func (r *Runner) runRides(ctx context.Context, rides []*ride) {
	groups := grouped(rides)
	flagged, err := r.Shebang(ctx)
	if err != nil {
		for i := range groups {
			groups[i].answer(nil, err)
		}
		return
	}
	cmds := make([]redis.Cmder, len(groups))
	for i := range groups {
		g := &groups[i]
		g.cmd = r.form(g.script, flagged).command(ctx, g.keys, g.joined())
		cmds[i] = g.cmd
	}
	_, _ = r.client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.BatchProcess(ctx, cmds...) })
	for i := range groups {
		g := &groups[i]
		if err := g.cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			g.cmd = r.form(g.script, flagged).inFull(ctx, g.cmd)
			_ = r.client.Process(ctx, g.cmd)
		}
		g.answer(g.cmd.Result())
	}
}
