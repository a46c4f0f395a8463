package celery

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Bounds of a call.
const (
	maxTake    = 100 // more in one script gains nothing,
	mostTake   = 400 // unless the way to the server is long beside the runs,
	farTake    = 900 // or so long that the server would wait for the next call
	maxCommits = 900
	// wayTake is how many messages a call may take for each millisecond of way: at
	// some 20 µs a message the server then works for most of the time.
	wayTake = 300
	// leastWay is how many it may take for each millisecond before the rate is
	// known: else a rush over a long way begins with many small calls. What a
	// replica holds is bounded by its rate all the same.
	leastWay = 100
	// Bounds of a queue's dead letters.
	maxDead    = 10_000
	maxDeadAge = 14 * 24 * time.Hour
)

// cycleCall is one call of cycle.lua: acks, results and takes in one step.
type cycleCall struct {
	number  int64
	want    int
	sources []int // indexes of the lists to look at
	acks    []*commit
	unlocks []*tasks.Unlock
	wakes   []string // lines to bring forward
}

// cycleReply is what cycle.lua said.
type cycleReply struct {
	buried   bool
	repeated bool // an earlier try of this call was done and its reply lost
	lost     map[string]bool
	taken    int
	item     func(i int) *item // decodes one of those taken, nil if it is not ours
	back     int
	diverted []int64       // list, count, …
	full     bool          // as much as was wanted came
	unlocked []int64       // per lock to free; empty if the call was repeated
	served   time.Duration // of the call, at the server
	way      time.Duration // the rest of the call
}

// items decodes those taken from place i up to, and without, place end.
func (r *cycleReply) items(i, end int) []*item {
	items := make([]*item, 0, end-i)
	for ; i < end; i++ {
		if it := r.item(i); it != nil {
			items = append(items, it)
		}
	}
	return items
}

// What cycle.lua says of a lock.
const (
	unlockFreed  = 1
	unlockFailed = -2
)

// States of cycle.lua.
const (
	cycleDone   = 1
	cycleAgain  = 2
	cycleBuried = -1
)

func (e *Engine) cycle(ctx context.Context, self *replica, c *cycleCall) (*cycleReply, error) {
	n := len(c.sources)
	keys := make([]string, 3, 5+2*n+len(c.unlocks)+len(c.wakes))
	keys[0], keys[1], keys[2] = e.keys.unacked(), e.keys.index(), e.keys.calls()
	for _, i := range c.sources {
		keys = append(keys, e.sources[i].key)
	}
	for _, i := range c.sources {
		keys = append(keys, self.inlists[i])
	}
	for _, u := range c.unlocks {
		keys = append(keys, u.Key)
	}
	if len(c.wakes) > 0 {
		keys = append(keys, e.keys.parked(), e.keys.parkInfo())
		keys = append(keys, c.wakes...)
	}
	args := make([]any, 0, 14+3*n+3*len(c.acks)+2*len(c.unlocks))
	args = append(args, self.id, appendPadded(nil, c.number, numberWidth-callDigits), c.want, int64(e.tune.lead/time.Second), n, len(c.acks),
		e.cfg.expirySeconds(), e.resultsDB(), e.brokerDB(), e.keys.own(""), maxDead, maxDeadAge.Milliseconds(),
		e.keys.namespace, len(c.unlocks))
	for _, i := range c.sources {
		s := e.sources[i]
		args = append(args, s.queue, s.stepText(), s.suffix)
	}
	for _, a := range c.acks {
		args = append(args, a.tagArg(), &a.key, (*bytesArg)(&a.result))
	}
	for _, u := range c.unlocks {
		args = append(args, &u.Token, &u.Channel)
	}
	began := time.Now()
	cmd := e.run(ctx, e.scripts.cycle, keys, args...)
	took := time.Since(began)
	r, err := e.decodeCycle(cmd, self, c)
	if err == nil {
		r.way = max(took-r.served, 0)
	}
	return r, err
}

func (e *Engine) decodeCycle(cmd *redis.Cmd, self *replica, c *cycleCall) (*cycleReply, error) {
	r := newReply(cmd)
	state, us := r.int(0), r.int(1)
	lost, raws := r.texts(2), r.texts(4)
	out := &cycleReply{
		full: true, buried: state == cycleBuried, repeated: state == cycleAgain,
		back: int(r.int(5)), diverted: r.ints(6), served: time.Duration(r.int(7)) * time.Microsecond, unlocked: r.ints(8),
	}
	if r.err == nil && state != cycleAgain && len(out.unlocked) != len(c.unlocks) {
		r.bad(8, "as long as the call", out.unlocked)
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(lost) > 0 {
		out.lost = make(map[string]bool, len(lost))
		for _, t := range lost {
			out.lost[t] = true
		}
	}
	takenAt, taken := e.clock.set(us)
	switch state {
	case cycleDone:
		runs := r.ints(3)
		came := len(raws) + e.splitDiverted(c, out)
		if r.err != nil {
			return nil, r.err
		}
		from := make([]*source, 0, len(raws))
		for i := 0; i+1 < len(runs) && len(from) <= len(raws); i += 2 {
			src := e.sources[c.sources[runs[i]-1]]
			for range runs[i+1] {
				from = append(from, src)
			}
		}
		if len(from) != len(raws) {
			r.bad(4, "as long as part 3 says", raws)
			return nil, r.err
		}
		first := c.number*callFactor + 1
		head, tag := tagPrefix(self.id), make([]byte, 0, 128)
		out.item = func(i int) *item {
			tag = appendTag(tag[:0], head, first+int64(i), from[i].tagEnd)
			return newItem(string(tag), self, from[i], raws[i], takenAt, taken)
		}
		out.taken = len(raws)
		out.full = came >= c.want
	case cycleAgain:
		out.taken = len(raws) / 2
		out.item = func(i int) *item { return e.recovered(raws[2*i], []byte(raws[2*i+1]), self, takenAt, taken) }
	}
	return out, nil
}

// recovered makes an item from a tag and its entry in unacked.
func (e *Engine) recovered(tag string, value []byte, self *replica, takenAt, taken time.Time) *item {
	t, ok := e.keys.parseTag(tag)
	if !ok {
		return nil
	}
	raw, _, queue, err := wire.ParseUnacked(value)
	if queue == "" { // nobody knows any more where it came from
		queue = e.cfg.Queues[0]
	}
	src := e.keys.source(queue, t.step)
	it := newItem(tag, self, src, string(raw), takenAt, taken)
	if err != nil && it.err == nil {
		it.msg, it.deliv, it.err = nil, nil, err
	}
	return it
}

// settle sends commits that do more than an ack. notAlive names an instance
// that must be dead, "" for none. The answer says per commit whether its
// message was still there.
func (e *Engine) settle(ctx context.Context, notAlive string, ops []settleOp) ([]bool, error) {
	if _, err := e.storeFirst(ctx, ops); err != nil {
		return nil, err
	}
	keys := []string{e.keys.unacked(), e.keys.index(), e.keys.parked(), e.keys.parkInfo(), e.keys.replicas()}
	args := make([]any, 0, 7+3*len(ops))
	args = append(args, e.cfg.expirySeconds(), e.resultsDB(), e.brokerDB(), e.keys.own(""), maxDead, maxDeadAge.Milliseconds(), notAlive)
	for _, o := range ops {
		text, err := o.encode()
		if err != nil {
			return nil, err
		}
		args = append(args, text, o.result, o.op.raw)
	}
	r := newReply(e.run(ctx, e.scripts.settle, keys, args...))
	if r.int(0) == cycleBuried {
		return nil, errAlive
	}
	done := r.ints(1)
	if r.err == nil && len(done) != len(ops) {
		r.bad(1, "as long as the call", done)
	}
	if r.err != nil {
		return nil, r.err
	}
	mine := make([]bool, len(done))
	for i, o := range ops {
		mine[i] = done[i] == settleDone || done[i] == settleBeside
		if done[i] == settleBeside {
			o.op.Dead.beside = true
		}
	}
	return mine, nil
}

// errAlive: the instance that was to be taken over is alive.
var errAlive = errors.New("celery: replica is alive")
