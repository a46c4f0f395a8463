package celery

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/solobeat/solobeat/internal/failpoint"
	"github.com/solobeat/solobeat/tasks"
)

// Bounds of what a replica holds beyond its slots: what it finishes in about
// 100 ms, so that long tasks are not hoarded.
const (
	aheadTime  = 100 * time.Millisecond
	aheadCalls = 2                      // and no more than so many calls take
	rateSpan   = 200 * time.Millisecond // over which the rate is averaged
	// gatherTime is how long acks and free slots may be gathered for one call
	// while the slots have enough to do.
	gatherTime = time.Millisecond
	startSome  = 32 // messages are decoded before they are started
)

// loop is the only goroutine that takes and acks. Its fields are its own.
type loop struct {
	e    *Engine
	ctx  context.Context // of Run: its end asks for the end
	base context.Context // outlives ctx
	call context.Context // for calls: base, and once the end was asked for, up to its last instant

	self    *replica
	number  int64 // of the last cycle
	waiters *waiters
	fired   chan int
	armed   []bool
	hot     []bool // fired since it was last looked at: its in-flight list may hold a message
	buried  chan string
	sweep   chan struct{} // a beat saw messages in own in-flight lists

	acks    []*commit // plain acks and results, for the next cycle
	ops     []*commit // all others
	suspect *item     // the one that runs or is about to
	rate    float64   // commits per second
	rateAt  time.Time
	took    time.Duration // of a cycle's call, averaged
	way     time.Duration // of that, what the server did not work
	gather  *time.Timer   // runs while calls are put off
	waiting bool          // it does
	stop    stopState
}

func newLoop(ctx, base context.Context, e *Engine, self *replica) *loop {
	n := len(e.sources)
	return &loop{
		e: e, ctx: ctx, base: base, call: base, self: self, fired: make(chan int, n), armed: make([]bool, n), hot: make([]bool, n),
		buried: make(chan string, 1), sweep: make(chan struct{}, 1), rateAt: time.Now(),
		gather: time.NewTimer(time.Hour),
	}
}

// run goes on until everything is settled after ctx was cancelled, or until
// the last deadline. It returns the number of runs that still go on.
func (l *loop) run() int {
	l.waiters = l.e.startWaiters(l.base, l.self, l.fired)
	hoard := time.NewTicker(l.e.tune.hoard)
	defer hoard.Stop()
	defer l.gather.Stop()
	defer l.watchStop()()
	for {
		l.collect()
		if l.over() {
			return l.leave(l.e.held.len())
		}
		if len(l.ops) > 0 {
			l.settleOps()
			continue
		}
		if l.cycleDue() {
			l.cycle()
			continue
		}
		if l.stop.giving && l.e.held.len() == 0 {
			return l.leave(0)
		}
		finished := l.e.finished.signal
		if l.waiting {
			finished = nil // to be woken by each run is what is to be spared
		}
		select {
		case <-finished:
		case <-l.gather.C:
			l.waiting = false
			if l.cycleWork() {
				l.cycle()
			}
		case <-l.e.ready.low:
			l.waiting = false
		case i := <-l.fired:
			l.armed[i], l.hot[i] = false, true
		case <-l.sweep:
			for i := range l.hot {
				l.hot[i] = true
			}
		case id := <-l.buried:
			if id == l.self.id {
				l.reborn()
			}
		case <-hoard.C:
			l.giveBackOld()
		case <-l.stopRequest():
			l.beginStop()
		case <-l.stop.last: // the check at the top ends it
		}
	}
}

// collect sorts what has finished.
func (l *loop) collect() {
	done := l.e.finished.take()
	for _, c := range done {
		l.clearSuspect(c.it)
		l.queue(c)
	}
	l.measure(len(done))
	for {
		select {
		case i := <-l.fired:
			l.armed[i], l.hot[i] = false, true
		default:
			return
		}
	}
}

func (l *loop) queue(c *commit) {
	switch {
	case l.e.elsewhere != nil && c.key != "":
		l.e.finish(c) // it comes back when its result is written
	case c.op == nil:
		l.acks = append(l.acks, c)
	default:
		l.e.release(c) // no ack frees it
		l.ops = append(l.ops, c)
	}
}

// measure keeps the rate of commits, averaged over rateSpan.
func (l *loop) measure(n int) {
	now := time.Now()
	l.rate = l.rate*math.Exp(-now.Sub(l.rateAt).Seconds()/rateSpan.Seconds()) + float64(n)/rateSpan.Seconds()
	l.rateAt = now
}

// free is the number of messages that may be taken now.
func (l *loop) free() int {
	if l.stop.giving {
		return 0
	}
	ahead := min(int(l.rate*aheadTime.Seconds()), aheadCalls*l.batch())
	// What is only waiting for its ack is given up in the very next call; what
	// waits for its result's own server keeps no slot, nor does what tells a
	// store of its end.
	return l.e.cfg.Concurrency + ahead - (l.e.held.len() - len(l.acks) - l.e.unstored() - min(l.e.ready.ended(), mostAhead))
}

// batch is the most that one call takes: what is finished while it is on its
// way, so that a long way to the server costs no throughput.
func (l *loop) batch() int {
	way := l.way.Seconds() * 1000
	most := min(max(int(wayTake*way), mostTake), farTake)
	return min(max(int(1.5*l.rate*l.took.Seconds()), int(leastWay*way), maxTake), most)
}

// cycleDue reports whether to make a call now. While the slots have more to do
// than they finish during a call, acks and free slots are gathered: a call for
// each of them costs more than the runs.
func (l *loop) cycleDue() bool {
	switch {
	case slices.Contains(l.hot, true):
		return true
	case !l.cycleWork():
		return false
	case l.stop.giving || len(l.acks) >= l.batch()/2:
		return true
	}
	if l.e.ready.aboveLow(int(l.rate * l.took.Seconds())) {
		if !l.waiting {
			l.waiting = true
			l.gather.Reset(gatherTime)
		}
		return false
	}
	return true
}

// cycleWork reports whether a call has something to do: acks, or slots for a
// list that may hold something.
func (l *loop) cycleWork() bool {
	return len(l.acks) > 0 || l.free() > 0 && slices.Contains(l.armed, false)
}

// cycle makes one call, repeats it under the same number until it is
// answered, and acts on the answer.
func (l *loop) cycle() {
	l.number++
	l.waiting = false
	c := &cycleCall{number: l.number, want: max(min(l.free(), l.batch()), 0)}
	n := min(len(l.acks), maxCommits)
	c.acks, l.acks = l.acks[:n:n], l.acks[n:]
	c.sources = l.look(c.want > 0)
	c.unlocks = unlocksOf(c.acks)
	c.wakes = l.e.linesToWake(c.unlocks)
	l.e.cycles.Add(1)
	r, tries := l.callCycle(c)
	l.e.cycles.Add(1)
	if r == nil { // the engine had to end first; who comes too early for a lock parks again
		l.e.wakes.put(c.wakes...)
		l.e.release(c.acks...)
		return
	}
	l.e.unlocked(c, r, tries > 1)
	l.confirmAcks(c, r, tries > 1)
	if r.buried {
		l.reborn()
		return
	}
	for _, i := range c.sources {
		l.hot[i] = false
	}
	l.startAll(r)
	for i := 0; i+1 < len(r.diverted); i += 2 {
		src := l.e.sources[c.sources[r.diverted[i]-1]]
		l.e.diverted(src.queue, int(r.diverted[i+1]))
	}
	if !r.full {
		l.arm(c.sources)
	}
}

// look lists the sources to look at, in order of service: with free slots all
// whose waiter is not blocked (an armed waiter's list is empty), else only
// those whose in-flight list must be emptied. Queues take turns in being the
// first of their step.
func (l *loop) look(free bool) []int {
	queues := len(l.e.cfg.Queues)
	shift := int(l.number) % queues
	var list []int
	for from := 0; from < len(l.e.sources); from += queues {
		for q := range queues {
			i := from + (q+shift)%queues
			if l.hot[i] || free && !l.armed[i] {
				list = append(list, i)
			}
		}
	}
	return list
}

func (l *loop) arm(list []int) {
	if l.stop.giving {
		return
	}
	for _, i := range list {
		if !l.armed[i] {
			l.armed[i] = true
			l.waiters.arm(i)
		}
	}
}

func (l *loop) callCycle(c *cycleCall) (*cycleReply, int) {
	for n := 1; ; n++ {
		began := time.Now()
		r, err := l.e.cycle(l.call, l.self, c)
		if err == nil {
			l.took = (3*l.took + min(time.Since(began), aheadTime)) / 4
			l.way = (3*l.way + min(r.way, aheadTime)) / 4
			l.e.broker.answered(l.e)
			return r, n
		}
		if !l.again("cycle", n, err) {
			return nil, n
		}
	}
}

// again waits before a call is repeated; false once the engine must end.
func (l *loop) again(what string, n int, err error) bool {
	l.e.broker.failed(l.e, what, err)
	select {
	case <-l.ctx.Done():
		l.noteStop()
	default:
	}
	if l.over() {
		return false
	}
	pause(l.base, backoff(n))
	return true
}

func (l *loop) confirmAcks(c *cycleCall, r *cycleReply, unsure bool) {
	for _, a := range c.acks {
		l.confirm(a, !r.lost[a.tagFor()], unsure || r.repeated)
	}
}

// confirm ends a commit that Redis has answered: mine says whether its message
// was still ours. After a lost reply nobody knows: the first try may have done
// it.
func (l *loop) confirm(c *commit, mine, unsure bool) {
	it := c.it
	if c.early && (mine || unsure) {
		it.acked = true
		l.admitted(it)
		return
	}
	l.e.held.remove(it)
	if !mine && !unsure {
		l.e.dropped(c)
		return
	}
	l.e.settled(c)
}

func (l *loop) settleOps() {
	n := min(len(l.ops), maxTake)
	batch := l.ops[:n:n]
	ops := make([]settleOp, n)
	for i, c := range batch {
		ops[i] = c.settleOp()
	}
	for tries := 1; ; tries++ {
		mine, err := l.e.settle(l.call, "", ops)
		if err == nil {
			l.e.broker.answered(l.e)
			l.ops = l.ops[n:]
			for i, c := range batch {
				l.confirm(c, mine[i], tries > 1)
			}
			return
		}
		if !l.again("settle", tries, err) {
			l.ops = nil
			return
		}
	}
}

// startAll starts what a call took, some at a time: the first run while the
// others are decoded.
func (l *loop) startAll(r *cycleReply) {
	for i := 0; i < r.taken; i += startSome {
		l.start(r.items(i, min(i+startSome, r.taken)))
	}
}

// start hands taken messages on: to a run, or to the commit that ends them.
func (l *loop) start(taken []*item) {
	if len(taken) == 0 {
		return
	}
	l.e.held.add(taken)
	l.e.tookBy(taken)
	now := l.e.clock.now()
	ready := make([]*item, 0, len(taken))
	for _, it := range taken {
		failpoint.Hit(failpoint.AfterTake, it.taskName(), it.taskID())
		c := l.e.admit(it, now)
		switch {
		case c != nil:
			l.queue(c)
		case l.e.cfg.AckEarly != nil && l.e.cfg.AckEarly(it.msg.Task):
			l.acks = append(l.acks, &commit{it: it, early: true})
		case it.deaths() >= suspectDeaths:
			l.startSuspect(it)
		default:
			it.readyA = time.Now()
			ready = append(ready, it)
		}
	}
	if len(ready) > 0 {
		l.e.ready.push(ready...)
	}
}

// admitted lets a message run whose early ack is confirmed.
func (l *loop) admitted(it *item) {
	it.readyA = time.Now()
	l.e.ready.push(it)
}

// giveBackOld gives all back once something has waited too long for a slot: the
// runs are longer than the rate had made believe. What has come later must not
// stay, it would run first.
func (l *loop) giveBackOld() {
	old := func(it *item) bool { return !it.acked && !it.suspect && time.Since(it.readyA) >= l.e.tune.hoard }
	if !l.e.ready.holds(old) {
		return
	}
	l.rate = 0 // it was no guide
	for _, it := range l.e.ready.drain(func(it *item) bool { return !it.acked && !it.suspect }) {
		l.queue(l.e.giveBack(it))
	}
}

// reborn makes this replica a new one after its peers have buried it: runs are
// cancelled, what no run has begun goes back, and a new instance is
// registered.
func (l *loop) reborn() {
	old := l.self
	l.e.log.Error("peers took this replica for dead; its runs are cancelled", "instance", old.id)
	call0(l.e.cfg.Observer.Buried)
	old.cancel(tasks.ErrBuried)
	l.stopWaiters()
	l.giveBackReady()
	if l.stop.giving { // nothing is taken any more: no new life is needed
		clear(l.armed)
		clear(l.hot)
		l.stop.buried = true
		return
	}
	self, err := l.e.enrol(l.base, old.id, func(n int, err error) bool { return l.again("register", n, err) })
	if err != nil {
		l.stop.buried = true
		return
	}
	l.self, l.number = self, 0
	clear(l.armed)
	clear(l.hot)
	l.waiters = l.e.startWaiters(l.base, self, l.fired)
}
