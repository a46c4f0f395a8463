package scheduler

import (
	"testing"
	"time"
)

// A pause holds for all replicas at the very next tick, is counted as such and
// not as missed, and nothing of its time fires after it, whatever the policy.
func TestPause(t *testing.T) {
	for _, p := range []MisfirePolicy{MisfireSkip, MisfireOnce, MisfireAll} {
		t.Run(string(p), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemState()
				jobs := []*Job{job(t, "hourly", "0 * * * *", policy(p)), job(t, "other", "0 * * * *")}
				a, b := launch(t, m, "a", jobs), launch(t, m, "b", jobs)
				until(t, "2000-01-01T01:59:59Z")
				m.pause("hourly", true)
				until(t, "2000-01-01T05:30:00Z")
				m.pause("hourly", false)
				until(t, "2000-01-01T07:30:00Z")
				if got, want := ticksOf(m, "hourly"), "01T01:00:00 01T06:00:00 01T07:00:00 "; got != want {
					t.Errorf("published %q, want %q", got, want)
				}
				if got, want := ticksOf(m, "other"), "01T01:00:00 01T02:00:00 01T03:00:00 01T04:00:00 01T05:00:00 01T06:00:00 01T07:00:00 "; got != want {
					t.Errorf("another job: published %q, want %q", got, want)
				}
				if j := m.jobs["hourly"]; j.Skipped != 4 || j.Missed != 0 {
					t.Errorf("paused %d, missed %d, want 4 and 0", j.Skipped, j.Missed)
				}
				if n := a.counts.get("hourly", TickPaused) + b.counts.get("hourly", TickPaused); n != 4 {
					t.Errorf("told of %d paused ticks, want 4", n)
				}
				if n := a.counts.get("hourly", TickMissed) + b.counts.get("hourly", TickMissed); n != 0 {
					t.Errorf("told of %d missed ticks, want none", n)
				}
			})
		})
	}
}

// No scheduler ran while the job was paused, and one starts after it: what lies
// before the resume does not fire, also under `all`.
func TestPauseWhileAllWereDown(t *testing.T) {
	for _, p := range []MisfirePolicy{MisfireSkip, MisfireOnce, MisfireAll} {
		for _, resumed := range []bool{true, false} {
			t.Run(string(p), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					m := newMemState()
					jobs := []*Job{job(t, "hourly", "0 * * * *", policy(p))}
					a := launch(t, m, "a", jobs)
					until(t, "2000-01-01T01:30:00Z")
					a.stop()
					m.pause("hourly", true)
					until(t, "2000-01-01T04:30:00Z")
					if resumed {
						m.pause("hourly", false)
					}
					launch(t, m, "b", jobs)
					until(t, "2000-01-01T05:30:00Z")
					want, skipped := "01T01:00:00 01T05:00:00 ", int64(0)
					if !resumed {
						want, skipped = "01T01:00:00 ", 4
					}
					if got := ticksOf(m, "hourly"); got != want {
						t.Errorf("published %q, want %q", got, want)
					}
					if j := m.jobs["hourly"]; j.Skipped != skipped || j.Missed != 0 {
						t.Errorf("paused %d, missed %d, want %d and 0", j.Skipped, j.Missed, skipped)
					}
				})
			})
		}
	}
}

// A reply that was lost does not make a paused tick a published one.
func TestPausedTickWithLostReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		r := launch(t, m, "a", []*Job{job(t, "hourly", "0 * * * *")})
		until(t, "2000-01-01T00:59:00Z")
		m.pause("hourly", true)
		m.mu.Lock()
		m.loseNext = 1
		m.mu.Unlock()
		until(t, "2000-01-01T01:10:00Z")
		if n, fired := r.counts.get("hourly", TickPaused), r.counts.get("hourly", TickEnqueued); n != 1 || fired != 0 {
			t.Errorf("told of %d paused and %d published ticks, want 1 and 0", n, fired)
		}
	})
}

// How late a tick is counts from its due time: jitter is no lag.
func TestJitterIsNoLag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemState()
		j := job(t, "hourly", "0 * * * *", func(j *Job) { j.Jitter = 30 * time.Minute })
		if j.Delay() < time.Second || j.Delay() >= j.Jitter {
			t.Fatalf("a delay of %s", j.Delay())
		}
		r := launch(t, m, "a", []*Job{j})
		until(t, "2000-01-01T01:59:00Z")
		r.counts.mu.Lock()
		defer r.counts.mu.Unlock()
		if lag := r.counts.lag; len(lag) != 1 || lag[0] < 0 || lag[0] > time.Second {
			t.Errorf("lag %s", lag)
		}
		want := instant(t, "2000-01-01T01:00:00Z").Add(j.Delay())
		if msgs := m.messages(); len(msgs) != 1 || msgs[0].at.Before(want) || msgs[0].at.After(want.Add(time.Second)) {
			t.Errorf("published %+v, want one at %s", msgs, want)
		}
	})
}
