package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// What Redis and the network between do to workers, and what the gauges say of
// it; most of the time these tests wait.
func TestNetwork(t *testing.T) {
	t.Parallel()
	testkit.Build(t, workerPkg, testkit.FailpointsTag)
	together(t,
		subtest{"P01 Redis is killed and comes back after 10 s", redisComesBack},
		subtest{"P15 idle connections are closed", func(t *testing.T) { idleConnections(t, false) }},
		subtest{"P15 idle connections are dropped without a word", func(t *testing.T) { idleConnections(t, true) }},
		subtest{"M09 one slot, ten messages", gaugesAddUp},
		subtest{"M09 prefetched by a Python worker", prefetchedByPython},
	)
}

// lines are those of a worker's log that complain.
func (w *worker) complaints() (lines []string) {
	for line := range strings.Lines(w.Stderr()) {
		if strings.Contains(line, `"level":"warn"`) || strings.Contains(line, `"level":"error"`) || !strings.HasPrefix(line, "{") {
			lines = append(lines, line)
		}
	}
	return lines
}

// noFlood checks the number of lines that complain.
func (w *worker) noFlood(most int) {
	w.s.t.Helper()
	if lines := w.complaints(); len(lines) > most {
		w.s.t.Errorf("%s wrote %d lines that complain, want %d at most:\n%s", w.Name, len(lines), most, strings.Join(lines, ""))
	}
}

// Both engines take again within 5 s after Redis has come back, and what was
// parked is known again: a task that is due while Redis is away runs at once,
// one that is due later in time, each once.
func redisComesBack(t *testing.T) {
	s := newStack(t, testkit.AOF(t)...)
	conf := s.file("solobeat.yaml", "worker: {engines: [celery, asynq], concurrency: 4}\n")
	env := []string{"SOLOBEAT_CONFIG=" + conf}
	w := s.worker("w", env)
	stall := measureStalls(t)
	enqueue := func(engine, id string, more ...string) {
		t.Helper()
		args := append([]string{"enqueue", "tests.effect", "--id", id, "--kwargs", `{"id": "` + id + `"}`, "--engine", engine}, more...)
		if code, _, errs := s.cli(t, env, args...); code != 0 {
			t.Fatalf("enqueue: exit %d: %s", code, errs)
		}
	}
	enqueue("celery", "first-c")
	enqueue("asynq", "first-a")
	testkit.Poll(t, patience, 10*time.Millisecond, func() bool { return len(s.list("effects")) == 2 }, "both engines take")
	now := time.Now()
	soon, later := now.Add(5*time.Second), now.Add(25*time.Second)
	for _, engine := range []string{"celery", "asynq"} {
		enqueue(engine, "soon-"+engine, "--eta", soon.Format(time.RFC3339Nano))
		enqueue(engine, "later-"+engine, "--eta", later.Format(time.RFC3339Nano))
	}
	s.redis.Stop()
	<-time.After(10 * time.Second)
	s.redis.Restart()
	back := time.Now()
	enqueue("celery", "again-c")
	enqueue("asynq", "again-a")
	s.ran(back.Add(5*time.Second), stall, "again-c", "again-a", "soon-celery")
	// asynq itself moves what is due each 5 s.
	s.ran(back.Add(10*time.Second), stall, "soon-asynq")
	s.ran(later.Add(5*time.Second), stall, "later-celery")
	s.ran(later.Add(10*time.Second), stall, "later-asynq")
	if time.Now().Before(later) {
		t.Errorf("a task ran %v before it was due", time.Until(later))
	}
	w.noFlood(20)
	seen := map[string]int{}
	for _, id := range s.effects() {
		if seen[id]++; seen[id] > 1 {
			t.Errorf("%s ran %d times", id, seen[id])
		}
	}
}

// ran waits until tasks have had their effect, by a time at the latest.
func (s *stack) ran(by time.Time, stall *stallMeter, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		testkit.Poll(s.t, patience, 10*time.Millisecond, func() bool {
			for _, e := range s.effects() {
				if e == id {
					return true
				}
			}
			return false
		}, "%s has its effect", id)
		if late := time.Since(by); late.Seconds() > stall.worst() {
			s.t.Errorf("%s had its effect %v after the time allowed", id, late)
		}
	}
}

// A proxy ends what is idle for 5 s, by a close or by forgetting it. A worker
// that has long been idle still runs what comes, within the read timeout, and
// the log stays quiet. A guarded task needs connections of several kinds.
func idleConnections(t *testing.T, silent bool) {
	s := newStack(t)
	p := testkit.NewProxy(t, s.redis.Addr)
	p.IdleLimit(5*time.Second, silent)
	conf := s.file("solobeat.yaml", "worker: {engines: [celery, asynq], concurrency: 4}\ntasks: {tests.fenced: {lock: {ttl: 10s}, idempotency: {key: \"{{ .Params.id }}\"}}}\n")
	w := s.worker("w", []string{"SOLOBEAT_REDIS_URL=" + p.URL(0), "SOLOBEAT_CONFIG=" + conf})
	stall := measureStalls(t)
	// A BLMOVE waits for 5 s, and 10 s more for its reply.
	within := map[bool]time.Duration{false: 2 * time.Second, true: 15 * time.Second}[silent]
	for round := range 2 {
		cuts := p.IdleCuts()
		testkit.Poll(t, patience, 100*time.Millisecond, func() bool { return p.IdleCuts() > cuts }, "round %d: idle connections end", round)
		<-time.After(6 * time.Second)
		id := fmt.Sprintf("idle%d", round)
		began := time.Now()
		s.wantState(s.enqueue("tests.fenced", kwargs(map[string]any{"id": id}), tasks.WithID(id)), wire.StateSuccess, patience)
		took := time.Since(began)
		t.Logf("round %d: %v, %d idle connections have ended, %d lines", round, took, p.IdleCuts(), len(w.complaints()))
		if took.Seconds() > within.Seconds()+stall.worst() {
			t.Errorf("round %d: a message took %v, want %v at most", round, took, within)
		}
	}
	w.noFlood(20)
	if n := w.metric("solobeat_buried_total"); n != 0 {
		t.Errorf("buried %v times though it was alive", n)
	}
}

// depthsOf are the gauges of a worker's queue and of all, together and by state.
func (w *worker) depthsOf(queue string) (sum int, waiting, unacked, parked int) {
	w.s.t.Helper()
	n := func(queue, state string) int {
		return int(w.metric("solobeat_queue_depth", `queue="`+queue+`"`, `state="`+state+`"`))
	}
	waiting, unacked, parked = n(queue, "pending"), n("_all", "unacked"), n("_all", "parked")
	return waiting + unacked + parked, waiting, unacked, parked
}

// One slot and ten messages, two of them parked: waiting, taken and parked add
// up to what is not done, at each scrape.
func gaugesAddUp(t *testing.T) {
	s := newStack(t)
	w := s.worker("w", nil, "-c", s.file("solobeat.yaml", "worker: {concurrency: 1}\n"))
	const n, keep = 10, 3 * time.Second // depths are read again after 3 s at the earliest
	ids := []string{s.enqueue("tests.sleep", kwargs(map[string]any{"id": "first", "seconds": 10}))}
	testkit.Poll(t, patience, 10*time.Millisecond, func() bool { return len(s.list("sleep:first")) > 0 }, "the first run begins")
	for i := 1; i < n; i++ {
		var opts []tasks.Option
		if i > 7 {
			opts = append(opts, tasks.WithCountdown(20*time.Second))
		}
		ids = append(ids, s.enqueue("tests.sleep", append(opts, kwargs(map[string]any{"id": fmt.Sprint(i), "seconds": 0.7}))...))
	}
	testkit.Eventually(t, 9*time.Second, func() error {
		// Those with an ETA are behind the others, and not yet looked at.
		if sum, waiting, unacked, parked := w.depthsOf("celery"); sum != n || unacked != 1 || waiting != n-1 {
			return fmt.Errorf("%d waiting, %d unacked, %d parked; want %d, 1, 0", waiting, unacked, parked, n-1)
		}
		return nil
	})
	type point struct {
		at   time.Time
		done int
	}
	var seen []point
	parkedSeen, checks := 0, 0
	for len(seen) == 0 || seen[len(seen)-1].done < n {
		sum, _, _, parked := w.depthsOf("celery")
		seen = append(seen, point{time.Now(), s.done(ids)})
		parkedSeen = max(parkedSeen, parked)
		least := math.MaxInt
		for _, p := range seen { // done at the earliest instant at which the depths can have been read
			if time.Since(p.at) <= keep+time.Second {
				least = min(least, p.done)
			}
		}
		most := seen[len(seen)-1].done
		if done := n - sum; done < least || done > most {
			t.Errorf("the gauges add up to %d, so that %d would be done; it is %d to %d", sum, done, least, most)
		}
		checks++
		<-time.After(200 * time.Millisecond)
	}
	if parkedSeen != 2 || checks < 10 {
		t.Errorf("%d messages were seen as parked, want 2; %d scrapes", parkedSeen, checks)
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		if sum, _, _, _ := w.depthsOf("celery"); sum != 0 {
			return fmt.Errorf("%d in the gauges and all is done", sum)
		}
		return nil
	})
}

// done counts the tasks that have a result.
func (s *stack) done(ids []string) (n int) {
	s.t.Helper()
	for _, id := range ids {
		if s.broker.Exists(s.t.Context(), "celery-task-meta-"+id).Val() == 1 {
			n++
		}
	}
	return n
}

// What a Python worker has prefetched is no longer in the list, and shows as
// unacked.
func prefetchedByPython(t *testing.T) {
	s := newStack(t)
	const n, prefetch = 10, 4
	for i := range n {
		s.enqueue("tests.sleep", kwargs(map[string]any{"id": fmt.Sprint(i), "seconds": 600}))
	}
	s.pyWorker(testkit.Celery57, settings{"task_acks_late": true, "worker_prefetch_multiplier": prefetch}, "-c", "1")
	testkit.Eventually(t, patience, func() error {
		code, out, errs := s.cli(t, nil, "queues", "-o", "json")
		var got struct {
			Queues          []struct{ Waiting int }
			Unacked, Parked int
		}
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || len(got.Queues) != 1 {
			t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
		}
		if got.Queues[0].Waiting != n-prefetch || got.Unacked != prefetch || got.Parked != 0 {
			return fmt.Errorf("%+v, want %d waiting and %d unacked", got, n-prefetch, prefetch)
		}
		return nil
	})
}
