package celery

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// envelope makes a message of any shape; edit changes the decoded object.
func envelope(t *testing.T, body string, edit func(m map[string]any)) string {
	t.Helper()
	m := map[string]any{
		"body": base64.StdEncoding.EncodeToString([]byte(body)), "content-encoding": "utf-8", "content-type": "application/json",
		"headers": map[string]any{"lang": "py", "task": "t.ok", "id": wire.NewID()},
		"properties": map[string]any{
			"delivery_tag": wire.NewID(), "body_encoding": "base64",
			"delivery_info": map[string]any{"exchange": "", "routing_key": "celery"},
		},
	}
	if edit != nil {
		edit(m)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const emptyBody = `[[], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`

func (r *rig) push(queue string, raw ...string) {
	r.t.Helper()
	for _, m := range raw {
		if err := r.rdb.LPush(context.Background(), queue, m).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) admin(queues ...string) *Admin {
	return NewAdmin(AdminConfig{Broker: r.rdb, Queues: queues})
}

func (r *rig) dead(queues ...string) []DeadLetter {
	r.t.Helper()
	all, err := r.admin().DeadLetters(context.Background(), 0, queues...)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

type badMessage struct {
	name, raw string
	reason    tasks.Reason
}

func TestW04_WhatIsNoTaskMessageGoesToTheDeadLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	long := strings.Repeat("x", 200_000)
	bad := []badMessage{
		{"plain text", "hello", tasks.ReasonNotEnvelope},
		{"empty", "", tasks.ReasonNotEnvelope},
		{"an array", `[1,2]`, tasks.ReasonNotEnvelope},
		{"null", `null`, tasks.ReasonNotEnvelope},
		{"the four words, no JSON", `{"delivery_tag" "delivery_info" "headers" "content-type" ]]`, tasks.ReasonNotEnvelope},
		{"the four words, no JSON, closed", `{"delivery_tag" "delivery_info" "headers" "content-type" }`, tasks.ReasonNotEnvelope},
		{"headers null", envelope(t, emptyBody, func(m map[string]any) { m["headers"] = nil }), tasks.ReasonNotEnvelope},
		{"no content-type", envelope(t, emptyBody, func(m map[string]any) { delete(m, "content-type") }), tasks.ReasonNotEnvelope},
		{"empty headers, a body of another kind", envelope(t, `{"x":1}`, func(m map[string]any) { m["headers"] = map[string]any{} }), tasks.ReasonMalformed},
		{"two elements", envelope(t, `[[], {}]`, nil), tasks.ReasonMalformed},
		{"not base64", envelope(t, emptyBody, func(m map[string]any) { m["body"] = "%%%" }), tasks.ReasonMalformed},
		{"invalid UTF-8", "{\"delivery_tag\":\"delivery_info\",\"headers\":\xff\xfe,\"content-type\":0}", tasks.ReasonNotEnvelope},
		{"long text", long, tasks.ReasonNotEnvelope},
	}
	for _, b := range bad {
		r.push("celery", b.raw)
	}
	seen := newWitness()
	w := r.start(Config{Concurrency: 2}, nil, seen.runner())
	good := r.enqueue("t.ok")
	if s := r.wait(good, 10*time.Second).State; s != wire.StateSuccess {
		t.Errorf("the valid task behind them: %s", s)
	}
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return len(r.dead()) == len(bad) }, "all bad ones are dead letters")
	for _, d := range r.dead("celery") {
		full, err := r.admin().DeadLetter(context.Background(), "celery", d.ID)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(bad, func(b badMessage) bool { return b.raw == string(full.Raw) })
		if i < 0 {
			t.Errorf("a dead letter with other bytes: %.100q", full.Raw)
			continue
		}
		if !strings.HasPrefix(string(d.Reason), string(bad[i].reason)) && d.Reason != tasks.ReasonUnsupported {
			t.Errorf("%s: reason %s (%s), want %s", bad[i].name, d.Reason, d.Detail, bad[i].reason)
		}
		if d.Instance != w.Instance() || d.List != "celery" || time.Since(d.At) > time.Minute {
			t.Errorf("%s: %+v", bad[i].name, d)
		}
	}
	if n := seen.distinct(); n != 1 {
		t.Errorf("%d messages ran, only the valid one may", n)
	}
	r.empty()
}

// Queue names and lists that need JSON escapes end up as valid JSON in
// unacked, and come back to the right list.
func TestQueueNamesWithEscapes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	queue := "a \"b\"\\c\n😀"
	hold, release := make(chan struct{}), make(chan struct{})
	var first sync.Once // it may come back before the stop is noticed
	w := r.start(Config{Queues: []string{queue}}, nil, func(context.Context, *tasks.Delivery) tasks.Outcome {
		first.Do(func() { close(hold) })
		<-release
		return tasks.Outcome{Kind: tasks.Returned, Begun: true}
	})
	id := r.enqueue("t.ok", tasks.WithQueue(queue), tasks.WithPriority(5))
	<-hold
	all, err := r.rdb.HGetAll(context.Background(), "unacked").Result()
	if err != nil || len(all) != 1 {
		t.Fatalf("unacked %v %v", all, err)
	}
	for _, v := range all {
		var parts []any
		if err := json.Unmarshal([]byte(v), &parts); err != nil || len(parts) != 3 || parts[2] != queue {
			t.Errorf("entry %s: %v", v, err)
		}
	}
	go func() { _ = w.stop() }()
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool {
		return w.Active() == 1 && r.number(r.rdb.ZCard(context.Background(), w.keys.replicas())) == 1
	}, "stopping")
	close(release)
	_ = w.stop()
	back, err := r.rdb.LRange(context.Background(), wire.QueueKey(queue, 5), 0, -1).Result()
	if err != nil || len(back) != 1 {
		t.Fatalf("list %v %v", back, err)
	}
	m, err := wire.Decode([]byte(back[0]))
	if err != nil || m.ID != id || !m.Redelivered {
		t.Errorf("came back as %+v %v", m, err)
	}
}

func TestW10_PrioritiesAreServedInKombusOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ids := map[string]string{}
	send := func(name string, priority any) {
		raw := envelope(t, emptyBody, func(m map[string]any) {
			p := m["properties"].(map[string]any)
			if priority != nil {
				p["priority"] = priority
			}
			ids[m["headers"].(map[string]any)["id"].(string)] = name
		})
		n, _ := priority.(int)
		r.push(wire.QueueKey("celery", n), raw)
	}
	send("9", 9)
	send("50", 50)
	send("5", 5)
	send("3", 3)
	send("0", 0)
	send("none", nil)
	lists := map[string]int64{"celery": 2, "celery\x06\x163": 2, "celery\x06\x166": 0, "celery\x06\x169": 2}
	for key, want := range lists {
		if n := r.number(r.rdb.LLen(context.Background(), key)); n != want {
			t.Errorf("list %q holds %d, want %d", key, n, want)
		}
	}
	seen := newWitness()
	r.start(Config{Concurrency: 1}, nil, seen.runner())
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return seen.distinct() == 6 }, "all ran")
	var order []string
	for _, id := range seen.order() {
		order = append(order, ids[id])
	}
	if d := cmp.Diff([]string{"0", "none", "5", "3", "9", "50"}, order); d != "" {
		t.Error(d)
	}
	r.empty()
}

func TestW12_PickleIsNeverDecoded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var id string
	r.push("celery", envelope(t, "\x80\x04\x95", func(m map[string]any) {
		m["content-type"], m["content-encoding"] = "application/x-python-serialize", "binary"
		id = m["headers"].(map[string]any)["id"].(string)
	}))
	r.start(Config{}, nil, newWitness().runner())
	good := r.enqueue("t.ok")
	r.wait(good, 5*time.Second)
	res := r.wait(id, 5*time.Second)
	if res.State != wire.StateFailure || res.Exception.Type != "ContentDisallowed" {
		t.Errorf("result %+v", res)
	}
	if d := r.dead(); len(d) != 1 || d[0].Reason != tasks.ReasonContentDisallowed || d[0].TaskID != id {
		t.Errorf("dead letters %+v", d)
	}
	r.empty()
}

func TestUnsupportedFieldsAreNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sig := `{"task": "t.next", "args": [], "kwargs": {}, "options": {}, "subtask_type": null, "immutable": false}`
	cases := []struct{ field, body string }{
		{"callbacks", `[[], {}, {"callbacks": [` + sig + `], "errbacks": null, "chain": null, "chord": null}]`},
		{"errbacks", `[[], {}, {"callbacks": null, "errbacks": [` + sig + `], "chain": null, "chord": null}]`},
		{"chain", `[[], {}, {"callbacks": null, "errbacks": null, "chain": [` + sig + `], "chord": null}]`},
		{"chord", `[[], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": ` + sig + `}]`},
		{"__type__", `[[{"__type__": "uuid", "__value__": {"hex": "00"}}], {}, {}]`},
		{"timelimit", emptyBody},
		{"protocol", `{"task": "t.ok", "id": "v1", "args": [], "kwargs": {}}`},
	}
	seen := newWitness()
	r.start(Config{}, nil, seen.runner())
	for _, c := range cases {
		var id string
		r.push("celery", envelope(t, c.body, func(m map[string]any) {
			h := m["headers"].(map[string]any)
			id = h["id"].(string)
			switch c.field {
			case "timelimit":
				h["timelimit"] = []any{300, nil}
			case "protocol":
				m["headers"], id = map[string]any{}, "v1"
			}
		}))
		res := r.wait(id, 5*time.Second)
		if res.State != wire.StateFailure || !strings.Contains(res.Exception.Text(), c.field) {
			t.Errorf("%s: %s %s", c.field, res.State, res.Exception.Text())
		}
	}
	dead := r.dead()
	if len(dead) != len(cases) {
		t.Fatalf("%d dead letters, want %d", len(dead), len(cases))
	}
	for i, c := range cases {
		d := dead[len(dead)-1-i]
		if d.Reason != tasks.ReasonUnsupported || !strings.Contains(d.Detail, c.field) {
			t.Errorf("%s: %+v", c.field, d)
		}
	}
	if seen.distinct() != 0 {
		t.Error("one of them ran")
	}
	r.empty()
}

func TestUnknownTaskIsNotRegistered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(Config{Registered: func(name string) bool { return name == "t.ok" }}, nil, newWitness().runner())
	id := r.enqueue("t.unknown")
	res := r.wait(id, 5*time.Second)
	if res.State != wire.StateFailure || res.Exception.Type != "NotRegistered" || res.Exception.Text() != "t.unknown" {
		t.Errorf("%+v", res)
	}
	if d := r.dead(); len(d) != 1 || d[0].Task != "t.unknown" || d[0].Reason != tasks.ReasonNotRegistered {
		t.Errorf("%+v", d)
	}
	r.empty()
}

func TestW15_TimesWithoutOffsetAreUTC(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := newWitness()
	r.start(Config{}, nil, judged(seen.runner()))
	at := time.Now().Add(5 * time.Second)
	tokyo := time.FixedZone("", 9*3600)
	forms := map[string]string{
		"naive UTC": at.UTC().Format("2006-01-02T15:04:05.000000"),
		"Z":         at.UTC().Format("2006-01-02T15:04:05.000000Z"),
		"+09:00":    at.In(tokyo).Format("2006-01-02T15:04:05.000000-07:00"),
		// A naive time of a zone behind UTC is long past by the rule.
		"naive, hours ago": at.UTC().Add(-5 * time.Hour).Format("2006-01-02T15:04:05"),
	}
	for name, text := range forms {
		var id string
		r.push("celery", envelope(t, emptyBody, func(m map[string]any) {
			h := m["headers"].(map[string]any)
			h["expires"], id = text, h["id"].(string)
		}))
		want := wire.StateSuccess
		if strings.Contains(name, "ago") {
			want = wire.StateRevoked
		}
		if s := r.wait(id, 5*time.Second).State; s != want {
			t.Errorf("%s (%s): %s, want %s", name, text, s, want)
		}
	}
	r.empty()
}

func TestIgnoreResultStoresNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := newWitness()
	r.start(Config{}, nil, seen.runner())
	for i, ignore := range []any{true, false, nil} {
		var id string
		r.push("celery", envelope(t, emptyBody, func(m map[string]any) {
			h := m["headers"].(map[string]any)
			h["ignore_result"], id = ignore, h["id"].(string)
		}))
		testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return seen.of(id) == 1 }, "it ran")
		r.empty()
		n := r.number(r.rdb.Exists(context.Background(), wire.ResultKey(id)))
		if want := map[bool]int64{true: 0, false: 1}[i == 0]; n != want {
			t.Errorf("ignore_result %v: %d results", ignore, n)
		}
	}
}

func TestForeignHeadersReachTheHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := make(chan map[string]json.RawMessage, 2)
	r.start(Config{}, nil, func(_ context.Context, d *tasks.Delivery) tasks.Outcome {
		got <- d.Task.Headers
		if d.Task.Attempt == 1 {
			return tasks.Outcome{Kind: tasks.Retried, Err: fmt.Errorf("again")}
		}
		return succeed("1")
	})
	id := r.enqueue("t.h", tasks.WithHeaders(map[string]any{"traceparent": "00-abc", "tenant": map[string]any{"n": 9007199254740993}}))
	r.wait(id, 5*time.Second)
	want := map[string]json.RawMessage{"traceparent": json.RawMessage(`"00-abc"`), "tenant": json.RawMessage(`{"n": 9007199254740993}`)}
	for attempt := range 2 {
		if d := cmp.Diff(want, <-got); d != "" {
			t.Errorf("attempt %d: %s", attempt+1, d)
		}
	}
}
