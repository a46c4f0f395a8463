package celery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// slots is a queue with n messages for goroutines of the test.
func slots(n, messages int) *readyQueue {
	q := newReadyQueue(n)
	q.patience = time.Second
	for range messages {
		q.push(&item{})
	}
	return q
}

// quick tells the queue that handlers take far less than a store.
func quick(q *readyQueue) { q.asking, q.handling = time.Millisecond, time.Microsecond }

// begun pops in goroutines of their own and returns the places that got a
// message at once.
func begun(q *readyQueue, n int) []*place {
	got := make(chan *place, n)
	for range n {
		go func() {
			p := &place{q: q}
			if _, ok := q.pop(p); ok {
				got <- p
				p.Leave()
			}
		}()
	}
	synctest.Wait()
	var all []*place
	for len(got) > 0 {
		all = append(all, <-got)
	}
	return all
}

// How many runs ask for their locks at a time: as many as there are slots,
// unless the handlers are done much sooner than the asking.
func TestRunsAheadOfTheSlots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asking, handling time.Duration
		want             int
	}{
		"nothing is known yet":      {0, 0, 4},
		"handlers of a second":      {time.Millisecond, time.Second, 4},
		"as long as the asking":     {time.Millisecond, time.Millisecond, 8},
		"handlers that do nothing":  {time.Millisecond, time.Microsecond, 4 + mostAhead},
		"a store across the ocean":  {100 * time.Millisecond, 20 * time.Millisecond, 24},
		"handlers of twice as long": {time.Millisecond, 2 * time.Millisecond, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := slots(4, 2*mostAhead)
				q.asking, q.handling = c.asking, c.handling
				if got := len(begun(q, 2*mostAhead)); got != c.want {
					t.Errorf("%d ask at a time, want %d", got, c.want)
				}
				q.close()
			})
		})
	}
}

// Slots go to those who wait, the oldest first, and never to more than there are.
func TestSlotsGoToTheOldest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := slots(2, 5)
		quick(q)
		all := begun(q, 5)
		if len(all) != 5 {
			t.Fatalf("%d have begun, want 5", len(all))
		}
		entered := make(chan int, 5)
		for i, p := range all {
			go func() {
				if err := p.Enter(t.Context()); err == nil {
					entered <- i
				}
			}()
			synctest.Wait()
		}
		for next := range 5 {
			if next < 2 {
				continue
			}
			if len(entered) != 2 || q.slots-q.free != 2 {
				t.Fatalf("%d are in a slot, want 2", len(entered))
			}
			first := <-entered
			all[first].Done()
			synctest.Wait()
			if first != next-2 {
				t.Errorf("run %d got a slot before run %d", first, next-2)
			}
		}
		all[3].Done()
		all[4].Done()
		if q.slots-q.free != 0 || q.coming != 0 {
			t.Errorf("%d slots are taken and %d come at the end", q.slots-q.free, q.coming)
		}
	})
}

// A run does not wait long for a slot, and what it has shown of the handlers
// counts from then on.
func TestNoSlot(t *testing.T) {
	t.Parallel()
	cause := errors.New("lost")
	for name, c := range map[string]struct {
		end  func(q *readyQueue, cancel context.CancelCauseFunc)
		want error
	}{
		"handlers do not end": {func(q *readyQueue, _ context.CancelCauseFunc) { time.Sleep(q.patience); synctest.Wait() }, tasks.ErrNoSlot},
		"the worker stops":    {func(q *readyQueue, _ context.CancelCauseFunc) { q.stopWaiting() }, tasks.ErrShutdown},
		"the lock is lost":    {func(_ *readyQueue, cancel context.CancelCauseFunc) { cancel(cause) }, cause},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := slots(2, 3)
				quick(q)
				all := begun(q, 3)
				for _, p := range all[:2] {
					if err := p.Enter(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				told := make(chan error, 1)
				go func() { told <- all[2].Enter(ctx) }()
				synctest.Wait()
				if len(told) > 0 {
					t.Fatal("a third run got a slot of two")
				}
				c.end(q, cancel)
				if err := <-told; !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if errors.Is(c.want, tasks.ErrNoSlot) && q.ahead() != 0 {
					t.Errorf("%d may still begin ahead", q.ahead())
				}
				if len(q.back) != 0 || q.coming != 0 || q.slots-q.free != 2 {
					t.Errorf("%d wait, %d come, %d slots are taken", len(q.back), q.coming, q.slots-q.free)
				}
			})
		})
	}
}

// One slot does one message after the other, so that their order is kept.
func TestOneSlotOneRunner(t *testing.T) {
	t.Parallel()
	if n := newReadyQueue(1).runners(); n != 1 {
		t.Errorf("%d runners for one slot", n)
	}
}
