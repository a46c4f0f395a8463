package celery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// place is where a goroutine's run stands; a [tasks.Slot].
type place struct {
	q     *readyQueue
	state placeState // under q.mu
	since time.Time  // of the state
}

type placeState int

const (
	idle   placeState = iota // nothing runs, or what runs has got no slot
	inSlot                   // the run has a slot
	away                     // it has left it and wants one again
	ending                   // its handler has returned
)

func (p *place) begin(now time.Time) { p.state, p.since = inSlot, now }

// Leave implements [tasks.Slot].
func (p *place) Leave() { p.leave(away) }

// Done implements [tasks.Slot].
func (p *place) Done() { p.leave(ending) }

func (p *place) leave(to placeState) {
	q := p.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.state != inSlot {
		return
	}
	now := time.Now()
	if to == away {
		q.coming++
	} else {
		q.ending++
		q.handled(now.Sub(p.since))
	}
	p.state, p.since = to, now
	q.vacate()
	if q.mayBegin() {
		q.more.Signal()
	}
}

// Enter implements [tasks.Slot].
func (p *place) Enter(ctx context.Context) error {
	q := p.q
	q.mu.Lock()
	if p.state != away {
		q.mu.Unlock()
		return nil
	}
	now := time.Now()
	q.asking = averaged(q.asking, now.Sub(p.since))
	if q.free > 0 { // then nobody waits
		q.free--
		q.coming--
		p.begin(now)
		q.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	q.back = append(q.back, turn)
	q.mu.Unlock()
	err := p.wait(ctx, turn)
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.back, turn)
	if i < 0 { // its turn has come, if only meanwhile
		p.begin(time.Now())
		return nil
	}
	q.back = slices.Delete(q.back, i, i+1)
	q.coming--
	p.state = idle
	return err
}

func (p *place) wait(ctx context.Context, turn <-chan struct{}) error {
	timer := time.NewTimer(p.q.patience)
	defer timer.Stop()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.q.stop:
		return tasks.ErrShutdown
	case <-timer.C:
	}
	p.q.mu.Lock()
	defer p.q.mu.Unlock()
	p.q.handling = max(p.q.handling, p.q.patience) // no more ahead until it is over
	return fmt.Errorf("%w within %v", tasks.ErrNoSlot, p.q.patience)
}
