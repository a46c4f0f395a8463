package scheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
)

// fakePublisher makes messages that are their request's id.
type fakePublisher struct {
	mu   sync.Mutex
	reqs []*tasks.Request
	fail func(*tasks.Request) error
}

// Prepare implements Publisher.
func (p *fakePublisher) Prepare(r *tasks.Request) (string, []byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reqs = append(p.reqs, r)
	if p.fail != nil {
		if err := p.fail(r); err != nil {
			return "", nil, err
		}
	}
	queue := r.Queue
	if queue == "" {
		queue = "celery"
	}
	return queue, []byte(r.ID), nil
}

// counts is what an observer of one replica saw.
type counts struct {
	mu          sync.Mutex
	ticks       map[string]int // schedule/outcome
	aside       int
	quarantined map[string]error
	stale       map[string]time.Duration
	lag         []time.Duration
	registered  int
}

func (c *counts) get(schedule string, o TickOutcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ticks[schedule+"/"+string(o)]
}

func (c *counts) observer() Observer {
	c.ticks, c.quarantined, c.stale = map[string]int{}, map[string]error{}, map[string]time.Duration{}
	locked := func(f func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		f()
	}
	return Observer{
		Tick:        func(s string, o TickOutcome, n int) { locked(func() { c.ticks[s+"/"+string(o)] += n }) },
		StandAside:  func(string) { locked(func() { c.aside++ }) },
		Quarantined: func(s string, err error) { locked(func() { c.quarantined[s] = err }) },
		StaleFor:    func(s string, d time.Duration) { locked(func() { c.stale[s] = d }) },
		Lag:         func(_ string, d time.Duration) { locked(func() { c.lag = append(c.lag, d) }) },
		Registered:  func() { locked(func() { c.registered++ }) },
	}
}

// replica is one running scheduler of a test.
type replica struct {
	*Scheduler
	counts *counts
	pub    *fakePublisher
	stop   func() // orderly
	done   chan struct{}
}

// launch starts a scheduler; it is stopped when the test ends.
func launch(t *testing.T, state State, id string, jobs []*Job, change ...func(*Config)) *replica {
	t.Helper()
	r := &replica{counts: &counts{}, pub: &fakePublisher{}, done: make(chan struct{})}
	cfg := Config{Jobs: jobs, State: state, Publisher: r.pub, ID: id, File: id + ".yaml", Logger: testkit.Logger(t), Observer: r.counts.observer()}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if r.Scheduler, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(r.done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	r.stop = func() {
		cancel()
		<-r.done
	}
	t.Cleanup(r.stop)
	return r
}

// job returns a job with a schedule, "every …" or five cron fields.
func job(t *testing.T, name, spec string, change ...func(*Job)) *Job {
	t.Helper()
	cfg := SpecConfig{Cron: spec}
	if n, ok := cutPrefix(spec, "every "); ok {
		cfg = SpecConfig{Every: n}
	}
	j := &Job{Name: name, Task: "tests.tick", Spec: cfg, Schedule: mustSpec(t, cfg)}
	for _, f := range change {
		f(j)
	}
	return j
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):], true
	}
	return s, false
}

func policy(p MisfirePolicy, deadline ...time.Duration) func(*Job) {
	return func(j *Job) {
		j.Misfire.Policy = p
		if len(deadline) > 0 {
			j.Misfire.Deadline = deadline[0]
		}
	}
}

// bubble runs f with a fake clock that begins at 2000-01-01T00:00:00Z.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// pass lets time pass on the fake clock.
func pass(d time.Duration) { <-time.After(d) }

// until sleeps until the fake clock shows an instant, and all is at rest.
func until(t *testing.T, text string) {
	t.Helper()
	pass(time.Until(instant(t, text)))
	synctest.Wait()
}

// ticksOf lists the published ticks of a job in the order of their publishing.
func ticksOf(m *memState, name string) string {
	text := ""
	for _, p := range m.messages() {
		if p.job == name {
			text += p.tick.Format("02T15:04:05 ")
		}
	}
	return text
}

// noneTwice fails for a tick that was published twice or before its time.
func noneTwice(t *testing.T, m *memState) {
	t.Helper()
	seen := map[string]bool{}
	for _, p := range m.messages() {
		key := fmt.Sprintf("%s %s", p.job, p.tick)
		if seen[key] {
			t.Errorf("published twice: %s", key)
		}
		seen[key] = true
		if p.at.Before(p.tick) {
			t.Errorf("published early: %s at %s", key, p.at)
		}
	}
}
