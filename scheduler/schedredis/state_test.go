package schedredis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
)

// each runs f on a real server and on the embedded one, with both forms of the
// scripts.
func each(t *testing.T, f func(t *testing.T, c *redis.Client, s *schedredis.State)) {
	t.Helper()
	t.Parallel()
	run := func(name, addr string, plain bool) {
		t.Run(name, func(t *testing.T) {
			c := testkit.RedisClient(t, addr, 0)
			s := schedredis.New(c, schedredis.Options{Namespace: "ns", KeyPrefix: "p:"})
			if plain {
				s.Plain()
			}
			f(t, c, s)
		})
	}
	run("server", testkit.Redis(t).Addr, false)
	run("server plain", testkit.Redis(t).Addr, true)
	mini := miniredis.RunT(t)
	run("embedded", mini.Addr(), false)
}

func ctxOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func beat(t *testing.T, s *schedredis.State, id, file string, revs map[string]string, load ...int64) scheduler.BeatReply {
	t.Helper()
	r := member(id, file)
	if len(load) > 0 {
		r.Load = load[0]
	}
	reply, err := s.Beat(ctxOf(t), r, revs)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func member(id, file string) scheduler.Replica {
	return scheduler.Replica{ID: id, Name: "solobeat@" + id, File: file, Path: file + ".yaml"}
}

// claims makes claims of one job in revision "r1" of file "f1".
type claims struct {
	t *testing.T
	s *schedredis.State
	r scheduler.Replica
}

func (c claims) try(job string, tick time.Time, change ...func(*scheduler.Claim)) scheduler.ClaimResult {
	c.t.Helper()
	cl := scheduler.Claim{
		Job: job, Revision: "r1", Tick: tick, Due: tick, Label: scheduler.Label(tick), MissAfter: tick.Add(time.Minute),
		List: "p:celery", Message: []byte(job + "@" + scheduler.Label(tick)), TaskID: "id",
	}
	for _, f := range change {
		f(&cl)
	}
	return c.s.Claim(ctxOf(c.t), c.r, []scheduler.Claim{cl})[0]
}

func (c claims) want(what string, r scheduler.ClaimResult, want scheduler.Outcome) scheduler.ClaimResult {
	c.t.Helper()
	if r.Err != nil || r.Outcome != want {
		c.t.Errorf("%s: %v %v, want %v", what, r.Outcome, r.Err, want)
	}
	return r
}

// backdate makes a job active since an instant.
func backdate(t *testing.T, c *redis.Client, job string, since time.Time) {
	t.Helper()
	if err := c.HSet(ctxOf(t), "p:solobeat:ns:sched:job:"+job, "since", since.UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestClaimAnswers(t *testing.T) {
	each(t, func(t *testing.T, rdb *redis.Client, s *schedredis.State) {
		ctx := ctxOf(t)
		c := claims{t, s, member("a", "f1")}
		other := claims{t, s, member("b", "f1")}
		now, err := s.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(ctx); err != nil {
			t.Errorf("Check: %v", err)
		}
		tick := now.Truncate(time.Second).Add(-20 * time.Second)
		if r := c.want("no file is current", c.try("j", tick), scheduler.Unseeded); !r.NeedBeat {
			t.Error("an empty store does not ask for a beat")
		}
		beat(t, s, "a", "f1", map[string]string{"j": "r1", "k": "r1"})
		r := c.want("before the activation", c.try("j", tick), scheduler.Duplicate)
		if r.Mark.Before(now.Truncate(time.Millisecond)) || !r.Last.IsZero() {
			t.Errorf("mark %s, last %s", r.Mark, r.Last)
		}
		backdate(t, rdb, "j", tick.Add(-time.Minute))
		early := c.want("early", c.try("j", now.Add(time.Hour)), scheduler.Early)
		if early.Wait < 59*time.Minute || early.Wait > time.Hour {
			t.Errorf("early by %s, want about an hour", early.Wait)
		}
		c.want("jitter", c.try("j", tick, func(c *scheduler.Claim) { c.Due = now.Add(time.Hour) }), scheduler.Early)
		c.want("the tick before is open", c.try("j", tick, func(c *scheduler.Claim) {
			c.InOrder, c.Prev = true, tick.Add(-time.Second)
		}), scheduler.Gap)
		c.want("a newer base", c.try("j", tick, func(c *scheduler.Claim) {
			c.Jumped, c.Base = 3, tick.Add(-2*time.Minute)
		}), scheduler.Gap)
		if n := rdb.LLen(ctx, "p:celery").Val(); n != 0 {
			t.Fatalf("%d messages before any claim was won", n)
		}
		c.want("the tick", c.try("j", tick, func(c *scheduler.Claim) {
			c.Jumped, c.Base, c.Next = 3, tick.Add(-time.Minute), tick.Add(time.Second)
		}), scheduler.Fired)
		dup := other.want("again", other.try("j", tick), scheduler.Duplicate)
		if dup.LastAs != scheduler.Fired || dup.By != "a" || !dup.Last.Equal(tick) || !dup.Mark.Equal(tick) {
			t.Errorf("duplicate of %s by %q", dup.Last, dup.By)
		}
		other.want("an older one", other.try("j", tick.Add(-time.Second)), scheduler.Duplicate)
		other.want("too late", other.try("j", tick.Add(time.Second), func(c *scheduler.Claim) { c.MissAfter = tick.Add(2 * time.Second) }), scheduler.Missed)
		other.want("given up", other.try("j", tick.Add(2*time.Second), func(c *scheduler.Claim) { c.List = "" }), scheduler.Missed)
		if dup := other.want("a missed one again", other.try("j", tick.Add(2*time.Second)), scheduler.Duplicate); dup.LastAs != scheduler.Missed || dup.By != "b" {
			t.Errorf("duplicate of a missed tick: %+v", dup)
		}
		look := func(c *scheduler.Claim) { c.Step, c.List = scheduler.Look, "" }
		sent := func(c *scheduler.Claim) { c.Step, c.List, c.MissAfter = scheduler.Sent, "", tick } // however late
		c.want("a look", c.try("k", now.Add(-time.Hour), look), scheduler.Duplicate)
		backdate(t, rdb, "k", tick.Add(-time.Minute))
		c.want("a look", c.try("k", tick, look), scheduler.Fired)
		other.want("a second look", other.try("k", tick, look), scheduler.Fired) // the first has changed nothing
		c.want("sent", c.try("k", tick, sent), scheduler.Fired)
		other.want("sent again", other.try("k", tick, sent), scheduler.Duplicate)
		c.want("a look too late", c.try("k", tick.Add(time.Second), look, func(c *scheduler.Claim) { c.MissAfter = tick }), scheduler.Missed)
		other.want("another revision", other.try("j", tick.Add(3*time.Second), func(c *scheduler.Claim) { c.Revision = "r2"; c.Job = "nobody" }), scheduler.Unseeded)

		if got, want := rdb.LRange(ctx, "p:celery", 0, -1).Val(), []string{"j@" + scheduler.Label(tick)}; !cmp.Equal(got, want) {
			t.Errorf("messages %v, want %v", got, want)
		}
		states, err := s.Load(ctx, []string{"j", "unknown"})
		if err != nil {
			t.Fatal(err)
		}
		st := states[0]
		if st.Seq != 1 || st.Missed != 5 || !st.Last.Equal(tick.Add(2*time.Second)) || st.By != "solobeat@b" || st.Result != "missed" || !st.Known || !st.Current {
			t.Errorf("state %+v", st)
		}
		if states[1].Known {
			t.Errorf("state of an unknown job: %+v", states[1])
		}
		var story []string
		hist, err := s.History(ctx, "j", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hist {
			story = append(story, fmt.Sprintf("%s %d %s", h.Outcome, h.Count, h.By))
		}
		want := []string{"missed 1 solobeat@b", "missed 1 solobeat@b", "fired 1 solobeat@a", "jumped 3 solobeat@a", "seeded 0 solobeat@a"}
		if !cmp.Equal(story, want) {
			t.Errorf("history %s", cmp.Diff(want, story))
		}
	})
}

func TestClaimRefusesEqualCivilTime(t *testing.T) {
	each(t, func(t *testing.T, rdb *redis.Client, s *schedredis.State) {
		c := claims{t, s, member("a", "f1")}
		beat(t, s, "a", "f1", map[string]string{"j": "r1"})
		now, _ := s.Now(ctxOf(t))
		tick := now.Truncate(time.Second).Add(-40 * time.Hour)
		backdate(t, rdb, "j", tick.Add(-time.Minute))
		civil := func(text string) func(*scheduler.Claim) {
			return func(c *scheduler.Claim) { c.Civil, c.MissAfter = text, now.Add(time.Hour) }
		}
		c.want("the tick", c.try("j", tick, civil("09:00#0")), scheduler.Fired)
		c.want("the same civil time an hour later", c.try("j", tick.Add(time.Hour), civil("09:00#0")), scheduler.Duplicate)
		c.want("in order after it", c.try("j", tick.Add(2*time.Hour), civil("10:00#0"), func(c *scheduler.Claim) {
			c.InOrder, c.Prev = true, tick.Add(time.Hour)
		}), scheduler.Fired)
		c.want("the second of two equal times", c.try("j", tick.Add(3*time.Hour), civil("10:00#1")), scheduler.Fired)
		c.want("the same 27 h later", c.try("j", tick.Add(30*time.Hour), civil("10:00#1")), scheduler.Fired)
	})
}

// What the store refuses is refused before anything is written: a tick is
// never settled without its message.
func TestClaimWithForeignList(t *testing.T) {
	each(t, func(t *testing.T, rdb *redis.Client, s *schedredis.State) {
		ctx := ctxOf(t)
		c := claims{t, s, member("a", "f1")}
		beat(t, s, "a", "f1", map[string]string{"j": "r1", "k": "r1"})
		now, _ := s.Now(ctx)
		tick := now.Truncate(time.Second)
		backdate(t, rdb, "j", tick.Add(-time.Minute))
		backdate(t, rdb, "k", tick.Add(-time.Minute))
		rdb.Set(ctx, "p:foreign", "x", 0)
		cl := []scheduler.Claim{
			{Job: "j", Revision: "r1", Tick: tick, Due: tick, MissAfter: tick.Add(time.Minute), List: "p:foreign", Message: []byte("m")},
			{Job: "k", Revision: "r1", Tick: tick, Due: tick, MissAfter: tick.Add(time.Minute), List: "p:celery", Message: []byte("m")},
		}
		got := s.Claim(ctx, c.r, cl)
		if got[0].Err == nil || !got[0].Refused || got[1].Outcome != scheduler.Fired {
			t.Fatalf("answers %+v", got)
		}
		states, err := s.Load(ctx, []string{"j"})
		if err != nil || !states[0].Last.IsZero() {
			t.Errorf("the tick was settled without its message: %+v %v", states, err)
		}
		// A foreign history costs the history, not the tick.
		rdb.Del(ctx, "p:solobeat:ns:sched:history:j")
		rdb.Set(ctx, "p:solobeat:ns:sched:history:j", "x", 0)
		c.want("with a foreign history", c.try("j", tick), scheduler.Fired)
		// A foreign key in place of a job's state is that job's trouble only.
		rdb.Set(ctx, "p:solobeat:ns:sched:job:j", "x", 0)
		if r := c.try("j", tick.Add(time.Second)); !r.Refused {
			t.Errorf("answer %+v", r)
		}
		if _, err := s.Load(ctx, []string{"j", "k"}); err != nil {
			t.Errorf("Load: %v", err)
		}
	})
}

func TestRegistryRevisions(t *testing.T) {
	each(t, func(t *testing.T, rdb *redis.Client, s *schedredis.State) {
		ctx := ctxOf(t)
		state := func(job string) scheduler.JobState {
			t.Helper()
			states, err := s.Load(ctx, []string{job})
			if err != nil {
				t.Fatal(err)
			}
			return states[0]
		}
		old := map[string]string{"same": "r1", "edited": "r1", "removed": "r1"}
		a := beat(t, s, "a", "f1", old)
		if !a.Registered || !a.Switched || a.Load == 0 || a.Current.File != "f1" {
			t.Fatalf("first beat: %+v", a)
		}
		past := a.Now.Add(-time.Hour)
		for job := range old {
			backdate(t, rdb, job, past)
		}
		if again := beat(t, s, "a", "f1", nil, a.Load); again.Registered || again.Switched || again.Load != a.Load {
			t.Errorf("second beat: %+v", again)
		}
		if s2 := beat(t, s, "a2", "f1", nil); s2.Switched || s2.Load <= a.Load {
			t.Errorf("a restart with the same file: %+v", s2)
		}
		if got := state("same").Since; !got.Equal(past.Truncate(time.Millisecond)) {
			t.Errorf("a restart moved since to %s", got)
		}

		b := beat(t, s, "b", "f2", map[string]string{"same": "r1", "edited": "r2", "added": "r1"})
		if !b.Switched || b.Current.Path != "f2.yaml" || b.Current.Name != "solobeat@b" || b.Load <= a.Load {
			t.Errorf("a new file: %+v", b)
		}
		if got := state("same").Since; !got.Equal(past.Truncate(time.Millisecond)) {
			t.Errorf("since of an unchanged job moved to %s", got)
		}
		if got := state("edited"); got.Revision != "r2" || got.Since.Before(a.Now) {
			t.Errorf("edited: %+v", got)
		}
		if got := state("added"); !got.Known || got.Since.Before(a.Now) {
			t.Errorf("added: %+v", got)
		}
		if got := state("removed"); got.Current {
			t.Errorf("removed: %+v", got)
		}

		ca, cb := claims{t, s, member("a", "f1")}, claims{t, s, member("b", "f2")}
		tick := a.Now.Truncate(time.Second).Add(-time.Minute)
		late := func(c *scheduler.Claim) { c.MissAfter = tick.Add(time.Hour) }
		ca.want("unchanged, by the old file", ca.try("same", tick, late), scheduler.Fired)
		ca.want("edited, by the old file", ca.try("edited", tick, late), scheduler.Stale)
		ca.want("removed, by the old file", ca.try("removed", tick, late), scheduler.Stale)
		if r := cb.want("edited, retroactively", cb.try("edited", tick, late, func(c *scheduler.Claim) { c.Revision = "r2" }), scheduler.Duplicate); !r.Last.IsZero() {
			t.Errorf("it counts as settled: %+v", r)
		}

		// Back: active from the last beat of what it replaces, not from the old
		// load instant and not from now.
		beatB := beat(t, s, "b", "f2", nil, b.Load).Now
		if err := s.Leave(ctx, member("b", "f2")); err != nil {
			t.Fatal(err)
		}
		left, _ := s.Now(ctx)
		cur, err := s.Current(ctx)
		if err != nil || cur.File != "f1" {
			t.Fatalf("current after the newest left: %+v %v", cur, err)
		}
		for _, job := range []string{"edited", "removed"} {
			st := state(job)
			if st.Since.Before(beatB) || st.Since.After(left) || st.Revision != "r1" || !st.Current {
				t.Errorf("%s after the roll-back: %+v, want since in [%s, %s]", job, st, beatB, left)
			}
		}
		// A replica that was taken for dead comes back with its old load
		// instant, and does not bring its old file back.
		c := beat(t, s, "c", "f3", map[string]string{"same": "r1"})
		if back := beat(t, s, "b", "f2", nil, b.Load); back.Switched || !back.Registered || back.Current.File != "f3" || c.Load <= b.Load {
			t.Errorf("an old replica came back: %+v", back)
		}
		all, err := s.Replicas(ctx)
		if err != nil || len(all) != 4 || all[0].Replica != "c" || !all[0].Current || all[1].Current {
			t.Errorf("replicas %+v %v", all, err)
		}
		jobs, err := s.Jobs(ctx)
		if err != nil || len(jobs) != 1 || jobs[0].Job != "same" {
			t.Errorf("jobs %+v %v", jobs, err)
		}
	})
}

// A map that is lost is stored again by the next beat of its file.
func TestRegistryRestoresMap(t *testing.T) {
	each(t, func(t *testing.T, rdb *redis.Client, s *schedredis.State) {
		ctx := ctxOf(t)
		revs := map[string]string{"j": "r1"}
		a := beat(t, s, "a", "f1", revs)
		key := "p:solobeat:ns:sched:revs:f1"
		rdb.Del(ctx, key)
		beat(t, s, "a", "f1", revs, a.Load)
		if got := rdb.HGet(ctx, key, "j").Val(); got != "r1" {
			t.Errorf("map has %q", got)
		}
		if ttl := rdb.PTTL(ctx, key).Val(); ttl < 23*time.Hour || ttl > 24*time.Hour {
			t.Errorf("map is kept for %s, want a day", ttl)
		}
		rdb.FlushAll(ctx)
		back := beat(t, s, "a", "f1", revs, a.Load)
		if !back.Registered || !back.Switched || back.Load != a.Load {
			t.Errorf("after the loss of all data: %+v", back)
		}
		st, err := s.Load(ctx, []string{"j"})
		if err != nil || st[0].Since.Before(a.Now) {
			t.Errorf("since %s is before the loss", st[0].Since)
		}
		// An empty file is a file.
		if e := beat(t, s, "e", "f0", nil); !e.Switched || e.Current.File != "f0" {
			t.Errorf("empty file: %+v", e)
		}
	})
}

func TestRegistryBurial(t *testing.T) {
	each(t, func(t *testing.T, rdb *redis.Client, s *schedredis.State) {
		ctx := ctxOf(t)
		revs := map[string]string{"j": "r1"}
		a := beat(t, s, "a", "f1", revs)
		b := beat(t, s, "b", "f2", map[string]string{"j": "r2"})
		if a.Others != 0 || b.Others != 1 {
			t.Errorf("%d and %d others, want 0 and 1", a.Others, b.Others)
		}
		// Instead of waiting, instants in the registry are moved.
		setBeat := func(id string, ago time.Duration) {
			rdb.ZAdd(ctx, "p:solobeat:ns:sched:beats", redis.Z{Member: id, Score: float64(time.Now().Add(-ago).UnixMilli())})
		}
		quietOver := func(id string) {
			rdb.HSet(ctx, "p:solobeat:ns:sched:info", id+":quiet", time.Now().Add(-time.Second).UnixMilli())
		}
		setBeat("b", 11*time.Second)
		if r := beat(t, s, "a", "f1", nil, a.Load); len(r.Buried) != 0 {
			t.Errorf("buried %v within 5 s of its registration", r.Buried)
		}
		quietOver("a")
		setBeat("a", 6*time.Second)
		if r := beat(t, s, "a", "f1", nil, a.Load); len(r.Buried) != 0 {
			t.Errorf("buried %v after a stall of its own", r.Buried)
		}
		if r := beat(t, s, "a", "f1", nil, a.Load); len(r.Buried) != 0 || r.Current.File != "f2" {
			t.Errorf("buried %v within 15 s of a stall", r.Buried)
		}
		quietOver("a")
		setBeat("b", 9*time.Second)
		if r := beat(t, s, "a", "f1", nil, a.Load); len(r.Buried) != 0 {
			t.Errorf("buried %v, which is silent for 9 s only", r.Buried)
		}
		setBeat("b", 11*time.Second)
		if r := beat(t, s, "a", "f1", nil, a.Load); !cmp.Equal(r.Buried, []string{"b"}) || !r.Switched || r.Current.File != "f1" || r.Others != 0 {
			t.Errorf("not buried: %+v", r)
		}
		if r := beat(t, s, "b", "f2", nil, b.Load); !r.Registered || !r.Switched || r.Load != b.Load {
			t.Errorf("back from the dead: %+v", r)
		}
		// A failover that put the clock back leaves nobody alive for ever.
		setBeat("b", -time.Hour)
		beat(t, s, "a", "f1", nil, a.Load)
		if score := rdb.ZScore(ctx, "p:solobeat:ns:sched:beats", "b").Val(); score > float64(time.Now().Add(time.Minute).UnixMilli()) {
			t.Error("a beat in the future stays")
		}
	})
}

func TestCheckRefusesEviction(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t, "--maxmemory-policy", "allkeys-lru")
	c := srv.Client(t)
	err := schedredis.New(c, schedredis.Options{}).Check(ctxOf(t))
	if !errors.Is(err, scheduler.ErrUnsafePolicy) || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("Check: %v", err)
	}
	c.ConfigSet(ctxOf(t), "maxmemory-policy", "noeviction")
	if err := schedredis.New(c, schedredis.Options{}).Check(ctxOf(t)); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// A full server refuses the claim and the message together.
func TestClaimOnFullServer(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	s := schedredis.New(rdb, schedredis.Options{Namespace: "ns", KeyPrefix: "p:"})
	beat(t, s, "a", "f1", map[string]string{"j": "r1"})
	c := claims{t, s, member("a", "f1")}
	now, _ := s.Now(ctxOf(t))
	tick := now.Truncate(time.Second)
	backdate(t, rdb, "j", tick.Add(-time.Minute))
	rdb.ConfigSet(ctxOf(t), "maxmemory", "1")
	if r := c.try("j", tick); r.Err == nil || r.Refused {
		t.Errorf("answer %+v on a full server", r)
	}
	rdb.ConfigSet(ctxOf(t), "maxmemory", "0")
	c.want("with memory again", c.try("j", tick), scheduler.Fired)
}
