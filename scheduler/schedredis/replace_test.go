package schedredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
)

const (
	steadyJobs  = 5
	movingJobs  = 5
	fleetOf     = 3
	badReload   = -1
	brokenEntry = 0
)

// version n of a file: the steady jobs are the same in all of them, the moving
// ones have another revision in each, with the same ticks.
func version(t *testing.T, n int) []*scheduler.Job {
	t.Helper()
	zone := []string{"UTC", "Europe/Berlin", "Asia/Tokyo"}[n%3]
	var jobs []*scheduler.Job
	for i := range steadyJobs {
		jobs = append(jobs, every(t, fmt.Sprintf("steady%d", i), "1s", all))
	}
	for i := range movingJobs {
		spec := scheduler.SpecConfig{Every: "1s", Timezone: &zone}
		s, _, err := scheduler.ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, &scheduler.Job{Name: fmt.Sprintf("moving%d", i), Task: "tests.tick", Spec: spec, Schedule: s, Misfire: scheduler.Misfire{Policy: scheduler.MisfireAll}})
	}
	return jobs
}

// reloader is a replica whose file is read again; n is the version, badReload
// one with a mistake in the first of its jobs.
type reloader interface {
	reload(t *testing.T, n int)
}

// replacing is the way of the product.
type replacing struct {
	*scheduler.Scheduler
	taken chan struct{}
}

func (r *replacing) reload(t *testing.T, n int) {
	jobs := version(t, max(n, 0))
	if n == badReload {
		jobs[brokenEntry].Kwargs = map[string]any{"day": "{{ .Nothing"}
	}
	set, err := r.Prepare(jobs)
	if (err == nil) == (n == badReload) {
		t.Errorf("version %d: %v", n, err)
	}
	if err != nil {
		return
	}
	r.Replace(set)
	select {
	case <-r.taken:
	case <-t.Context().Done():
	case <-time.After(20 * time.Second):
		t.Error("the set was not taken within 20 s")
	}
}

// restarting is naive: it stops the scheduler and starts another one.
type restarting struct {
	start func(jobs []*scheduler.Job) (stop func())
	stop  func()
}

func (r *restarting) reload(t *testing.T, n int) {
	if n != badReload {
		r.stop()
		r.stop = r.start(version(t, n))
	}
}

// tolerant is naive: of a file with a mistake it takes the jobs without one.
type tolerant struct{ *replacing }

func (r *tolerant) reload(t *testing.T, n int) {
	if n != badReload {
		r.replacing.reload(t, n)
		return
	}
	set, err := r.Prepare(version(t, 0)[brokenEntry+1:])
	if err != nil {
		t.Error(err)
		return
	}
	r.Replace(set)
	<-r.taken
}

// fleetUnderReload runs replicas of a kind, reloads them over and over, good
// and bad files in turn, most of them around whole seconds, and says how many
// ticks were lost, doubled or early.
func fleetUnderReload(t *testing.T, rdb *redis.Client, reloads int, enough func(lost int) bool, kind func(id string) reloader) (lost, twice, early int) {
	t.Helper()
	w := watch(t, rdb)
	var fleet []reloader
	for i := range fleetOf {
		fleet = append(fleet, kind(fmt.Sprintf("r%d", i)))
	}
	testkit.Poll(t, 20*time.Second, 10*time.Millisecond, func() bool { return len(w.list()) >= 2*(steadyJobs+movingJobs) }, "ticks are published")
	from := (serverMillis(t, rdb)/1000 + 1) * 1000
	missing := func(to int64) (n int) {
		got := w.list()
		for i := range steadyJobs {
			n += int((to-from)/1000) + 1 - len(ofJob(got, fmt.Sprintf("steady%d", i), from, to))
		}
		for i := range movingJobs {
			n += int((to-from)/1000) + 1 - len(ofJob(got, fmt.Sprintf("moving%d", i), from, to))
		}
		return n
	}
	settled := func() int64 { return serverMillis(t, rdb)/1000*1000 - 2000 }
	for n := range reloads {
		now := serverMillis(t, rdb)
		if left := 1000 - now%1000; left > 25 && left < 975 {
			wait(t, rdb, now+min(left-20, int64(20+rand.IntN(80))))
		}
		what := n / 2
		if n%2 == 1 {
			what = badReload
		}
		var wg sync.WaitGroup
		for _, r := range fleet {
			wg.Go(func() { r.reload(t, what) })
		}
		wg.Wait()
		if n%20 == 0 && settled() > from && enough(missing(settled())) {
			break
		}
	}
	to := settled() + 2000
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool {
		return missing(to) == 0 || serverMillis(t, rdb) > to+5000
	}, "the last ticks are published")
	twice, early = wrong(w.list())
	t.Logf("%d messages in %d s", len(w.list()), (to-from)/1000)
	return missing(to), twice, early
}

func startReplacing(t *testing.T, rdb *redis.Client, id string) *replacing {
	r := &replacing{taken: make(chan struct{}, 1)}
	r.Scheduler = start(t, rdb, id, "v", version(t, 0), func(c *scheduler.Config, _ *unreliable) {
		c.Observer.Replaced = func([]*scheduler.Job) { r.taken <- struct{}{} }
	}).Scheduler
	return r
}

// Reloads around the very seconds at which jobs are due lose and double no
// tick, whether a job changes or not, and whether the file is good or bad.
func TestReplaceLosesNoTick(t *testing.T) {
	t.Parallel()
	rdb := testkit.Redis(t).Client(t)
	lost, twice, early := fleetUnderReload(t, rdb, 300, func(int) bool { return false }, func(id string) reloader {
		return startReplacing(t, rdb, id)
	})
	if lost != 0 || twice != 0 || early != 0 {
		t.Errorf("%d ticks lost, %d twice, %d early", lost, twice, early)
	}
}

// The naive ways under the same witness: to stop and start loses the ticks
// between, to take what is good of a bad file those of the rest.
func TestReplaceNaiveLosesTicks(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(*testing.T, *redis.Client, string) reloader{
		"stop and start": func(t *testing.T, rdb *redis.Client, id string) reloader {
			n := 0
			r := &restarting{start: func(jobs []*scheduler.Job) func() {
				n++
				s, err := scheduler.New(scheduler.Config{
					Jobs: jobs, State: schedredis.New(rdb, schedredis.Options{}), Publisher: publisher{by: id}, ID: fmt.Sprint(id, "-", n),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = s.Run(ctx)
				}()
				return func() { cancel(); <-done }
			}}
			r.stop = r.start(version(t, 0))
			t.Cleanup(func() { r.stop() })
			return r
		},
		"what is good of a bad file": func(t *testing.T, rdb *redis.Client, id string) reloader {
			return &tolerant{startReplacing(t, rdb, id)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := testkit.Redis(t).Client(t)
			lost, _, _ := fleetUnderReload(t, rdb, 600, func(lost int) bool { return lost > 0 }, func(id string) reloader { return kind(t, rdb, id) })
			if lost <= 0 {
				t.Error("no tick is lost; the test above would not see it")
			}
			t.Logf("naive: %d ticks lost", lost)
		})
	}
}

// A replica that changes its file has settled the ticks of the one before up to
// From: jobs that change count from there. A beat of the file before that comes
// late brings nothing back.
func TestRegistryOfAReload(t *testing.T) {
	each(t, func(t *testing.T, rdb *redis.Client, s *schedredis.State) {
		ctx := ctxOf(t)
		a := beat(t, s, "a", "f1", map[string]string{"same": "r1", "edited": "r1", "back": "r1"})
		b := beat(t, s, "b", "f1", nil)
		past := a.Now.Add(-time.Hour).Truncate(time.Millisecond)
		for _, job := range []string{"same", "edited", "back"} {
			backdate(t, rdb, job, past)
		}
		reload := func(file string, from time.Time, revs map[string]string) scheduler.BeatReply {
			t.Helper()
			r := member("a", file)
			r.From = from
			reply, err := s.Beat(ctx, r, revs)
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		since := func(job string, want time.Time) {
			t.Helper()
			states, err := s.Load(ctx, []string{job})
			if err != nil {
				t.Fatal(err)
			}
			if got := states[0].Since; !got.Equal(want) {
				t.Errorf("%s counts from %s, want %s", job, got, want)
			}
		}
		first := past.Add(50 * time.Minute)
		got := reload("f2", first, map[string]string{"same": "r1", "edited": "r2", "new": "r1"})
		if !got.Switched || got.Registered || got.Load <= b.Load || got.Current.File != "f2" {
			t.Errorf("reload: %+v", got)
		}
		since("same", past)
		since("edited", first)
		since("new", first)
		late := beat(t, s, "a", "f1", nil, a.Load)
		if late.Switched || late.Current.File != "f2" || late.Load != a.Load {
			t.Errorf("a late beat of the file before: %+v", late)
		}
		if again := beat(t, s, "b", "f1", nil, b.Load); again.Switched || again.Current.File != "f2" {
			t.Errorf("a beat of another replica: %+v", again)
		}
		second := first.Add(time.Minute)
		reload("f1", second, nil)
		since("same", past)
		since("edited", second)
		since("back", second)
		// From counts once, and never for the time to come.
		r := member("a", "f1")
		r.Load, r.From = got.Load+1_000_000_000, second.Add(time.Minute)
		if _, err := s.Beat(ctx, r, nil); err != nil {
			t.Fatal(err)
		}
		since("edited", second)
		if ahead := reload("f3", a.Now.Add(time.Hour), map[string]string{"edited": "r3"}); !ahead.Switched {
			t.Errorf("reload: %+v", ahead)
		}
		states, err := s.Load(ctx, []string{"edited"})
		if err != nil || states[0].Since.After(a.Now.Add(time.Minute)) {
			t.Errorf("counts from %s: %v", states[0].Since, err)
		}
	})
}
