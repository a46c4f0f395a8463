package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
)

// session is a Python client beside Go workers: one of many slots and some of
// one slot each. Its workers live in Tokyo, to which no time may yield.
type session struct {
	*stack
	py     *pyClient
	worker *worker
	stall  *stallMeter
}

func newSession(t *testing.T, version testkit.Celery) *session {
	t.Helper()
	s := newStack(t)
	x := &session{stack: s, py: s.pyClient(version, nil), stall: measureStalls(t)}
	x.worker = s.worker("many", []string{"TZ=Asia/Tokyo", "SOLOBEAT_WORKER_QUEUES=celery,reports,mail", "SOLOBEAT_WORKER_CONCURRENCY=32"})
	return x
}

// in is the session for a subtest, which ends what it starts.
func (x *session) in(t *testing.T) *session {
	inner, s := *x, *x.stack
	s.t, inner.stack = t, &s
	return &inner
}

// single starts a worker of one slot on a queue.
func (x *session) single(queue string) *worker {
	x.t.Helper()
	return x.stack.worker(queue, []string{"TZ=Asia/Tokyo", "SOLOBEAT_WORKER_QUEUES=" + queue, "SOLOBEAT_WORKER_CONCURRENCY=1"})
}

// A real Celery client calls tasks of Go workers.
func TestPython(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		x := newSession(t, version)
		together(t,
			subtest{"values", x.values},
			subtest{"polling", x.polling},
			subtest{"queues", x.queues},
			subtest{"due times", x.dueTimes},
			subtest{"expires", x.expires},
			subtest{"W15 expiry in three forms", x.expiryForms},
			subtest{"W18 expired while it waited for a slot", x.expiredInWaiting},
			subtest{"W10 priorities", x.priorities},
			subtest{"R11 retries", x.retries},
			subtest{"R08 date_done", x.dateDone},
			subtest{"headers", x.headers},
			subtest{"R01 an exception the reader does not know", x.unknownException},
			subtest{"R02 exceptions are raised", x.exceptions},
			subtest{"unknown task", x.unknownTask},
			subtest{"ignored result", x.ignoredResult},
			subtest{"W12 pickle", x.pickle},
			subtest{"W04 what is no task message", x.garbage},
			subtest{"what is not built", x.notBuilt},
			subtest{"compressed", x.compressed},
			subtest{"events", x.events},
		)
		if t.Failed() {
			return
		}
		x.idle(patience)
		if !x.worker.Alive() {
			t.Error("the worker has ended")
		}
	})
}

// Whatever JSON can hold comes back as it was sent: integers of any size,
// floats to the last bit, all of unicode.
func (x *session) values(t *testing.T) {
	x = x.in(t)
	x.py.call(t, `
		args = [2**70, -2**63, 2**53 + 1, 0.1, 1e300, 5e-324, 1.0, -0.0, "héllo ✓ 🎉 \u2028 \x00 \\ \"", "", None, True, False,
			{"a": [1, {"b": 2**64}], "ключ": "значение"}, [], {}, [[[[]]]]]
		kwargs = {"n": 2**100, "ü": [1.5, -7], "none": None, "nested": {"x": {"y": [2**65]}}}
		got = send("tests.echo", args, kwargs).get(timeout=TIMEOUT)
		assert repr(got["args"]) == repr(args), got["args"]
		assert json.dumps(got["kwargs"], sort_keys=True) == json.dumps(kwargs, sort_keys=True), got["kwargs"]
		assert send("tests.add", [2**62, 1]).get(timeout=TIMEOUT) == 2**62 + 1
		assert send("tests.add", [2**62], {"y": -1}).get(timeout=TIMEOUT) == 2**62 - 1
		assert send("tests.echo", ["x" * 500_000]).get(timeout=TIMEOUT)["args"] == ["x" * 500_000]
		signature = app.signature("tests.add", args=(1, 2))
		assert signature.delay().get(timeout=TIMEOUT) == 3
		results = group(app.signature("tests.add", args=(n, n)) for n in range(10)).apply_async()
		assert results.get(timeout=TIMEOUT) == [2 * n for n in range(10)]
	`, nil, nil)
}

// A client that never subscribes sees the same.
func (x *session) polling(t *testing.T) {
	x = x.in(t)
	x.py.call(t, `
		id = send("tests.add", kwargs={"x": 20, "y": 3}).id
		r = AsyncResult(id, app=app)
		until(r.ready, "the result")
		assert (r.state, r.result, r.children, r.traceback) == ("SUCCESS", 23, [], None), (r.state, r.result, r.children, r.traceback)
		id = send("tests.fail", ["", "no"]).id
		r = AsyncResult(id, app=app)
		until(r.ready, "the failure")
		assert r.state == "FAILURE" and isinstance(r.result, Exception), r.result
	`, nil, nil)
}

func (x *session) queues(t *testing.T) {
	x = x.in(t)
	x.py.call(t, `
		for queue in ["reports", "mail", "celery"]:
			for priority in [None, 0, 4, 7, 9]:
				assert send("tests.add", [1, 1], queue=queue, priority=priority).get(timeout=TIMEOUT) == 2
		r = send("tests.add", [1, 1], queue="nobody's")
		assert r.state == "PENDING"
	`, nil, nil)
	if n := x.broker.LLen(t.Context(), "nobody's").Val(); n != 1 {
		t.Errorf("a queue that no worker serves holds %d messages, want 1", n)
	}
}

// A task with an ETA or a countdown starts when it is due: not before, and at
// most a second later.
func (x *session) dueTimes(t *testing.T) {
	x = x.in(t)
	var got []struct {
		What       string
		Due, Began float64
	}
	x.py.call(t, `
		sent = []
		for what, due in [("eta in UTC", now(2)), ("eta at +08:00", now(2.3, 8)), ("eta at -03:30", now(2.6, -3.5))]:
			sent.append((what, due, send("tests.when", eta=due)))
		naive = now(2.9)
		sent.append(("eta without offset", naive, send("tests.when", eta=naive.replace(tzinfo=None))))
		sent.append(("countdown", now(1.5), send("tests.when", countdown=1.5)))
		sent.append(("countdown and expires", now(1.7), send("tests.when", countdown=1.7, expires=600)))
		sent.append(("countdown on a list of low priority", now(1.9), send("tests.when", countdown=1.9, priority=9, queue="mail")))
		assert isinstance(send("tests.when", eta=now(-1000)).get(timeout=TIMEOUT), float)
		return [{"what": w, "due": d.timestamp(), "began": r.get(timeout=TIMEOUT)} for w, d, r in sent]
	`, nil, &got)
	if len(got) != 7 {
		t.Fatalf("%d came back, want 7", len(got))
	}
	for _, g := range got {
		onTime(t, g.What, g.Due, g.Began, x.stall)
	}
}

func (x *session) expires(t *testing.T) {
	x = x.in(t)
	var got map[string]seen
	x.py.call(t, `
		sent = {
			"past": send("tests.effect", ["expired past"], expires=-5),
			"before its eta": send("tests.effect", ["expired before its eta"], countdown=1.2, expires=0.6),
			"far": send("tests.effect", ["expires far"], expires=600),
			"date": send("tests.effect", ["expires date"], expires=now(600, -5)),
		}
		return {k: outcome(r) for k, r in sent.items()}
	`, nil, &got)
	for name, g := range got {
		ran := countPrefix(x.list("effects"), "expired "+name) > 0
		switch name {
		case "far", "date":
			if g.State != "SUCCESS" {
				t.Errorf("%s: %+v", name, g)
			}
		default:
			if g.State != "REVOKED" || g.Raised != "TaskRevokedError" || !slices.Equal(g.Args, []any{"expired"}) || ran {
				t.Errorf("%s: %+v, ran: %t", name, g, ran)
			}
		}
	}
}

func countPrefix(lines []string, prefix string) int {
	n := 0
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

// A time without an offset is UTC, whatever the zones of the machines; the
// sender is warned. With an offset it is what it says.
func (x *session) expiryForms(t *testing.T) {
	x = x.in(t)
	var got map[string]seen
	x.py.call(t, `
		def expiring(text):
			return push(lambda m: m["headers"].update(expires=text), args=["W15 " + text])
		naive = "%Y-%m-%dT%H:%M:%S.%f"
		sent = {
			"naive": expiring(now(20).strftime(naive)),
			"naive, past": expiring(now(-5).strftime(naive)),
			"Z": expiring(now(20).strftime(naive) + "Z"),
			"+09:00": expiring(now(20, 9).isoformat()),
			"+09:00, past": expiring(now(-5, 9).isoformat()),
			"-07:00": expiring(now(20, -7).isoformat()),
		}
		return {k: outcome(r) for k, r in sent.items()}
	`, nil, &got)
	for name, g := range got {
		want := "SUCCESS"
		if strings.HasSuffix(name, "past") {
			want = "REVOKED"
		}
		if g.State != want {
			t.Errorf("%s: %s, want %s", name, g.State, want)
		}
	}
	if !strings.Contains(x.worker.Stderr(), "without an offset is read as UTC") {
		t.Error("the worker did not warn of a time without an offset")
	}
}

// Expiry is looked at again right before the start.
func (x *session) expiredInWaiting(t *testing.T) {
	x = x.in(t)
	x.single("slow")
	var got struct{ Long, Expired, After seen }
	x.py.call(t, `
		long = send("tests.sleep", ["W18", 2.5], queue="slow")
		until(lambda: ledger.llen("sleep:W18"), "the long task to start")
		expired = send("tests.effect", ["W18"], queue="slow", expires=1)
		after = send("tests.effect", ["W18 after"], queue="slow", expires=600)
		return {"long": outcome(long), "expired": outcome(expired), "after": outcome(after)}
	`, nil, &got)
	if got.Long.State != "SUCCESS" || got.After.State != "SUCCESS" {
		t.Errorf("the neighbours: %+v, %+v", got.Long, got.After)
	}
	if got.Expired.State != "REVOKED" {
		t.Errorf("state %s", got.Expired.State)
	}
	if n := countPrefix(x.list("effects"), "W18 "); n != 1 {
		t.Errorf("%d effects, want that of the last task only", n)
	}
}

// The smaller number goes first, in four lists of kombu's names, first in
// first out within a list.
func (x *session) priorities(t *testing.T) {
	x = x.in(t)
	x.single("prio")
	a := x.py.start(t, `
		busy = send("tests.sleep", ["W10", arg], queue="prio")
		until(lambda: ledger.llen("sleep:W10"), "the slot to be busy")
		options = {"queue": "prio"}
		sent = [send("tests.effect", ["prio%d" % p], priority=p, **options) for p in (9, 50, 5, 3, 0)]
		sent.append(send("tests.effect", ["prio-none"], **options))
		lists = [server(app.conf.broker_url).llen("prio" + step) for step in ("", "\x06\x163", "\x06\x166", "\x06\x169")]
		still = ledger.llen("sleep:W10") == 1
		for r in sent:
			r.get(timeout=TIMEOUT)
		return {"lists": lists, "still": still}
	`, 3)
	var got struct {
		Lists []int
		Still bool
	}
	a.into(t, &got)
	if !got.Still {
		t.Fatal("the slot was free again before the six were sent: the machine is too slow for this test")
	}
	if d := cmp.Diff([]int{2, 2, 0, 2}, got.Lists); d != "" {
		t.Errorf("lengths of the four lists (-want +got):\n%s", d)
	}
	var order []string
	for _, id := range x.effects() {
		if strings.HasPrefix(id, "prio") {
			order = append(order, id)
		}
	}
	if d := cmp.Diff([]string{"prio0", "prio-none", "prio5", "prio3", "prio9", "prio50"}, order); d != "" {
		t.Errorf("order of service (-want +got):\n%s", d)
	}
}

// A task that retries twice: RETRY, RETRY, SUCCESS under one id, the header
// retries counting 0, 1, 2.
func (x *session) retries(t *testing.T) {
	x = x.in(t)
	var got struct {
		States  []string
		Dates   []*string
		Headers []int
		Result  seen
		Final   int
	}
	x.py.call(t, `
		id = str(uuid.uuid4())
		broker = server(app.conf.broker_url)
		channel = broker.pubsub()
		channel.subscribe("celery-task-meta-" + id)
		until(lambda: (channel.get_message() or {}).get("type") == "subscribe", "the subscription")
		r = send("tests.retry", [2, 0.7, "done"], task_id=id, headers={"tenant": "blue"})
		states, dates, headers = [], [], {0}
		def look():
			message = channel.get_message()
			if message:
				m = json.loads(message["data"])
				states.append(m["status"])
				dates.append(m["date_done"])
				assert m["task_id"] == id
			for entry in broker.hvals("unacked"):
				h = json.loads(entry)[0]["headers"]
				if h.get("id") == id:
					assert h["tenant"] == "blue", h
					headers.add(h["retries"])
			return states and states[-1] in ("SUCCESS", "FAILURE")
		until(look, "the end")
		time.sleep(0.3)
		more = channel.get_message()
		return {"states": states, "dates": dates, "headers": sorted(headers), "result": outcome(r), "final": 1 + (more is not None)}
	`, nil, &got)
	if d := cmp.Diff([]string{"RETRY", "RETRY", "SUCCESS"}, got.States); d != "" {
		t.Errorf("states (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]int{0, 1, 2}, got.Headers); d != "" {
		t.Errorf("header retries (-want +got):\n%s", d)
	}
	if string(got.Result.Value) != `"done"` || got.Final != 1 {
		t.Errorf("result %s, %d final results", got.Result.Value, got.Final)
	}
	for i, d := range got.Dates {
		if ready := got.States[i] == "SUCCESS"; (d != nil) != ready {
			t.Errorf("date_done of the state %s is %v", got.States[i], d)
		}
	}
}

// date_done is ISO text in UTC for ready states, null for others.
func (x *session) dateDone(t *testing.T) {
	x = x.in(t)
	var got struct {
		Parsed          []float64
		OK, Failed, Ret string
	}
	x.py.call(t, `
		ok, failed = send("tests.add", [1, 1]), send("tests.fail", ["", "no"])
		retried = send("tests.retry", [1, 3, 0])
		outcome(ok), outcome(failed)
		until(lambda: retried.state == "RETRY", "the retry")
		parsed = []
		for r in (ok, failed):
			assert isinstance(r.date_done, datetime.datetime), r.date_done
			d = r.date_done if r.date_done.tzinfo else r.date_done.replace(tzinfo=UTC)
			parsed.append(d.timestamp())
		assert retried.date_done is None, retried.date_done
		return {"parsed": parsed, "ok": ok.id, "failed": failed.id, "ret": retried.id}
	`, nil, &got)
	for i, id := range []string{got.OK, got.Failed} {
		m := x.meta(t, id)
		if m.DateDone == nil {
			t.Fatalf("%s: no date_done", m.Status)
		}
		at, err := time.Parse(time.RFC3339Nano, *m.DateDone)
		if _, offset := at.Zone(); err != nil || offset != 0 {
			t.Errorf("%s: date_done %q is not UTC (%v)", m.Status, *m.DateDone, err)
		}
		if d := time.Since(at); d < 0 || d > 2*patience {
			t.Errorf("%s: done %s ago", m.Status, d)
		}
		if d := float64(at.UnixMicro())/1e6 - got.Parsed[i]; d < -0.001 || d > 0.001 {
			t.Errorf("%s: Python read %q as %f", m.Status, *m.DateDone, got.Parsed[i])
		}
	}
}

// Headers of the application reach the handler, also in its second run.
func (x *session) headers(t *testing.T) {
	x = x.in(t)
	x.py.call(t, `
		mine = {"traceparent": "00-abc-def-01", "tenant": {"n": 2**60, "name": "ü"}, "flag": None}
		def kept(got):
			return {k: v for k, v in got.items() if k in mine}
		for task in ("tests.headers", "tests.carry"):
			got = send(task, headers=mine).get(timeout=TIMEOUT)
			assert kept(got) == mine, (task, got)
			assert not any(k.startswith("solobeat-") for k in got), got
	`, nil, nil)
}

// A class that the reader does not have is made up, with its arguments.
func (x *session) unknownException(t *testing.T) {
	x = x.in(t)
	var got seen
	x.py.call(t, `return outcome(send("tests.fail", kwargs={"type": "PaymentDeclined", "message": "card 42: ü"}))`, nil, &got)
	if got.Raised != "PaymentDeclined" || !slices.Equal(got.Args, []any{"card 42: ü"}) || got.State != "FAILURE" {
		t.Errorf("raised %+v", got)
	}
	var exception map[string]json.RawMessage
	if err := json.Unmarshal(x.meta(t, got.ID).Result, &exception); err != nil {
		t.Fatal(err)
	}
	keys := make([]string, 0, 3)
	for k := range exception {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if d := cmp.Diff([]string{"exc_message", "exc_module", "exc_type"}, keys); d != "" {
		t.Errorf("keys of the exception (-want +got):\n%s", d)
	}
}

// Failures of all kinds raise a real exception, and their traceback is text.
func (x *session) exceptions(t *testing.T) {
	x = x.in(t)
	var got map[string]seen
	x.py.call(t, `
		sent = {
			"plain error": send("tests.fail", kwargs={"message": "disk full"}),
			"builtin": send("tests.fail", kwargs={"type": "ValueError", "message": "bad"}),
			"panic": send("tests.panic", ["p"]),
			"arguments": send("tests.add", ["one", "two"]),
			"too many arguments": send("tests.add", [1, 2, 3]),
			"empty": send("tests.fail", kwargs={"message": ""}),
		}
		return {k: outcome(r) for k, r in sent.items()}
	`, nil, &got)
	for name, g := range got {
		if g.Raised == "" || g.State != "FAILURE" || strings.Contains(g.Raised, "SecurityError") || g.Raised == "TypeError" && name != "too many arguments" && name != "arguments" {
			t.Errorf("%s: %+v", name, g)
		}
		var raw struct{ Traceback json.RawMessage }
		text, err := x.broker.Get(t.Context(), "celery-task-meta-"+g.ID).Bytes()
		if err == nil {
			err = json.Unmarshal(text, &raw)
		}
		if tb := string(raw.Traceback); err != nil || tb != "null" && !strings.HasPrefix(tb, `"`) {
			t.Errorf("%s: the traceback is %s (%v)", name, tb, err)
		}
	}
	if g := got["plain error"]; len(g.Args) != 1 || g.Args[0] != "disk full" {
		t.Errorf("plain error: arguments %v", g.Args)
	}
	if g := got["panic"]; g.Traceback == nil || !strings.Contains(*g.Traceback, "testworker/main.go") {
		t.Errorf("panic: no stack in the traceback: %+v", g)
	}
}

func (x *session) unknownTask(t *testing.T) {
	x = x.in(t)
	var got struct{ Unknown, Next seen }
	x.py.call(t, `
		unknown, after = send("tests.nobody", [1]), send("tests.add", [1, 2])
		return {"unknown": outcome(unknown), "next": outcome(after)}
	`, nil, &got)
	if g := got.Unknown; g.State != "FAILURE" || g.Raised != "NotRegistered" || !slices.Equal(g.Args, []any{"tests.nobody"}) {
		t.Errorf("the unknown task: %+v", g)
	}
	if got.Next.State != "SUCCESS" {
		t.Errorf("the next task: %+v", got.Next)
	}
	if d := x.deadOf(t, got.Unknown.ID); d.Reason != "NotRegistered" || d.Task != "tests.nobody" || d.Queue != "celery" {
		t.Errorf("dead letter %+v", d)
	}
}

func (x *session) ignoredResult(t *testing.T) {
	x = x.in(t)
	var id string
	x.py.call(t, `
		id = send("tests.effect", ["ignored"], ignore_result=True).id
		until(lambda: any(e.startswith("ignored ") for e in ledger.lrange("effects", 0, -1)), "the effect")
		return id
	`, nil, &id)
	testkit.Poll(t, patience, 10*time.Millisecond, func() bool { // acked, so nothing more will be written
		for _, v := range x.broker.HVals(t.Context(), "unacked").Val() {
			if strings.Contains(v, id) {
				return false
			}
		}
		return true
	}, "the ignored task is acked")
	if n := x.broker.Exists(t.Context(), "celery-task-meta-"+id).Val(); n != 0 {
		t.Error("a result was stored though it was to be ignored")
	}
}

// A pickle is never decoded; it fails, is kept, and stops nothing.
func (x *session) pickle(t *testing.T) {
	x = x.in(t)
	var got struct{ Pickled, Next seen }
	x.py.call(t, `
		pickled, after = send("tests.add", [1, 2], serializer="pickle"), send("tests.add", [1, 2])
		return {"pickled": outcome(pickled), "next": outcome(after)}
	`, nil, &got)
	if g := got.Pickled; g.State != "FAILURE" || g.Raised != "ContentDisallowed" {
		t.Errorf("the pickle: %+v", g)
	}
	if got.Next.State != "SUCCESS" {
		t.Errorf("the next task: %+v", got.Next)
	}
	if d := x.deadOf(t, got.Pickled.ID); d.Reason != "ContentDisallowed" {
		t.Errorf("dead letter %+v", d)
	}
}

// What is no task message becomes a dead letter, with its bytes; the tasks
// before and behind it run.
func (x *session) garbage(t *testing.T) {
	x = x.in(t)
	x.stack.worker("garbage", []string{"SOLOBEAT_WORKER_QUEUES=garbage", "SOLOBEAT_WORKER_CONCURRENCY=1"})
	var valid int
	x.py.call(t, `
		broker = server(app.conf.broker_url)
		def body(text):
			return lambda m: m.update(body=base64.b64encode(text.encode()).decode())
		def foreign(m):
			m["headers"] = {}
			body('{"x":1}')(m)
		valid = [send("tests.add", [1, 1], queue="garbage")]
		for change in (foreign, body("notjson"), body("[[], {}]"), lambda m: m["properties"].pop("delivery_tag"), lambda m: m["headers"].pop("id")):
			push(change, queue="garbage")
			valid.append(send("tests.add", [1, 1], queue="garbage"))
		for text in ("hello", "", "[]", "null", "{", "\u2028"):
			broker.lpush("garbage", text)
			valid.append(send("tests.add", [1, 1], queue="garbage"))
		return [r.get(timeout=TIMEOUT) for r in valid].count(2)
	`, nil, &valid)
	if valid != 12 {
		t.Errorf("%d valid tasks ran, want 12", valid)
	}
	testkit.Poll(t, patience, 20*time.Millisecond, func() bool {
		return x.broker.LLen(t.Context(), "garbage").Val() == 0 && x.broker.XLen(t.Context(), "solobeat:default:dead:garbage").Val() >= 11
	}, "eleven dead letters")
	dead := 0
	for _, d := range x.deadLetters(t) {
		if d.Queue != "garbage" {
			continue
		}
		dead++
		if d.Reason == "" {
			t.Errorf("a dead letter without a reason: %+v", d)
		}
	}
	if dead != 11 {
		t.Errorf("%d dead letters, want 11", dead)
	}
}

// What a message asks for and is not built here fails by name.
func (x *session) notBuilt(t *testing.T) {
	x = x.in(t)
	var got map[string]seen
	x.py.call(t, `
		add = lambda *args: app.signature("tests.add", args=args)
		def first(r):
			while r.parent is not None:
				r = r.parent
			return r
		sent = {
			"callbacks": send("tests.add", [1, 1], link=add(1)),
			"errbacks": send("tests.add", [1, 1], link_error=add(1)),
			"chain": first(chain(add(1, 1), add(2)).apply_async()),
			"chord": chord([add(1, 1)])(app.signature("tests.echo")).parent.results[0],
			"timelimit": send("tests.add", [1, 1], time_limit=30),
			"timelimit ": send("tests.add", [1, 1], soft_time_limit=30),
			"compression": send("tests.add", [1, 1], compression="bzip2"),
		}
		if arg:
			sent["__type__"] = send("tests.echo", [now()])
		return {k: outcome(r) for k, r in sent.items()}
	`, strings.HasSuffix(x.py.list, string(testkit.Celery57)), &got)
	for field, g := range got {
		field = strings.TrimSpace(field)
		var text string
		if len(g.Args) > 0 {
			text, _ = g.Args[0].(string)
		}
		if g.State != "FAILURE" || !strings.Contains(text, field) {
			t.Errorf("%s: %+v", field, g)
		}
		if d := x.deadOf(t, g.ID); !strings.Contains(d.Detail, field) {
			t.Errorf("%s: dead letter %+v", field, d)
		}
	}
}

func (x *session) compressed(t *testing.T) {
	x = x.in(t)
	x.py.call(t, `
		text = "ü" * 200_000
		got = send("tests.echo", [text, 2**70], compression="zlib").get(timeout=TIMEOUT)
		assert got["args"] == [text, 2**70]
	`, nil, nil)
}

// Celery's own event receiver sees the worker come, live and go.
func (x *session) events(t *testing.T) {
	x = x.in(t)
	before := x.broker.PubSubNumPat(t.Context()).Val()
	a := x.py.start(t, `
		state, seen, alive = app.events.State(), [], []
		def on(event):
			state.event(event)
			if event["hostname"] != "events@e2e":
				return
			seen.append(event)
			alive.append(state.workers["events@e2e"].alive)
			if len(seen) == 4:
				ledger.set("events", 4)
			if event["type"] == "worker-offline":
				receiver.should_stop = True
		with app.connection_for_read() as connection:
			receiver = app.events.Receiver(connection, handlers={"*": on})
			receiver.capture(limit=None, timeout=TIMEOUT, wakeup=True)
		return {"events": seen, "alive": alive}
	`, nil)
	testkit.Poll(t, patience, 10*time.Millisecond, func() bool { return x.broker.PubSubNumPat(t.Context()).Val() > before }, "the receiver listens")
	w := x.stack.worker("events", []string{"SOLOBEAT_WORKER_QUEUES=events"})
	testkit.Poll(t, patience, 10*time.Millisecond, func() bool { return x.ledger.Exists(t.Context(), "events").Val() == 1 }, "four events")
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var got struct {
		Events []map[string]any
		Alive  []bool
	}
	a.into(t, &got)
	for i, e := range got.Events {
		for _, field := range []string{
			"type", "hostname", "timestamp", "pid", "clock", "utcoffset", "freq", "active", "processed", "loadavg", "sw_ident", "sw_ver", "sw_sys",
		} {
			if v, ok := e[field]; !ok || v == nil {
				t.Errorf("event %d (%v) has no %s", i, e["type"], field)
			}
		}
		want := "worker-heartbeat"
		switch i {
		case 0:
			want = "worker-online"
		case len(got.Events) - 1:
			want = "worker-offline"
		}
		if e["type"] != want {
			t.Errorf("event %d is %v, want %s", i, e["type"], want)
		}
		if e["pid"] != float64(w.Pid) {
			t.Errorf("event %d: pid %v, want %d", i, e["pid"], w.Pid)
		}
		if alive := i < len(got.Events)-1; got.Alive[i] != alive {
			t.Errorf("event %d (%v): the node counts as alive: %t", i, e["type"], got.Alive[i])
		}
	}
}
