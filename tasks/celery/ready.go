package celery

import (
	"slices"
	"sync"
	"time"
)

const (
	// mostAhead bounds the runs that ask a store beyond the free slots.
	mostAhead = 128
	// recent is the weight of the newest time in an average of times.
	recent = 1.0 / 8
)

// readyQueue holds taken messages for the goroutines that run them, and the
// slots in which they run.
//
// A run that asks a store for its lock leaves its slot meanwhile, and so does
// one whose handler has returned: no slot stands idle for the way to a server
// and back. So that no run holds its lock for long and waits for a slot, only as
// many are begun beyond the free slots as the handlers of late would end during
// the asking: none, where handlers take longer than it.
type readyQueue struct {
	mu     sync.Mutex
	more   *sync.Cond
	items  []*item
	closed bool

	lowAt int           // at so many items low gets its token; 0: at none
	low   chan struct{} // holds one token once the queue is low

	slots int
	free  int // slots in which nothing runs
	// coming are the runs that have left their slot and will want one again;
	// back are those of them that wait for it, the oldest first.
	coming   int
	ending   int             // runs whose handler has returned
	back     []chan struct{} // each is closed when its run has got a slot
	stop     chan struct{}   // closed: who waits for a slot waits in vain
	patience time.Duration   // how long one waits
	// asking and handling are how long the store and the handlers took of late.
	asking, handling time.Duration
}

func newReadyQueue(slots int) *readyQueue {
	q := &readyQueue{low: make(chan struct{}, 1), stop: make(chan struct{}), slots: slots, free: slots}
	q.more = sync.NewCond(&q.mu)
	return q
}

// runners is the number of goroutines that pop. A single slot does one message
// after the other, from its lock to its release.
func (q *readyQueue) runners() int {
	if q.slots == 1 {
		return 1
	}
	return q.slots + 2*mostAhead
}

func (q *readyQueue) push(it ...*item) {
	q.mu.Lock()
	q.items = append(q.items, it...)
	q.mu.Unlock()
	q.more.Signal() // who is woken wakes the next
}

// pop waits for the oldest message and for a slot; false once the queue is
// closed. p is the caller's, whose last run is over.
func (q *readyQueue) pop(p *place) (*item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over(p)
	for !q.mayBegin() && !q.closed {
		q.more.Wait()
	}
	if q.closed {
		return nil, false
	}
	q.free--
	p.begin(time.Now())
	it := q.items[0]
	q.items[0] = nil
	q.items = q.items[1:]
	if q.lowAt > 0 && len(q.items) <= q.lowAt {
		q.lowAt = 0
		select {
		case q.low <- struct{}{}:
		default:
		}
	}
	if q.mayBegin() {
		q.more.Signal()
	}
	return it, true
}

func (q *readyQueue) mayBegin() bool {
	return len(q.items) > 0 && q.free > 0 && q.coming < q.free+q.ahead() && q.ending < mostAhead
}

// ahead is the number of runs that may ask a store beyond the free slots.
func (q *readyQueue) ahead() int {
	if q.handling <= 0 {
		return 0
	}
	return min(mostAhead, int(float64(q.slots)*float64(q.asking)/float64(q.handling)))
}

// over ends what is left of a place's last run. It is called with mu held.
func (q *readyQueue) over(p *place) {
	switch p.state {
	case inSlot:
		q.handled(time.Since(p.since))
		q.vacate()
	case away: // it got no lock
		q.coming--
	case ending:
		q.ending--
	}
	p.state = idle
}

// handled notes how long a handler took. One that was kept off its CPU for a
// while must not count for all: what is longer than usual counts as four times
// the usual at most.
func (q *readyQueue) handled(took time.Duration) {
	if q.handling > 0 {
		took = min(took, 4*q.handling)
	}
	q.handling = averaged(q.handling, took)
}

func averaged(was, now time.Duration) time.Duration {
	if was == 0 {
		return now
	}
	return was + time.Duration(recent*float64(now-was))
}

// vacate gives a slot to the run that has waited for one longest, or frees it.
// It is called with mu held.
func (q *readyQueue) vacate() {
	if len(q.back) == 0 {
		q.free++
		return
	}
	close(q.back[0])
	q.back = q.back[1:]
	q.coming--
}

// stopWaiting ends every wait for a slot, also those to come.
func (q *readyQueue) stopWaiting() {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.stop:
	default:
		close(q.stop)
	}
}

// runs is the number of runs, in a slot or without.
func (q *readyQueue) runs() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots - q.free + q.coming + q.ending
}

// ended is the number of runs whose handler has returned.
func (q *readyQueue) ended() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ending
}

// aboveLow reports whether the queue holds more than n items. If so, low tells
// once when it does no more.
func (q *readyQueue) aboveLow(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) <= n {
		return false
	}
	q.lowAt = max(n, 1)
	return true
}

// holds reports whether cond holds for any message.
func (q *readyQueue) holds(cond func(*item) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.items, cond)
}

// drain removes all messages for which cond holds, newest first.
func (q *readyQueue) drain(cond func(*item) bool) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out, keep []*item
	for _, it := range q.items {
		if cond(it) {
			out = append(out, it)
		} else {
			keep = append(keep, it)
		}
	}
	q.items = keep
	slices.Reverse(out)
	return out
}

func (q *readyQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}
