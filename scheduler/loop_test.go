package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

func TestS10_DownTimeByPolicy(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy func(*Job)
		want   string
		missed int64
	}{
		{"default is once", func(*Job) {}, "01T01:00:00 01T02:00:00 ", 0},
		{"once within its deadline", policy(MisfireOnce, time.Hour), "01T01:00:00 01T02:00:00 ", 0},
		{"once past its deadline", policy(MisfireOnce, 30*time.Minute), "01T02:00:00 ", 1},
		{"skip", policy(MisfireSkip), "01T02:00:00 ", 1},
		{"all", policy(MisfireAll), "01T01:00:00 01T02:00:00 ", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemState()
				jobs := []*Job{job(t, "hourly", "0 * * * *", c.policy)}
				r := launch(t, m, "a", jobs)
				until(t, "2000-01-01T00:55:00Z")
				r.stop()
				until(t, "2000-01-01T01:55:00Z")
				launch(t, m, "b", jobs)
				until(t, "2000-01-01T02:30:00Z")
				if got := ticksOf(m, "hourly"); got != c.want {
					t.Errorf("published %q, want %q", got, c.want)
				}
				if got := m.jobs["hourly"].Missed; got != c.missed {
					t.Errorf("missed %d, want %d", got, c.missed)
				}
			})
		})
	}
}

// A job that was disabled does not make up for the time when it was.
func TestS10_EnabledAgainDoesNotFire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		on := func() []*Job { return []*Job{job(t, "hourly", "0 * * * *")} }
		off := func() []*Job { return []*Job{job(t, "hourly", "0 * * * *", func(j *Job) { j.Disabled = true })} }
		r := launch(t, m, "a", on())
		until(t, "2000-01-01T01:30:00Z")
		r.stop()
		r = launch(t, m, "b", off())
		until(t, "2000-01-01T05:30:00Z")
		r.stop()
		launch(t, m, "c", on())
		until(t, "2000-01-01T05:59:00Z")
		if got, want := ticksOf(m, "hourly"), "01T01:00:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
		until(t, "2000-01-01T06:30:00Z")
		if got, want := ticksOf(m, "hourly"), "01T01:00:00 01T06:00:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

// Down for three ticks, also when they are so short that none is 15 s late.
func TestS23_DownForThreeTicks(t *testing.T) {
	for _, c := range []struct {
		policy MisfirePolicy
		every  string
		down   time.Duration
		want   int
	}{
		{MisfireOnce, "every 1h", 210 * time.Minute, 1},
		{MisfireOnce, "every 5s", 17 * time.Second, 1},
		{MisfireOnce, "every 2s", 21 * time.Second, 1},
		{MisfireAll, "every 1h", 210 * time.Minute, 3},
		{MisfireAll, "every 5s", 17 * time.Second, 3},
		{MisfireSkip, "every 1h", 210 * time.Minute, 0},
		{MisfireSkip, "every 20s", 70 * time.Second, 1}, // the last one is not 15 s late
	} {
		t.Run(fmt.Sprintf("%s %s", c.policy, c.every), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemState()
				jobs := []*Job{job(t, "j", c.every, policy(c.policy))}
				pass(500 * time.Millisecond)
				r := launch(t, m, "a", jobs)
				for len(m.messages()) == 0 {
					pass(500 * time.Millisecond)
				}
				r.stop()
				before := len(m.messages())
				pass(c.down)
				r = launch(t, m, "b", jobs)
				pass(100 * time.Millisecond)
				synctest.Wait()
				if got := len(m.messages()) - before; got != c.want {
					t.Errorf("%d ticks caught up, want %d: %s", got, c.want, ticksOf(m, "j"))
				}
				if n, mi := len(m.messages()), m.jobs["j"].Missed; int64(n)+mi != m.jobs["j"].Seq+mi {
					t.Errorf("%d published, seq %d", n, m.jobs["j"].Seq)
				}
				noneTwice(t, m)
				r.stop()
			})
		})
	}
}

// A short fault is no misfire: ticks up to 15 s late all run under once.
func TestS06_ShortFaultLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		jobs := []*Job{job(t, "j", "every 2s")}
		a, b := launch(t, m, "a", jobs), launch(t, m, "b", jobs)
		pass(20500 * time.Millisecond)
		m.setDown(true)
		pass(10 * time.Second)
		m.setDown(false)
		pass(9500 * time.Millisecond)
		synctest.Wait()
		if got := len(m.messages()); got != 20 {
			t.Errorf("%d ticks in 40 s, want 20: %s", got, ticksOf(m, "j"))
		}
		noneTwice(t, m)
		if a.Ready() != nil || b.Ready() != nil {
			t.Errorf("not ready: %v, %v", a.Ready(), b.Ready())
		}
	})
}

func TestS13_PeriodLongerThanProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		jobs := []*Job{job(t, "j", "every 20s")}
		start := time.Now()
		for i := 0; time.Since(start) < 2*time.Minute; i++ {
			r := launch(t, m, fmt.Sprint("r", i), jobs)
			pass(7 * time.Second)
			r.stop()
		}
		if got, want := ticksOf(m, "j"), "01T00:00:20 01T00:00:40 01T00:01:00 01T00:01:20 01T00:01:40 01T00:02:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
		for _, p := range m.messages() {
			if late := p.at.Sub(p.tick); late > time.Second {
				t.Errorf("tick %s was %s late", p.tick, late)
			}
		}
	})
}

func TestS14_TwoReplicasTenMinutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		jobs := []*Job{job(t, "j", "* * * * *")}
		a, b := launch(t, m, "a", jobs), launch(t, m, "b", jobs)
		until(t, "2000-01-01T00:10:30Z")
		if got := len(m.messages()); got != 10 {
			t.Errorf("%d messages, want 10", got)
		}
		noneTwice(t, m)
		if got := a.counts.aside + b.counts.aside; got != 10 {
			t.Errorf("stood aside %d times, want once per tick", got)
		}
		if got := a.counts.get("j", TickEnqueued) + b.counts.get("j", TickEnqueued); got != 10 {
			t.Errorf("%d ticks counted as enqueued, want 10", got)
		}
	})
}

func TestS15_ManyJobsAtOneMinute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		var jobs []*Job
		for i := range 300 {
			jobs = append(jobs, job(t, fmt.Sprintf("j%03d", i), "5 * * * *"))
		}
		for i := range 10 {
			launch(t, m, fmt.Sprint("r", i), jobs)
		}
		until(t, "2000-01-01T00:05:05Z")
		if got := len(m.messages()); got != 300 {
			t.Errorf("%d of 300 published within 5 s", got)
		}
		noneTwice(t, m)
	})
}

func TestS16_FreshStoreFiresNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		until(t, "2000-01-15T12:00:00Z")
		m := newMemState()
		jobs := []*Job{job(t, "monthly", "0 0 1 * *")}
		for _, id := range []string{"a", "b", "c"} {
			launch(t, m, id, jobs)
		}
		until(t, "2000-01-15T14:00:00Z")
		if got := ticksOf(m, "monthly"); got != "" {
			t.Errorf("published %q on a fresh store", got)
		}
	})
}

// A deploy on the last day of the month: the tick comes at its time only.
func TestS16_FiresAtItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		until(t, "2000-01-31T22:30:00Z")
		m := newMemState()
		jobs := []*Job{job(t, "monthly", "0 0 1 * *")}
		launch(t, m, "a", jobs)
		launch(t, m, "b", jobs)
		until(t, "2000-02-01T00:01:00Z")
		if got, want := ticksOf(m, "monthly"), "01T00:00:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

// Neither a step of a replica's clock nor one of the store's clock fires a
// tick again or stops the schedule.
func TestS19_ClockStepsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		jobs := []*Job{job(t, "j", "0 * * * *")}
		var mu sync.Mutex
		var step time.Duration
		launch(t, m, "a", jobs, func(c *Config) {
			c.Clock = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(step)
			}
		})
		launch(t, m, "b", jobs)
		until(t, "2000-01-01T01:00:01Z")
		mu.Lock()
		step = -11 * time.Minute
		mu.Unlock()
		until(t, "2000-01-01T02:00:01Z")
		m.mu.Lock()
		m.skew = -11 * time.Minute
		m.mu.Unlock()
		until(t, "2000-01-01T03:12:00Z")
		if got, want := ticksOf(m, "j"), "01T01:00:00 01T02:00:00 01T03:00:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
		noneTwice(t, m)
	})
}

// While the store is out of reach at the start nothing is published, and the
// replica waits, ready, as long as it takes.
func TestS01_StartWithoutStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		m.setDown(true)
		jobs := []*Job{job(t, "j", "* * * * *")}
		r := launch(t, m, "a", jobs)
		until(t, "2000-01-01T00:05:30Z")
		if err := r.Ready(); err != nil {
			t.Errorf("not ready while it waits for the store: %v", err)
		}
		m.setDown(false)
		until(t, "2000-01-01T00:07:30Z")
		if got, want := ticksOf(m, "j"), "01T00:06:00 01T00:07:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

// All data lost: each replica registers again by itself, nothing fires
// retroactively or twice, and the schedule goes on.
func TestS02_DataLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		jobs := []*Job{job(t, "j", "every 10s"), job(t, "daily", "0 0 * * *")}
		a, b := launch(t, m, "a", jobs), launch(t, m, "b", jobs)
		until(t, "2000-01-01T00:01:55Z")
		m.flush()
		until(t, "2000-01-01T00:03:05Z")
		if got := len(m.messages()); got != 18 {
			t.Errorf("%d messages, want 18: %s", got, ticksOf(m, "j"))
		}
		noneTwice(t, m)
		if a.counts.registered != 2 || b.counts.registered != 2 {
			t.Errorf("registered %d and %d times, want 2 and 2", a.counts.registered, b.counts.registered)
		}
	})
}

// stuck is a State whose calls hang while the gate is closed, as those of a
// process that is stopped: they go on, with what they had, when it wakes.
type stuck struct {
	State
	mu   sync.Mutex
	gate chan struct{}
}

func (s *stuck) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *stuck) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = nil
}

func (s *stuck) pass(ctx context.Context) context.Context {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return context.WithoutCancel(ctx)
}

// Now implements State.
func (s *stuck) Now(ctx context.Context) (time.Time, error) { return s.State.Now(s.pass(ctx)) }

// Beat implements State.
func (s *stuck) Beat(ctx context.Context, r Replica, revs map[string]string) (BeatReply, error) {
	return s.State.Beat(s.pass(ctx), r, revs)
}

// Claim implements State.
func (s *stuck) Claim(ctx context.Context, r Replica, claims []Claim) []ClaimResult {
	return s.State.Claim(s.pass(ctx), r, claims)
}

// Current implements State.
func (s *stuck) Current(ctx context.Context) (FileInfo, error) { return s.State.Current(s.pass(ctx)) }

// A replica that stands still past its burial loses nothing for the others,
// and doubles nothing when it wakes.
func TestS03_ReplicaStandsStill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		jobs := []*Job{job(t, "j", "every 2s")}
		frozen := &stuck{State: m}
		a := launch(t, frozen, "a", jobs)
		launch(t, m, "b", jobs)
		pass(21 * time.Second)
		frozen.freeze()
		pass(20 * time.Second)
		frozen.thaw()
		pass(20 * time.Second)
		synctest.Wait()
		if got := len(m.messages()); got != 30 {
			t.Errorf("%d messages in 61 s, want 30: %s", got, ticksOf(m, "j"))
		}
		noneTwice(t, m)
		if a.counts.registered != 2 {
			t.Errorf("the frozen replica registered %d times, want again after its burial", a.counts.registered)
		}
	})
}

// P12: nothing waits for a dead scheduler's lease.
func TestP12_KilledSchedulerIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		jobs := []*Job{job(t, "j", "every 5s")}
		dead := &stuck{State: m}
		launch(t, dead, "a", jobs)
		launch(t, m, "b", jobs)
		pass(11 * time.Second)
		dead.freeze()
		pass(30 * time.Second)
		synctest.Wait()
		for _, p := range m.messages() {
			if late := p.at.Sub(p.tick); late > time.Second {
				t.Errorf("tick %s was %s late", p.tick, late)
			}
		}
		if got := len(m.messages()); got != 8 {
			t.Errorf("%d messages, want 8", got)
		}
		dead.thaw()
	})
}

// A machine that was suspended for three hours (its clock stood still, the
// store's went on) catches up once, by policy, and is on time afterwards.
func TestP11_Suspended(t *testing.T) {
	for _, c := range []struct {
		policy MisfirePolicy
		want   int
	}{{MisfireOnce, 1}, {MisfireSkip, 0}, {MisfireAll, 179}} {
		t.Run(string(c.policy), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemState()
				r := launch(t, m, "a", []*Job{job(t, "j", "* * * * *", policy(c.policy))})
				until(t, "2000-01-01T00:01:20Z")
				m.mu.Lock()
				m.skew = 3*time.Hour - 40*time.Second
				m.mu.Unlock()
				pass(20 * time.Second) // 03:01:00
				synctest.Wait()
				got := len(m.messages()) - 1
				if late := m.messages()[len(m.messages())-1]; late.at.Sub(late.tick) > 15*time.Second && c.policy == MisfireAll {
					t.Errorf("the last of the late ticks was %s late", late.at.Sub(late.tick))
				}
				if got < c.want || got > c.want+1 {
					t.Errorf("%d ticks caught up, want %d: %s", got, c.want, ticksOf(m, "j"))
				}
				before := len(m.messages())
				pass(5 * time.Minute)
				synctest.Wait()
				if got := len(m.messages()) - before; got != 5 {
					t.Errorf("%d ticks in the 5 minutes after, want 5", got)
				}
				noneTwice(t, m)
				if r.Ready() != nil {
					t.Error(r.Ready())
				}
			})
		})
	}
}

// The shortest deadline that is accepted loses no tick to the loop's sleep and
// the job's jitter; shorter ones are refused.
func TestF14_DeadlineAndLoop(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		for _, d := range []time.Duration{-time.Second, time.Millisecond, time.Second, 9 * time.Second} {
			err := job(t, "j", "* * * * *", policy(MisfireOnce, d)).Validate()
			var je *JobError
			if !errors.As(err, &je) || je.Field != "misfire.deadline" || je.Cure == "" {
				t.Errorf("deadline %s: %v", d, err)
			}
		}
		j := job(t, "j", "* * * * *", policy(MisfireOnce, MinDeadline), func(j *Job) { j.Jitter = 20 * time.Second })
		if err := j.Validate(); err == nil {
			t.Error("a deadline within the jitter was accepted")
		}
	})
	t.Run("zero is raised", func(t *testing.T) {
		for spec, want := range map[string]time.Duration{"every 1s": time.Minute, "0 * * * *": time.Hour, "0 0 1 * *": 24 * time.Hour} {
			j := job(t, "j", spec)
			if got := j.DeadlineOf(j.Schedule.Next(time.Unix(1e9, 0)).At); got != want {
				t.Errorf("%s: default deadline %s, want %s", spec, got, want)
			}
		}
	})
	t.Run("1000 slots", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			m := newMemState()
			launch(t, m, "a", []*Job{
				job(t, "plain", "* * * * *", policy(MisfireOnce, MinDeadline)),
				job(t, "jitter", "* * * * *", policy(MisfireOnce, MinDeadline+20*time.Second), func(j *Job) { j.Jitter = 20 * time.Second }),
			})
			pass(1000*time.Minute + 30*time.Second)
			synctest.Wait()
			if got := len(m.messages()); got != 2000 {
				t.Errorf("%d of 2000 slots published", got)
			}
			noneTwice(t, m)
		})
	})
}

// A job whose template cannot be rendered, whose publisher panics or whose
// schedule does not move on is set aside; the others go on.
func TestPoisonJobIsSetAside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		bad := errors.New("cannot be rendered")
		jobs := []*Job{
			job(t, "good", "every 10s"), job(t, "bad", "every 1m"), job(t, "panics", "every 1m"),
			job(t, "stands", "every 1m", func(j *Job) { j.Schedule = standstill{j.Schedule} }),
			job(t, "bad-all", "every 1m", policy(MisfireAll)),
		}
		r := launch(t, m, "a", jobs, func(c *Config) {
			c.Publisher.(*fakePublisher).fail = func(r *tasks.Request) error {
				switch {
				case strings.HasPrefix(r.Guard.Job, "bad") && r.Guard.Tick < instant(t, "2000-01-01T00:03:00Z").UnixMilli():
					return bad
				case r.Guard.Job == "panics":
					panic("publisher")
				}
				return nil
			}
		})
		until(t, "2000-01-01T00:02:30Z")
		for _, name := range []string{"bad", "panics", "stands", "bad-all"} {
			if r.counts.quarantined[name] == nil {
				t.Errorf("%s is not set aside", name)
			}
		}
		if got := len(m.messages()); got != 15 {
			t.Errorf("%d ticks of the good job, want 15", got)
		}
		until(t, "2000-01-01T00:05:05Z")
		if got, want := ticksOf(m, "bad"), "01T00:03:00 01T00:04:00 01T00:05:00 "; got != want {
			t.Errorf("bad: published %q after it was mended, want %q", got, want)
		}
		if got, want := ticksOf(m, "bad-all"), "01T00:03:00 01T00:04:00 01T00:05:00 "; got != want {
			t.Errorf("bad-all: published %q after it was mended, want %q", got, want)
		}
		if err := r.counts.quarantined["bad"]; err != nil {
			t.Errorf("bad is still set aside: %v", err)
		}
		if got := r.counts.get("bad", TickError); got != 2 {
			t.Errorf("bad: %d ticks failed, want 2", got)
		}
	})
}

type standstill struct{ Schedule }

// Next implements Schedule, badly.
func (s standstill) Next(after time.Time) Occurrence {
	o := s.Schedule.Next(after)
	o.At = o.At.Add(-time.Hour)
	return o
}

// A reply that is lost after the claim was done: the tick is known as our own,
// published once and counted once.
func TestLostReplyIsOurOwnTick(t *testing.T) {
	for _, p := range []MisfirePolicy{MisfireOnce, MisfireAll, MisfireSkip} {
		t.Run(string(p), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemState()
				r := launch(t, m, "a", []*Job{job(t, "j", "every 10s", policy(p))})
				until(t, "2000-01-01T00:00:05Z")
				m.mu.Lock()
				m.loseNext = 1
				m.mu.Unlock()
				until(t, "2000-01-01T00:00:10.5Z")
				m.setDown(true) // and then it is away, for longer than a tick
				until(t, "2000-01-01T00:00:41Z")
				m.setDown(false)
				until(t, "2000-01-01T00:01:01Z")
				noneTwice(t, m)
				if n := len(m.messages()); n != r.counts.get("j", TickEnqueued) {
					t.Errorf("%d published, %d counted", n, r.counts.get("j", TickEnqueued))
				}
				got := r.counts.get("j", TickEnqueued) + r.counts.get("j", TickMissed)
				if got != 6 {
					t.Errorf("%d ticks accounted for, want 6 (%v)", got, r.counts.ticks)
				}
			})
		})
	}
}

// A tick that was recorded as missed in a call whose reply was lost is no
// published one.
func TestLostReplyOfAMissedTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		r := launch(t, m, "a", []*Job{job(t, "j", "* * * * *", policy(MisfireSkip))})
		until(t, "2000-01-01T00:00:55Z")
		m.setDown(true)
		until(t, "2000-01-01T00:01:20Z")
		m.mu.Lock()
		m.down, m.loseNext = false, 1
		m.mu.Unlock()
		until(t, "2000-01-01T00:01:30Z")
		if missed, published := r.counts.get("j", TickMissed), r.counts.get("j", TickEnqueued); missed != 1 || published != 0 || len(m.messages()) != 0 {
			t.Errorf("%d counted as missed, %d as published; %d messages", missed, published, len(m.messages()))
		}
	})
}

// Late ticks are let through at a bounded rate; ticks on time are not held up
// by them.
func TestLateTicksAreRateLimited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		var jobs []*Job
		for i := range 500 {
			jobs = append(jobs, job(t, fmt.Sprintf("j%03d", i), "0 * * * *"))
		}
		jobs = append(jobs, job(t, "now", "every 1s"))
		first := launch(t, m, "a", jobs)
		pass(time.Second)
		first.stop()
		until(t, "2000-01-01T01:30:00.5Z")
		r := launch(t, m, "b", jobs, func(c *Config) { c.LatePerSecond = 50 })
		pass(2 * time.Second)
		synctest.Wait()
		if got := len(m.messages()); got < 100 || got > 160 {
			t.Errorf("%d published within 2 s, want about 150", got)
		}
		if got := len(strings.Fields(ticksOf(m, "now"))); got < 2 {
			t.Errorf("the job that is on time had %d ticks in 2 s", got)
		}
		if r.Ready() != nil {
			t.Error(r.Ready())
		}
		pass(10 * time.Second)
		synctest.Wait()
		if got := len(m.messages()); got < 500 {
			t.Errorf("%d published within 12 s", got)
		}
		noneTwice(t, m)
	})
}

// Two replicas with different zone data reckon different instants for one
// civil time; it fires once.
func TestZoneDataMix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		until(t, "2000-01-01T09:00:00Z")
		plain := func() *Job { return job(t, "j", "30 9 * * *") }
		moved := plain()
		moved.Schedule = shifted{moved.Schedule}
		launch(t, m, "a", []*Job{plain()})
		launch(t, m, "b", []*Job{moved})
		until(t, "2000-01-01T11:30:00Z")
		if got := len(m.messages()); got != 1 {
			t.Errorf("%d published in a day, want 1: %s", got, ticksOf(m, "j"))
		}
	})
}

// shifted is a schedule an hour later, with the same civil times.
type shifted struct{ Schedule }

func (s shifted) move(o Occurrence) Occurrence {
	if !o.IsZero() {
		zone := time.FixedZone("moved", -3600)
		o.At = o.At.Add(time.Hour)
		o.Local = o.At.In(zone)
		o.Label = Label(o.Local)
	}
	return o
}

// Next implements Schedule.
func (s shifted) Next(after time.Time) Occurrence {
	return s.move(s.Schedule.Next(after.Add(-time.Hour)))
}

// Prev implements Schedule.
func (s shifted) Prev(at time.Time) Occurrence { return s.move(s.Schedule.Prev(at.Add(-time.Hour))) }

// Count implements Schedule.
func (s shifted) Count(after, upTo time.Time) int {
	return s.Schedule.Count(after.Add(-time.Hour), upTo.Add(-time.Hour))
}

// Location implements Schedule.
func (s shifted) Location() *time.Location { return time.FixedZone("moved", -3600) }
