package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// client sends tasks as a Go program does.
func (s *stack) sender() *celery.Client {
	return celery.NewClient(celery.ClientConfig{Broker: s.broker})
}

func (s *stack) enqueue(name string, opts ...tasks.Option) string {
	s.t.Helper()
	id, err := s.sender().Enqueue(s.t.Context(), name, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// guarded makes a message that carries a guard, as the scheduler's do.
func guarded(g tasks.Guard) tasks.Option {
	return func(r *tasks.Request) error { r.Guard = &g; return nil }
}

func kwargs(v any) tasks.Option { return tasks.WithKwargs(v) }

// result waits for a final result.
func (s *stack) result(id string, timeout time.Duration) *wire.Result {
	s.t.Helper()
	r, done, err := s.sender().Wait(s.t.Context(), id, timeout)
	if err != nil {
		s.t.Fatal(err)
	}
	if !done {
		s.t.Fatalf("task %s has no result after %s (state %+v)", id, timeout, r)
	}
	return r
}

func (s *stack) wantState(id, state string, timeout time.Duration) *wire.Result {
	s.t.Helper()
	r := s.result(id, timeout)
	if r.State != state {
		s.t.Errorf("task %s: %s (%+v), want %s", id, r.State, r.Exception, state)
	}
	return r
}

// metric sums a counter or gauge of a worker over the series with these label
// texts.
func (w *worker) metric(name string, labels ...string) float64 {
	w.s.t.Helper()
	req, err := http.NewRequestWithContext(w.s.t.Context(), http.MethodGet, w.metricsURL(), nil)
	if err != nil {
		w.s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.s.t.Fatal(err)
	}
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(string(body), -1) {
		match := true
		for _, l := range labels {
			match = match && strings.Contains(m[1], l)
		}
		if v, err := strconv.ParseFloat(m[2], 64); err == nil && match {
			sum += v
		}
	}
	return sum
}

// fleet keeps workers alive: one that dies by SIGKILL is started again, with
// other fail points.
type fleet struct {
	s    *stack
	args []string
	// arm gives the environment of the next start; nil disarms.
	arm func() []string

	mu    sync.Mutex
	all   []*worker // every process that was ever started
	alive map[string]*worker
	stop  chan struct{}
	done  sync.WaitGroup
}

func (s *stack) fleet(n int, arm func() []string, args ...string) *fleet {
	f := &fleet{s: s, args: args, arm: arm, alive: map[string]*worker{}, stop: make(chan struct{})}
	for i := range n {
		f.done.Go(func() { f.keep(fmt.Sprintf("w%d", i)) })
	}
	s.t.Cleanup(f.end)
	return f
}

func (f *fleet) keep(name string) {
	for {
		f.mu.Lock()
		select {
		case <-f.stop:
			f.mu.Unlock()
			return
		default:
		}
		var env []string
		if f.arm != nil {
			env = f.arm()
		}
		w := f.s.workerAsync(name, env, f.args...)
		f.all, f.alive[name] = append(f.all, w), w
		f.mu.Unlock()
		<-w.Exited()
	}
}

func (f *fleet) disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arm = nil
}

// workers are those that run now.
func (f *fleet) workers() []*worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ws []*worker
	for _, w := range f.alive {
		ws = append(ws, w)
	}
	return ws
}

// count counts the matches of a text in the logs of every process.
func (f *fleet) count(text string) int {
	f.mu.Lock()
	all := append([]*worker(nil), f.all...)
	f.mu.Unlock()
	n := 0
	for _, w := range all {
		n += strings.Count(w.Stderr(), text)
	}
	return n
}

// matches are those of a pattern in the logs of every process.
func (f *fleet) matches(pattern string) [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	re := regexp.MustCompile(pattern)
	var all [][]string
	for _, w := range f.all {
		all = append(all, re.FindAllStringSubmatch(w.Stderr(), -1)...)
	}
	return all
}

// end stops all workers in order, once.
func (f *fleet) end() {
	f.mu.Lock()
	select {
	case <-f.stop:
		f.mu.Unlock()
		return
	default:
		close(f.stop)
	}
	f.mu.Unlock()
	for _, w := range f.workers() {
		w.Signal(syscall.SIGTERM)
	}
	f.done.Wait()
}

// armed picks a place at random and a number of hits until the kill.
func armed() []string {
	point := []string{"after-take", "after-effect", "before-ack"}[rand.IntN(3)]
	return []string{fmt.Sprintf("SOLOBEAT_FAILPOINTS=%s=kill:%d", point, 1+rand.IntN(8))}
}

const killConfig = `
worker:
  concurrency: 4
  poison_after: 100
  grace: 2s
tasks:
  tests.fenced:
    lock: {key: "lock:{{ .Params.id }}", ttl: 2s}
    idempotency: {key: "{{ .Params.id }}"}
`

// 8 workers, 1,000 messages, at least 20 kills at each of three places: every
// task runs, nothing is left anywhere, every fenced value is right, every
// extra effect was a takeover. A kill between record and ack doubles the
// effect of each task without a record, and of none with one.
func TestKillsAtFailPoints(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	const n, perPoint = 1000, 20
	var fencedIDs, plainIDs []string
	for i := range n {
		id := fmt.Sprintf("m%04d", i)
		fencedIDs = append(fencedIDs, s.enqueue("tests.fenced", kwargs(map[string]any{"id": id}), tasks.WithID(id)))
		plainIDs = append(plainIDs, s.enqueue("tests.effect", kwargs(map[string]any{"id": "p" + id}), tasks.WithID("p"+id)))
	}
	f := s.fleet(8, armed, "-c", s.file("solobeat.yaml", killConfig))
	points := []string{"after-take", "after-effect", "before-ack"}
	testkit.Poll(t, 6*time.Minute, 200*time.Millisecond, func() bool {
		for _, p := range points {
			if f.count("failpoint "+p) < perPoint {
				if s.broker.LLen(t.Context(), "celery").Val() < 50 { // more to kill over
					for i := range 100 {
						id := fmt.Sprintf("x%d-%d", time.Now().UnixNano(), i)
						fencedIDs = append(fencedIDs, s.enqueue("tests.fenced", kwargs(map[string]any{"id": id}), tasks.WithID(id)))
						plainIDs = append(plainIDs, s.enqueue("tests.effect", kwargs(map[string]any{"id": "p" + id}), tasks.WithID("p"+id)))
					}
				}
				return false
			}
		}
		return true
	}, "too few kills")
	f.disarm()
	s.idle(3 * time.Minute)
	for _, p := range points {
		t.Logf("%s: %d kills", p, f.count("failpoint "+p))
	}
	extraFenced, extraPlain := 0, 0
	effects := map[string]int{}
	for _, line := range s.list("effects") {
		effects[strings.Fields(line)[0]]++
	}
	for _, id := range fencedIDs {
		if effects[id] == 0 {
			t.Errorf("%s never ran", id)
		}
		extraFenced += effects[id] - 1
		if v := s.ledger.HGet(t.Context(), "value:"+id, "value").Val(); v != id {
			t.Errorf("value of %s is %q", id, v)
		}
		if k := f.count(`"task_id":"`+id+`"`) * boolInt(effects[id] > 1); effects[id] > 1 && f.takeovers(id) < effects[id]-1 {
			t.Errorf("%s: %d effects, %d takeovers in the log (%d lines)", id, effects[id], f.takeovers(id), k)
		}
	}
	for _, id := range plainIDs {
		if effects[id] == 0 {
			t.Errorf("%s never ran", id)
		}
		extraPlain += effects[id] - 1
	}
	t.Logf("extra effects: %d with records, %d without", extraFenced, extraPlain)
	s.recordsTold(f)
	s.burialsOver()
	f.end()
	s.registriesEmpty()
}

// recordsTold looks at the tasks that were killed between their record and
// their ack: where there is a record, the takeover took its word, so that the
// effect of the killed process was the last one.
func (s *stack) recordsTold(f *fleet) {
	s.t.Helper()
	lastBy := map[string]string{} // task id: pid
	by := map[string]bool{}       // task id and pid
	for _, line := range s.list("effects") {
		e := strings.Fields(line)
		lastBy[e[0]], by[strings.Join(e[:2], " ")] = e[1], true
	}
	doubled := map[string]int{}
	for _, kill := range f.matches(`failpoint before-ack: kill -9 of pid (\d+) in (\S+)\[(\S+)\]`) {
		pid, task, id := kill[1], kill[2], kill[3]
		if by[id+" "+pid] && lastBy[id] != pid {
			doubled[task]++
		}
	}
	s.t.Logf("effects that a kill between record and ack doubled: %v", doubled)
	if doubled["tests.fenced"] > 0 || doubled["tests.effect"] == 0 {
		s.t.Errorf("kills between record and ack doubled %d effects of tasks with records, want 0, and %d of tasks without, want some",
			doubled["tests.fenced"], doubled["tests.effect"])
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// takeovers counts the runs of a task that the log calls a takeover.
func (f *fleet) takeovers(id string) int {
	f.mu.Lock()
	all := append([]*worker(nil), f.all...)
	f.mu.Unlock()
	n := 0
	for _, w := range all {
		for line := range strings.Lines(w.Stderr()) {
			if strings.Contains(line, `"task_id":"`+id+`"`) && strings.Contains(line, `"takeover":true`) {
				n++
			}
		}
	}
	return n
}

// burialsOver waits until the living have swept after all the dead, which they
// do for some seconds after each burial.
func (s *stack) burialsOver() {
	s.t.Helper()
	testkit.Eventually(s.t, time.Minute, func() error {
		live := s.broker.ZCard(s.t.Context(), "solobeat:default:replicas").Val()
		entries := s.broker.Keys(s.t.Context(), "solobeat:default:replica:*").Val()
		if int(live) != len(entries) {
			return fmt.Errorf("%d replicas, %d entries of replicas", live, len(entries))
		}
		return nil
	})
}

// registriesEmpty checks that no trace of a take is left after all workers
// have stopped.
func (s *stack) registriesEmpty() {
	s.t.Helper()
	testkit.Eventually(s.t, 20*time.Second, func() error {
		for _, pattern := range []string{"solobeat:default:inflight:*", "solobeat:default:replicas", "solobeat:default:replica:*", "solobeat:default:calls", "unacked*"} {
			if keys := s.broker.Keys(s.t.Context(), pattern).Val(); len(keys) > 0 {
				return fmt.Errorf("left: %v", keys)
			}
		}
		return nil
	})
}

// A message that kills its worker each time fails in the end; 50 neighbours
// beside it all succeed.
func TestPoisonAndItsNeighbours(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	f := s.fleet(3, nil, "-c", s.file("solobeat.yaml", "worker: {concurrency: 20, grace: 1s}\n"))
	var neighbours []string
	for i := range 50 {
		neighbours = append(neighbours, s.enqueue("tests.sleep", kwargs(map[string]any{"id": strconv.Itoa(i), "seconds": 2})))
		if i == 10 {
			neighbours = append(neighbours, s.enqueue("tests.die", kwargs(map[string]any{"id": "poison"}), tasks.WithID("poison"), guarded(tasks.Guard{Job: "deadly"})))
		}
	}
	r := s.result("poison", 3*time.Minute)
	if r.State != wire.StateFailure || r.Exception == nil || r.Exception.Type != "WorkerLostError" {
		t.Errorf("poison ended as %s %+v, want FAILURE WorkerLostError", r.State, r.Exception)
	}
	for _, id := range neighbours {
		if id != "poison" {
			s.wantState(id, wire.StateSuccess, 2*time.Minute)
		}
	}
	var dead []celery.DeadLetter
	out := s.output("dead", "list", "-o", "json")
	if err := json.Unmarshal([]byte(out), &dead); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(dead) != 1 || dead[0].TaskID != "poison" || dead[0].Reason != "WorkerLostError" {
		t.Errorf("dead letters %+v", dead)
	}
	if h := s.history("deadly"); len(h) != 1 || h[0].Outcome != "failed" || h[0].Run == nil || h[0].Run.Reason != "WorkerLostError" {
		t.Errorf("history of the poison's job: %+v", h)
	}
	f.end()
}

// output runs a command to its end and returns its output.
func (s *stack) output(args ...string) string {
	s.t.Helper()
	p := testkit.StartCmd(s.t, "solobeat "+strings.Join(args, " "), command(s.dir, s.env(), append([]string{s.bin}, args...)...))
	if code := p.Wait(60 * time.Second); code != 0 {
		s.t.Fatalf("solobeat %s: exit %d: %s", strings.Join(args, " "), code, p.Stderr())
	}
	return p.Stdout()
}

// Two ticks of one job with on_busy: skip. The first is killed in mid-run, the
// second runs when the first comes back: both run, neither is skipped.
func TestKilledTickAndTheNext(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	tick := func(name string, seconds float64) string {
		return s.enqueue("tests.tick", kwargs(map[string]any{"tick": name, "seconds": seconds}), tasks.WithID("tick-"+name), guarded(tasks.Guard{
			Job:    "hourly",
			Lock:   &tasks.LockGuard{Key: "hourly:lock", TTLMS: 2000, OnBusy: tasks.OnBusySkip},
			Record: &tasks.RecordGuard{Key: "hourly:" + name},
		}))
	}
	victim := s.worker("victim", nil)
	one := tick("1", 4)
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.list("started")) == 1 }, "tick 1 did not start")
	victim.Kill()
	s.worker("a", nil)
	s.worker("b", nil)
	testkit.Poll(t, 10*time.Second, 50*time.Millisecond, func() bool { return s.broker.Exists(t.Context(), "hourly:lock").Val() == 0 }, "the dead holder's lock did not end")
	two := tick("2", 20) // runs until the first one is back
	s.wantState(one, wire.StateSuccess, 60*time.Second)
	s.wantState(two, wire.StateSuccess, 60*time.Second)
	perTick := map[string]int{}
	for _, line := range s.list("reports") {
		perTick[strings.Fields(line)[0]]++
	}
	if perTick["1"] != 1 || perTick["2"] != 1 {
		t.Errorf("reports %v, want one each", perTick)
	}
}

// Redis stands still for 13 s under load: nobody alive is buried, no run is
// failed by it.
func TestStallOfRedis(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	var ws []*worker
	for i := range 4 {
		ws = append(ws, s.worker(fmt.Sprintf("w%d", i), nil, "-c", s.file("solobeat.yaml", "worker: {concurrency: 4}\ntasks: {tests.sleep: {idempotency: {key: \"{{ .Params.id }}\"}}}\n")))
	}
	var ids []string
	for i := range 200 {
		ids = append(ids, s.enqueue("tests.sleep", kwargs(map[string]any{"id": strconv.Itoa(i), "seconds": 0.2})))
	}
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.ledger.Keys(t.Context(), "sleep:*").Val()) > 10 }, "the load did not start")
	s.redis.Pause()
	timer := time.NewTimer(13 * time.Second)
	<-timer.C
	s.redis.Continue()
	for _, id := range ids {
		s.wantState(id, wire.StateSuccess, 90*time.Second)
	}
	s.idle(30 * time.Second)
	for _, w := range ws {
		if n := w.metric("solobeat_buried_total") + w.metric("solobeat_taken_over_total"); n != 0 {
			t.Errorf("%s: %v burials and takeovers though all were alive", w.Name, n)
		}
		if n := w.metric("solobeat_task_failures_total") + w.metric("solobeat_task_retries_total"); n != 0 {
			t.Errorf("%s: %v failures and retries", w.Name, n)
		}
	}
}

// Four replicas are replaced one by one, three times, during a run of 60 s: it
// ends once, and its task is SUCCESS.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := s.file("solobeat.yaml", "worker: {concurrency: 2, grace: 1s}\ntasks: {tests.sleep: {lock: {ttl: 2s}, idempotency: {key: \"{{ .Params.id }}\"}}}\n")
	var ws []*worker
	for i := range 4 {
		ws = append(ws, s.worker(fmt.Sprintf("w%d", i), nil, "-c", conf))
	}
	id := s.enqueue("tests.sleep", kwargs(map[string]any{"id": "long", "seconds": 60}))
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.list("sleep:long")) > 0 }, "the run did not start")
	for round := range 3 {
		for i := range ws {
			ws[i].Signal(syscall.SIGTERM)
			if code := ws[i].Wait(20 * time.Second); code != 0 {
				t.Errorf("round %d: worker %d ended with %d: %s", round, i, code, ws[i].Stderr())
			}
			ws[i] = s.worker(fmt.Sprintf("w%d", i), nil, "-c", conf)
		}
	}
	s.wantState(id, wire.StateSuccess, 3*time.Minute)
	ends := 0
	for _, line := range s.list("sleep:long") {
		if strings.HasPrefix(line, "end ") {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("the run ended %d times: %v", ends, s.list("sleep:long"))
	}
}

// L07: a holder is stopped for 20 s, past its TTL and past its burial. When it
// wakes its context is cancelled, Check fails, its fenced write is refused,
// its release leaves the new holder's lock alone, its late commit is dropped.
func TestL07_StoppedHolder(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	conf := s.file("solobeat.yaml", "tasks: {tests.stall: {lock: {key: \"stall:lock\", ttl: 2s}}}\n")
	stopped := s.worker("stopped", nil, "-c", conf)
	id := s.enqueue("tests.stall", kwargs(map[string]any{"id": "x", "seconds": 4}))
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.list("stall:x")) == 1 }, "the run did not start")
	stopped.Pause()
	other := s.worker("other", nil, "-c", conf)
	testkit.Poll(t, 40*time.Second, 50*time.Millisecond, func() bool { return len(s.list("stall:x")) == 2 }, "nobody took over")
	wake := time.NewTimer(2 * time.Second) // the other is in the middle of its run
	<-wake.C
	held := s.broker.Get(t.Context(), "stall:lock").Val()
	// The other's fence has to be at the resource before the late write.
	fence := strings.Fields(s.list("stall:x")[1])[2]
	if err := s.ledger.HSet(t.Context(), "value:x", "value", "new", "fence", fence).Err(); err != nil {
		t.Fatal(err)
	}
	stopped.Continue()
	r := s.wantState(id, wire.StateSuccess, 40*time.Second)
	who := strconv.Itoa(stopped.Pid)
	if string(r.Value) == strconv.Quote(who) {
		t.Errorf("the late commit of the stopped holder was taken: %s", r.Value)
	}
	testkit.Poll(t, 20*time.Second, 50*time.Millisecond, func() bool {
		return strings.Contains(strings.Join(s.list("stall:x"), "\n"), who+" write ")
	}, "the stopped holder did not go on")
	log := strings.Join(s.list("stall:x"), "\n")
	for _, want := range []string{who + " cause (tasks|lockguard): .*", who + " check lockguard: .*", who + " write .*fence.*"} {
		if !regexp.MustCompile(want).MatchString(log) {
			t.Errorf("no line %q in\n%s", want, log)
		}
	}
	if held == "" {
		t.Error("the other did not hold the lock when the stopped one woke")
	}
	testkit.Poll(t, 10*time.Second, 50*time.Millisecond, func() bool { return stopped.metric("solobeat_late_commits_total") == 1 }, "no late commit was counted")
	if n := stopped.metric("solobeat_buried_total"); n != 1 {
		t.Errorf("buried %v times, want 1", n)
	}
	if n := other.metric("solobeat_lock_lost_total"); n != 0 {
		t.Errorf("the new holder lost its lock %v times: the stopped one's release touched it", n)
	}
}

// The naive guard of the same story: SET NX PX and DEL. It doubles, and it
// frees the other's lock.
func TestNaiveGuardDoubles(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	ctx := t.Context()
	acquire := func() bool {
		ok, err := s.broker.SetNX(ctx, "naive", "1", time.Second).Result()
		return err == nil && ok
	}
	if !acquire() {
		t.Fatal("the first holder did not get the lock")
	}
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, acquire, "the second holder did not get in while the first was stopped")
	effects := 2 // both go on
	s.broker.Del(ctx, "naive")
	if s.broker.Exists(context.WithoutCancel(ctx), "naive").Val() != 0 || effects != 2 {
		t.Error("the naive release left the second holder's lock alone: the control shows nothing")
	}
}
