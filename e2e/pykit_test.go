package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
)

// patience is how long a test waits for what must come; a busy machine takes
// its time.
const patience = 90 * time.Second

// subtest is a test that runs beside its siblings: they wait more than they
// compute, so they are not held to the number of processors.
type subtest struct {
	name string
	run  func(t *testing.T)
}

// together runs subtests all at once.
func together(t *testing.T, subtests ...subtest) {
	t.Helper()
	var wg sync.WaitGroup
	for _, s := range subtests {
		wg.Go(func() { t.Run(s.name, s.run) })
	}
	wg.Wait()
}

// everyCelery runs a test with each version of Celery.
func everyCelery(t *testing.T, test func(t *testing.T, version testkit.Celery)) {
	t.Helper()
	var subtests []subtest
	for _, v := range []testkit.Celery{testkit.Celery52, testkit.Celery57} {
		subtests = append(subtests, subtest{string(v), func(t *testing.T) { test(t, v) }})
	}
	together(t, subtests...)
}

// settings are Celery's, by name.
type settings map[string]any

// celeryEnv is the environment of a Python process of the stack.
func (s *stack) celeryEnv(more settings) []string {
	s.t.Helper()
	conf := settings{"broker_url": s.redis.URL(0), "result_backend": s.redis.URL(0)}
	for k, v := range more {
		conf[k] = v
	}
	b, err := json.Marshal(conf)
	if err != nil {
		s.t.Fatal(err)
	}
	return []string{"APP_SETTINGS=" + string(b), "TEST_LEDGER=" + s.redis.URL(9)}
}

func (s *stack) pythonFolder() string {
	return filepath.Join(testkit.RepoRoot(s.t), "e2e", "python")
}

// pyClient is a Python process with a Celery client that runs what a test sends.
type pyClient struct {
	*testkit.Proc
	s    *stack
	list string
	seq  *atomic.Int64
}

// pyClient starts a Python client of a Celery version. It need not be waited for.
func (s *stack) pyClient(version testkit.Celery, more settings) *pyClient {
	s.t.Helper()
	list := "driver:" + string(version)
	cmd := command(s.pythonFolder(), append(s.celeryEnv(more), "DRIVER="+list), testkit.Python(s.t, version), "driver.py")
	return &pyClient{Proc: testkit.StartCmd(s.t, "client "+string(version), cmd), s: s, list: list, seq: new(atomic.Int64)}
}

// answer is what a snippet will return.
type answer struct {
	c   *pyClient
	key string
}

// start runs the body of a Python function in the client; see driver.py for
// the names it finds.
func (c *pyClient) start(t *testing.T, code string, arg any) *answer {
	t.Helper()
	id := fmt.Sprint(c.seq.Add(1))
	req, err := json.Marshal(map[string]any{"id": id, "code": code, "arg": arg})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.s.ledger.RPush(t.Context(), c.list, req).Err(); err != nil {
		t.Fatal(err)
	}
	return &answer{c, c.list + ":" + id}
}

// into waits for what the snippet returns; an exception fails the test.
func (a *answer) into(t *testing.T, value any) {
	t.Helper()
	var text string
	testkit.Eventually(t, 2*patience, func() error {
		got, err := a.c.s.ledger.BLPop(t.Context(), time.Second, a.key).Result()
		if err == nil {
			text = got[1]
			return nil
		}
		if !a.c.Alive() {
			t.Fatalf("the Python client has ended: %v", a.c.State())
		}
		if !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		return errors.New("no answer from Python")
	})
	var reply struct {
		Value json.RawMessage
		Error string
	}
	if err := json.Unmarshal([]byte(text), &reply); err != nil {
		t.Fatal(err)
	}
	if reply.Error != "" {
		t.Fatal(reply.Error)
	}
	if value == nil {
		return
	}
	dec := json.NewDecoder(bytes.NewReader(reply.Value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(value); err != nil {
		t.Fatalf("%v in %s", err, reply.Value)
	}
}

// call is start and into.
func (c *pyClient) call(t *testing.T, code string, arg, value any) {
	t.Helper()
	c.start(t, code, arg).into(t, value)
}

// seen is what a caller of AsyncResult.get() sees.
type seen struct {
	Value     json.RawMessage
	Raised    string
	Module    string
	Args      []any
	ID        string
	State     string
	Traceback *string
}

// meta is a result as it lies in Redis.
type meta struct {
	Status    string
	Result    json.RawMessage
	Traceback *string
	DateDone  *string         `json:"date_done"`
	Children  json.RawMessage `json:"children"`
	TaskID    string          `json:"task_id"`
}

func (s *stack) meta(t *testing.T, id string) (m meta) {
	t.Helper()
	text, err := s.broker.Get(t.Context(), "celery-task-meta-"+id).Bytes()
	if err != nil {
		t.Fatalf("result %s: %v", id, err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatalf("result %s: %v", text, err)
	}
	return m
}

// effects are the ids of the plain effects in the ledger, in their order.
func (s *stack) effects() []string {
	s.t.Helper()
	var ids []string
	for _, line := range s.list("effects") {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	return ids
}

// cli runs a command of the product and returns its exit code and what it
// printed.
func (s *stack) cli(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := testkit.Start(t, "solobeat "+args[0], s.env(env...), append([]string{s.bin}, args...)...)
	code = p.Wait(patience)
	return code, p.Stdout(), p.Stderr()
}

// deadLetter is one entry of `solobeat dead list -o json`.
type deadLetter struct {
	ID, Queue, Reason, Detail, Task string
	TaskID                          string `json:"task_id"`
}

func (s *stack) deadLetters(t *testing.T, env ...string) []deadLetter {
	t.Helper()
	code, out, errs := s.cli(t, env, "dead", "list", "-o", "json")
	var list []deadLetter
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		t.Fatalf("dead list: exit %d, %v\n%s%s", code, err, out, errs)
	}
	return list
}

// deadOf waits for the dead letter of a task.
func (s *stack) deadOf(t *testing.T, id string) (found deadLetter) {
	t.Helper()
	testkit.Poll(t, patience, 50*time.Millisecond, func() bool {
		for _, d := range s.deadLetters(t) {
			if d.TaskID == id {
				found = d
				return true
			}
		}
		return false
	}, "a dead letter of task %s", id)
	return found
}

// pyWorker starts a stock Celery worker and waits until it consumes.
func (s *stack) pyWorker(version testkit.Celery, more settings, args ...string) *testkit.Proc {
	s.t.Helper()
	argv := append([]string{testkit.Python(s.t, version), "-m", "celery", "-A", "celeryapp", "worker", "-l", "INFO", "-n", "py@e2e"}, args...)
	env := append(s.celeryEnv(more), "C_FORCE_ROOT=1", "PYTHONPATH="+s.pythonFolder())
	p := testkit.StartCmd(s.t, "worker "+string(version), command(s.dir, env, argv...))
	p.WaitOutput(patience, `py@e2e ready`)
	return p
}

// onTime checks that a task due at an instant began in time: never early, and
// at most a second late, not counting what the machine itself could not do.
func onTime(t *testing.T, what string, due, began float64, stall *stallMeter) {
	t.Helper()
	late, allowed := began-due, 1+stall.worst()
	if late < 0 || late > allowed {
		t.Errorf("%s: began %.3f s after it was due, want 0 to %.3f", what, late, allowed)
	}
}

// stallMeter measures for how long this machine keeps runnable programs
// waiting: a bound of a second means nothing where a timer is 3 s late.
type stallMeter struct{ nanos atomic.Int64 }

// measureStalls runs a meter until the test ends.
func measureStalls(t *testing.T) *stallMeter {
	t.Helper()
	m := &stallMeter{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		const period = 20 * time.Millisecond
		tick := time.NewTicker(period)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				over := time.Since(last) - period
				last = time.Now()
				if int64(over) > m.nanos.Load() {
					m.nanos.Store(int64(over))
				}
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
	return m
}

// worst is the longest stall so far, in seconds, times the number of processes
// (sender, broker, worker, timer) that may meet one each.
func (m *stallMeter) worst() float64 { return 4 * time.Duration(m.nanos.Load()).Seconds() }
