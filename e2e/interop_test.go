package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
)

// What `solobeat enqueue` sends is run by stock Python workers, and what they
// return is read by `solobeat result`.
func TestPythonWorkers(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		s := newStack(t)
		stall := measureStalls(t)
		s.pyWorker(version, nil, "-c", "1", "-Q", "celery,reports")
		together(t,
			subtest{"results", func(t *testing.T) { goToPython(t, s) }},
			subtest{"W07 ETA of another zone and no arguments", func(t *testing.T) { etaToPython(t, s, stall) }},
		)
		if !t.Failed() {
			s.idle(patience)
		}
	})
}

func goToPython(t *testing.T, s *stack) {
	wait := func(task string, args ...string) (int, string, string) {
		t.Helper()
		return s.cli(t, nil, append([]string{"enqueue", task, "--wait", "--timeout", "60s"}, args...)...)
	}
	const big = "1180591620717411303424" // 2^70
	if code, out, errs := wait("tests.add", "--args", `[`+big+`, 1]`); code != 0 || strings.TrimSpace(out) != "1180591620717411303425" {
		t.Errorf("add: exit %d, %s%s", code, out, errs)
	}
	if code, out, errs := wait("tests.add", "--kwargs", `{"x": "ü ✓ ", "y": "🎉"}`, "--queue", "reports", "--priority", "9"); code != 0 || decoded(t, out) != "ü ✓ 🎉" {
		t.Errorf("named arguments on a list of low priority: exit %d, %s%s", code, out, errs)
	}
	if code, out, errs := wait("tests.echo", "--args", `[0.1, null, {"a": [`+big+`]}]`, "--expires", "10m"); code != 0 || !strings.Contains(out, `[0.1, null, {"a": [`+big+`]}]`) {
		t.Errorf("echo: exit %d, %s%s", code, out, errs)
	}
	if code, out, errs := wait("tests.fail", "--args", `["no such account"]`); code != 1 || out != "" || !strings.Contains(errs, `ValueError("no such account")`) {
		t.Errorf("fail: exit %d, %s%s", code, out, errs)
	}
	code, id, _ := s.cli(t, nil, "enqueue", "tests.add", "--args", `[1, 2]`)
	if id = strings.TrimSpace(id); code != 0 || id == "" {
		t.Fatalf("enqueue: exit %d", code)
	}
	code, out, errs := s.cli(t, nil, "result", id, "--wait", "60s", "-o", "json")
	var r struct {
		ID, Status string
		Result     int
		DateDone   time.Time `json:"date_done"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.ID != id || r.Status != "SUCCESS" || r.Result != 3 {
		t.Errorf("result: exit %d, %v, %s%s", code, err, out, errs)
	}
	if d := time.Since(r.DateDone); d < -time.Second || d > 2*patience {
		t.Errorf("done %s ago", d)
	}
	if code, _, errs := wait("tests.add", "--args", `[1, 1]`, "--expires", "1ms"); code != 1 || !strings.Contains(errs, "REVOKED") {
		t.Errorf("an expired task: exit %d, %s", code, errs)
	}
}

func decoded(t *testing.T, text string) (s string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Errorf("%v in %q", err, text)
	}
	return s
}

// What Celery's timer and its argument handling stumble over: an offset that
// is not the worker's, and null for a missing list.
func etaToPython(t *testing.T, s *stack, stall *stallMeter) {
	due := time.Now().Add(4 * time.Second).Truncate(time.Microsecond)
	shanghai := time.FixedZone("", 8*3600)
	code, id, errs := s.cli(t, nil, "enqueue", "tests.when", "--eta", due.In(shanghai).Format(time.RFC3339Nano))
	if code != 0 {
		t.Fatalf("enqueue: exit %d, %s", code, errs)
	}
	code, out, errs := s.cli(t, nil, "result", strings.TrimSpace(id), "--wait", "60s")
	began, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
	if code != 0 || err != nil {
		t.Fatalf("result: exit %d, %v, %s", code, err, errs)
	}
	onTime(t, "eta at +08:00", float64(due.UnixMicro())/1e6, began, stall)

	// The bytes, on a queue that nobody serves.
	for _, args := range [][]string{
		{"--eta", due.In(shanghai).Format(time.RFC3339Nano)}, {"--eta", due.Truncate(time.Second).Format(time.RFC3339)}, {"--expires", "1h"},
	} {
		if code, _, errs := s.cli(t, nil, append([]string{"enqueue", "tests.when", "--queue", "wire"}, args...)...); code != 0 {
			t.Fatalf("enqueue: exit %d, %s", code, errs)
		}
		var m struct {
			Body    []byte
			Headers struct{ ETA, Expires *string }
		}
		if err := json.Unmarshal([]byte(s.broker.LPop(t.Context(), "wire").Val()), &m); err != nil {
			t.Fatal(err)
		}
		var body []json.RawMessage
		if err := json.Unmarshal(m.Body, &body); err != nil || len(body) != 3 || string(body[0]) != "[]" || string(body[1]) != "{}" {
			t.Errorf("body %s (%v)", m.Body, err)
		}
		at := m.Headers.ETA
		if at == nil {
			at = m.Headers.Expires
		}
		if at == nil || !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00$`).MatchString(*at) {
			t.Errorf("%v: written as %v", args, at)
		}
	}
}

// restoring is a Python consumer of another queue whose visibility timeout is
// short: kombu's own code gives back what lies in unacked for too long, five
// times a second.
const restoring = `
	app.conf.broker_transport_options = {"visibility_timeout": arg}
	restored = []
	with app.connection_for_read() as connection:
		channel = connection.default_channel
		original = channel.qos.restore_by_tag
		def noting(tag, *args, **options):
			restored.append(tag.decode() if isinstance(tag, bytes) else tag)
			return original(tag, *args, **options)
		channel.qos.restore_by_tag = noting
		while not ledger.exists("restoring:stop"):
			channel.qos.restore_visible(interval=1, num=None)
			time.sleep(0.2)
	return restored
`

// A Python consumer with a visibility timeout far below what our messages take:
// what waits for its ETA and what is being worked on stay where they are.
func TestVisibilityTimeout(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		const vt = 3
		s := newStack(t)
		stall := measureStalls(t)
		py := s.pyClient(version, nil)
		for i := range 3 {
			s.worker(fmt.Sprintf("w%d", i), []string{"SOLOBEAT_WORKER_CONCURRENCY=4"})
		}
		loop := py.start(t, restoring, vt)
		// Something that is nobody's, to see that the loop does what it shall.
		stray(t, s, "stray")
		together(t,
			subtest{"W01 an ETA beyond the visibility timeout", func(t *testing.T) {
				var got []float64
				py.call(t, `
					due = [now(7 + n / 4) for n in range(8)]
					sent = [(d, send("tests.effect", ["W01"], eta=d), send("tests.when", eta=d)) for d in due]
					return [r.get(timeout=TIMEOUT) - d.timestamp() for d, e, r in sent if e.get(timeout=TIMEOUT)]
				`, nil, &got)
				for _, late := range got {
					onTime(t, "a task with ETA", 0, late, stall)
				}
			}},
			subtest{"W02 a run beyond the visibility timeout", func(t *testing.T) {
				var got []seen
				py.call(t, `return [outcome(r) for r in [send("tests.sleep", ["W02", 2.5 * arg]) for _ in range(3)]]`, vt, &got)
				for _, g := range got {
					if g.State != "SUCCESS" {
						t.Errorf("%+v", g)
					}
				}
			}},
		)
		s.idle(patience)
		s.ledger.Set(t.Context(), "restoring:stop", 1, 0)
		var restored []string
		loop.into(t, &restored)
		for _, tag := range restored {
			if tag != "stray" {
				t.Errorf("Python gave back %s, which a worker of ours kept", tag)
			}
		}
		if !slices.Contains(restored, "stray") {
			t.Error("Python gave nothing back at all: this test shows nothing")
		}
		count := map[string]int{}
		for _, id := range s.effects() {
			count[id]++
		}
		if count["W01"] != 8 || count["stray"] != 1 {
			t.Errorf("effects %v, want 8 of W01 and the stray", count)
		}
		if n := countPrefix(s.list("sleep:W02"), "start"); n != 3 {
			t.Errorf("the long tasks were started %d times, want 3", n)
		}
	})
}

// stray puts a message into unacked whose consumer is no more.
func stray(t *testing.T, s *stack, tag string) {
	t.Helper()
	_, raw, err := celery.NewClient(celery.ClientConfig{Broker: s.broker}).Prepare(requestOf(t, "tests.effect", tasks.WithArgs(tag)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.broker.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.HSet(t.Context(), "unacked", tag, fmt.Sprintf(`[%s, "", "celery"]`, raw))
		p.ZAdd(t.Context(), "unacked_index", redis.Z{Score: float64(time.Now().Unix()), Member: tag})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func requestOf(t *testing.T, name string, opts ...tasks.Option) *tasks.Request {
	t.Helper()
	r, err := tasks.NewRequest(name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rolling back to Python alone: what waited for its ETA with us is run by a
// stock Python worker, a visibility timeout after it is due at the latest.
func TestRollBackToPython(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		const vt = 2
		s := newStack(t)
		stall := measureStalls(t)
		w := s.worker("leaving", nil)
		client := celery.NewClient(celery.ClientConfig{Broker: s.broker})
		due := time.Now().Add(8 * time.Second).Truncate(time.Microsecond)
		ids := []string{"parked-0", "parked-3", "parked-9"}
		for _, id := range ids {
			priority, _ := strconv.Atoi(id[len("parked-"):])
			if _, err := client.Enqueue(t.Context(), "tests.effect", tasks.WithArgs(id), tasks.WithETA(due), tasks.WithPriority(priority), tasks.WithID(id)); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Poll(t, patience, 10*time.Millisecond, func() bool {
			waiting := 0
			for _, v := range s.broker.HVals(t.Context(), "unacked").Val() {
				if strings.Contains(v, "parked-") {
					waiting++
				}
			}
			return waiting == len(ids) && s.broker.LLen(t.Context(), "celery").Val() == 0
		}, "all are parked")
		w.Signal(syscall.SIGTERM)
		if code := w.Wait(patience); code != 0 {
			t.Fatalf("the worker ended with exit code %d", code)
		}
		if version == testkit.Celery52 { // it looks at its start, and then every 100 s
			testkit.Poll(t, patience, 50*time.Millisecond, func() bool { return time.Since(due) > vt*time.Second+200*time.Millisecond }, "the visibility timeout has passed")
		}
		s.pyWorker(version, settings{"broker_transport_options": settings{
			"visibility_timeout": vt, "unacked_restore_interval": 1, "unacked_restore_throttle": 1,
		}}, "-P", "solo")
		for _, id := range ids {
			r, done, err := client.Wait(t.Context(), id, patience)
			if err != nil || !done || r.State != "SUCCESS" {
				t.Fatalf("%s: %+v %v", id, r, err)
			}
		}
		s.idle(patience)
		got := s.effects()
		slices.Sort(got)
		if !slices.Equal(got, ids) {
			t.Errorf("effects %q, want %q", got, ids)
		}
		for _, line := range s.list("effects") {
			f := strings.Fields(line)
			at, _ := strconv.ParseFloat(f[2], 64)
			late := at - float64(due.UnixMicro())/1e6
			if late < 0 {
				t.Errorf("%s ran %.3f s before it was due", f[0], -late)
			}
			if version != testkit.Celery52 {
				onTime(t, f[0]+", a visibility timeout after it was due", 0, max(late-vt, 0), stall)
			}
		}
	})
}

// Prefixes and a results database of its own, set alike on both sides.
func TestPrefixesAndResultsElsewhere(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		const prefix = "acme:"
		s := newStack(t)
		conf := settings{"result_backend": s.redis.URL(1), "broker_transport_options": settings{"global_keyprefix": prefix}}
		env := []string{"SOLOBEAT_REDIS_RESULTS_URL=" + s.redis.URL(1), "SOLOBEAT_REDIS_GLOBAL_KEYPREFIX=" + prefix}
		resultPrefix := ""
		if version != testkit.Celery52 { // which has no prefix for results
			resultPrefix = "shop:"
			conf["result_backend_transport_options"] = settings{"global_keyprefix": resultPrefix}
			env = append(env, "SOLOBEAT_REDIS_RESULTS_KEYPREFIX="+resultPrefix)
		}
		py := s.pyClient(version, conf)
		s.worker("prefixed", append(env, "SOLOBEAT_WORKER_QUEUES=celery,mail"))
		var got struct{ OK, Failed, Retried, Later, Unknown seen }
		py.call(t, `
			sent = {
				"ok": send("tests.add", [2**60, 1], queue="mail", priority=9),
				"failed": send("tests.fail", ["PaymentDeclined", "no"]),
				"retried": send("tests.retry", [1, 0.2, "again"]),
				"later": send("tests.add", [1, 1], countdown=0.5),
				"unknown": send("tests.nobody"),
			}
			return {k: outcome(r) for k, r in sent.items()}
		`, nil, &got)
		if string(got.OK.Value) != "1152921504606846977" || string(got.Retried.Value) != `"again"` || string(got.Later.Value) != "2" ||
			got.Failed.Raised != "PaymentDeclined" || got.Unknown.Raised != "NotRegistered" {
			t.Errorf("%+v", got)
		}
		testkit.Poll(t, patience, 10*time.Millisecond, func() bool { return s.broker.Exists(t.Context(), prefix+"unacked", prefix+"unacked_index").Val() == 0 }, "nothing is unacked")
		for _, key := range s.broker.Keys(t.Context(), "*").Val() {
			if !strings.HasPrefix(key, prefix) || strings.Contains(key, "celery-task-meta") {
				t.Errorf("key %q in the broker's database", key)
			}
		}
		keys := s.redis.ClientDB(t, 1).Keys(t.Context(), "*").Val()
		if len(keys) != 5 {
			t.Errorf("%d results, want 5", len(keys))
		}
		for _, key := range keys {
			if !strings.HasPrefix(key, resultPrefix+"celery-task-meta-") {
				t.Errorf("key %q in the results' database", key)
			}
		}
		if code, out, errs := s.cli(t, env, "result", got.OK.ID); code != 0 || strings.TrimSpace(out) != "1152921504606846977" {
			t.Errorf("solobeat result: exit %d, %s%s", code, out, errs)
		}
		if d := s.deadLetters(t, env...); len(d) != 1 || d[0].TaskID != got.Unknown.ID {
			t.Errorf("dead letters %+v", d)
		}
	})
}

// The numbers come from the worker itself, whether or not anybody listens to
// events.
func TestM07_CountedWithoutEvents(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	w := s.worker("counting", nil)
	client := celery.NewClient(celery.ClientConfig{Broker: s.broker})
	for i := range 10 {
		name, args := "tests.add", []any{i, i}
		if i%5 == 4 {
			name, args = "tests.fail", []any{"PaymentDeclined", "no"}
		}
		id, err := client.Enqueue(t.Context(), name, tasks.WithArgs(args...))
		if err != nil {
			t.Fatal(err)
		}
		if _, done, err := client.Wait(t.Context(), id, patience); !done || err != nil {
			t.Fatalf("%s: %t %v", id, done, err)
		}
	}
	testkit.Eventually(t, patience, func() error {
		text := scrape(t, w.metricsURL())
		succeeded := sum(text, "solobeat_task_processed_total", `outcome="succeeded"`)
		failed := sum(text, "solobeat_task_processed_total", `outcome="failed"`)
		if succeeded != 8 || failed != 2 {
			return fmt.Errorf("%v succeeded and %v failed, want 8 and 2", succeeded, failed)
		}
		return nil
	})
}

// A queue without messages has no key in Redis; its depth is 0 all the same.
func TestM08_EmptyQueueIsZero(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	w := s.worker("empty", []string{"SOLOBEAT_WORKER_QUEUES=used,unused"})
	client := celery.NewClient(celery.ClientConfig{Broker: s.broker})
	id, err := client.Enqueue(t.Context(), "tests.add", tasks.WithArgs(1, 1), tasks.WithQueue("used"))
	if err != nil {
		t.Fatal(err)
	}
	if _, done, err := client.Wait(t.Context(), id, patience); !done || err != nil {
		t.Fatalf("%t %v", done, err)
	}
	testkit.Eventually(t, patience, func() error {
		text := scrape(t, w.metricsURL())
		for _, queue := range []string{"used", "unused"} {
			m := regexp.MustCompile(`(?m)^solobeat_queue_depth\{[^}]*queue="` + queue + `"[^}]*state="pending"[^}]*\} (\S+)$`).FindStringSubmatch(text)
			if m == nil || m[1] != "0" {
				return fmt.Errorf("depth of the queue %s: %q", queue, m)
			}
		}
		return nil
	})
}

// scrape reads metrics as Prometheus does.
func scrape(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	return string(b)
}

// sum adds up the series of a name that have a label.
func sum(text, name, label string) (total float64) {
	for line := range strings.Lines(text) {
		labels, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if ok && strings.HasPrefix(labels, name+"{") && strings.Contains(labels, label) {
			v, _ := strconv.ParseFloat(value, 64)
			total += v
		}
	}
	return total
}

// side is one of two parties that contend for a lock, in a loop: it tries,
// enters, holds for 5 to 50 ms, leaves. The witness is a counter beside the
// lock: it is 1 for whoever is alone inside.
type side struct {
	try     func(ctx context.Context) (leave func(), err error)
	witness *redis.Client
	name    string
}

// contend runs until the key "<name>:stop" appears.
func (c *side) contend(t *testing.T) {
	ctx := t.Context()
	for c.witness.Exists(ctx, c.name+":stop").Val() == 0 && ctx.Err() == nil {
		leave, err := c.try(ctx)
		if err != nil {
			if !errors.Is(err, lockguard.ErrBusy) {
				t.Errorf("%s: %v", c.name, err)
				return
			}
			c.witness.Incr(ctx, c.name+":refused:go")
			pause(1 + rand.IntN(4))
			continue
		}
		if n := c.witness.Incr(ctx, c.name+":inside").Val(); n > 1 {
			c.witness.Incr(ctx, c.name+":overlaps")
		}
		pause(5 + rand.IntN(46))
		c.witness.Decr(ctx, c.name+":inside")
		leave()
		c.witness.Incr(ctx, c.name+":entered:go")
		pause(rand.IntN(8))
	}
}

func pause(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }

// contending is the same loop in Python; it has try_enter, which returns a
// function to leave by, or None.
const contending = `
	name = arg["name"]
	client = server(arg["url"])
	def naive():
		token = str(uuid.uuid4())
		if client.set(arg["key"], token, nx=True, px=20):
			return lambda: client.delete(arg["key"])
	def real():
		lock = client.lock(arg["key"], timeout=10)
		if lock.acquire(blocking=False):
			return lock.release
	try_enter = naive if arg["naive"] else real
	while not ledger.exists(name + ":stop"):
		leave = try_enter()
		if leave is None:
			ledger.incr(name + ":refused:py")
			time.sleep(random.uniform(0.001, 0.004))
			continue
		if ledger.incr(name + ":inside") > 1:
			ledger.incr(name + ":overlaps")
		time.sleep(random.uniform(0.005, 0.05))
		ledger.decr(name + ":inside")
		leave()
		ledger.incr(name + ":entered:py")
		time.sleep(random.uniform(0, 0.008))
`

// redis-py's Lock and a lock of ours of the same key exclude each other. A lock
// that is released by DEL, after a TTL that is sometimes too short, does not.
func TestSharedWithRedisPy(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		s := newStack(t)
		py := s.pyClient(version, nil)
		client := s.redis.ClientDB(t, 0)
		backend, err := lockredis.New(client, lockredis.Options{})
		if err != nil {
			t.Fatal(err)
		}
		guard, err := lockguard.New(lockguard.Config{Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := guard.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		ours := func(ctx context.Context) (func(), error) {
			h, err := guard.TryAcquire(ctx, "report:lock", lockguard.WithTTL(2*time.Second))
			if err != nil {
				return nil, err
			}
			return func() {
				if r, err := h.Release(ctx); err != nil || r != lockguard.Released {
					t.Errorf("release: %v %v", r, err)
				}
			}, nil
		}
		naive := func(ctx context.Context) (func(), error) {
			ok, err := client.SetNX(ctx, "naive:lock", "go", 20*time.Millisecond).Result()
			if err == nil && !ok {
				err = lockguard.ErrBusy
			}
			if err != nil {
				return nil, err
			}
			return func() { client.Del(ctx, "naive:lock") }, nil
		}
		together(t,
			subtest{"excluded", func(t *testing.T) {
				if n := contest(t, s, py, "real", "report:lock", ours, func(n counts) bool {
					return n.refusedGo+n.refusedPy >= 300 && n.refusedGo >= 100 && n.refusedPy >= 100 && n.enteredGo >= 10 && n.enteredPy >= 10
				}); n.overlaps != 0 {
					t.Errorf("%+v: both were inside", n)
				}
			}},
			subtest{"the control overlaps", func(t *testing.T) {
				contest(t, s, py, "naive", "naive:lock", naive, func(n counts) bool { return n.overlaps > 0 })
			}},
		)
	})
}

// counts are what the witness has seen.
type counts struct{ refusedGo, refusedPy, enteredGo, enteredPy, overlaps int }

// contest lets Go and Python contend until enough has been seen.
func contest(t *testing.T, s *stack, py *pyClient, name, key string, try func(context.Context) (func(), error), enough func(counts) bool) (n counts) {
	t.Helper()
	a := py.start(t, contending, map[string]any{"name": name, "key": key, "url": s.redis.URL(0), "naive": name == "naive"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&side{try: try, witness: s.ledger, name: name}).contend(t)
	}()
	testkit.Poll(t, patience, 50*time.Millisecond, func() bool {
		for into, what := range map[*int]string{
			&n.refusedGo: "refused:go", &n.refusedPy: "refused:py", &n.enteredGo: "entered:go", &n.enteredPy: "entered:py", &n.overlaps: "overlaps",
		} {
			*into, _ = s.ledger.Get(t.Context(), name+":"+what).Int()
		}
		return enough(n)
	}, "enough contention")
	s.ledger.Set(t.Context(), name+":stop", 1, 0)
	<-done
	a.into(t, nil)
	n.overlaps, _ = s.ledger.Get(t.Context(), name+":overlaps").Int()
	t.Logf("%s: %+v", name, n)
	return n
}
