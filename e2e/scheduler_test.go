package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Scheduler processes on one store; most of the time they wait for ticks.
func TestSchedulers(t *testing.T) {
	t.Parallel()
	testkit.Build(t, workerPkg, testkit.FailpointsTag)
	together(t,
		subtest{"P17 five schedulers with wrong clocks", fiveSchedulersWithWrongClocks},
		subtest{"P17 local clock and SET NX double", localClockAndSetNXDoubles},
		subtest{"S10 catch up after down time", catchUpAfterDownTime},
		subtest{"S10 rolling change of a job", rollingChangeOfAJob},
		subtest{"S16 fresh store does not fire the monthly", freshStoreDoesNotFireTheMonthly},
		subtest{"S19 clock stepped back", clockSteppedBack},
	)
}

// scheduler starts a scheduler process and waits until it is in the registry.
func (s *stack) scheduler(name, schedule string, extra ...string) *testkit.Proc {
	s.t.Helper()
	p := testkit.Start(s.t, name, s.env(append([]string{"SOLOBEAT_SCHEDULE_FILE=" + schedule}, extra...)...), s.bin, "scheduler")
	p.WaitOutput(60*time.Second, `"msg":"scheduler registered"`)
	return p
}

// published is one message of a job as it was first seen in the queue, with
// Redis's clock.
type published struct {
	job  string
	tick int64 // ms
	at   int64 // ms, Redis's clock
}

// since returns Redis's clock and the messages that were pushed after the
// first known ones. The messages stay in the queue.
const sinceScript = `local t, n = redis.call('TIME'), redis.call('LLEN', KEYS[1])
local out = {t[1] * 1000 + math.floor(t[2] / 1000)}
if n > tonumber(ARGV[1]) then
  for _, m in ipairs(redis.call('LRANGE', KEYS[1], 0, n - ARGV[1] - 1)) do out[#out + 1] = m end
end
return out`

// queueWitness watches a queue that nobody takes from.
type queueWitness struct {
	mu  sync.Mutex
	all []published
}

func (s *stack) watchQueue(decode func(string) (published, error)) *queueWitness {
	s.t.Helper()
	w := &queueWitness{}
	ctx, cancel := context.WithCancel(s.t.Context())
	client := s.redis.ClientDB(s.t, 0)
	var done sync.WaitGroup
	done.Go(func() {
		script := redis.NewScript(sinceScript)
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			v, err := script.Run(ctx, client, []string{"celery"}, len(w.list())).Slice()
			if err != nil {
				continue
			}
			at, _ := v[0].(int64)
			for _, raw := range slices.Backward(v[1:]) {
				text, _ := raw.(string)
				p, err := decode(text)
				if err != nil {
					s.t.Errorf("message in the queue: %v", err)
				}
				p.at = at
				w.mu.Lock()
				w.all = append(w.all, p)
				w.mu.Unlock()
			}
		}
	})
	s.t.Cleanup(func() { cancel(); done.Wait() })
	return w
}

// guardOf reads job and tick from the guard of a message.
func guardOf(text string) (published, error) {
	m, err := wire.Decode([]byte(text))
	if err != nil {
		return published{}, err
	}
	var g struct {
		Job  string `json:"job"`
		Tick int64  `json:"tick"`
	}
	err = json.Unmarshal(m.Headers[wire.HeaderGuard], &g)
	return published{job: g.Job, tick: g.Tick}, err
}

func (w *queueWitness) list() []published {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// within are the messages of the ticks from from to to, in ms.
func (w *queueWitness) within(from, to int64) []published {
	return slices.DeleteFunc(w.list(), func(p published) bool { return p.tick < from || p.tick > to })
}

// twiceAndEarly counts messages of a tick that had one before, and messages
// that were in the queue before their time.
func twiceAndEarly(all []published) (twice, early int) {
	seen := map[string]bool{}
	for _, p := range all {
		key := fmt.Sprint(p.job, p.tick)
		if seen[key] {
			twice++
		}
		seen[key] = true
		if p.at < p.tick {
			early++
		}
	}
	return twice, early
}

func (s *stack) redisMillis() int64 {
	s.t.Helper()
	at, err := s.broker.Time(s.t.Context()).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return at.UnixMilli()
}

var clockOffsets = []time.Duration{-5 * time.Second, -2 * time.Second, 0, 3 * time.Second, 5 * time.Second}

// P17: five scheduler processes, their clocks up to 5 s wrong, stopped at
// random: 200 jobs × 10 ticks are 2,000 messages, none twice, none before its
// time by Redis's clock.
func fiveSchedulersWithWrongClocks(t *testing.T) {
	const jobs, ticks, period = 200, 10, 2000
	s := newStack(t)
	var file strings.Builder
	file.WriteString("version: 1\ndefaults: {misfire: {policy: all}}\njobs:\n")
	for i := range jobs {
		fmt.Fprintf(&file, "  job-%03d: {task: tests.tick, every: 2s, kwargs: {tick: \"{{ .Tick.UTC | rfc3339 }}\"}}\n", i)
	}
	schedule := s.file("schedule.yaml", file.String())
	w := s.watchQueue(guardOf)
	var fleet []*testkit.Proc
	for i, offset := range clockOffsets {
		fleet = append(fleet, s.scheduler(fmt.Sprintf("s%d", i), schedule, "SOLOBEAT_CLOCK_OFFSET="+offset.String()))
	}
	from := (s.redisMillis()/period + 1) * period
	to := from + (ticks-1)*period
	pauses := s.pauseAtRandom(fleet)
	testkit.Poll(t, 3*time.Minute, 50*time.Millisecond, func() bool {
		return s.redisMillis() > to && len(w.within(from, to)) >= jobs*ticks
	}, "%d messages", jobs*ticks)
	n := pauses()
	for _, p := range fleet {
		p.Signal(syscall.SIGTERM)
	}
	for _, p := range fleet {
		if code := p.Wait(30 * time.Second); code != 0 {
			t.Errorf("%s ended with %d", p.Name, code)
		}
	}
	testkit.Poll(t, 30*time.Second, 20*time.Millisecond, func() bool {
		return int64(len(w.list())) == s.broker.LLen(t.Context(), "celery").Val()
	}, "the witness has seen the whole queue")
	got := w.within(from, to)
	twice, early := twiceAndEarly(w.list())
	if len(got) != jobs*ticks || twice != 0 || early != 0 {
		t.Errorf("%d messages of %d, %d twice, %d early", len(got), jobs*ticks, twice, early)
	}
	t.Logf("%d messages in the window, %d in all, %d twice, %d early, %d pauses", len(got), len(w.list()), twice, early, n)
	if n < 5 {
		t.Errorf("only %d pauses", n)
	}
}

// pauseAtRandom stops and continues processes until the returned function is
// called, which tells how many pauses there were.
func (s *stack) pauseAtRandom(fleet []*testkit.Proc) (stop func() int) {
	end := make(chan struct{})
	var mu sync.Mutex
	var done sync.WaitGroup
	n := 0
	for range 2 {
		done.Go(func() {
			for {
				wait := time.NewTimer(time.Duration(100+rand.IntN(500)) * time.Millisecond)
				select {
				case <-end:
					wait.Stop()
					return
				case <-wait.C:
				}
				p := fleet[rand.IntN(len(fleet))]
				p.Signal(syscall.SIGSTOP)
				hold := time.NewTimer(time.Duration(100+rand.IntN(2400)) * time.Millisecond)
				select {
				case <-end:
				case <-hold.C:
				}
				hold.Stop()
				p.Signal(syscall.SIGCONT)
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	return func() int {
		close(end)
		done.Wait()
		for _, p := range fleet {
			p.Signal(syscall.SIGCONT)
		}
		return n
	}
}

// The naive scheduler under the same witness: each replica goes by its own
// clock, a SET NX with a time to live guards the tick. It doubles, and it is
// early.
func localClockAndSetNXDoubles(t *testing.T) {
	s := newStack(t)
	w := s.watchQueue(func(text string) (published, error) {
		job, tick, _ := strings.Cut(text, " ")
		ms, err := strconv.ParseInt(tick, 10, 64)
		return published{job: job, tick: ms}, err
	})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for _, offset := range clockOffsets {
		client := s.redis.ClientDB(t, 0)
		done.Go(func() {
			clock := time.NewTicker(20 * time.Millisecond)
			defer clock.Stop()
			last := time.Now().Add(offset).Truncate(2 * time.Second)
			for {
				select {
				case <-ctx.Done():
					return
				case <-clock.C:
				}
				due := time.Now().Add(offset).Truncate(2 * time.Second)
				if !due.After(last) {
					continue
				}
				last = due
				for i := range 20 {
					tick := fmt.Sprintf("job-%03d %d", i, due.UnixMilli())
					if ok, err := client.SetNX(ctx, "lock:"+tick, "1", 3*time.Second).Result(); err == nil && ok {
						client.LPush(ctx, "celery", tick)
					}
				}
			}
		})
	}
	testkit.Poll(t, time.Minute, 50*time.Millisecond, func() bool {
		twice, early := twiceAndEarly(w.list())
		return twice > 0 && early > 0
	}, "the naive scheduler doubles and is early; the test above would not see it")
	cancel()
	done.Wait()
	twice, early := twiceAndEarly(w.list())
	t.Logf("naive: %d messages, %d twice, %d early", len(w.list()), twice, early)
}

// perTick counts the reports of a job by tick, in ms.
func (s *stack) perTick(job string) map[int64]int {
	s.t.Helper()
	n := map[int64]int{}
	for _, line := range s.list("reports") {
		name, tick, _ := strings.Cut(strings.Fields(line)[0], "@")
		if name != job {
			continue
		}
		at, err := time.Parse(time.RFC3339, tick)
		if err != nil {
			s.t.Fatal(err)
		}
		n[at.UnixMilli()]++
	}
	return n
}

// A scheduler that was down for three ticks catches up as each misfire policy
// says. What counts are the reports that a worker forms.
func catchUpAfterDownTime(t *testing.T) {
	// In ms. The second scheduler comes up over 15 s after the last missed tick,
	// from when on skip skips, and leaves that tick to others for 4 s, before the
	// next one is due.
	const period = 24_000
	s := newStack(t)
	file := "version: 1\njobs:\n"
	for _, policy := range []string{"skip", "once", "all"} {
		file += fmt.Sprintf("  %s: {task: tests.tick, every: 24s, misfire: {policy: %s}, kwargs: {tick: \"{{ .Job }}@{{ .Tick.UTC | rfc3339 }}\"}}\n", policy, policy)
	}
	schedule := s.file("schedule.yaml", file)
	s.worker("worker", nil)
	up := s.scheduler("first", schedule)
	first := (s.redisMillis()/period + 1) * period
	reported := func(job string, tick int64) bool { return s.perTick(job)[tick] == 1 }
	everywhere := func(tick int64) func() bool {
		return func() bool { return reported("skip", tick) && reported("once", tick) && reported("all", tick) }
	}
	testkit.Poll(t, time.Minute, 50*time.Millisecond, everywhere(first), "the first tick")
	up.Kill()
	testkit.Poll(t, 3*time.Minute, 50*time.Millisecond, func() bool { return s.redisMillis() > first+3*period+16_000 }, "three ticks pass")
	s.scheduler("second", schedule)
	next := (s.redisMillis()/period + 1) * period
	testkit.Poll(t, 2*time.Minute, 50*time.Millisecond, everywhere(next), "the next tick")
	testkit.Poll(t, 10*time.Second, 100*time.Millisecond, func() bool { return countHistory(s.history("all"), "succeeded") >= 5 }, "the runs are in the history")
	missed := []int64{first + period, first + 2*period, first + 3*period}
	for job, want := range map[string][]int{"skip": {0, 0, 0}, "once": {0, 0, 1}, "all": {1, 1, 1}} {
		got, n := s.perTick(job), []int{}
		for _, tick := range missed {
			n = append(n, got[tick])
		}
		if next == missed[2]+period && !slices.Equal(n, want) {
			t.Errorf("policy %s: reports of the three ticks %v, want %v", job, n, want)
		}
		for tick, k := range got {
			if k != 1 {
				t.Errorf("policy %s: tick %d has %d reports", job, tick, k)
			}
		}
	}
	if next != missed[2]+period {
		t.Errorf("the second scheduler came up too late for this test")
	}
	// History tells both sides: what became of each tick, and of each run.
	if h := s.history("skip"); countHistory(h, "missed") != 3 || countHistory(h, "fired") != 2 || countHistory(h, "succeeded") != 2 {
		t.Errorf("history of skip: %+v, want 3 missed, 2 fired, 2 succeeded", h)
	}
	if h := s.history("all"); countHistory(h, "fired") != 5 || countHistory(h, "succeeded") != 5 {
		t.Errorf("history of all: %+v, want 5 fired, 5 succeeded", h)
	}
	if table := s.output("jobs", "history", "all"); !strings.Contains(table, "succeeded") || !strings.Contains(table, "fence") {
		t.Errorf("history as a table:\n%s", table)
	}
}

func (s *stack) history(job string) (h []scheduler.HistoryEntry) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.output("jobs", "history", job, "-o", "json")), &h); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// countHistory adds up the ticks of the entries with an outcome.
func countHistory(history []scheduler.HistoryEntry, outcome string) (n int64) {
	for _, e := range history {
		if e.Outcome == outcome {
			n += e.Count
		}
	}
	return n
}

// A job whose task nobody has stands in the history as failed: only the
// engine has seen its message.
func TestHistoryOfUnknownTask(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.worker("worker", nil)
	s.scheduler("scheduler", s.file("schedule.yaml", "version: 1\njobs:\n  typo: {task: tests.nobody, every: 1s}\n"))
	testkit.Poll(t, 30*time.Second, 50*time.Millisecond, func() bool {
		for _, e := range s.history("typo") {
			if e.Outcome == "failed" && e.Run != nil && e.Run.Reason == "NotRegistered" && !e.Tick.IsZero() {
				return true
			}
		}
		return false
	}, "the failure is in the history")
	for _, args := range [][]string{{"jobs", "history", "tipo"}, {"jobs", "show", "tipo"}, {"next", filepath.Join(s.dir, "schedule.yaml"), "--job", "tipo"}} {
		if _, _, errs := s.cli(t, nil, args...); !strings.Contains(errs, "did you mean typo?") {
			t.Errorf("%v: %q", args, errs)
		}
	}
}

// rollout is a fleet of replicas with schedule files of two revisions. The
// revision stands in the arguments, so that reports tell who made them.
type rollout struct {
	s     *stack
	files map[string]string
	all   []*worker
}

const rolloutFile = `version: 1
defaults: {lock: off}
jobs:
  edited: {task: tests.tick, every: %s, kwargs: {tick: "edited-%s@{{ .Tick.UTC | rfc3339 }}"}}
  same: {task: tests.tick, every: 1s, kwargs: {tick: "same@{{ .Tick.UTC | rfc3339 }}"}}
`

func (s *stack) rollout() *rollout {
	return &rollout{s: s, files: map[string]string{
		"old": s.file("old.yaml", fmt.Sprintf(rolloutFile, "2s", "old")), "new": s.file("new.yaml", fmt.Sprintf(rolloutFile, "3s", "new")),
	}}
}

func (r *rollout) start(rev string) *worker {
	r.s.t.Helper()
	name := fmt.Sprintf("%s-%d", rev, len(r.all))
	w := r.s.worker(name, []string{"SOLOBEAT_SCHEDULE_FILE=" + r.files[rev]}, "--with-scheduler")
	r.all = append(r.all, w)
	return w
}

// replace replaces a fleet one by one.
func (r *rollout) replace(fleet []*worker, rev string) []*worker {
	r.s.t.Helper()
	for i, old := range fleet {
		fleet[i] = r.start(rev)
		old.Signal(syscall.SIGTERM)
		if code := old.Wait(40 * time.Second); code != 0 {
			r.s.t.Errorf("%s ended with %d", old.Name, code)
		}
	}
	return fleet
}

// fires waits until a job of a revision has a report of a tick after now.
func (r *rollout) fires(job string, within time.Duration) {
	r.s.t.Helper()
	now := r.s.redisMillis()
	testkit.Poll(r.s.t, within, 50*time.Millisecond, func() bool {
		for tick := range r.s.perTick(job) {
			if tick > now {
				return true
			}
		}
		return false
	}, "%s fires", job)
}

// Four replicas are replaced one by one with a changed line; the roll-back's
// first replica is killed, and so is its last: no tick by two revisions, none
// lost for longer than 15 s, and the job that is the same in both files does
// not notice.
func rollingChangeOfAJob(t *testing.T) {
	s := newStack(t)
	r := s.rollout()
	var fleet []*worker
	for range 4 {
		fleet = append(fleet, r.start("old"))
	}
	r.fires("edited-old", 20*time.Second)
	begin := s.redisMillis()
	fleet = r.replace(fleet, "new")
	r.fires("edited-new", 15*time.Second)
	back := r.start("old")
	r.fires("edited-old", 15*time.Second)
	back.Kill() // the newest: the file before it is the current one again
	r.fires("edited-new", 20*time.Second)
	fleet = r.replace(fleet, "old")
	r.fires("edited-old", 15*time.Second)
	end := s.redisMillis() - 1000
	fleet[3].Kill() // what it has taken comes back later: the gaps are counted up to here
	r.fires("same", 5*time.Second)
	r.fires("edited-old", 15*time.Second)

	older, newer := s.perTick("edited-old"), s.perTick("edited-new")
	var edited []int64
	for tick, n := range older {
		if n+newer[tick] != 1 {
			t.Errorf("tick %d: %d reports by the old revision, %d by the new one", tick, n, newer[tick])
		}
		edited = append(edited, tick)
	}
	for tick, n := range newer {
		if n != 1 {
			t.Errorf("tick %d: %d reports by the new revision", tick, n)
		}
		edited = append(edited, tick)
	}
	t.Logf("%d reports by the old revision, %d by the new one; longest gap %s (edited)", len(older), len(newer), s.longestGap(edited, begin, end, 15*time.Second))
	var same []int64
	for tick, n := range s.perTick("same") {
		if n != 1 {
			t.Errorf("job same: tick %d has %d reports", tick, n)
		}
		same = append(same, tick)
	}
	t.Logf("longest gap %s (same)", s.longestGap(same, begin, end, time.Second))
}

// longestGap is the longest time between two ticks, from begin to end; the
// test fails if it is above the limit plus the longest period.
func (s *stack) longestGap(ticks []int64, begin, end int64, limit time.Duration) time.Duration {
	s.t.Helper()
	slices.Sort(ticks)
	longest, last := int64(0), begin
	for _, tick := range append(ticks, end) {
		if tick >= begin && tick <= end {
			longest, last = max(longest, tick-last), tick
		}
	}
	gap := time.Duration(longest) * time.Millisecond
	if gap > limit+3*time.Second {
		s.t.Errorf("no tick for %s", gap)
	}
	return gap
}

// S19: right after a tick the clock is stepped back by 11 minutes (another
// scheduler comes up with it): no tick is fired again, and the job goes on.
func clockSteppedBack(t *testing.T) {
	s := newStack(t)
	schedule := s.file("schedule.yaml", "version: 1\njobs: {j: {task: tests.tick, every: 2s, misfire: {policy: all}}}\n")
	w := s.watchQueue(guardOf)
	for i, offset := range []string{"0s", "-11m", "11m", "-11m"} {
		p := s.scheduler("s"+strconv.Itoa(i), schedule, "SOLOBEAT_CLOCK_OFFSET="+offset)
		n := len(w.list())
		testkit.Poll(t, 30*time.Second, 10*time.Millisecond, func() bool { return len(w.list()) >= n+3 }, "three ticks with the clock at %s", offset)
		p.Kill()
	}
	all := w.list()
	if twice, early := twiceAndEarly(all); twice != 0 || early != 0 {
		t.Errorf("%d twice, %d early of %d", twice, early, len(all))
	}
	for i := 1; i < len(all); i++ {
		if d := all[i].tick - all[i-1].tick; d != 2000 {
			t.Errorf("from one message's tick to the next: %d ms, want 2000", d)
		}
	}
}

// S16: on an empty store a monthly job does not fire, however many replicas
// come up.
func freshStoreDoesNotFireTheMonthly(t *testing.T) {
	s := newStack(t)
	far := time.Now().UTC().AddDate(0, 0, 14) // two weeks away, and two weeks ago or more
	schedule := s.file("schedule.yaml", fmt.Sprintf(`version: 1
defaults: {misfire: {policy: all}}
jobs:
  monthly: {task: tests.tick, cron: "0 0 %d * *"}
  control: {task: tests.tick, every: 1s}
`, min(far.Day(), 28)))
	w := s.watchQueue(guardOf)
	for i := range 3 {
		s.scheduler("s"+strconv.Itoa(i), schedule)
	}
	count := func(job string) int {
		return len(slices.DeleteFunc(w.list(), func(p published) bool { return p.job != job }))
	}
	testkit.Poll(t, 30*time.Second, 20*time.Millisecond, func() bool { return count("control") >= 4 }, "the control fires")
	if n := count("monthly"); n != 0 {
		t.Errorf("the monthly job has fired %d times", n)
	}
}
