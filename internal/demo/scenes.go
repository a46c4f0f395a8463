package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	scrapeAfter = 600 * time.Millisecond // into the run that is to be killed
	killAfter   = time.Second
	// unscheduleAfter lets all replicas meet the last tick once one has it.
	unscheduleAfter = time.Second
	lockTTL         = 4 * time.Second
	// restartAfter brings the killed replica back even if nobody takes over.
	restartAfter = 18 * time.Second
	// asynqReturns is how long asynq may take to bring a dead process's task
	// back: its lease, its recoverer's patience and period.
	asynqReturns = 130 * time.Second
	// lateAfter ends a demo that does not get on.
	lateAfter = 45 * time.Second
	// settle lets the last run end its record and its lock before the last
	// scrape.
	settle = 700 * time.Millisecond
)

// guardedScenes plays scenes 2 to 4: the replicas' own events drive it.
func (st *stage) guardedScenes(ctx context.Context) error {
	late := lateAfter
	if st.o.asynq() {
		late += asynqReturns
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(st.o.Ticks)*st.o.Tick+late, errors.New("demo: the reports did not come in time: see the replicas' logs"))
	defer cancel()
	st.starts, st.commits = map[string]int{}, map[string]int{}
	timers := timers{kill: stoppedTimer(), restart: stoppedTimer(), unschedule: stoppedTimer()}
	watch := time.NewTicker(200 * time.Millisecond)
	defer watch.Stop()
	back := make(chan error, 1)
	for !st.done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-st.fleet.events:
			st.event(e, &timers)
		case <-timers.kill.C:
			if err := st.kill(ctx); err != nil {
				return err
			}
			timers.restart.Reset(restartAfter)
		case <-timers.restart.C:
			if !st.killed.restarting {
				st.killed.restarting = true
				go func() { back <- st.bringBack(ctx) }()
			}
		case err := <-back:
			if err != nil {
				return err
			}
			st.killed.back = true
			if st.unscheduled {
				st.unschedule()
			}
		case <-watch.C:
			st.watchLongRun(ctx)
		case <-timers.unschedule.C:
			st.unschedule()
		}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(settle):
	}
	st.say("")
	return nil
}

// timers are what the replicas' events set going.
type timers struct{ kill, restart, unschedule *time.Timer }

// unschedule ends the schedulers: the last tick has been met by all.
func (st *stage) unschedule() {
	st.unscheduled = true
	for _, r := range st.fleet.alive() {
		r.order(orderUnschedule)
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// done reports whether every guarded tick has its report, the killed replica
// is back, and nothing still runs.
func (st *stage) done() bool {
	for i := range st.o.Ticks {
		if st.commits[st.label(i)] == 0 {
			return false
		}
	}
	return st.killed.back
}

func (st *stage) event(e Event, t *timers) {
	st.note(e)
	switch e.Event {
	case "claimed":
		st.say("   %s  hour %s: replica %d claimed and published it, %d others met it and stood aside", st.at(), st.hour(e.Tick), e.Replica, len(st.fleet.alive())-1)
		if st.o.Once && e.Tick == st.label(st.o.Ticks-1) {
			t.unschedule.Reset(unscheduleAfter)
		}
	case "started":
		st.started(e, t.kill)
	case "reported":
		st.commits[e.Tick]++
		st.say("   %s  hour %s: report formed by replica %d (pid %d), fence %d, lock renewed %d time(s)", st.at(), st.hour(e.Tick), e.Replica, e.PID, e.Fence, e.Renewals)
		if e.Tick == st.killTick() && st.killed.dead && !st.killed.restarting {
			t.restart.Reset(0)
		}
	case "back":
		st.say("   %s  replica %d is back (pid %d)", st.at(), e.Replica, e.PID)
	case "failed":
		st.say("   %s  hour %s: run of replica %d ended: %s", st.at(), st.hour(e.Tick), e.Replica, e.Detail)
	}
}

func (st *stage) started(e Event, kill *time.Timer) {
	st.starts[e.Tick]++
	switch {
	case e.Tick == st.killTick() && st.killed.pid == 0 && st.starts[e.Tick] == 1:
		st.say("\n3. kill -9 in the middle of a run: replica %d (pid %d) works on hour %s with fence %d …", e.Replica, e.PID, st.hour(e.Tick), e.Fence)
		st.killed = killed{replica: e.Replica, pid: e.PID, fence: e.Fence}
		kill.Reset(time.Until(time.UnixMilli(e.MS).Add(scrapeAfter)))
	case e.Tick == st.killTick() && st.killed.dead && e.PID != st.killed.pid:
		st.say("   %s  hour %s: taken over by replica %d (pid %d) with a larger fence, %d", st.at(), st.hour(e.Tick), e.Replica, e.PID, e.Fence)
	case e.Tick == st.label(st.o.Ticks-1) && st.starts[e.Tick] == 1:
		st.say("\n4. A run longer than its lock's TTL of %s: replica %d works on hour %s for %s …", lockTTL, e.Replica, st.hour(e.Tick), longTakes)
		st.long = longRun{pid: e.PID, began: time.UnixMilli(e.MS), tick: e.Tick}
	}
}

// kill scrapes the holder in mid-run and kills it.
func (st *stage) kill(ctx context.Context) error {
	r := st.fleet.byPID(st.killed.pid)
	if r == nil {
		return fmt.Errorf("demo: replica %d ended before it was killed", st.killed.replica)
	}
	scrape, err := st.fleet.scrape(ctx, r, true)
	if err != nil {
		return err
	}
	st.killed.scrape, st.killed.addr = scrape, r.addr
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(killAfter - scrapeAfter):
	}
	sig, err := st.fleet.kill(ctx, r)
	if err != nil {
		return err
	}
	st.killed.dead = true
	st.note(Event{MS: time.Now().UnixMilli(), Tick: st.killTick(), Replica: r.n, PID: st.killed.pid, Event: "killed", Fence: st.killed.fence, Detail: sig.String()})
	comes := "its message comes back within 15 s"
	if st.o.asynq() {
		comes = "its task comes back when asynq's lease decides, in 1 to 2 minutes. The other hours go on"
	}
	st.say("   %s  pid %d is dead (%s). Its lock ends by its TTL; %s.", st.at(), st.killed.pid, sig, comes)
	return nil
}

// bringBack starts the killed replica again, with its old metrics address.
func (st *stage) bringBack(ctx context.Context) error {
	r, err := st.fleet.spawn(st.killed.replica, st.killed.addr)
	if err != nil {
		return err
	}
	if err := r.await(ctx, st.o.Dir); err != nil {
		return err
	}
	r.order(orderSchedule)
	st.fleet.tell(Event{MS: time.Now().UnixMilli(), Replica: r.n, PID: r.cmd.Process.Pid, Event: "back"})
	return st.fleet.writeReplicas()
}

// longRun is the run of scene 4.
type longRun struct {
	pid         int
	began       time.Time
	tick        string
	before, hit bool
}

// watchLongRun shows the metric go from 0 to 1 while the run goes on.
func (st *stage) watchLongRun(ctx context.Context) {
	l := &st.long
	if l.pid == 0 || l.hit || st.commits[l.tick] > 0 || st.o.Unsafe {
		return
	}
	if age := time.Since(l.began); l.before && age < lockTTL || age < lockTTL/2 {
		return
	}
	r := st.fleet.byPID(l.pid)
	if r == nil {
		return
	}
	scrape, err := st.fleet.scrape(ctx, r, false)
	if err != nil {
		return
	}
	c, err := parseCounters(scrape)
	if err != nil {
		return
	}
	switch {
	case c.outlived >= 1:
		l.hit = true
		st.note(Event{MS: time.Now().UnixMilli(), Tick: l.tick, Replica: r.n, PID: l.pid, Event: "outlived", Detail: fmt.Sprint(c.outlived)})
		st.say("   %s  solobeat_lock_outlived_total is %.0f and the run still goes on: JobOutlivedLockTTL would fire now. The renewed lock keeps the others out.", st.at(), c.outlived)
	case !l.before:
		l.before = true
		st.say("   %s  solobeat_lock_outlived_total is %.0f", st.at(), c.outlived)
	}
}
