package lockguard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// lookAgain is how often a waiter looks without being told: others, such
	// as redis-py, release without a word.
	lookAgain = time.Second
	// firstBackoff doubles to lookAgain while the store is out of reach.
	firstBackoff = 100 * time.Millisecond
)

// waiter is one Acquire. Those of one process that wait for one key stand in
// line: only the oldest of them asks the store, so a release elsewhere costs the
// store one attempt per process, and here they are served in their order.
type waiter struct {
	g       *Guard
	key     string
	asked   time.Time
	limit   time.Duration   // of the wait
	stop    <-chan struct{} // ends it too; nil: nothing does
	backoff time.Duration
	first   chan struct{} // closed when it is the oldest; nil: it stands in no line
	wake    <-chan struct{}
	unwake  func()
}

// left is what is left of the wait.
func (w *waiter) left() time.Duration {
	select {
	case <-w.stop:
		return 0
	default:
		return max(0, w.limit-time.Since(w.asked))
	}
}

func (w *waiter) end() {
	if w.unwake != nil {
		w.unwake()
	}
	if w.first == nil {
		return
	}
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	line := w.g.lines[w.key]
	at := slices.Index(line, w)
	line = slices.Delete(line, at, at+1)
	if len(line) == 0 {
		delete(w.g.lines, w.key)
		return
	}
	w.g.lines[w.key] = line
	if at == 0 {
		close(line[0].first)
	}
}

// turn returns nil when this waiter may ask: it is the oldest, or its time is
// over and it asks once more. Who does not wait stands in no line.
func (w *waiter) turn(ctx context.Context, reason error) error {
	if w.limit <= 0 {
		return nil
	}
	if w.first == nil {
		w.join()
	}
	select {
	case <-w.first:
		return nil
	default:
	}
	return w.pause(ctx, w.left(), reason, w.first, nil)
}

func (w *waiter) join() {
	w.first = make(chan struct{})
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	w.g.lines[w.key] = append(w.g.lines[w.key], w)
	if len(w.g.lines[w.key]) == 1 {
		close(w.first)
	}
}

// wait returns nil when it is time to try again.
func (w *waiter) wait(ctx context.Context, reason error) error {
	var freed <-chan struct{}
	var busy *BusyError
	pause := w.backoff
	if errors.As(reason, &busy) {
		freed = w.g.freed(w.key)
		if freed == nil && w.subscribe(ctx) {
			return nil // it may have been released before we listened
		}
		pause = lookAgain
		if r := busy.RetryAfter; r > 0 {
			pause = min(pause, r+time.Millisecond)
		}
	} else {
		w.backoff = min(2*w.backoff, lookAgain)
	}
	return w.pause(ctx, min(pause, w.left()), reason, freed, w.wake)
}

// pause returns nil after d, or when one of the channels says so.
func (w *waiter) pause(ctx context.Context, d time.Duration, reason error, a, b <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a:
	case <-b:
	case <-w.stop:
	case <-w.g.closing:
		return ErrClosed
	case <-ctx.Done():
		if reason == nil {
			return ctxError(ctx, w.key)
		}
		return fmt.Errorf("%w (%w)", ctxError(ctx, w.key), reason)
	}
	return nil
}

// subscribe reports whether it has just begun to listen.
func (w *waiter) subscribe(ctx context.Context) bool {
	if w.g.waker == nil || w.wake != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, min(w.left(), lookAgain))
	defer cancel()
	wake, unwake, err := w.g.waker.Wake(ctx, w.key)
	if err != nil {
		return false // then it looks each second
	}
	w.wake, w.unwake = wake, unwake
	return true
}
