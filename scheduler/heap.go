package scheduler

import (
	"container/heap"
	"time"
)

// entry is one job in the loop.
type entry struct {
	job      *Job
	tmpl     *templates
	revision string
	delay    time.Duration

	mark time.Time // the newest settled instant that is known
	at   time.Time // when to look at it next, by the store's clock
	due  time.Time // when its first open tick is due; zero: none was looked for
	next time.Time // the tick last told to the observer

	turn   time.Time  // of its late tick, by the local clock; zero: none was given
	unsure Occurrence // tick whose claim may have been done: its reply was lost
	sent   time.Time  // tick whose message this replica itself has sent

	failed      time.Time // due time of the tick whose failure was counted
	failures    int       // in a row
	quarantined bool

	staleGen  string    // generation that answered STALE
	staleFrom time.Time // since when; zero: not stale
	staleTold time.Time // when that was last told

	index int // in the heap, -1 outside
}

// entryHeap orders entries by when to look at them.
type entryHeap []*entry

var _ heap.Interface = (*entryHeap)(nil)

// Len implements heap.Interface.
func (h entryHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h entryHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].job.Name < h[j].job.Name
}

// Swap implements heap.Interface.
func (h entryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *entryHeap) Push(x any) {
	e, _ := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *entryHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
