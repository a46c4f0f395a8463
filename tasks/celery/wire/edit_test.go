package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// foreign is an envelope full of things that are not ours, in a style of its own.
const foreign = `{"zz":1.50,"headers":{"id":"i","task":"t","x":"\u00e4","eta":null,"parent_id":null,"retries":0,"n":NaN,"solobeat-guard":{"v":1}},
 "content-type":"application/json","body":"[[], {}, {}]","properties":{"expiration":"5","delivery_info":{"routing_key":"q","exchange":"","priority":3},"delivery_tag":"d1"}}`

func TestRedeliverChangesNothingElse(t *testing.T) {
	t.Parallel()
	got, err := Redeliver([]byte(foreign), 2)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"zz":1.50, "headers": {"id":"i", "task":"t", "x":"\u00e4", "eta":null, "parent_id":null, "retries":0, "n":NaN, ` +
		`"solobeat-guard":{"v":1}, "redelivered": true, "solobeat-deliveries": 2}, "content-type":"application/json", ` +
		`"body":"[[], {}, {}]", "properties": {"expiration":"5", "delivery_info": {"routing_key":"q", "exchange":"", ` +
		`"priority":3, "redelivered": true}, "delivery_tag":"d1"}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	m := mustDecode(t, got)
	if n, ok := m.HeaderInt(HeaderDeliveries); n != 2 || !ok || !m.Redelivered {
		t.Errorf("%d %v %v", n, ok, m.Redelivered)
	}
	got, err = Redeliver(got, 0)
	if err != nil || strings.Contains(string(got), HeaderDeliveries) || !mustDecode(t, got).Redelivered {
		t.Errorf("%s, %v", got, err)
	}
}

func TestSetHeaders(t *testing.T) {
	t.Parallel()
	got, err := SetHeaders([]byte(foreign), map[string]json.RawMessage{
		"x": json.RawMessage(`{"b":[1,"ü"]}`), "solobeat-guard": nil, "eta": json.RawMessage("null"),
		"solobeat-losses": json.RawMessage("1"), "absent": nil,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := mustDecode(t, got)
	want := map[string]json.RawMessage{
		"x": json.RawMessage(`{"b": [1, "\u00fc"]}`), "solobeat-losses": json.RawMessage("1"), "n": json.RawMessage("NaN"),
	}
	if diff := cmp.Diff(want, m.Headers); diff != "" {
		t.Error(diff)
	}
	if _, err := SetHeaders([]byte(foreign), map[string]json.RawMessage{"x": json.RawMessage("{")}); err == nil {
		t.Error("a value that is no JSON was set")
	}
	var e *Error
	if _, err := SetHeaders([]byte("{}"), nil); !errors.As(err, &e) || !errors.Is(err, ErrNotEnvelope) {
		t.Error(err)
	}
}

// Of a key that is there twice readers see the last one; the edit must land there.
func TestEditsLandWhereReadersLook(t *testing.T) {
	t.Parallel()
	raw := strings.Replace(foreign, `"headers":{`, `"headers":null,"headers":{"redelivered":1,"redeliv\u0065red":false,`, 1)
	got, err := Redeliver([]byte(raw), 1)
	if err != nil {
		t.Fatal(err)
	}
	var o oracle
	o, ok := oracleOf(Finite(got))
	if !ok || string(o.head["redelivered"]) != "true" || string(o.head["id"]) != `"i"` {
		t.Errorf("%s", got)
	}
}

func TestRetryIsAsCeleryMakesIt(t *testing.T) {
	t.Parallel()
	eta := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
	first, err := Redeliver([]byte(foreign), 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Retry(first, 1, eta, map[string]json.RawMessage{HeaderDeliveries: nil, "solobeat-park": json.RawMessage("7")})
	if err != nil {
		t.Fatal(err)
	}
	m := mustDecode(t, got)
	if m.Retries != 1 || !m.ETA.Equal(eta) || m.RootID != "i" || m.ParentID != "i" || m.Redelivered || m.DeliveryTag == "d1" {
		t.Errorf("%+v", m)
	}
	want := map[string]json.RawMessage{
		"x": json.RawMessage(`"\u00e4"`), "n": json.RawMessage("NaN"),
		"solobeat-guard": json.RawMessage(`{"v":1}`), "solobeat-park": json.RawMessage("7"),
	}
	if diff := cmp.Diff(want, m.Headers); diff != "" {
		t.Error(diff)
	}
	for _, kept := range []string{`"zz":1.50`, `"expiration":"5"`, `"priority":3`} {
		if !strings.Contains(string(got), kept) {
			t.Errorf("%s is gone: %s", kept, got)
		}
	}
	again, err := Retry(got, 2, time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m2 := mustDecode(t, again); !m2.ETA.IsZero() || m2.Retries != 2 || m2.DeliveryTag == m.DeliveryTag || m2.ParentID != "i" {
		t.Errorf("%+v", m2)
	}
	// Celery's own retry of a message differs in nothing that a worker reads.
	for _, v := range versions {
		celery := mustDecode(t, golden(t, v, "message_retry.json"))
		raw, err := Encode(&Message{
			ID: celery.ID, Task: celery.Task, RoutingKey: "late", IgnoreResult: celery.IgnoreResult, Lang: "py",
			ReplyTo: celery.ReplyTo, Origin: celery.Origin,
		})
		if err != nil {
			t.Fatal(err)
		}
		ours, err := Retry(raw, 1, celery.ETA, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := mustDecode(t, ours)
		m.DeliveryTag = celery.DeliveryTag
		if diff := cmp.Diff(celery, m, messageOpts); diff != "" {
			t.Errorf("%s:\n%s", v, diff)
		}
	}
	if _, err := Retry([]byte(strings.Replace(foreign, `"id":"i"`, `"id":null`, 1)), 1, eta, nil); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestUnackedEntries(t *testing.T) {
	t.Parallel()
	const raw = `{"headers": {"a": "]"}}`
	for _, queue := range []string{"celery", `a"b\`, "späte 😀", "", "a, \"\", \"b"} {
		entry := unackedEntry([]byte(raw), "", queue)
		if string(entry) != "["+raw+UnackedSuffix("", queue) || !json.Valid(entry) {
			t.Errorf("%q: %s", queue, entry)
		}
		got, ex, rk, err := ParseUnacked(entry)
		if err != nil || string(got) != raw || ex != "" || rk != queue {
			t.Errorf("%q: %s %q %q %v", queue, got, ex, rk, err)
		}
	}
	got, ex, rk, err := ParseUnacked([]byte(` [ [1] ,null, "q" ] `))
	if err != nil || string(got) != "[1]" || ex != "" || rk != "q" {
		t.Errorf("%s %q %q %v", got, ex, rk, err)
	}
	// Text that is no JSON, put together by a script: the parts come back all
	// the same, with the error.
	for _, junk := range []string{"hello", `{"a": 1}, {"b": 2}`, "{\xff}", `{"a": "x", "y"}`, `{"x": "`} {
		entry := unackedEntry([]byte(junk), "ex", "q")
		got, ex, rk, err := ParseUnacked(entry)
		if !errors.Is(err, ErrMalformed) || string(got) != junk || ex != "ex" || rk != "q" {
			t.Errorf("%q: %q %q %q %v", junk, got, ex, rk, err)
		}
	}
	for _, whole := range []string{"", "[", "[]", "[1, 2]", "hello", `{"a": 1}`, `[1, 2, 3]`, "\xff", `, "", ""]`, `[, "`, `["a", "b"]`} {
		got, _, _, err := ParseUnacked([]byte(whole))
		if !errors.Is(err, ErrMalformed) || string(got) != whole {
			t.Errorf("%q: %q %v", whole, got, err)
		}
	}
}
