// Package demo is what a newcomer runs first: the hourly report on four
// replicas, in four scenes, with real processes.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/solobeat/solobeat/internal/redisconn"
)

// Options are the demo's flags.
type Options struct {
	// RedisURL is a real server; "" starts an embedded one.
	RedisURL string
	// Replicas is the number of processes, at least 2.
	Replicas int
	// Tick is the length of the shrunk hour, at least 4 s.
	Tick time.Duration
	// Ticks is the number of guarded ticks, at least 3.
	Ticks int
	// Engine is where the tasks queue: celery ("" means that) or asynq.
	Engine string
	// Dir is where files and logs go; "" makes a temporary folder.
	Dir string
	// Once ends the demo after its scenes.
	Once bool
	// Unsafe takes the guards off, to show that the demo can fail.
	Unsafe bool
	// Out gets the story, Err what goes wrong.
	Out, Err io.Writer
}

// ErrNotSolo is returned if a guarded tick had not exactly one report, or the
// unguarded scene no more than one.
var ErrNotSolo = errors.New("demo: the reports are not one per tick")

// OptionError is an option that cannot be used.
type OptionError struct{ err error }

// Error names the option and what it may be.
func (e *OptionError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.err }

func badOption(format string, args ...any) error { return &OptionError{fmt.Errorf(format, args...)} }

func (o *Options) check() error {
	switch {
	case o.Engine != "" && o.Engine != engineCelery && o.Engine != engineAsynq:
		return badOption("--engine %s: celery and asynq are known", o.Engine)
	case o.Replicas < 2 || o.Replicas > 16:
		return badOption("--replicas %d: 2 to 16", o.Replicas)
	case o.Tick < 4*time.Second || o.Tick > time.Hour || o.Tick%time.Second != 0:
		return badOption("--tick %s: whole seconds from 4s to 1h", o.Tick)
	case o.Ticks < 3 || o.Ticks > 1000:
		return badOption("--ticks %d: 3 to 1000 (one to begin with, one with a kill, one long run)", o.Ticks)
	}
	return nil
}

// The engines.
const (
	engineCelery = "celery"
	engineAsynq  = "asynq"
)

func (o *Options) asynq() bool { return o.Engine == engineAsynq }

// Run plays the demo. It returns the summary once the scenes are over, and
// then, without Once, goes on until ctx ends. Options that cannot be used are
// an [*OptionError].
func Run(ctx context.Context, o Options) (*Summary, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "solobeat-demo-")
		if err != nil {
			return nil, err
		}
		o.Dir = dir
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	if err := prepareDir(o.Dir, o.Replicas); err != nil {
		return nil, fmt.Errorf("demo: %s: %w", o.Dir, err)
	}
	s, err := openStore(ctx, o.RedisURL)
	if err != nil {
		return nil, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := s.close(ending); err != nil {
			_, _ = fmt.Fprintf(o.Err, "demo: keys of the demo may be left (%s*): %v\n", s.prefix, err)
		}
	}()
	s.onAsynq = o.asynq()
	if err := writeFiles(o.Dir, s, o.Tick, o.Unsafe); err != nil {
		return nil, err
	}
	f, err := newFleet(o.Dir, s, o.Unsafe)
	if err != nil {
		return nil, err
	}
	defer f.stop(ctx)
	st := &stage{o: o, store: s, fleet: f, began: time.Now()}
	return st.play(ctx)
}

// stage is one performance.
type stage struct {
	o     Options
	store *store
	fleet *fleet
	began time.Time

	first    time.Time // the first guarded tick
	killed   killed
	timeline []Event
	starts   map[string]int
	commits  map[string]int
	long     longRun
	// unscheduled: no further tick is wanted.
	unscheduled bool
}

type killed struct {
	replica                int
	pid                    int
	addr                   string
	scrape                 []byte
	fence                  uint64
	dead, restarting, back bool
}

func (st *stage) say(format string, args ...any) {
	_, _ = fmt.Fprintf(st.o.Out, format+"\n", args...)
}

func (st *stage) note(e Event) { st.timeline = append(st.timeline, e) }

// killAt is the guarded tick whose run is killed: the first where its task is
// long in coming back, so that the other scenes are played meanwhile.
func (st *stage) killAt() int {
	if st.o.asynq() {
		return 0
	}
	return 1
}

// at prints the time since the demo began.
func (st *stage) at() string { return fmt.Sprintf("%5.1fs", time.Since(st.began).Seconds()) }

func (st *stage) tick(i int) time.Time    { return st.first.Add(time.Duration(i) * st.o.Tick) }
func (st *stage) label(i int) string      { return rfc3339(st.tick(i)) }
func (st *stage) killTick() string        { return st.label(st.killAt()) }
func rfc3339(t time.Time) string          { return t.UTC().Format(time.RFC3339) }
func (st *stage) hour(tick string) string { return strings.TrimSuffix(tick[11:], "Z") }

func (st *stage) play(ctx context.Context) (*Summary, error) {
	where := "an embedded Redis"
	if st.store.embedded == nil {
		where = "your Redis, under keys of its own that are removed at the end"
	}
	st.say("Solobeat demo: one report per hour, an hour is %s, %d replicas, %s.", st.o.Tick, st.o.Replicas, where)
	st.say("Files and logs: %s\n", st.o.Dir)
	if err := st.sceneUnguarded(ctx); err != nil {
		return nil, err
	}
	if err := st.startReplicas(ctx); err != nil {
		return nil, err
	}
	if err := st.guardedScenes(ctx); err != nil {
		return nil, err
	}
	sum, err := st.finish(ctx)
	if err != nil || st.o.Once {
		return sum, err
	}
	st.goOn(ctx)
	return sum, nil
}

// sceneUnguarded: four cron jobs on four machines.
func (st *stage) sceneUnguarded(ctx context.Context) error {
	at := time.Now().Add(700 * time.Millisecond).Truncate(time.Second).Add(time.Second)
	tick := rfc3339(at)
	st.say("1. Four cron jobs, no guard. Every replica forms the %s report by itself.", st.hour(tick))
	if err := st.fleet.unguarded(ctx, st.o.Replicas, tick); err != nil {
		return err
	}
	commits, err := readCommits(st.o.Dir)
	if err != nil {
		return err
	}
	for _, c := range commits {
		st.say("   %s  pid %d formed the report of %s", st.at(), c.PID, st.hour(c.Tick))
	}
	st.say("   %d reports for one hour. That is the problem.\n", len(commits))
	return nil
}

// startReplicas starts the fleet and lets all of it meet the first tick.
func (st *stage) startReplicas(ctx context.Context) error {
	st.say("2. %d replicas with Solobeat: worker and scheduler in one process, this job on each:\n", st.o.Replicas)
	for line := range strings.Lines(jobLines(st.o.Tick, st.o.Unsafe, st.o.asynq())) {
		_, _ = fmt.Fprint(st.o.Out, "     "+line)
	}
	st.say("")
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("demo: the replicas did not start within a minute"))
	defer cancel()
	var rs []*replica
	for n := 1; n <= st.o.Replicas; n++ {
		r, err := st.fleet.spawn(n, freeAddr())
		if err != nil {
			return err
		}
		rs = append(rs, r)
	}
	for _, r := range rs {
		if err := r.await(ctx, st.o.Dir); err != nil {
			return err
		}
		st.note(Event{MS: time.Now().UnixMilli(), Replica: r.n, PID: r.cmd.Process.Pid, Event: "up"})
	}
	if err := st.fleet.writeReplicas(); err != nil {
		return err
	}
	var err error
	if st.first, err = st.beforeFirstTick(ctx); err != nil {
		return err
	}
	plan := Plan{Kill: st.killTick(), Long: st.label(st.o.Ticks - 1)}
	if err := writeJSON(filepath.Join(st.o.Dir, planFile), plan); err != nil {
		return err
	}
	for _, r := range rs {
		r.order(orderSchedule)
	}
	st.say("   %s  all are up; the first hour is %s", st.at(), st.hour(st.label(0)))
	return nil
}

const (
	// leadTime is what the schedulers get to start before the first tick.
	leadTime = 2 * time.Second
	// tickOver is how long after a tick no scheduler that starts fires it.
	tickOver = 200 * time.Millisecond
)

// beforeFirstTick waits until a scheduler that starts now meets the returned
// tick first, and has the time to be up by then. Ticks go by the store's clock.
func (st *stage) beforeFirstTick(ctx context.Context) (time.Time, error) {
	offset, err := st.store.clockOffset(ctx)
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now().Add(offset)
	last := now.Truncate(st.o.Tick)
	if last.Add(st.o.Tick).Sub(now) < leadTime {
		last = last.Add(st.o.Tick)
	}
	select {
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	case <-time.After(last.Add(tickOver).Sub(now)):
	}
	return last.Add(st.o.Tick), nil
}

// finish takes the last scrapes and writes the summary.
func (st *stage) finish(ctx context.Context) (*Summary, error) {
	scrapes, err := st.finalScrapes(ctx)
	if err != nil {
		return nil, err
	}
	commits, err := readCommits(st.o.Dir)
	if err != nil {
		return nil, err
	}
	sum, perTick, err := summarize(scrapes, st.played(commits), st.timeline)
	if err != nil {
		return nil, err
	}
	sum.Ticks = st.o.Ticks
	if err := writeJSON(filepath.Join(st.o.Dir, summaryFile), sum); err != nil {
		return nil, err
	}
	st.say("Summary: %d hours, %d reports, %d duplicates, %d takeover(s), %d lock renewals, %d run(s) outlived the TTL, %d locks lost; without guards %d reports for one hour.",
		sum.Ticks, sum.Reports, sum.Duplicates, sum.Takeovers, sum.Renewals, sum.Outlived, sum.Lost, sum.UnguardedReports)
	st.say("Details: %s", filepath.Join(st.o.Dir, summaryFile))
	st.say("Next: look at %s, then point a Python app at a worker (README, \"From Python\").", filepath.Join(st.o.Dir, scheduleFile))
	for i := range st.o.Ticks {
		if n := perTick[st.label(i)]; n != 1 {
			return &sum, fmt.Errorf("%w: the hour %s has %d", ErrNotSolo, st.hour(st.label(i)), n)
		}
	}
	if sum.Duplicates > 0 {
		return &sum, fmt.Errorf("%w: %d duplicates", ErrNotSolo, sum.Duplicates)
	}
	if sum.UnguardedReports < 2 {
		return &sum, fmt.Errorf("%w: the unguarded scene has %d", ErrNotSolo, sum.UnguardedReports)
	}
	return &sum, nil
}

// played leaves out the reports of hours after the last scene: without --once
// the replicas go on meanwhile.
func (st *stage) played(commits []Commit) []Commit {
	planned := map[string]bool{}
	for i := range st.o.Ticks {
		planned[st.label(i)] = true
	}
	return slices.DeleteFunc(slices.Clone(commits), func(c Commit) bool { return c.Guarded && !planned[c.Tick] })
}

func (st *stage) finalScrapes(ctx context.Context) ([][]byte, error) {
	var scrapes [][]byte
	if st.killed.scrape != nil {
		scrapes = append(scrapes, st.killed.scrape)
	}
	for _, r := range st.fleet.alive() {
		b, err := st.fleet.scrape(ctx, r, false)
		if err != nil {
			return nil, err
		}
		scrapes = append(scrapes, b)
	}
	return scrapes, nil
}

// goOn shows the reports that follow until the user has seen enough.
func (st *stage) goOn(ctx context.Context) {
	rs := st.fleet.alive()
	st.say("\nThe replicas run on; Ctrl-C ends them. Metrics of replica %d: http://%s/metrics", rs[0].n, rs[0].addr)
	for {
		select {
		case <-ctx.Done():
			st.say("Stopping.")
			return
		case e := <-st.fleet.events:
			if slices.Contains([]string{"reported", "failed"}, e.Event) {
				st.say("   %s  hour %s: replica %d (pid %d) %s, fence %d", st.at(), st.hour(e.Tick), e.Replica, e.PID, e.Event, e.Fence)
			}
		}
	}
}
