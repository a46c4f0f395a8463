package lease

import (
	"container/heap"
	"time"
)

// slot is an entry's place in one queue; index is -1 while it is in none.
type slot struct {
	at    time.Time
	index int
}

// queue is a heap of entries by an instant of the monotonic clock.
type queue[T any] struct {
	items []*Entry[T]
	slot  func(*Entry[T]) *slot
}

func (q *queue[T]) Len() int { return len(q.items) }

func (q *queue[T]) Less(i, j int) bool {
	return q.slot(q.items[i]).at.Before(q.slot(q.items[j]).at)
}

func (q *queue[T]) Swap(i, j int) {
	q.items[i], q.items[j] = q.items[j], q.items[i]
	q.slot(q.items[i]).index = i
	q.slot(q.items[j]).index = j
}

// Push is for container/heap only.
func (q *queue[T]) Push(x any) {
	e := x.(*Entry[T])
	q.slot(e).index = len(q.items)
	q.items = append(q.items, e)
}

// Pop is for container/heap only.
func (q *queue[T]) Pop() any {
	last := len(q.items) - 1
	e := q.items[last]
	q.items[last] = nil
	q.items = q.items[:last]
	q.slot(e).index = -1
	return e
}

// set puts an entry in, or moves it.
func (q *queue[T]) set(e *Entry[T], at time.Time) {
	s := q.slot(e)
	s.at = at
	if s.index >= 0 {
		heap.Fix(q, s.index)
		return
	}
	heap.Push(q, e)
}

func (q *queue[T]) drop(e *Entry[T]) {
	if i := q.slot(e).index; i >= 0 {
		heap.Remove(q, i)
	}
}

// first returns the entry with the smallest instant.
func (q *queue[T]) first() (*Entry[T], time.Time, bool) {
	if len(q.items) == 0 {
		return nil, time.Time{}, false
	}
	return q.items[0], q.slot(q.items[0]).at, true
}
