package celery

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

const (
	// leaveTime bounds the tries to reach a broker that is down when nothing
	// is left to be settled.
	leaveTime = 3 * time.Second
	// lastWord bounds what is told to the broker when the time is over.
	lastWord = 500 * time.Millisecond
)

// stopState is where an orderly end stands.
type stopState struct {
	giving bool // nothing is taken any more; what is unstarted was given back
	asked  atomic.Pointer[time.Time]
	since  time.Time // when the end was asked for; zero: not noted yet
	end    time.Time // after which no call is repeated and runs are left
	last   <-chan time.Time
	cancel *time.Timer // ends the grace
	calls  context.CancelFunc
	buried bool // there is no registration to give up
}

func (l *loop) stopRequest() <-chan struct{} {
	if l.stop.giving {
		return nil
	}
	return l.ctx.Done()
}

// watchStop notes when the end is asked for: the loop may be in a call just then,
// of a broker that is silent, and would begin to count when that has timed out.
func (l *loop) watchStop() (end func() bool) {
	return context.AfterFunc(l.ctx, func() {
		now := time.Now()
		l.stop.asked.Store(&now)
	})
}

// noteStop starts the clock of the end: runs are cancelled at the end of the
// grace, whatever the loop is waiting for.
func (l *loop) noteStop() {
	if !l.stop.since.IsZero() {
		return
	}
	e := l.e
	e.log.Info("worker is stopping", "runs", e.Active(), "grace", e.cfg.Grace)
	l.stop.since = time.Now()
	if at := l.stop.asked.Load(); at != nil {
		l.stop.since = *at
	}
	l.stop.end = l.stop.since.Add(e.cfg.Grace + e.tune.exit)
	l.stop.last = time.After(time.Until(l.stop.end))
	// A broker that is silent must not hold the end up.
	l.call, l.stop.calls = context.WithDeadline(l.base, l.stop.end)
	l.stop.cancel = time.AfterFunc(time.Until(l.stop.since.Add(e.cfg.Grace)), func() {
		if n := e.Active(); n > 0 {
			e.log.Warn("grace is over; runs are cancelled", "runs", n)
		}
		e.self.Load().cancel(tasks.ErrShutdown)
	})
}

// over reports whether the engine must end whatever is unsettled.
func (l *loop) over() bool {
	if l.stop.since.IsZero() {
		return false
	}
	return !time.Now().Before(l.stop.end) || l.e.held.len() == 0 && time.Since(l.stop.since) > leaveTime
}

// beginStop ends the taking: what no run has begun goes back to the lists it
// came from, newest first, so that the oldest is next again.
func (l *loop) beginStop() {
	l.noteStop()
	l.stop.giving = true
	l.stopWaiters()
	for i := range l.hot { // empties the in-flight lists
		l.armed[i], l.hot[i] = false, true
	}
	l.e.ready.stopWaiting()
	l.giveBackReady()
}

// stopWaiters ends the waiters and forgets what they told.
func (l *loop) stopWaiters() {
	if l.waiters == nil {
		return
	}
	l.waiters.stop(l.base, l.e.rdb)
	l.waiters = nil
	for len(l.fired) > 0 {
		<-l.fired
	}
}

// giveBackReady gives back all that waits for a slot, but what is acked
// already: that runs.
func (l *loop) giveBackReady() {
	for _, it := range l.e.ready.drain(func(it *item) bool { return !it.acked }) {
		l.clearSuspect(it)
		l.queue(l.e.giveBack(it))
	}
}

// leave gives the registration up. Peers take what is left over at once, and
// count no death. It returns left.
func (l *loop) leave(left int) int {
	e := l.e
	l.releaseRest()
	l.stop.calls()
	limit := leaveTime
	if left > 0 { // there is no more time
		limit = lastWord
	}
	l.call, l.stop.calls = context.WithTimeout(l.base, limit)
	defer l.stop.calls()
	l.stopWaiters()
	e.ready.close()
	l.stop.cancel.Stop()
	e.flushWakes(l.call)
	if l.stop.buried {
		return left
	}
	flag := "0"
	if left > 0 {
		flag = "1"
	}
	keys := []string{e.keys.replicas(), e.keys.buried(), e.keys.calls(), e.keys.entry(l.self.id)}
	keys = append(keys, l.self.inlists...)
	for _, s := range e.sources {
		keys = append(keys, s.key)
	}
	for n := 1; ; n++ {
		err := e.run(l.call, e.scripts.leave, keys, l.self.id, flag).Err()
		if err == nil {
			return left
		}
		e.broker.failed(e, "leave", err)
		if pause(l.call, backoff(n)); l.call.Err() != nil {
			e.log.Error("registration was not given up; peers will bury this replica", "error", err)
			return left
		}
	}
}
