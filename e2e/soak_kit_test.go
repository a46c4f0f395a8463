package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
)

// soak is one scene: its servers, its load, and what it must come to.
type soak struct {
	*stack
	form soakForm
	seed uint64
	rng  *rand.Rand
	row  *soakRow

	witness string // the file
	conf    string
	envs    []string // of every worker
	fleet   *fleet
	steady  []*worker // those that nobody kills

	began     time.Time // of the sending
	messages  []soakMessage
	producers sync.WaitGroup
	again     atomic.Int64
	failed    chan error
	idleAt    map[*worker]float64 // goroutines before the load
	peak      atomic.Int64        // RSS in KiB
	endWatch  func()
}

const soakConfig = `
worker:
  concurrency: 4
  poison_after: 1000
  grace: 2s
tasks:
  soak.guarded:
    lock: {key: "lock:own:{{ .Params.key }}", ttl: 5s}
    idempotency: {key: "{{ .Params.key }}"}
  soak.lane:
    lock: {key: "lock:lane:{{ .Params.lane }}", ttl: 5s, on_busy: retry}
    idempotency: {key: "{{ .Params.key }}"}
  soak.retry:
    idempotency: {key: "{{ .Params.key }}"}
    lock: {key: "lock:own:{{ .Params.key }}", ttl: 5s}
  soak.hold:
    lock: {key: "lock:own:{{ .Params.key }}", ttl: 6s}
    idempotency: {key: "{{ .Params.key }}"}
`

// on gives the scene its test.
func (s *soak) on(t *testing.T) *soak {
	s.stack = &stack{t: t, dir: t.TempDir(), bin: testkit.Build(t, workerPkg, testkit.FailpointsTag)}
	s.witness = filepath.Join(s.dir, "witness")
	s.conf = s.file("solobeat.yaml", soakConfig)
	s.failed, s.idleAt, s.endWatch = make(chan error, 2), map[*worker]float64{}, func() {}
	return s
}

// server starts the scene's Redis.
func (s *soak) server(args ...string) {
	s.redis = testkit.Redis(s.t, args...)
	s.broker, s.ledger = s.redis.ClientDB(s.t, 0), s.redis.ClientDB(s.t, 9)
	s.envs = []string{"TEST_WITNESS=" + s.witness, "SOLOBEAT_LOG_LEVEL=debug"} // a success is told at debug level
}

// workers starts those that live through the scene.
func (s *soak) workers(n int) {
	for i := range n {
		s.steady = append(s.steady, s.worker(fmt.Sprintf("steady%d", i), s.envs, "-c", s.conf))
	}
	s.warm()
	s.watchMemory()
}

// warm lets each worker have run something before it is measured.
func (s *soak) warm() {
	s.t.Helper()
	testkit.Eventually(s.t, time.Minute, func() error {
		for range 8 * len(s.steady) {
			n := len(s.messages)
			s.now(plain(fmt.Sprintf("warm%d", n), 100))
			s.now(recorded("guarded", fmt.Sprintf("warm%dg", n), 100))
		}
		for _, m := range s.messages {
			s.result(m.ID, time.Minute)
		}
		pids := map[int]bool{}
		for _, e := range s.lines("effect") {
			pids[e.pid] = true
		}
		if len(pids) < len(s.steady) {
			return errors.New("not each worker has run something")
		}
		return nil
	})
	for _, w := range s.steady {
		s.idleAt[w] = w.metric("go_goroutines")
	}
}

// soakMessage is one message of the load.
type soakMessage struct {
	At        float64        `json:"at"` // seconds after the beginning
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Kwargs    map[string]any `json:"kwargs"`
	Countdown float64        `json:"countdown"` // seconds; 0 is none

	key string // of its record; "" is none
}

// twin says whether another message has its key.
func (m soakMessage) twin() bool { return m.key != "" && m.key != m.ID }

// mixed makes n messages over a time, a fixed share of each kind in random
// order: unguarded, guarded, guarded by a lock that several share, with a
// retry, and with an ETA. Each 25th guarded one is sent twice, under two ids
// and one key.
func (s *soak) mixed(prefix string, n int, over time.Duration) []soakMessage {
	kinds := []string{
		"plain", "plain", "plain", "plain", "plain", "guarded", "guarded", "guarded", "guarded", "lane", "lane", "lane", "retry", "retry", "retry",
		"plain eta", "plain eta", "guarded eta", "guarded eta", "lane eta",
	}
	order := make([]string, n)
	for i := range order {
		order[i] = kinds[i%len(kinds)]
	}
	s.rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	var all []soakMessage
	guarded := 0
	for i, kind := range order {
		name, eta, _ := strings.Cut(kind, " ")
		m := soakMessage{At: over.Seconds() * float64(i) / float64(n), ID: fmt.Sprintf("%s%05d", prefix, i), Name: "soak." + name}
		m.Kwargs = map[string]any{"id": m.ID, "ms": s.rng.IntN(60)}
		if name != "plain" {
			m.key = m.ID
			m.Kwargs["key"] = m.key
		}
		if name == "lane" {
			m.Kwargs["lane"] = strconv.Itoa(s.rng.IntN(12))
			m.Kwargs["ms"] = s.rng.IntN(20)
		}
		if name == "retry" {
			m.Kwargs["retries"] = 1
		}
		if eta != "" {
			m.Countdown = 1 + 4*s.rng.Float64()
		}
		all = append(all, m)
		if name == "guarded" {
			if guarded++; guarded%25 == 0 {
				twin := m
				twin.ID += "twin"
				twin.Kwargs = map[string]any{"id": twin.ID, "ms": 5, "key": m.key}
				all = append(all, twin)
			}
		}
	}
	return all
}

// send lets a real Celery client and a Go client send halves of the load.
func (s *soak) send(load []soakMessage) {
	s.began = time.Now()
	s.messages = append(s.messages, load...)
	var byPython, byGo []soakMessage
	for i, m := range load {
		if i%2 == 0 {
			byPython = append(byPython, m)
		} else {
			byGo = append(byGo, m)
		}
	}
	var plan bytes.Buffer
	for _, m := range byPython {
		b, err := json.Marshal(m)
		if err != nil {
			s.t.Fatal(err)
		}
		plan.Write(append(b, '\n'))
	}
	env := append(s.celeryEnv(nil), "PLAN="+s.file("plan", plan.String()))
	python := testkit.StartCmd(s.t, "producer", command(s.pythonFolder(), env, testkit.Python(s.t, testkit.Celery57), "producer.py"))
	s.producers.Go(func() { s.failed <- s.awaitPython(python) })
	s.producers.Go(func() { s.failed <- s.sendByGo(byGo) })
}

func (s *soak) awaitPython(p *testkit.Proc) error {
	<-p.Exited()
	var sent, again int
	if _, err := fmt.Sscanf(p.Stdout(), "producer done: %d sent, %d sent again", &sent, &again); err != nil {
		return fmt.Errorf("the Python producer ended with %v: %s", p.State(), p.Stderr())
	}
	s.again.Add(int64(again))
	return nil
}

func (s *soak) sendByGo(load []soakMessage) error {
	client := celery.NewClient(celery.ClientConfig{Broker: s.broker})
	for _, m := range load {
		select {
		case <-time.After(time.Until(s.began.Add(time.Duration(m.At * float64(time.Second))))):
		case <-s.t.Context().Done():
			return s.t.Context().Err()
		}
		opts := []tasks.Option{tasks.WithID(m.ID), tasks.WithKwargs(m.Kwargs)}
		if m.Countdown > 0 {
			opts = append(opts, tasks.WithCountdown(time.Duration(m.Countdown*float64(time.Second))))
		}
		for {
			_, err := client.Enqueue(s.t.Context(), m.Name, opts...)
			if err == nil {
				break
			}
			if s.t.Context().Err() != nil {
				return err
			}
			s.again.Add(1)
			<-time.After(200 * time.Millisecond)
		}
	}
	return nil
}

// now sends one message at once.
func (s *soak) now(m soakMessage) {
	s.t.Helper()
	s.enqueue(m.Name, tasks.WithID(m.ID), tasks.WithKwargs(m.Kwargs))
	s.messages = append(s.messages, m)
}

// recorded is a message of a kind that has a record.
func recorded(kind, id string, ms int) soakMessage {
	return soakMessage{ID: id, Name: "soak." + kind, key: id, Kwargs: map[string]any{"id": id, "key": id, "ms": ms}}
}

// plain is one without.
func plain(id string, ms int) soakMessage {
	return soakMessage{ID: id, Name: "soak.plain", Kwargs: map[string]any{"id": id, "ms": ms}}
}

// at returns when a share of the sending is over.
func (s *soak) at(share float64) {
	<-time.After(time.Until(s.began.Add(time.Duration(share * float64(s.form.othersSending)))))
}

func (s *soak) progress(format string, args ...any) {
	s.t.Logf("%3.0f s: %s; %d effects of %d messages", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...), len(s.lines("effect")), len(s.messages))
}

// sent waits for the producers.
func (s *soak) sent() {
	s.t.Helper()
	s.producers.Wait()
	for range 2 {
		if err := <-s.failed; err != nil {
			s.t.Fatal(err)
		}
	}
	s.progress("all is sent")
}

// watchMemory follows the size of all workers until the scene ends them.
func (s *soak) watchMemory() {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for _, w := range s.running() {
				if kib := rss(w.Pid); kib > s.peak.Load() {
					s.peak.Store(kib)
				}
			}
		}
	})
	s.endWatch = sync.OnceFunc(func() { close(stop); wg.Wait() })
	s.t.Cleanup(s.endWatch)
}

func (s *soak) running() []*worker {
	all := append([]*worker(nil), s.steady...)
	if s.fleet != nil {
		all = append(all, s.fleet.workers()...)
	}
	return all
}

// everyWorker is every process that was ever started.
func (s *soak) everyWorker() []*worker {
	all := append([]*worker(nil), s.steady...)
	if s.fleet != nil {
		s.fleet.mu.Lock()
		defer s.fleet.mu.Unlock()
		all = append(all, s.fleet.all...)
	}
	return all
}

// rss is the resident size of a process in KiB, 0 if it is gone.
func rss(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, ok := strings.Cut(string(b), "VmRSS:")
	if !ok {
		return 0
	}
	n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return n
}

// killed says whether a process ended by SIGKILL.
func (w *worker) killed() bool {
	state := w.State()
	if state == nil {
		return false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// witnessLine is what a run told the witness.
type witnessLine struct {
	kind, id, key string
	pid, attempt  int
	at            time.Time
	rest          string
}

func (l witnessLine) String() string {
	return fmt.Sprintf("%s %s by %d, attempt %d, at %s %s", l.kind, l.id, l.pid, l.attempt, l.at.UTC().Format("15:04:05.000"), l.rest)
}

// lines are those of some kinds, or all, in their order.
func (s *soak) lines(kinds ...string) []witnessLine {
	s.t.Helper()
	b, err := os.ReadFile(s.witness)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	var all []witnessLine
	for text := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(text, "\n"), " ", 7)
		if len(f) != 7 || !strings.HasSuffix(text, "\n") {
			s.t.Fatalf("the witness has a line that is none: %q", text)
		}
		l := witnessLine{kind: f[0], id: f[1], key: f[2], rest: f[6]}
		l.pid, _ = strconv.Atoi(f[3])
		l.attempt, _ = strconv.Atoi(f[4])
		us, _ := strconv.ParseInt(f[5], 10, 64)
		l.at = time.UnixMicro(us)
		for _, k := range kinds {
			if k == l.kind {
				all = append(all, l)
			}
		}
		if len(kinds) == 0 {
			all = append(all, l)
		}
	}
	return all
}
