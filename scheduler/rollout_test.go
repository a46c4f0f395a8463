package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Two deployments in one namespace: the older one's jobs are stale, which is
// told after 5 minutes, and ends when the newer one leaves. Meanwhile the
// store is asked about once a second, for all jobs together.
func TestS22_TwoDeploymentsAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		var jobs []*Job
		for i := range 50 {
			jobs = append(jobs, job(t, fmt.Sprintf("old%02d", i), "* * * * *"))
		}
		old := launch(t, m, "old", jobs)
		pass(90 * time.Second)
		newer := launch(t, m, "new", []*Job{job(t, "other", "* * * * *")})
		pass(4 * time.Minute)
		synctest.Wait()
		if len(old.counts.stale) != 0 {
			t.Errorf("told after 4 minutes: %v", old.counts.stale)
		}
		m.mu.Lock()
		claims, asked := m.claims, m.asked
		m.mu.Unlock()
		pass(3 * time.Minute)
		synctest.Wait()
		if d := old.counts.stale["old00"]; d < 5*time.Minute {
			t.Errorf("after 7 minutes: stale for %s", d)
		}
		m.mu.Lock()
		if n := m.claims - claims; n > 4 {
			t.Errorf("%d claims in 3 minutes beside the other file", n)
		}
		if n := m.asked - asked; n < 170 || n > 190 {
			t.Errorf("asked %d times in 3 minutes, want once a second", n)
		}
		m.mu.Unlock()
		if n := old.counts.get("old00", TickStale); n < 4 || n > 6 {
			t.Errorf("%d ticks given up as stale", n)
		}
		newer.stop()
		pass(2 * time.Minute)
		synctest.Wait()
		if d := old.counts.stale["old00"]; d != 0 {
			t.Errorf("still stale for %s after the other left", d)
		}
		if got := ticksOf(m, "old00"); len(got) == 0 || m.messages()[len(m.messages())-1].by != "old" {
			t.Errorf("the old deployment does not go on: %s", got)
		}
		noneTwice(t, m)
	})
}

// The newest replica is killed: its file is buried with it, and the ticks of
// the older file that fell due since its last beat run, none later than 15 s.
func TestS02_NewestFileDies(t *testing.T) {
	for _, p := range []MisfirePolicy{MisfireSkip, MisfireOnce, MisfireAll} {
		t.Run(string(p), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemState()
				launch(t, m, "a", []*Job{job(t, "j", "every 2s", policy(p))})
				launch(t, m, "b", []*Job{job(t, "j", "every 2s", policy(p))})
				pass(20500 * time.Millisecond)
				gone := &stuck{State: m}
				launch(t, gone, "new", []*Job{job(t, "j", "every 7s", policy(p))})
				pass(10 * time.Second)
				gone.freeze()
				frozen := time.Now()
				pass(20500 * time.Millisecond)
				synctest.Wait()
				var ticks []time.Time
				for _, p := range m.messages() {
					if p.by != "new" && p.tick.After(frozen) {
						ticks = append(ticks, p.tick)
						if late := p.at.Sub(p.tick); late > 15*time.Second {
							t.Errorf("tick %s was %s late", p.tick, late)
						}
					}
				}
				slices.SortFunc(ticks, time.Time.Compare)
				if len(ticks) != 10 {
					t.Errorf("%d ticks of the old file in the 20 s after, want 10: %v", len(ticks), ticks)
				}
				noneTwice(t, m)
				gone.thaw()
			})
		})
	}
}

// A job that the newest file does not have is current nowhere, and does not
// make up for that when it is back.
func TestS10_RemovedAndBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		both := func() []*Job { return []*Job{job(t, "stays", "* * * * *"), job(t, "goes", "* * * * *")} }
		launch(t, m, "a", both())
		until(t, "2000-01-01T00:02:30Z")
		without := launch(t, m, "b", []*Job{job(t, "stays", "* * * * *")})
		until(t, "2000-01-01T00:05:30Z")
		without.stop()
		until(t, "2000-01-01T00:07:30Z")
		if got, want := ticksOf(m, "goes"), "01T00:01:00 01T00:02:00 01T00:06:00 01T00:07:00 "; got != want {
			t.Errorf("published %q, want %q", got, want)
		}
		if got := len(ticksOf(m, "stays")); got != 7*len("01T00:01:00 ") {
			t.Errorf("the other job: %s", ticksOf(m, "stays"))
		}
		noneTwice(t, m)
	})
}

// L15, the half of the tick: a job of a moment, its message long gone from the
// queue when the second scheduler, 2 s behind, comes to the tick.
func TestL15_TickOutlivesItsRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		jobs := []*Job{job(t, "j", "every 10s")}
		behind := func(d time.Duration) func(*Config) {
			return func(c *Config) { c.Clock = func() time.Time { return time.Now().Add(d) } }
		}
		slow := &stuck{State: m}
		launch(t, m, "a", jobs, behind(0))
		launch(t, slow, "b", jobs, behind(-2*time.Second))
		pass(9 * time.Second)
		for range 5 {
			slow.freeze()
			pass(3 * time.Second) // a has claimed, the run is over
			slow.thaw()
			pass(7 * time.Second)
		}
		synctest.Wait()
		if got := len(m.messages()); got != 5 {
			t.Errorf("%d messages of 5 ticks", got)
		}
		noneTwice(t, m)
	})
}
