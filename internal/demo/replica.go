package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// TaskName is the demo's task.
const TaskName = "reports.hourly"

// Event is one thing that a replica tells its parent, a line on its stdout.
type Event struct {
	MS      int64  `json:"ms"`
	Tick    string `json:"tick"`
	Replica int    `json:"replica"`
	PID     int    `json:"pid"`
	Event   string `json:"event"`
	Fence   uint64 `json:"fence"`
	// Renewals counts the confirmed renewals of the run's lock.
	Renewals int    `json:"renewals,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

// Plan is how long the runs of which tick take.
type Plan struct {
	// Kill and Long are ticks; the run at Kill takes KillTakes, so that it can
	// be killed in the middle, the one at Long takes LongTakes.
	Kill string `json:"kill"`
	Long string `json:"long"`
}

const (
	usualTakes = 1200 * time.Millisecond
	killTakes  = 2500 * time.Millisecond
	longTakes  = 6 * time.Second
)

func (p Plan) takes(tick string) time.Duration {
	switch tick {
	case p.Kill:
		return killTakes
	case p.Long:
		return longTakes
	default:
		return usualTakes
	}
}

// Child is the side of a replica process: it forms reports, tells its parent,
// and ends with it.
type Child struct {
	dir     string
	replica int

	mu  sync.Mutex
	out io.Writer

	start chan struct{}
	quit  chan struct{}
	once  sync.Once // the order to quit may come twice
}

// NewChild reads the parent's orders from in and tells events on out. When in
// ends, the parent is gone, and the process exits.
func NewChild(dir string, replica int, in io.Reader, out io.Writer) *Child {
	c := newChild(dir, replica, out)
	go func() {
		c.obey(in)
		os.Exit(1) //nolint:forbidigo // the parent is gone, and a replica must not outlive it
	}()
	return c
}

func newChild(dir string, replica int, out io.Writer) *Child {
	return &Child{dir: dir, replica: replica, out: out, start: make(chan struct{}), quit: make(chan struct{})}
}

// The orders of the parent, one a line.
const (
	orderSchedule   = "schedule"
	orderUnschedule = "unschedule"
)

// obey returns when in ends.
func (c *Child) obey(in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch lines.Text() {
		case orderSchedule:
			close(c.start)
		case orderUnschedule:
			c.once.Do(func() { close(c.quit) })
		}
	}
}

// Emit tells the parent of an event.
func (c *Child) Emit(e Event) {
	e.MS, e.Replica, e.PID = time.Now().UnixMilli(), c.replica, os.Getpid()
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.out.Write(append(line, '\n'))
}

// Gate holds the scheduler back until the parent says so, since all replicas
// shall meet the first tick, and ends it when the last tick has passed.
func (c *Child) Gate(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.start:
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-c.quit:
			cancel()
		}
	}()
	return run(ctx)
}

// Fired tells that this replica published a tick.
func (c *Child) Fired(tick time.Time) {
	c.Emit(Event{Event: "claimed", Tick: rfc3339(tick)})
}

// Registry holds the demo's task.
func (c *Child) Registry() (*tasks.Registry, error) {
	var reg tasks.Registry
	type input struct {
		Hour string `json:"hour"`
	}
	err := tasks.Register(&reg, TaskName, func(ctx context.Context, in input) (Report, error) {
		fence, _ := tasks.Fence(ctx)
		c.Emit(Event{Event: "started", Tick: in.Hour, Fence: fence})
		r, err := formReport(ctx, c.dir, in.Hour, readPlan(c.dir).takes(in.Hour), fence, true)
		if err != nil {
			c.Emit(Event{Event: "failed", Tick: in.Hour, Fence: fence, Detail: err.Error()})
			return r, err
		}
		e := Event{Event: "reported", Tick: in.Hour, Fence: fence}
		if h, ok := lockguard.FromContext(ctx); ok {
			e.Renewals = h.Renewals()
		}
		c.Emit(e)
		return r, nil
	})
	return &reg, err
}

func readPlan(dir string) Plan {
	var p Plan
	if b, err := os.ReadFile(filepath.Join(dir, planFile)); err == nil {
		_ = json.Unmarshal(b, &p)
	}
	return p
}

// Unguarded is one cron job of scene 1: it forms the report at one tick, with
// neither scheduler nor queue, lock or record. When in ends, the parent is
// gone, and so is the cron job.
func Unguarded(ctx context.Context, in io.Reader, dir, tick string) error {
	at, err := time.Parse(time.RFC3339, tick)
	if err != nil {
		return fmt.Errorf("demo: tick %q: %w", tick, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel(errors.New("demo: the parent is gone"))
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(at)):
	}
	_, err = formReport(ctx, dir, tick, usualTakes, 0, false)
	return err
}

// NodeName is the Celery node name of replica n.
func NodeName(n int) string { return fmt.Sprintf("solobeat-demo-%d@localhost", n) }
