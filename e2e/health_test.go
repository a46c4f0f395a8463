package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// What a deploy does to workers; most of the time these tests wait.
func TestDeploy(t *testing.T) {
	t.Parallel()
	testkit.Build(t, workerPkg, testkit.FailpointsTag)
	together(t,
		subtest{"P02 producer and restarts", producerAndRestarts},
		subtest{"P03 end within the warm shutdown", endWithinWarmShutdown},
		subtest{"P04 kill -9 in mid-run, late ack", killedInMidRun},
		subtest{"P04 kill -9 in mid-run, early ack", killedAfterEarlyAck},
		subtest{"P06 honours cancellation", func(t *testing.T) { graceTooShort(t, false) }},
		subtest{"P06 ignores cancellation", func(t *testing.T) { graceTooShort(t, true) }},
		subtest{"P07 pid files", pidFiles},
		subtest{"P09 probes while Redis is away", probesWhileRedisIsAway},
		subtest{"M11 nothing frozen while Redis is away", nothingFrozen},
	)
}

// status asks a probe; 0 is no answer.
func (w *worker) status(path string) int {
	w.s.t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + w.addr + path)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// awaitReady waits until /readyz answers with a status; meanwhile /healthz
// answers 200 each time.
func (w *worker) awaitReady(want int, timeout time.Duration) {
	w.s.t.Helper()
	testkit.Poll(w.s.t, timeout, 100*time.Millisecond, func() bool {
		w.s.t.Helper()
		w.healthy()
		return w.status("/readyz") == want
	}, "/readyz answers %d", want)
}

func (w *worker) healthy() {
	w.s.t.Helper()
	if code := w.status("/healthz"); code != http.StatusOK {
		w.s.t.Errorf("/healthz answers %d", code)
	}
}

// The liveness probe stays good while Redis hangs (for longer than a loop may
// be stuck) and while it is gone, and while a long job runs; the readiness
// probe tells.
func probesWhileRedisIsAway(t *testing.T) {
	s := newStack(t)
	schedule := s.file("schedule.yaml", "version: 1\njobs: {j: {task: tests.tick, every: 1h}}\n")
	w := s.worker("w", []string{"SOLOBEAT_SCHEDULE_FILE=" + schedule}, "--with-scheduler", "-c", s.file("solobeat.yaml", "worker: {concurrency: 2, grace: 1s}\n"))
	w.awaitReady(http.StatusOK, 20*time.Second)
	s.enqueue("tests.sleep", kwargs(map[string]any{"id": "long", "seconds": 600}))
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.list("sleep:long")) == 1 }, "the long job runs")
	w.awaitReady(http.StatusOK, 5*time.Second)

	s.redis.Pause()
	began := time.Now()
	w.awaitReady(http.StatusServiceUnavailable, 40*time.Second)
	testkit.Poll(t, time.Minute, 500*time.Millisecond, func() bool {
		w.healthy()
		return time.Since(began) > 35*time.Second
	}, "35 s of a hanging Redis")
	if code := w.status("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d while Redis hangs", code)
	}
	s.redis.Continue()
	w.awaitReady(http.StatusOK, 30*time.Second)

	s.redis.Stop()
	w.awaitReady(http.StatusServiceUnavailable, 40*time.Second)
	s.redis.Restart()
	w.awaitReady(http.StatusOK, 30*time.Second)
	s.wantState(s.enqueue("tests.add", kwargs(map[string]any{"x": 1, "y": 2})), wire.StateSuccess, 20*time.Second)
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(30 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// While Redis is away there is no queue depth rather than an old one, and
// solobeat_broker_up says why.
func nothingFrozen(t *testing.T) {
	s := newStack(t)
	w := s.worker("w", nil)
	present := func() bool { return strings.Contains(scrape(t, w.metricsURL()), "\nsolobeat_queue_depth{") }
	up := func() float64 { return w.metric("solobeat_broker_up", `role="broker"`) }
	for round := range 2 {
		testkit.Poll(t, 30*time.Second, 100*time.Millisecond, func() bool { return present() && up() == 1 }, "round %d: depth and broker_up are there", round)
		s.redis.Stop()
		testkit.Poll(t, 40*time.Second, 100*time.Millisecond, func() bool { return !present() && up() == 0 }, "round %d: no depth, broker_up 0", round)
		if n := w.metric("solobeat_broker_reconnects_total"); n != float64(round) {
			t.Errorf("round %d: %v reconnects", round, n)
		}
		s.redis.Restart()
	}
	testkit.Poll(t, 30*time.Second, 100*time.Millisecond, func() bool { return present() && up() == 1 }, "all is back")
}

// No pid file is written, and one that somebody left is nobody's business.
func pidFiles(t *testing.T) {
	s := newStack(t)
	schedule := s.file("schedule.yaml", "version: 1\njobs: {j: {task: tests.tick, every: 1h}}\n")
	dir := t.TempDir()
	names := []string{"celerybeat.pid", "celeryd.pid", "solobeat.pid", "worker.pid"}
	for i, name := range names {
		pid := []int{1, os.Getpid()}[i%2]
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // side by side, in one folder
		cmd := command(dir, s.env("SOLOBEAT_SCHEDULE_FILE="+schedule), s.bin, "worker", "--with-scheduler")
		w := &worker{Proc: testkit.StartCmd(t, "w", cmd), s: s}
		w.ready()
	}
	s.wantState(s.enqueue("tests.add", kwargs(map[string]any{"x": 1, "y": 2})), wire.StateSuccess, 20*time.Second)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if !slices.Equal(found, names) {
		t.Errorf("files beside the processes: %q", found)
	}
}

// 200 messages a second while the worker is restarted twelve times: every one
// runs, once.
func producerAndRestarts(t *testing.T) {
	s := newStack(t)
	const restarts = 12
	stop := make(chan struct{})
	sent := make(chan []string)
	go func() {
		var ids []string
		client := s.sender()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				sent <- ids
				return
			case <-tick.C:
				id := fmt.Sprintf("m%05d", len(ids))
				if _, err := client.Enqueue(t.Context(), "tests.effect", kwargs(map[string]any{"id": id}), tasks.WithID(id)); err != nil {
					t.Error(err)
					continue
				}
				ids = append(ids, id)
			}
		}
	}()
	var w *worker
	for i := range restarts {
		w = s.worker(fmt.Sprintf("w%d", i), nil)
		n := len(s.list("effects"))
		testkit.Poll(t, 30*time.Second, 5*time.Millisecond, func() bool { return len(s.list("effects")) >= n+50 }, "the worker runs tasks")
		w.Signal(syscall.SIGTERM)
		if code := w.Wait(40 * time.Second); code != 0 {
			t.Errorf("restart %d: exit code %d", i, code)
		}
	}
	close(stop)
	ids := <-sent
	s.worker("last", nil)
	s.idle(time.Minute)
	runs := map[string]int{}
	for _, line := range s.list("effects") {
		runs[strings.Fields(line)[0]]++
	}
	never, more := 0, 0
	for _, id := range ids {
		switch n := runs[id]; {
		case n == 0:
			never++
		case n > 1:
			more++
		}
	}
	t.Logf("%d messages, %d restarts: %d never ran, %d ran more than once", len(ids), restarts, never, more)
	if never != 0 || more != 0 || len(ids) < 500 {
		t.Errorf("of %d messages %d never ran, %d ran more than once", len(ids), never, more)
	}
}

// A task that ends within the grace of a shutdown is acked and not run again.
func endWithinWarmShutdown(t *testing.T) {
	s := newStack(t)
	first := s.worker("first", nil)
	id := s.enqueue("tests.sleep", kwargs(map[string]any{"id": "x", "seconds": 5}))
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.list("sleep:x")) == 1 }, "the run starts")
	first.Signal(syscall.SIGTERM)
	second := s.worker("second", nil)
	if code := first.Wait(40 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.wantState(id, wire.StateSuccess, time.Second)
	s.idle(time.Second)
	who := strconv.Itoa(first.Pid)
	if got, want := s.list("sleep:x"), []string{"start " + who, "end " + who}; !slices.Equal(got, want) {
		t.Errorf("runs %q, want %q", got, want)
	}
	s.wantState(s.enqueue("tests.add", kwargs(map[string]any{"x": 1, "y": 2})), wire.StateSuccess, 20*time.Second)
	if n := second.metric("solobeat_taken_over_total"); n != 0 {
		t.Errorf("%v messages were taken over", n)
	}
}

// A worker is killed in mid-run: the task is delivered once more, marked as
// such.
func killedInMidRun(t *testing.T) {
	s := newStack(t)
	first := s.worker("first", nil)
	id := s.enqueue("tests.sleep", kwargs(map[string]any{"id": "x", "seconds": 3}))
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.list("delivery:x")) == 1 }, "the run starts")
	first.Kill()
	killed := time.Now()
	s.worker("second", nil)
	testkit.Poll(t, 40*time.Second, 20*time.Millisecond, func() bool { return len(s.list("delivery:x")) == 2 }, "the run starts again")
	t.Logf("run again %s after the kill", time.Since(killed).Round(100*time.Millisecond))
	s.wantState(id, wire.StateSuccess, 30*time.Second)
	s.idle(20 * time.Second)
	if got, want := s.list("delivery:x"), []string{"redelivered=false attempt=1", "redelivered=true attempt=1"}; !slices.Equal(got, want) {
		t.Errorf("deliveries %q, want %q", got, want)
	}
}

// With ack: early the same kill loses the run, as the documentation says.
func killedAfterEarlyAck(t *testing.T) {
	s := newStack(t)
	conf := s.file("solobeat.yaml", "tasks: {tests.sleep: {ack: early}}\n")
	first := s.worker("first", nil, "-c", conf)
	id := s.enqueue("tests.sleep", kwargs(map[string]any{"id": "x", "seconds": 60}))
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.list("sleep:x")) == 1 }, "the run starts")
	s.idle(5 * time.Second) // acked before the run
	first.Kill()
	second := s.worker("second", nil)
	// The second worker has buried the first one when its registry is down to
	// itself; from then on nothing comes back.
	testkit.Poll(t, 40*time.Second, 100*time.Millisecond, func() bool {
		return s.broker.ZCard(t.Context(), "solobeat:default:replicas").Val() == 1
	}, "the dead worker is buried")
	s.wantState(s.enqueue("tests.add", kwargs(map[string]any{"x": 1, "y": 2})), wire.StateSuccess, 20*time.Second)
	if got := s.list("sleep:x"); len(got) != 1 {
		t.Errorf("runs %q", got)
	}
	if _, done, err := s.sender().Wait(t.Context(), id, 0); done || err != nil {
		t.Errorf("the lost task has a result: %v %v", done, err)
	}
	if n := second.metric("solobeat_taken_over_total"); n != 0 {
		t.Errorf("%v messages were taken over", n)
	}
}

// The platform's grace is shorter than the job: SIGTERM, 10 s later SIGKILL.
// Fetching stops at once, and a second worker takes the job over once.
func graceTooShort(t *testing.T, deaf bool) {
	s := newStack(t)
	conf := s.file("solobeat.yaml", "worker: {concurrency: 4, grace: 4s}\ntasks: {tests.sleep: {lock: {key: \"job:{{ .Params.id }}\", ttl: 3s}, idempotency: {key: \"{{ .Params.id }}\"}}}\n")
	first := s.worker("first", nil, "-c", conf)
	id := s.enqueue("tests.sleep", kwargs(map[string]any{"id": "x", "seconds": 60, "deaf": deaf}))
	testkit.Poll(t, 20*time.Second, 20*time.Millisecond, func() bool { return len(s.list("sleep:x")) == 1 }, "the run starts")
	second := s.worker("second", nil, "-c", conf)
	first.Signal(syscall.SIGTERM)
	term := time.Now()
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return strings.Contains(first.Stderr(), "stop") }, "the first worker stops")
	var after []string
	for i := range 8 {
		after = append(after, s.enqueue("tests.sleep", kwargs(map[string]any{"id": "after" + strconv.Itoa(i), "seconds": 0})))
	}
	for i, id := range after {
		s.wantState(id, wire.StateSuccess, 20*time.Second)
		if got := s.list("sleep:after" + strconv.Itoa(i)); got[0] != "start "+strconv.Itoa(second.Pid) {
			t.Errorf("a message that was sent after SIGTERM ran as %q", got)
		}
	}
	testkit.Poll(t, 30*time.Second, 20*time.Millisecond, func() bool { return !first.Alive() || time.Since(term) > 10*time.Second }, "10 s pass")
	first.Kill() // if it still lives
	testkit.Poll(t, 40*time.Second, 20*time.Millisecond, func() bool {
		return slices.Contains(s.list("sleep:x"), "start "+strconv.Itoa(second.Pid))
	}, "the second worker takes over")
	t.Logf("taken over %s after SIGTERM", time.Since(term).Round(100*time.Millisecond))
	s.wantState(id, wire.StateSuccess, 90*time.Second)
	starts, ends, cancelled := 0, 0, 0
	for _, line := range s.list("sleep:x") {
		word, _, _ := strings.Cut(line, " ")
		switch word {
		case "start":
			starts++
		case "end":
			ends++
		case "cancelled":
			cancelled++
		}
	}
	if want := map[bool]int{false: 1}[deaf]; starts != 2 || ends != 1 || cancelled != want {
		t.Errorf("%d starts, %d ends, %d cancelled (want 2, 1, %d): %q", starts, ends, cancelled, want, s.list("sleep:x"))
	}
}
