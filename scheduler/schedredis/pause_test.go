package schedredis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
)

// jobState reads one job.
func jobState(t *testing.T, s *schedredis.State, job string) scheduler.JobState {
	t.Helper()
	states, err := s.Load(ctxOf(t), []string{job})
	if err != nil {
		t.Fatal(err)
	}
	return states[0]
}

// story is a job's history in short, the oldest first.
func story(t *testing.T, s *schedredis.State, job string) []string {
	t.Helper()
	entries, err := s.History(ctxOf(t), job, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append([]string{fmt.Sprintf("%s %d %s %s", e.Outcome, e.Count, e.By, e.Reason)}, all...)
	}
	return all
}

// The ticks of a paused job are settled as paused, whatever step their claim
// is at, but for what was sent before; after it none of them fires.
func TestPause(t *testing.T) {
	each(t, func(t *testing.T, rdb *redis.Client, s *schedredis.State) {
		ctx := ctxOf(t)
		c := claims{t, s, member("a", "f1")}
		other := claims{t, s, member("b", "f1")}
		if _, _, err := s.Pause(ctx, "j", "ops@host", ""); !errors.Is(err, scheduler.ErrUnknownJob) {
			t.Errorf("pause of an unknown job: %v", err)
		}
		if _, _, err := s.Resume(ctx, "j", "ops@host", ""); !errors.Is(err, scheduler.ErrUnknownJob) {
			t.Errorf("resume of an unknown job: %v", err)
		}
		beat(t, s, "a", "f1", map[string]string{"j": "r1", "other": "r1"})
		now, err := s.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tick := now.Truncate(time.Second).Add(-20 * time.Second)
		at := func(n int) time.Time { return tick.Add(time.Duration(n) * time.Second) }
		backdate(t, rdb, "j", at(-60))
		backdate(t, rdb, "other", at(-60))
		look := func(c *scheduler.Claim) { c.Step, c.List = scheduler.Look, "" }
		sent := func(c *scheduler.Claim) { c.Step, c.List, c.MissAfter = scheduler.Sent, "", tick }

		c.want("before the pause", c.try("j", at(0)), scheduler.Fired)
		c.want("a look before the pause", c.try("j", at(1), look), scheduler.Fired)
		p, changed, err := s.Pause(ctx, "j", "ops@host", "new database")
		if err != nil || !changed || p.By != "ops@host" || p.Reason != "new database" || p.Since.Before(now.Truncate(time.Millisecond)) {
			t.Fatalf("pause: %+v %v %v", p, changed, err)
		}
		if again, changed, err := s.Pause(ctx, "j", "another", "another reason"); err != nil || changed || again != p {
			t.Errorf("a second pause: %+v %v %v", again, changed, err)
		}
		c.want("sent before the pause", c.try("j", at(1), sent), scheduler.Fired)
		c.want("a paused tick before its time", c.try("j", now.Add(time.Hour)), scheduler.Early)
		c.want("in order, the one before is open", c.try("j", at(3), func(c *scheduler.Claim) { c.InOrder, c.Prev = true, at(2) }), scheduler.Gap)
		c.want("a paused tick", c.try("j", at(2)), scheduler.Paused)
		if dup := other.want("again", other.try("j", at(2)), scheduler.Duplicate); dup.LastAs != scheduler.Paused || dup.By != "a" {
			t.Errorf("duplicate of a paused tick: %+v", dup)
		}
		other.want("a look", other.try("j", at(3), look), scheduler.Paused)
		c.want("with older ones", c.try("j", at(6), func(c *scheduler.Claim) { c.Jumped, c.Base = 2, at(3) }), scheduler.Paused)
		c.want("too late", c.try("j", at(7), func(c *scheduler.Claim) { c.MissAfter = at(8) }), scheduler.Paused)
		c.want("one that cannot be rendered", c.try("j", at(8), func(c *scheduler.Claim) { c.List = "" }), scheduler.Paused)
		c.want("another job", c.try("other", at(2)), scheduler.Fired)

		st := jobState(t, s, "j")
		if st.Paused == nil || *st.Paused != p || st.Skipped != 7 || st.Missed != 0 || st.Seq != 2 || st.Result != "paused" || st.TaskID != "" {
			t.Errorf("state %+v, pause %+v", st, st.Paused)
		}
		if !st.LastBegun.Equal(at(8)) {
			t.Errorf("settled without a run up to %s, want %s", st.LastBegun, at(8))
		}

		ended, changed, err := s.Resume(ctx, "j", "ops@host", "done")
		if err != nil || !changed || ended != p {
			t.Fatalf("resume: %+v %v %v", ended, changed, err)
		}
		if _, changed, err := s.Resume(ctx, "j", "ops@host", ""); err != nil || changed {
			t.Errorf("a second resume: %v %v", changed, err)
		}
		st = jobState(t, s, "j")
		if st.Paused != nil || st.Since.Before(p.Since) {
			t.Errorf("state %+v, pause %+v", st, st.Paused)
		}
		if r := c.want("a tick of before the resume", c.try("j", at(9)), scheduler.Duplicate); !r.Mark.Equal(st.Since) {
			t.Errorf("mark %s, want %s", r.Mark, st.Since)
		}
		backdate(t, rdb, "j", at(9))
		c.want("a tick after the resume", c.try("j", at(10)), scheduler.Fired)

		want := []string{
			"seeded 0 solobeat@a ", "fired 1 solobeat@a ", "pause 0 ops@host new database", "fired 1 solobeat@a ",
			"paused 7 solobeat@a ", "resume 0 ops@host done", "fired 1 solobeat@a ",
		}
		if got := story(t, s, "j"); !cmp.Equal(got, want) {
			t.Errorf("history %s", cmp.Diff(want, got))
		}
		if n := rdb.LLen(ctx, "p:celery").Val(); n != 3 {
			t.Errorf("%d messages, want 3", n)
		}
	})
}

// A pause survives another revision of the job, and the job's removal for less
// than the month for which its state is kept.
func TestPauseSurvivesFiles(t *testing.T) {
	each(t, func(t *testing.T, _ *redis.Client, s *schedredis.State) {
		beat(t, s, "a", "f1", map[string]string{"j": "r1"})
		p, _, err := s.Pause(ctxOf(t), "j", "ops", "")
		if err != nil {
			t.Fatal(err)
		}
		for i, revs := range []map[string]string{{"j": "r2"}, {"k": "r1"}, {"j": "r3"}} {
			id := fmt.Sprint(i)
			beat(t, s, id, "file"+id, revs)
			if st := jobState(t, s, "j"); st.Paused == nil || *st.Paused != p {
				t.Errorf("after file %d: %+v", i, st.Paused)
			}
		}
	})
}

// What somebody asked for by hand stands in the history too.
func TestNoteTrigger(t *testing.T) {
	each(t, func(t *testing.T, _ *redis.Client, s *schedredis.State) {
		want := scheduler.HistoryEntry{
			Outcome: "triggered", Tick: time.UnixMilli(1700000000000).UTC(), Label: "2023-11-14T22:13:20+00:00", Count: 1, By: "ops@host", TaskID: "id#manual:x",
		}
		if err := s.NoteTrigger(ctxOf(t), "j", want); err != nil {
			t.Fatal(err)
		}
		got, err := s.History(ctxOf(t), "j", 0)
		if err != nil || len(got) != 1 {
			t.Fatalf("%v %v", got, err)
		}
		got[0].At = time.Time{}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Error(diff)
		}
	})
}
