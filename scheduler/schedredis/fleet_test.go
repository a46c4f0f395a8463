package schedredis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
	"github.com/solobeat/solobeat/tasks"
)

// message is what the fleets of these tests publish.
type message struct {
	Job  string
	Tick int64 // ms
	Rev  string
	By   string
}

// publisher makes messages in which a test can read who published what.
type publisher struct{ by, rev string }

// Prepare implements scheduler.Publisher.
func (p publisher) Prepare(r *tasks.Request) (string, []byte, error) {
	b, err := json.Marshal(message{Job: r.Guard.Job, Tick: r.Guard.Tick, Rev: p.rev, By: p.by})
	return "celery", b, err
}

// seen is a message with the store's clock when it was found in the list.
type seen struct {
	message
	at int64 // ms
}

func (s seen) late() time.Duration { return time.Duration(s.at-s.Tick) * time.Millisecond }

// witness reads the list all the time, and notes the store's clock with each
// message. It only reads: if it emptied the list, a reply that is lost (of a
// server that is stopped in between, say) would take messages with it.
type witness struct {
	epoch string // of the data that read counts in; another one: all data were lost
	read  int64  // messages that were noted, at the list's tail
	mu    sync.Mutex
	all   []seen
}

// look returns the messages after the first ARGV[2] of epoch ARGV[1].
const look = `local t = redis.call('TIME')
redis.call('SET', KEYS[2], t[1] .. '.' .. t[2], 'NX')
local epoch, n, read = redis.call('GET', KEYS[2]), redis.call('LLEN', KEYS[1]), tonumber(ARGV[2])
if epoch ~= ARGV[1] then read = 0 end
local out = {epoch, n, t[1] * 1000 + math.floor(t[2] / 1000)}
if n > read then for _, m in ipairs(redis.call('LRANGE', KEYS[1], 0, n - read - 1)) do out[#out + 1] = m end end
return out`

func watch(t *testing.T, rdb *redis.Client) *witness {
	t.Helper()
	w := &witness{}
	script := redis.NewScript(look)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			v, err := script.Run(ctx, rdb, []string{"celery", "witness"}, w.epoch, w.read).Slice()
			if err != nil {
				continue
			}
			w.note(v)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return w
}

func (w *witness) note(v []any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch, _ = v[0].(string)
	w.read, _ = v[1].(int64)
	at, _ := v[2].(int64)
	messages := v[3:] // the newest first
	for _, x := range slices.Backward(messages) {
		text, _ := x.(string)
		s := seen{at: at}
		if json.Unmarshal([]byte(text), &s.message) == nil {
			w.all = append(w.all, s)
		}
	}
}

// What a test reports as lost was not lost by its own witness: a message that
// came while a reply to the witness was lost is seen, once, and in order.
func TestWitnessLosesNothing(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	proxy := testkit.NewProxy(t, srv.Addr)
	w := watch(t, proxy.Client(t))
	push := func(tick int64) {
		b, _ := json.Marshal(message{Job: "j", Tick: tick})
		rdb.LPush(t.Context(), "celery", b)
	}
	push(1)
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return len(w.list()) == 1 }, "the first message")
	for tick := int64(2); tick <= 10; tick += 2 {
		proxy.DropReplyTo("celery")
		held := proxy.HoldRequest("celery")
		<-held.Seen
		push(tick)
		push(tick + 1)
		held.Release()
	}
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return len(w.list()) >= 11 }, "11 messages")
	for i, s := range w.list() {
		if s.Tick != int64(i+1) {
			t.Errorf("message %d is %d", i+1, s.Tick)
		}
	}
}

func (w *witness) list() []seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]seen(nil), w.all...)
}

// wrong counts messages of ticks that were there before, and messages that
// were in the list before their tick.
func wrong(all []seen) (twice, early int) {
	was := map[string]bool{}
	for _, s := range all {
		key := fmt.Sprint(s.Job, s.Tick)
		if was[key] {
			twice++
		}
		was[key] = true
		if s.at < s.Tick {
			early++
		}
	}
	return twice, early
}

// ofJob are the ticks of one job within [from, to], in ms, by tick.
func ofJob(all []seen, job string, from, to int64) map[int64]seen {
	m := map[int64]seen{}
	for _, s := range all {
		if s.Job == job && s.Tick >= from && s.Tick <= to {
			m[s.Tick] = s
		}
	}
	return m
}

// unreliable is a State whose process is paused at random, before a claim is
// sent or after its reply came, and which can stand still for ever.
type unreliable struct {
	*schedredis.State
	chance float64
	most   time.Duration
	mu     sync.Mutex
	dead   chan struct{} // closed: not dead
}

func (u *unreliable) pass() {
	u.mu.Lock()
	dead := u.dead
	u.mu.Unlock()
	if dead != nil {
		<-dead
	}
	if u.chance > 0 && rand.Float64() < u.chance {
		<-time.After(time.Duration(rand.Int64N(int64(u.most))))
	}
}

// kill makes the replica stand still, as after kill -9: it says no good-bye.
// bury lets its goroutines end.
func (u *unreliable) kill() (bury func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dead = make(chan struct{})
	return sync.OnceFunc(func() { close(u.dead) })
}

// Claim implements scheduler.State.
func (u *unreliable) Claim(ctx context.Context, r scheduler.Replica, claims []scheduler.Claim) []scheduler.ClaimResult {
	u.pass()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	defer u.pass()
	return u.State.Claim(ctx, r, claims)
}

// Beat implements scheduler.State.
func (u *unreliable) Beat(ctx context.Context, r scheduler.Replica, revs map[string]string) (scheduler.BeatReply, error) {
	u.pass()
	return u.State.Beat(ctx, r, revs)
}

// Now implements scheduler.State.
func (u *unreliable) Now(ctx context.Context) (time.Time, error) {
	u.pass()
	return u.State.Now(ctx)
}

// Leave implements scheduler.State; the dead do not leave.
func (u *unreliable) Leave(ctx context.Context, r scheduler.Replica) error {
	u.mu.Lock()
	dead := u.dead != nil
	u.mu.Unlock()
	if dead {
		return nil
	}
	return u.State.Leave(ctx, r)
}

// member of a fleet.
type running struct {
	*scheduler.Scheduler
	state *unreliable
	mu    sync.Mutex
	ticks map[scheduler.TickOutcome]int
	aside int
	stop  func()
}

func (r *running) count(o scheduler.TickOutcome) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ticks[o]
}

func start(t *testing.T, rdb *redis.Client, id, rev string, jobs []*scheduler.Job, change ...func(*scheduler.Config, *unreliable)) *running {
	t.Helper()
	r := &running{state: &unreliable{State: schedredis.New(rdb, schedredis.Options{})}, ticks: map[scheduler.TickOutcome]int{}}
	cfg := scheduler.Config{
		Jobs: jobs, State: r.state, Publisher: publisher{by: id, rev: rev}, ID: id, File: rev + ".yaml",
		Logger: quiet(t),
		Observer: scheduler.Observer{
			Tick: func(_ string, o scheduler.TickOutcome, n int) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.ticks[o] += n
			},
			StandAside: func(string) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.aside++
			},
		},
	}
	for _, f := range change {
		f(&cfg, r.state)
	}
	var err error
	if r.Scheduler, err = scheduler.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	r.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(r.stop)
	return r
}

// quiet is a logger without the debug lines of each tick.
func quiet(t *testing.T) *slog.Logger {
	return slog.New(levelled{testkit.Logger(t).Handler()})
}

type levelled struct{ slog.Handler }

// Enabled implements slog.Handler.
func (levelled) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func every(t *testing.T, name, period string, change ...func(*scheduler.Job)) *scheduler.Job {
	t.Helper()
	spec := scheduler.SpecConfig{Every: period}
	s, _, err := scheduler.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	j := &scheduler.Job{Name: name, Task: "tests.tick", Spec: spec, Schedule: s}
	for _, f := range change {
		f(j)
	}
	return j
}

func all(j *scheduler.Job) { j.Misfire.Policy = scheduler.MisfireAll }

// skewed shifts a replica's local clock.
func skewed(d time.Duration) func(*scheduler.Config, *unreliable) {
	return func(c *scheduler.Config, _ *unreliable) {
		c.Clock = func() time.Time { return time.Now().Add(d) }
	}
}

// pausing stops a replica at random, for up to most.
func pausing(chance float64, most time.Duration) func(*scheduler.Config, *unreliable) {
	return func(_ *scheduler.Config, u *unreliable) { u.chance, u.most = chance, most }
}

func serverMillis(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	at, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}

// wait lets real time pass until the server's clock shows an instant.
func wait(t *testing.T, rdb *redis.Client, untilMS int64) {
	t.Helper()
	testkit.Poll(t, time.Minute, 20*time.Millisecond, func() bool {
		at, err := rdb.Time(t.Context()).Result()
		return err == nil && at.UnixMilli() >= untilMS
	}, "the server's clock shows %d", untilMS)
}

// P17, S14: five schedulers with clocks up to 5 s wrong and paused at random:
// each tick of 200 jobs is published once, in order, never before its time.
func TestP17_FiveSchedulersSkewedAndPaused(t *testing.T) {
	t.Parallel()
	const jobs, ticks = 200, 10
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	var list []*scheduler.Job
	for i := range jobs {
		list = append(list, every(t, fmt.Sprintf("j%03d", i), "1s", all))
	}
	var fleet []*running
	for i, skew := range []time.Duration{-5 * time.Second, -2 * time.Second, 0, 3 * time.Second, 5 * time.Second} {
		fleet = append(fleet, start(t, srv.Client(t), fmt.Sprint("r", i), "a", list, skewed(skew), pausing(0.1, 2500*time.Millisecond)))
	}
	testkit.Poll(t, 20*time.Second, 50*time.Millisecond, func() bool { return len(w.list()) > 0 }, "the first tick")
	from := serverMillis(t, rdb)/1000*1000 + 1000
	to := from + (ticks-1)*1000
	want := func() int {
		n := 0
		for _, s := range w.list() {
			if s.Tick >= from && s.Tick <= to {
				n++
			}
		}
		return n
	}
	wait(t, rdb, to)
	testkit.Poll(t, 30*time.Second, 50*time.Millisecond, func() bool { return want() >= jobs*ticks }, "%d messages", jobs*ticks)
	for _, r := range fleet {
		r.stop()
	}
	wait(t, rdb, serverMillis(t, rdb)+100)
	got := w.list()
	twice, early := wrong(got)
	if n := want(); n != jobs*ticks || twice != 0 || early != 0 {
		t.Errorf("%d messages of %d, %d twice, %d early", n, jobs*ticks, twice, early)
	}
	newest := map[string]int64{}
	for _, s := range got {
		if s.Tick <= newest[s.Job] {
			t.Errorf("%s: tick %d after %d", s.Job, s.Tick, newest[s.Job])
		}
		newest[s.Job] = s.Tick
	}
	enqueued := 0
	for _, r := range fleet {
		enqueued += r.count(scheduler.TickEnqueued)
	}
	if enqueued != len(got) {
		t.Errorf("%d ticks counted as enqueued, %d messages", enqueued, len(got))
	}
	t.Logf("%d messages in all, %d in the window, %d twice, %d early", len(got), want(), twice, early)
}

// The naive way in the same test: each replica goes by its own clock, and a
// SET NX with a time to live guards the job. It doubles, and it is early.
func TestP17_NaiveLocalClockDoubles(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	w := watch(t, srv.Client(t))
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, skew := range []time.Duration{-5 * time.Second, -2 * time.Second, 0, 3 * time.Second, 5 * time.Second} {
		rdb := srv.Client(t)
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			last := time.Now().Add(skew).Truncate(time.Second)
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				due := time.Now().Add(skew).Truncate(time.Second)
				if !due.After(last) {
					continue
				}
				last = due
				for i := range 20 {
					job := fmt.Sprintf("j%03d", i)
					if ok, err := rdb.SetNX(ctx, "lock:"+job, "x", 100*time.Millisecond).Result(); err != nil || !ok {
						continue
					}
					b, _ := json.Marshal(message{Job: job, Tick: due.UnixMilli()})
					rdb.LPush(ctx, "celery", b)
				}
			}
		})
	}
	wg.Wait()
	twice, early := wrong(w.list())
	if twice == 0 || early == 0 {
		t.Errorf("the naive scheduler: %d twice, %d early; the test above would not see it", twice, early)
	}
	t.Logf("naive: %d messages, %d twice, %d early", len(w.list()), twice, early)
}

// S15: ten replicas, 300 jobs at one second.
func TestS15_TenReplicasManyJobs(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	at := (serverMillis(t, rdb)/1000 + 5) * 1000
	var list []*scheduler.Job
	for i := range 300 {
		spec := scheduler.SpecConfig{At: time.UnixMilli(at).UTC().Format(time.RFC3339)}
		s, _, err := scheduler.ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &scheduler.Job{Name: fmt.Sprintf("j%03d", i), Task: "tests.tick", Spec: spec, Schedule: s})
	}
	for i := range 10 {
		start(t, srv.Client(t), fmt.Sprint("r", i), "a", list)
	}
	wait(t, rdb, at)
	testkit.Poll(t, 10*time.Second, 20*time.Millisecond, func() bool { return len(w.list()) >= 300 }, "300 messages")
	wait(t, rdb, serverMillis(t, rdb)+1000)
	got := w.list()
	twice, early := wrong(got)
	var most time.Duration
	for _, s := range got {
		most = max(most, s.late())
	}
	if len(got) != 300 || twice != 0 || early != 0 || most > 5*time.Second {
		t.Errorf("%d messages, %d twice, %d early, up to %s late", len(got), twice, early, most)
	}
	t.Logf("up to %s late", most)
}

// Four replicas are replaced one by one with a changed line, rolled back, and
// a newest one of the changed file is killed: no tick of two revisions, none
// lost for longer than 15 s, and an unchanged job notices nothing.
func TestS10_RollingChange(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	file := func(period string) []*scheduler.Job {
		return []*scheduler.Job{every(t, "edited", period), every(t, "same", "1s")}
	}
	var fleet []*running
	roll := func(rev, period string) int64 {
		var switched int64
		for i := range 4 {
			r := start(t, srv.Client(t), fmt.Sprintf("%s%d-%d", rev, i, serverMillis(t, rdb)), rev, file(period))
			wait(t, rdb, serverMillis(t, rdb)+300)
			if switched == 0 {
				switched = serverMillis(t, rdb)
			}
			if len(fleet) >= 4 {
				fleet[0].stop()
				fleet = fleet[1:]
			}
			fleet = append(fleet, r)
			wait(t, rdb, serverMillis(t, rdb)+700)
		}
		return switched
	}
	roll("old", "2s")
	begin := serverMillis(t, rdb)
	toNew := roll("new", "3s")
	toOld := roll("old", "2s")
	lastNew := serverMillis(t, rdb)
	newest := start(t, srv.Client(t), "newest", "new", file("3s"))
	wait(t, rdb, serverMillis(t, rdb)+4500)
	bury := newest.state.kill()
	t.Cleanup(bury)
	killed := serverMillis(t, rdb)
	wait(t, rdb, killed+20_000)
	end := serverMillis(t, rdb) - 1000
	for _, r := range fleet {
		r.stop()
	}
	bury()

	got := w.list()
	if twice, early := wrong(got); twice != 0 || early != 0 {
		t.Errorf("%d twice, %d early", twice, early)
	}
	same := ofJob(got, "same", begin, end)
	for tick := (begin/1000 + 1) * 1000; tick <= end; tick += 1000 {
		if s, ok := same[tick]; !ok || s.late() > 3*time.Second {
			t.Errorf("unchanged job: tick %d published %v, %s late", tick, ok, s.late())
		}
	}
	edited := ofJob(got, "edited", begin, end)
	check := func(rev string, period, from, to int64, late time.Duration) {
		t.Helper()
		for tick := (from/period + 1) * period; tick <= to; tick += period {
			if s, ok := edited[tick]; !ok || s.Rev != rev || s.late() > late {
				t.Errorf("tick %d of %s: published %v by %s, %s late", tick, rev, ok, s.Rev, s.late())
			}
		}
	}
	check("old", 2000, begin, toNew-1000, 3*time.Second)
	check("new", 3000, toNew, toOld-1000, 3*time.Second)
	check("old", 2000, toOld, lastNew-1000, 3*time.Second)
	// The newest one's last beat was up to 3 s before it was killed.
	check("old", 2000, killed, end, 15*time.Second)
	var revs []string
	for tick, s := range edited {
		if s.Rev == "new" && tick > killed {
			t.Errorf("tick %d of the dead replica's revision", tick)
		}
	}
	for _, s := range got {
		if s.Job == "edited" && (len(revs) == 0 || revs[len(revs)-1] != s.Rev) {
			revs = append(revs, s.Rev)
		}
	}
	if order := strings.Join(revs, " "); order != "old new old new old" {
		t.Errorf("revisions one after the other: %s", order)
	}
}

// S02, S06: all data lost in mid-run, twice: everybody goes on by himself.
func TestS06_FlushInMidRun(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	list := []*scheduler.Job{every(t, "a", "1s"), every(t, "b", "1s", all), every(t, "rare", "24h")}
	for i := range 3 {
		start(t, srv.Client(t), fmt.Sprint("r", i), "a", list)
	}
	testkit.Poll(t, 10*time.Second, 20*time.Millisecond, func() bool { return len(w.list()) > 2 }, "the first ticks")
	var flushes []int64
	for range 2 {
		wait(t, rdb, serverMillis(t, rdb)+1300)
		flushes = append(flushes, serverMillis(t, rdb))
		rdb.FlushAll(t.Context())
		wait(t, rdb, serverMillis(t, rdb)+5000)
	}
	end := serverMillis(t, rdb) - 1000
	got := w.list()
	if twice, early := wrong(got); twice != 0 || early != 0 {
		t.Errorf("%d twice, %d early", twice, early)
	}
	for _, job := range []string{"a", "b"} {
		ticks := ofJob(got, job, 0, end)
		for tick := (flushes[0]/1000 - 1) * 1000; tick <= end; tick += 1000 {
			near := false
			for _, f := range flushes {
				near = near || tick >= f-1000 && tick <= f+4000
			}
			if _, ok := ticks[tick]; !ok && !near {
				t.Errorf("%s: tick %d was lost, not within 4 s of a flush", job, tick)
			}
		}
	}
	if n := len(ofJob(got, "rare", 0, end)); n > 0 {
		t.Errorf("a daily job fired %d times because its state was lost", n)
	}
}

// S03: the server stands still for 13 s. Nobody alive is buried, and every
// tick is published, by whatever policy it is not yet too late for.
func TestS03_ServerStandsStill(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	list := []*scheduler.Job{every(t, "once", "1s"), every(t, "all", "1s", all)}
	var fleet []*running
	for i := range 4 {
		fleet = append(fleet, start(t, srv.Client(t), fmt.Sprint("r", i), "a", list))
	}
	testkit.Poll(t, 10*time.Second, 20*time.Millisecond, func() bool {
		all, err := fleet[0].state.Replicas(t.Context())
		return err == nil && len(all) == 4
	}, "four replicas")
	// The newest file has another line for a third job: if a stall buried its
	// replica, the old line would fire.
	start(t, srv.Client(t), "newest", "b", append(list, every(t, "third", "1s")))
	wait(t, rdb, serverMillis(t, rdb)+6500)
	from := serverMillis(t, rdb)
	srv.Pause()
	<-time.After(13 * time.Second)
	srv.Continue()
	wait(t, rdb, from+13_000+6000)
	end := serverMillis(t, rdb) - 2000
	got := w.list()
	if twice, early := wrong(got); twice != 0 || early != 0 {
		t.Errorf("%d twice, %d early", twice, early)
	}
	for _, job := range []string{"once", "all", "third"} {
		ticks := ofJob(got, job, 0, end)
		for tick := (from/1000 - 1) * 1000; tick <= end; tick += 1000 {
			if _, ok := ticks[tick]; !ok {
				t.Errorf("%s: tick %d was lost", job, tick)
			}
		}
	}
	replicas, err := fleet[0].state.Replicas(t.Context())
	if err != nil || len(replicas) != 5 {
		t.Errorf("%d live replicas, want 5 (%v)", len(replicas), err)
	}
	for _, r := range fleet {
		if err := r.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
	}
}

// S04: a scheduler whose place in the registry is not its own any more ends
// quietly and leaves the others' alone.
func TestS04_LeaveWithoutOwnEntry(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	list := []*scheduler.Job{every(t, "j", "1s")}
	a := start(t, srv.Client(t), "a", "a", list)
	start(t, srv.Client(t), "b", "a", list)
	alive := func() []string { return rdb.ZRange(t.Context(), "solobeat:default:sched:beats", 0, -1).Val() }
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return len(alive()) == 2 }, "two replicas")
	rdb.ZRem(t.Context(), "solobeat:default:sched:beats", "a")
	a.stop()
	if got := alive(); len(got) != 1 || got[0] != "b" {
		t.Errorf("alive: %v", got)
	}
}

// P12: SIGTERM of the only scheduler that has the newest file: the next file
// is current within 2 s, not after a burial.
func TestP12_OrderlyEndHandsOver(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	start(t, srv.Client(t), "old", "old", []*scheduler.Job{every(t, "j", "1s")})
	wait(t, rdb, serverMillis(t, rdb)+500)
	newest := start(t, srv.Client(t), "new", "new", []*scheduler.Job{every(t, "j", "2s")})
	wait(t, rdb, serverMillis(t, rdb)+4000)
	newest.stop()
	left := serverMillis(t, rdb)
	wait(t, rdb, left+4500)
	ticks := ofJob(w.list(), "j", left, left+4500)
	for tick := (left/1000 + 1) * 1000; tick <= left+3000; tick += 1000 {
		if s, ok := ticks[tick]; !ok || s.late() > 3*time.Second || s.Rev != "old" {
			t.Errorf("tick %d: published %v, %s late", tick, ok, s.late())
		}
	}
}

// S01: the store cannot be reached while a second scheduler starts. It
// publishes nothing, waits, stays ready, and takes part when it can.
func TestS01_StoreCutAtStart(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	list := []*scheduler.Job{every(t, "j", "1s")}
	a := start(t, srv.Client(t), "a", "a", list)
	proxy := testkit.NewProxy(t, srv.Addr)
	proxy.Swallow()
	b := start(t, proxy.Client(t), "b", "a", list)
	wait(t, rdb, serverMillis(t, rdb)+4000)
	if err := b.Ready(); err != nil {
		t.Errorf("not ready while it waits: %v", err)
	}
	proxy.Pass()
	proxy.CloseAll()
	wait(t, rdb, serverMillis(t, rdb)+5000)
	a.stop()
	wait(t, rdb, serverMillis(t, rdb)+2500)
	got := w.list()
	twice, early := wrong(got)
	first := map[string]int64{}
	for _, s := range got {
		if first[s.By] == 0 {
			first[s.By] = s.Tick
		}
	}
	if twice != 0 || early != 0 || first["b"] == 0 {
		t.Errorf("%d twice, %d early, first ticks %v", twice, early, first)
	}
	end := serverMillis(t, rdb) - 1500
	ticks := ofJob(got, "j", 0, end)
	for tick := got[0].Tick; tick <= end; tick += 1000 {
		if _, ok := ticks[tick]; !ok {
			t.Errorf("tick %d was lost", tick)
		}
	}
}

// Replies that are lost after the claim was done: published once, counted
// once, by a scheduler that is alone.
func TestS14_LostReplies(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	rdb := srv.Client(t)
	w := watch(t, srv.Client(t))
	proxy := testkit.NewProxy(t, srv.Addr)
	var list []*scheduler.Job
	for i, change := range []func(*scheduler.Job){func(*scheduler.Job) {}, all, func(j *scheduler.Job) { j.Misfire.Policy = scheduler.MisfireSkip }} {
		list = append(list, every(t, fmt.Sprint("j", i), "1s", change))
	}
	r := start(t, proxy.Client(t), "r", "a", list)
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return len(w.list()) >= 3 }, "the first ticks")
	begin := serverMillis(t, rdb)
	for range 5 {
		proxy.DropReplyTo("celery")
		wait(t, rdb, serverMillis(t, rdb)+1500)
	}
	wait(t, rdb, serverMillis(t, rdb)+3000)
	r.stop()
	wait(t, rdb, serverMillis(t, rdb)+100)
	got := w.list()
	if n := proxy.Dropped(); n < 4 {
		t.Errorf("only %d replies were lost", n)
	}
	if twice, early := wrong(got); twice != 0 || early != 0 {
		t.Errorf("%d twice, %d early", twice, early)
	}
	if n := r.count(scheduler.TickEnqueued); n != len(got) {
		t.Errorf("%d counted, %d published", n, len(got))
	}
	end := serverMillis(t, rdb) - 1500
	for _, j := range list {
		ticks := ofJob(got, j.Name, begin, end)
		for tick := (begin/1000 + 1) * 1000; tick <= end; tick += 1000 {
			if _, ok := ticks[tick]; !ok {
				t.Errorf("%s: tick %d was lost", j.Name, tick)
			}
		}
	}
}
