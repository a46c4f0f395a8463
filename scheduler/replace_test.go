package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// replace prepares and replaces, and waits until the jobs are in force.
func replace(t *testing.T, r *replica, jobs ...*Job) {
	t.Helper()
	set, err := r.Prepare(jobs)
	if err != nil {
		t.Fatal(err)
	}
	r.Replace(set)
	synctest.Wait()
}

// inZone changes the revision of a job, and not its ticks.
func inZone(t *testing.T, zone string) func(*Job) {
	t.Helper()
	return func(j *Job) {
		j.Spec.Timezone = &zone
		j.Schedule = mustSpec(t, j.Spec)
	}
}

// slowBeats is a store that gets each beat late.
type slowBeats struct {
	State
	late time.Duration
}

// Beat implements State.
func (s *slowBeats) Beat(ctx context.Context, r Replica, revisions map[string]string) (BeatReply, error) {
	<-time.After(s.late)
	return s.State.Beat(ctx, r, revisions)
}

// Jobs whose revision changes, and not their ticks, at the very instants at
// which they are due, more of them than one turn of the loop claims; and just
// before, with a beat that comes to the store after the tick.
func TestReplaceAtADueTick(t *testing.T) {
	for _, p := range []MisfirePolicy{MisfireSkip, MisfireOnce, MisfireAll} {
		for _, before := range []time.Duration{0, 500 * time.Millisecond} {
			t.Run(fmt.Sprint(p, before), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					n := claimBatch + 1
					if before > 0 {
						n = 10
					}
					version := func(zone string) (jobs []*Job) {
						for i := range n {
							jobs = append(jobs, job(t, fmt.Sprintf("j%04d", i), "every 10s", inZone(t, zone), policy(p)))
						}
						return jobs
					}
					m := newMemState()
					a := launch(t, &slowBeats{m, 2 * before}, "a", version("UTC"))
					until(t, "2000-01-01T00:00:05Z")
					for i, zone := range []string{"Europe/Berlin", "UTC"} {
						<-time.After(time.Until(instant(t, "2000-01-01T00:00:10Z").Add(time.Duration(i)*10*time.Second - before)))
						set, err := a.Prepare(version(zone))
						if err != nil {
							t.Fatal(err)
						}
						a.Replace(set)
					}
					until(t, "2000-01-01T00:00:35Z")
					noneTwice(t, m)
					if got := len(m.messages()); got != 3*n {
						t.Errorf("%d messages of %d", got, 3*n)
					}
				})
			})
		}
	}
}

// What changes without a change of the revision takes nothing from the store,
// and the next tick has it.
func TestReplaceOfTheSameRevision(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		version := func(n string) *Job {
			return job(t, "j", "every 1m", policy(MisfireAll), func(j *Job) { j.Queue = n })
		}
		a := launch(t, m, "a", []*Job{version("one")})
		until(t, "2000-01-01T00:01:30Z")
		load := a.self().Load
		replace(t, a, version("two"))
		until(t, "2000-01-01T00:03:30Z")
		if got, want := ticksOf(m, "j"), "01T00:01:00 01T00:02:00 01T00:03:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
		if n := a.counts.get("j", TickDuplicate) + a.counts.get("j", TickMissed); n != 0 || a.self().Load != load {
			t.Errorf("%d other outcomes, load instant %d, then %d", n, load, a.self().Load)
		}
		if q := a.pub.reqs[len(a.pub.reqs)-1].Queue; q != "two" {
			t.Errorf("the last message went to %s", q)
		}
	})
}

// refusing is a store that refuses the claims of one revision.
type refusing struct {
	*memState
	revision string
}

// Claim implements State.
func (s *refusing) Claim(ctx context.Context, r Replica, claims []Claim) []ClaimResult {
	if claims[0].Revision == s.revision {
		return []ClaimResult{{Err: errors.New("WRONGTYPE"), Refused: true}}
	}
	return s.memState.Claim(ctx, r, claims)
}

// A tick that the store refuses does not keep the change out that may mend it.
func TestReplaceOfARefusedJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		old := job(t, "j", "every 1m", inZone(t, "UTC"))
		m := &refusing{newMemState(), old.Revision()}
		told := 0
		a := launch(t, m, "a", []*Job{old}, func(c *Config) { c.Observer.Replaced = func([]*Job) { told++ } })
		until(t, "2000-01-01T00:01:30Z")
		replace(t, a, job(t, "j", "every 1m", inZone(t, "Europe/Berlin")))
		if told != 1 {
			t.Errorf("replaced %d times", told)
		}
		until(t, "2000-01-01T00:02:30Z")
		if got, want := ticksOf(m.memState, "j"), "01T00:02:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

// A new schedule counts from the change on, in both directions: nothing is made
// up for, and nothing that was due is dropped.
func TestReplaceIsNoReasonToFire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		a := launch(t, m, "a", []*Job{job(t, "j", "0 * * * *"), job(t, "same", "*/20 * * * *")})
		until(t, "2000-01-01T02:30:00Z")
		replace(t, a, job(t, "j", "15 * * * *"), job(t, "same", "*/20 * * * *"), job(t, "new", "10 2 * * *"))
		until(t, "2000-01-01T03:30:00Z")
		replace(t, a, job(t, "j", "0 * * * *"), job(t, "same", "*/20 * * * *"))
		until(t, "2000-01-01T04:30:00Z")
		if got, want := ticksOf(m, "j"), "01T01:00:00 01T02:00:00 01T03:15:00 01T04:00:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
		if got := ticksOf(m, "new"); got != "" {
			t.Errorf("the new job was fired for %s", got)
		}
		if got := strings.Count(ticksOf(m, "same"), " "); got != 13 {
			t.Errorf("the job that did not change: %s", ticksOf(m, "same"))
		}
	})
}

// A removed job is silent from then on, and its ticks before were settled.
func TestReplaceRemoves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		a := launch(t, m, "a", []*Job{job(t, "goes", "every 1m"), job(t, "stays", "every 1m")})
		launch(t, m, "b", []*Job{job(t, "goes", "every 1m"), job(t, "stays", "every 1m")})
		<-time.After(time.Until(instant(t, "2000-01-01T00:02:00Z")))
		replace(t, a, job(t, "stays", "every 1m"))
		until(t, "2000-01-01T00:04:30Z")
		if got, want := ticksOf(m, "goes"), "01T00:01:00 01T00:02:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
		if got, want := ticksOf(m, "stays"), "01T00:01:00 01T00:02:00 01T00:03:00 01T00:04:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

// While the store is out of reach a change waits: the tick that was due by the
// jobs before runs by them, and later ones by the new jobs.
func TestReplaceWhileTheStoreIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		a := launch(t, m, "a", []*Job{job(t, "j", "every 1m", policy(MisfireAll))})
		until(t, "2000-01-01T00:01:30Z")
		m.setDown(true)
		until(t, "2000-01-01T00:02:10Z")
		replace(t, a, job(t, "j", "every 7m", policy(MisfireAll)))
		replace(t, a, job(t, "j", "every 30s", policy(MisfireAll)))
		until(t, "2000-01-01T00:03:20Z")
		m.setDown(false)
		until(t, "2000-01-01T00:04:10Z")
		if got, want := ticksOf(m, "j"), "01T00:01:00 01T00:02:00 01T00:03:00 01T00:03:30 01T00:04:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

// An outage that is shorter than the time between two readings of the clock, and
// longer than open ticks hold up a change where the store does answer.
func TestReplaceInAShortOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		a := launch(t, m, "a", []*Job{job(t, "j", "every 10s", inZone(t, "UTC"), policy(MisfireAll))})
		until(t, "2000-01-01T00:00:02Z")
		m.setDown(true)
		until(t, "2000-01-01T00:00:11Z")
		replace(t, a, job(t, "j", "every 10s", inZone(t, "Asia/Tokyo"), policy(MisfireAll)))
		until(t, "2000-01-01T00:00:28Z")
		m.setDown(false)
		until(t, "2000-01-01T00:00:35Z")
		if got, want := ticksOf(m, "j"), "01T00:00:10 01T00:00:20 01T00:00:30 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

// A reload may be what mends a job: one that the store or its template keeps
// from running does not keep its mend out, and is told to work again.
func TestReplaceMendsAJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		a := launch(t, m, "a", []*Job{job(t, "j", "every 1m", inZone(t, "UTC"))})
		a.pub.mu.Lock()
		a.pub.fail = func(*tasks.Request) error { return errors.New("cannot") }
		a.pub.mu.Unlock()
		until(t, "2000-01-01T00:02:30Z")
		if a.counts.quarantined["j"] == nil {
			t.Fatal("the job is not set aside")
		}
		a.pub.mu.Lock()
		a.pub.fail = nil
		a.pub.mu.Unlock()
		replace(t, a, job(t, "j", "every 1m", inZone(t, "Europe/Berlin")))
		if err := a.counts.quarantined["j"]; err != nil {
			t.Errorf("still set aside: %v", err)
		}
		until(t, "2000-01-01T00:03:30Z")
		if got := ticksOf(m, "j"); !strings.Contains(got, "01T00:03:00") {
			t.Errorf("published %q", got)
		}
	})
}

// What Prepare refuses changes nothing.
func TestPrepareRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		a := launch(t, m, "a", []*Job{job(t, "j", "every 1m")})
		until(t, "2000-01-01T00:00:30Z")
		bad := job(t, "bad", "every 1m", func(j *Job) { j.Kwargs = map[string]any{"x": "{{ .Nope }}"}; j.Engine = "none" })
		_, err := a.Prepare([]*Job{job(t, "j", "every 2m"), bad, job(t, "j", "every 3m")})
		var first *JobError
		if !errors.As(err, &first) || !strings.Contains(err.Error(), "twice") {
			t.Errorf("error %v", err)
		}
		until(t, "2000-01-01T00:02:30Z")
		if got, want := ticksOf(m, "j"), "01T00:01:00 01T00:02:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
	})
}

// Replaced before it runs: the scheduler begins with the new jobs.
func TestReplaceBeforeTheStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		m.setDown(true)
		var told []string
		a := launch(t, m, "a", []*Job{job(t, "old", "every 1m")}, func(c *Config) {
			c.Observer.Replaced = func(jobs []*Job) { told = append(told, jobs[0].Name) }
		})
		until(t, "2000-01-01T00:00:10Z")
		replace(t, a, job(t, "new", "every 1m"))
		m.setDown(false)
		until(t, "2000-01-01T00:01:30Z")
		if got := ticksOf(m, "old") + ticksOf(m, "new"); got != "01T00:01:00 " || !slices.Equal(told, []string{"new"}) {
			t.Errorf("published %q, told %q", got, told)
		}
	})
}
