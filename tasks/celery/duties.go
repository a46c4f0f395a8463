package celery

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// dueTimer knows when the next parked message is due, as far as this replica
// has heard.
type dueTimer struct {
	mu    sync.Mutex
	next  time.Time // by the store's clock; zero: none known
	bells chan struct{}
}

func newDueTimer() *dueTimer { return &dueTimer{bells: make(chan struct{}, 1)} }

// note moves the timer to at if that is sooner.
func (d *dueTimer) note(at time.Time) {
	d.mu.Lock()
	sooner := d.next.IsZero() || at.Before(d.next)
	if sooner {
		d.next = at
	}
	d.mu.Unlock()
	if sooner {
		select {
		case d.bells <- struct{}{}:
		default:
		}
	}
}

func (d *dueTimer) noteText(us string) {
	if n, err := strconv.ParseInt(us, 10, 64); err == nil {
		d.note(time.UnixMicro(n))
	}
}

func (d *dueTimer) get() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next
}

// begin forgets what is known, just before the server is asked: what is noted
// from here on may not be in its answer.
func (d *dueTimer) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = time.Time{}
}

// Bounds of one call of due.lua and wake.lua.
const (
	maxDue    = 100
	maxWake   = 100
	mostWakes = 1000 // lines in one call of a cycle, beside those of its acks
	wakeTry   = 5
	wakeGap   = 5 * time.Millisecond // without a cycle's call that could have taken the lines along
	lookTime  = 5 * time.Second
)

// dueLoop puts parked messages back when their time has come. Every replica
// does; each message goes back once.
func (e *Engine) dueLoop(ctx context.Context) {
	for n := 0; ctx.Err() == nil; {
		next := e.due.get()
		if next.IsZero() {
			select {
			case <-ctx.Done():
			case <-e.due.bells:
			}
			continue
		}
		if wait := next.Sub(e.clock.now()); wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-e.due.bells:
			case <-t.C:
			}
			t.Stop()
			continue
		}
		e.due.begin()
		if err := e.putBackDue(ctx); err != nil {
			n++
			e.due.note(next)
			e.broker.failed(e, "due", err)
			pause(ctx, backoff(n))
			continue
		}
		n = 0
	}
}

func (e *Engine) putBackDue(ctx context.Context) error {
	keys := []string{e.keys.unacked(), e.keys.index(), e.keys.parked(), e.keys.parkInfo()}
	rep := newReply(e.run(ctx, e.scripts.due, keys, maxDue))
	next, us := rep.int(1), rep.int(2)
	if rep.err != nil {
		return rep.err
	}
	e.clock.set(us)
	if next > 0 {
		e.due.note(time.UnixMicro(next))
	}
	return nil
}

// wakeLoop sends what Wake was called for and no cycle has taken along: the ack
// of the run that has released goes to the server at once anyhow.
func (e *Engine) wakeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wakes.signal:
			for was := int64(-1); was != e.cycles.Load(); {
				was = e.cycles.Load()
				pause(ctx, wakeGap)
			}
			e.flushWakes(ctx)
		}
	}
}

// linesToWake takes the lines that Wake was called for, at most mostWakes, and
// those of the locks that the same call frees, which must not go before it.
func (e *Engine) linesToWake(unlocks []*tasks.Unlock) []string {
	all := e.wakes.take()
	if len(all) > mostWakes {
		e.wakes.put(all[mostWakes:]...)
		all = all[:mostWakes:mostWakes]
	}
	for _, u := range unlocks {
		for _, line := range u.Lines {
			all = append(all, e.keys.line(line))
		}
	}
	if len(all) < 2 {
		return all
	}
	seen := make(map[string]bool, len(all))
	lines := all[:0]
	for _, line := range all {
		if !seen[line] {
			seen[line] = true
			lines = append(lines, line)
		}
	}
	return lines
}

func (e *Engine) flushWakes(ctx context.Context) {
	for ctx.Err() == nil {
		lines := e.linesToWake(nil)
		if len(lines) == 0 {
			return
		}
		e.wakeAll(ctx, lines)
	}
}

func (e *Engine) wakeAll(ctx context.Context, lines []string) {
	for len(lines) > 0 {
		n := min(len(lines), maxWake)
		e.wake(ctx, lines[:n])
		lines = lines[n:]
	}
}

// wake gives up after some tries: the lines have timers too.
func (e *Engine) wake(ctx context.Context, lines []string) {
	keys := append(e.keys.parkedAt(), lines...)
	for n := 1; n <= wakeTry; n++ {
		err := e.run(ctx, e.scripts.wake, keys).Err()
		if err == nil || ctx.Err() != nil {
			return
		}
		e.broker.failed(e, "wake", err)
		pause(ctx, backoff(n))
	}
}

// lookLoop looks once more, after a park, whether the lock or record is free:
// it may have been released between the refusal and the park.
func (e *Engine) lookLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.looks.signal:
		}
		parks := e.looks.take()
		if e.cfg.AfterPark == nil {
			continue
		}
		seen := map[string]bool{}
		for _, p := range parks {
			if seen[p.Key] || ctx.Err() != nil {
				continue
			}
			seen[p.Key] = true
			look, cancel := context.WithTimeout(ctx, lookTime)
			if e.cfg.AfterPark(look, p) {
				e.Wake(ctx, p.Key)
			}
			cancel()
		}
	}
}
