package schedredis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
)

// The ends of runs stand in the job's history beside the decisions about its
// ticks, within the same bounds.
func TestHistoryOfRuns(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb, ctx := srv.Client(t), t.Context()
	s := schedredis.New(rdb, schedredis.Options{Namespace: "ns", KeyPrefix: "p:"})
	entry := scheduler.HistoryEntry{
		Outcome: "failed", Tick: time.UnixMilli(1700000000000).UTC(), Label: "2023-11-14T22:13:20+00:00", Count: 1, By: "me", TaskID: "id",
		Run: &scheduler.RunEntry{Reason: "error", Attempt: 2, Fence: 1795974396002988, Takeover: true, TookMS: 1234},
	}
	if err := s.AddHistory(ctx, "j", entry); err != nil {
		t.Fatal(err)
	}
	got, err := s.History(ctx, "j", 0)
	if err != nil || len(got) != 1 {
		t.Fatalf("%v %v", got, err)
	}
	if age := time.Since(got[0].At); age < -time.Minute || age > time.Minute {
		t.Errorf("written at %s", got[0].At)
	}
	got[0].At = time.Time{}
	if diff := cmp.Diff(entry, got[0]); diff != "" {
		t.Error(diff)
	}
	for i := range 80 {
		entry.TaskID = fmt.Sprint(i)
		if err := s.AddHistory(ctx, "j", entry); err != nil {
			t.Fatal(err)
		}
	}
	got, err = s.History(ctx, "j", 0)
	if err != nil || len(got) != 50 || got[0].TaskID != "79" || got[49].TaskID != "30" {
		t.Errorf("%d entries, %v", len(got), err)
	}
	if ttl := rdb.PTTL(ctx, "p:solobeat:ns:sched:history:j").Val(); ttl < 6*24*time.Hour || ttl > 7*24*time.Hour {
		t.Errorf("kept for %s", ttl)
	}
	if err := s.AddHistory(ctx, "j", scheduler.HistoryEntry{Outcome: "fired"}); err == nil {
		t.Error("a decision about a tick is taken, which is the claim script's to write")
	}
	rdb.Set(ctx, "p:solobeat:ns:sched:history:foreign", "x", 0)
	if err := s.AddHistory(ctx, "foreign", entry); err == nil {
		t.Error("a foreign key is no error")
	}
}

// What is kept of a job's runs only grows, and is read with the job's state;
// a success of a task that had succeeded before is told.
func TestNotesOfRuns(t *testing.T) {
	t.Parallel()
	rdb, ctx := testkit.Redis(t).Client(t), t.Context()
	embedded := testkit.RedisClient(t, miniredis.RunT(t).Addr(), 0) // the demo's
	for i, plain := range []bool{true, false, true} {
		client := rdb
		if i == 2 {
			client = embedded
		}
		s := schedredis.New(client, schedredis.Options{Namespace: fmt.Sprint(plain)})
		if plain {
			s.Plain()
		}
		state := func() scheduler.JobState {
			t.Helper()
			all, err := s.Load(ctx, []string{"j"})
			if err != nil {
				t.Fatal(err)
			}
			return all[0]
		}
		note := func(tick int64, succeeded bool, id string) bool {
			t.Helper()
			r := scheduler.RunNote{Succeeded: succeeded, TaskID: id}
			if tick > 0 {
				r.Tick = time.UnixMilli(tick)
			}
			again, err := s.NoteRun(ctx, "j", r)
			if err != nil {
				t.Fatal(err)
			}
			return again
		}
		if again := note(1700000000000, false, "a"); again || state().LastBegun.UnixMilli() != 1700000000000 || !state().LastSuccess.IsZero() || state().Known {
			t.Errorf("plain %t, begun: %v %+v", plain, again, state())
		}
		if again := note(1600000000000, true, "b"); again || state().LastBegun.UnixMilli() != 1700000000000 {
			t.Errorf("plain %t, an older tick: %v %+v", plain, again, state())
		}
		if age := time.Since(state().LastSuccess); age < -time.Minute || age > time.Minute {
			t.Errorf("plain %t: succeeded %s ago", plain, age)
		}
		for i, c := range []struct {
			succeeded, again bool
			id               string
		}{{false, false, "b"}, {true, true, "b"}, {true, false, "c"}, {true, false, "b"}} {
			if again := note(0, c.succeeded, c.id); again != c.again {
				t.Errorf("plain %t, note %d: %t", plain, i, again)
			}
		}
	}
	rdb.Set(ctx, "solobeat:true:sched:job:foreign", "x", 0)
	s := schedredis.New(rdb, schedredis.Options{Namespace: "true"})
	if _, err := s.NoteRun(ctx, "foreign", scheduler.RunNote{Succeeded: true}); err == nil {
		t.Error("a foreign key is no error")
	}
}
