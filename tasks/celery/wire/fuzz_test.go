package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// plainEnvelope has a body in plain text, so that a fuzzer can reach into it.
const plainEnvelope = `{"body": "[[1, \"\\u00e4\"], {\"k\": 1.50}, {\"chord\": null}]", "content-encoding": "utf-8",` +
	` "content-type": "application/json", "headers": {"task": "t", "id": "i", "x-app": [1, {}], "retries": 2,` +
	` "eta": "2030-01-02T03:04:05.5+09:00", "solobeat-guard": {"v": 1}, "timelimit": [null, null]},` +
	` "properties": {"delivery_tag": "d", "delivery_info": {"exchange": "", "routing_key": "q\u00e4"}, "priority": 7}}`

func addSeeds(f *testing.F) {
	f.Helper()
	for _, raw := range goldenMessages(f) {
		f.Add(raw)
	}
	for _, s := range []string{
		plainEnvelope,
		strings.ReplaceAll(plainEnvelope, " ", "\n\t "),
		strings.Replace(plainEnvelope, `"x-app"`, `"id": "j", "x-app"`, 1),
		strings.Replace(plainEnvelope, `"id"`, `"i\u0064"`, 1),
		strings.Replace(plainEnvelope, `"x-app": [1, {}]`, `"x-app": -Infinity, "redelivered": true`, 1),
		strings.Replace(plainEnvelope, `"headers"`, `"headers": null, "headers"`, 1),
		strings.Replace(plainEnvelope, `"headers"`, `"headers": {"group": "old", "y": 1}, "headers"`, 1),
		strings.Replace(plainEnvelope, `"properties"`, `"properties": {"reply_to": "old", "delivery_info": {"redelivered": true}}, "properties"`, 1),
		strings.NewReplacer(`\`, `/`, "ä", "a").Replace(plainEnvelope), "{\"a\x1f\": \"\x7f\"}",
		`{"headers": {}, "properties": {}}`, `hello`, `[]`, `{"a": 1} x`, `{`, ``, `{"headers": {"id": "x", "task": "`,
		strings.Repeat("[", 20000),
	} {
		f.Add([]byte(s))
	}
}

// oracle is the same envelope read by encoding/json.
type oracle struct {
	top, head, props, info map[string]json.RawMessage
}

func oracleOf(raw []byte) (o oracle, ok bool) {
	if json.Unmarshal(raw, &o.top) != nil || o.top == nil {
		return o, false
	}
	_ = json.Unmarshal(o.top["headers"], &o.head)
	_ = json.Unmarshal(o.top["properties"], &o.props)
	_ = json.Unmarshal(o.props["delivery_info"], &o.info)
	return o, true
}

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// hasNonFinite tells, without the scanner, whether a token that only Python
// takes may be in the text.
func hasNonFinite(raw []byte) bool {
	return bytes.Contains(raw, []byte("NaN")) || bytes.Contains(raw, []byte("Infinity"))
}

func checkScanner(t *testing.T, raw []byte) {
	t.Helper()
	if !utf8.Valid(raw) {
		return
	}
	s := scanner[[]byte]{b: raw}
	accepts := s.value() && s.end()
	if !s.nonFinite && accepts != json.Valid(raw) || s.nonFinite && !hasNonFinite(raw) {
		t.Fatalf("scanner accepts: %v, encoding/json: %v: %q", accepts, json.Valid(raw), raw)
	}
	special := func(r rune) bool { return r < ' ' || r == '\\' || r >= utf8.RuneSelf }
	plain := isPlain(string(raw))
	if want := !bytes.ContainsFunc(raw, special); plain != want {
		t.Fatalf("plain: %v, want %v: %q", plain, want, raw)
	}
	of := scanner[string]{b: string(raw)}
	if plain {
		of.plain = of.b
	}
	if got := of.value() && of.end(); got != accepts || accepts && (of.nonFinite != s.nonFinite || of.typed != s.typed) {
		t.Fatalf("scanner of a string: %v %+v, of bytes: %v %+v", got, of, accepts, s)
	}
	if accepts && !json.Valid(Finite(raw)) {
		t.Fatalf("Finite gives no JSON: %q", Finite(raw))
	}
	if out, err := appendRaw(nil, raw); (err == nil) != (accepts && !s.nonFinite) {
		t.Fatalf("appendRaw: %v, accepted: %v", err, accepts)
	} else if err == nil && !sameJSON(out, raw) {
		t.Fatalf("%q became %q", raw, out)
	}
}

// sameJSON compares values, numbers by their text.
func sameJSON(a, b []byte) bool {
	var x, y any
	for _, p := range []struct {
		raw []byte
		to  *any
	}{{a, &x}, {b, &y}} {
		d := json.NewDecoder(bytes.NewReader(p.raw))
		d.UseNumber()
		if d.Decode(p.to) != nil {
			return false
		}
	}
	return cmp.Equal(x, y)
}

// messages are compared by what they mean: values by their JSON, and absent
// fields that a client fills in by what it fills in.
var messageOpts = cmp.Options{
	cmp.Comparer(func(a, b json.RawMessage) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return sameJSON(a, b) || bytes.Equal(a, b)
	}),
	cmpopts.IgnoreUnexported(Message{}),
}

func FuzzDecode(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkScanner(t, raw)
		before := bytes.Clone(raw)
		m, err := Decode(raw)
		if !bytes.Equal(before, raw) {
			t.Fatal("the input was changed")
		}
		o, isObject := oracleOf(raw)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Kind == nil || m != nil {
				t.Fatalf("message %v, error %#v", m, err)
			}
			if isObject && utf8.Valid(raw) && e.ID != "" && e.Field != "protocol" && e.ID != text(o.head["id"]) {
				t.Fatalf("the error has id %q, the message %q", e.ID, text(o.head["id"]))
			}
			return
		}
		if isObject {
			checkOracle(t, m, o)
		} else if !hasNonFinite(raw) {
			t.Fatalf("decoded what is no JSON object: %q", raw)
		}
		checkRoundTrip(t, m)
	})
}

func checkOracle(t *testing.T, m *Message, o oracle) {
	t.Helper()
	for _, f := range []struct {
		name, got string
		want      json.RawMessage
	}{
		{"id", m.ID, o.head["id"]},
		{"task", m.Task, o.head["task"]},
		{"lang", m.Lang, o.head["lang"]},
		{"root_id", m.RootID, o.head["root_id"]},
		{"parent_id", m.ParentID, o.head["parent_id"]},
		{"group", m.Group, o.head["group"]},
		{"shadow", m.Shadow, o.head["shadow"]},
		{"argsrepr", m.ArgsRepr, o.head["argsrepr"]},
		{"kwargsrepr", m.KwargsRepr, o.head["kwargsrepr"]},
		{"origin", m.Origin, o.head["origin"]},
		{"correlation_id", m.CorrelationID, o.props["correlation_id"]},
		{"reply_to", m.ReplyTo, o.props["reply_to"]},
		{"delivery_tag", m.DeliveryTag, o.props["delivery_tag"]},
		{"exchange", m.Exchange, o.info["exchange"]},
		{"routing_key", m.RoutingKey, o.info["routing_key"]},
	} {
		if f.got != text(f.want) {
			t.Errorf("%s: %q, encoding/json reads %q", f.name, f.got, text(f.want))
		}
	}
	if want := string(o.head["redelivered"]) == "true" || string(o.info["redelivered"]) == "true"; m.Redelivered != want {
		t.Errorf("redelivered: %v", m.Redelivered)
	}
	others := maps.Clone(o.head)
	maps.DeleteFunc(others, func(k string, _ json.RawMessage) bool { return headerField(k) >= 0 })
	for k, v := range others {
		if !bytes.Equal(bytes.TrimSpace(v), m.Headers[k]) {
			t.Errorf("header %q: %s, encoding/json reads %s", k, m.Headers[k], v)
		}
	}
	if len(others) != len(m.Headers) {
		t.Errorf("%d other headers, encoding/json reads %d", len(m.Headers), len(others))
	}
}

// checkRoundTrip: decode, encode, decode again gives the same message, and
// encoding that gives the same bytes.
func checkRoundTrip(t *testing.T, m *Message) {
	t.Helper()
	if m.DeliveryTag == "" || m.Origin == "" {
		m.DeliveryTag, m.Origin = "tag", "gen1@h" // Encode would make up others each time
	}
	first, err := Encode(m)
	if err != nil {
		if m.inArgs&nonFiniteInArgs == 0 && !strings.Contains(err.Error(), errJSON.Error()) {
			t.Fatalf("encode: %v", err)
		}
		return
	}
	if !looksLikeEnvelope(first) || !json.Valid(first) || !isASCII(first) {
		t.Fatalf("encoded: %q", first)
	}
	m2, err := Decode(first)
	if err != nil {
		t.Fatalf("decoding what was encoded: %v", err)
	}
	want := *m
	want.ETANaive, want.ExpiresNaive = false, false
	want.ETA, want.Expires = want.ETA.Truncate(1000), want.Expires.Truncate(1000)
	want.Lang, want.RootID, want.CorrelationID = or(m.Lang, "go"), or(m.RootID, m.ID), or(m.CorrelationID, m.ID)
	want.ArgsRepr, want.KwargsRepr = or(m.ArgsRepr, ReprArgs(m.Args)), or(m.KwargsRepr, ReprKwargs(m.Kwargs))
	if diff := cmp.Diff(&want, m2, messageOpts); diff != "" {
		t.Fatalf("after encoding and decoding:\n%s", diff)
	}
	second, err := Encode(m2)
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("encoding is not stable: %v\n%s\n%s", err, first, second)
	}
	if m.Unsupported() != m2.Unsupported() {
		t.Fatalf("unsupported: %q, then %q", m.Unsupported(), m2.Unsupported())
	}
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`[[], {}, {}]`, `[[1, 2.50, "\ud800", "ä"], {"a": {"b": [null]}}, null]`, `[null, null, {"chain": []}]`,
		`[[{"__type__": "uuid", "__value__": {"hex": "0"}}], {}, {}]`, `[[NaN, -Infinity], {}, {}]`,
		`[[], {"__type__": 1, "__value__": 2}, {"chord": {}, "callbacks": [{}]}]`, `[[], {}]`, `{"task": "t", "args": []}`, `3`,
		`[[], {"a": 1, "a": 2}, {"errbacks": [1]}]`, `[[1,], {}, {}]`,
		`[[], {"a\"b": 1, "\u00e4": 2, "\ud83d\ude00": 3}, {"ch\u0061in": [1]}]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		checkScanner(t, []byte(body))
		if !utf8.ValidString(body) {
			return
		}
		quoted := appendString(nil, body)
		raw := strings.Replace(plainEnvelope, plainEnvelope[len(`{"body": `):strings.Index(plainEnvelope, `, "content-encoding"`)], string(quoted), 1)
		m, err := Decode([]byte(raw))
		var parts []json.RawMessage
		valid := json.Unmarshal([]byte(body), &parts) == nil && len(parts) == 3
		if err != nil {
			var args []json.RawMessage
			var kwargs, embed map[string]json.RawMessage
			if valid && json.Unmarshal(parts[0], &args) == nil && json.Unmarshal(parts[1], &kwargs) == nil &&
				json.Unmarshal(parts[2], &embed) == nil {
				t.Fatalf("refused %q: %v", body, err)
			}
			return
		}
		if !valid {
			if !hasNonFinite([]byte(body)) {
				t.Fatalf("decoded %q", body)
			}
			return
		}
		var args []json.RawMessage
		var kwargs map[string]json.RawMessage
		if json.Unmarshal(parts[0], &args) != nil || json.Unmarshal(parts[1], &kwargs) != nil {
			t.Fatalf("decoded %q", body)
		}
		exact := cmp.Comparer(func(a, b json.RawMessage) bool {
			return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b))
		})
		if diff := cmp.Diff(args, m.Args, exact); diff != "" && len(args)+len(m.Args) > 0 {
			t.Fatalf("args:\n%s", diff)
		}
		if diff := cmp.Diff(kwargs, m.Kwargs, exact); diff != "" && len(kwargs)+len(m.Kwargs) > 0 {
			t.Fatalf("kwargs:\n%s", diff)
		}
		if got := m.inArgs&typedInArgs != 0; got != hasTyped(parts[0]) && got != hasTyped(parts[1]) {
			t.Fatalf("typed value seen: %v", got)
		}
		checkRoundTrip(t, m)
	})
}

func hasTyped(raw []byte) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false // a number that is too large for a float; not worth more here
	}
	return typedIn(v)
}

func typedIn(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if typedIn(e) {
				return true
			}
		}
	case map[string]any:
		_, isType := v["__type__"]
		_, isValue := v["__value__"]
		if isType && isValue && len(v) == 2 {
			return true
		}
		for _, e := range v {
			if typedIn(e) {
				return true
			}
		}
	}
	return false
}

func FuzzRedeliver(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		const n = 3
		out, err := Redeliver(raw, n)
		m, derr := Decode(raw)
		if err != nil {
			if derr == nil {
				t.Fatalf("refused what decodes: %v", err)
			}
			return
		}
		if looksLikeEnvelope(raw) && !looksLikeEnvelope(out) {
			t.Fatalf("the shape was lost: %q", out)
		}
		again, err := Redeliver(out, n)
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("a second time: %v\n%q\n%q", err, out, again)
		}
		checkEdited(t, raw, out)
		if derr != nil {
			return
		}
		got, err := Decode(out)
		if err != nil {
			t.Fatalf("what came out does not decode: %v", err)
		}
		if c, _ := got.HeaderInt(HeaderDeliveries); c != n || !got.Redelivered {
			t.Fatalf("count %d, redelivered %v", c, got.Redelivered)
		}
		dropHeader(got, HeaderDeliveries)
		dropHeader(m, HeaderDeliveries)
		m.Redelivered = true
		if diff := cmp.Diff(m, got, messageOpts); diff != "" {
			t.Fatalf("more than the marks changed:\n%s", diff)
		}
		checkRetry(t, m, raw)
	})
}

func dropHeader(m *Message, name string) {
	delete(m.Headers, name)
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
}

// checkEdited: by encoding/json's reading, nothing but the marks changed.
func checkEdited(t *testing.T, raw, out []byte) {
	t.Helper()
	before, ok := oracleOf(raw)
	if !ok {
		return
	}
	after, ok := oracleOf(out)
	if !ok {
		t.Fatalf("no JSON object any more: %q", out)
	}
	skip := func(keys ...string) cmp.Option {
		return cmpopts.IgnoreMapEntries(func(k string, _ json.RawMessage) bool {
			for _, s := range keys {
				if k == s {
					return true
				}
			}
			return false
		})
	}
	exact := cmp.Comparer(func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	for _, d := range []string{
		cmp.Diff(before.top, after.top, exact, skip("headers", "properties")),
		cmp.Diff(before.head, after.head, exact, skip("redelivered", HeaderDeliveries)),
		cmp.Diff(before.props, after.props, exact, skip("delivery_info")),
		cmp.Diff(before.info, after.info, exact, skip("redelivered")),
	} {
		if d != "" {
			t.Fatalf("foreign data changed:\n%s", d)
		}
	}
}

func checkRetry(t *testing.T, m *Message, raw []byte) {
	t.Helper()
	out, err := Retry(raw, 5, m.ETA, nil)
	if err != nil {
		t.Fatalf("retry: %v", err)
	}
	got, err := Decode(out)
	if err != nil {
		t.Fatalf("the retry does not decode: %v", err)
	}
	if got.DeliveryTag == m.DeliveryTag || got.Redelivered || got.Retries != 5 {
		t.Fatalf("retry: %+v", got)
	}
	got.DeliveryTag = m.DeliveryTag
	dropHeader(got, HeaderDeliveries)
	want := *m
	want.Redelivered, want.Retries, want.ETANaive = false, 5, false
	want.ETA = want.ETA.Truncate(1000)
	if string(got.Headers["root_id"]) == "" && m.RootID == "" && got.RootID != m.ID {
		want.RootID = got.RootID // it was an empty string, which is kept
	} else {
		want.RootID = or(m.RootID, m.ID)
	}
	want.ParentID = got.ParentID
	if m.ParentID != "" && got.ParentID != m.ParentID {
		t.Fatalf("parent %q became %q", m.ParentID, got.ParentID)
	}
	if diff := cmp.Diff(&want, got, messageOpts); diff != "" {
		t.Fatalf("the retry differs:\n%s", diff)
	}
}

func FuzzResult(f *testing.F) {
	for _, v := range versions {
		for _, n := range []string{"success", "failure", "retry", "unknown", "expired", "group", "nan"} {
			f.Add(golden(f, v, "result_"+n+".json"))
		}
	}
	f.Add(golden(f, "5.7.0", "result_compressed_zlib.bin"))
	f.Add([]byte(`{"status": "FAILURE", "result": {"exc_type": "E", "exc_message": "text"}, "date_done": {"__type__": "datetime", "__value__": "2026-01-02T03:04:05"}}`))
	f.Add([]byte(`{"status": "PROGRESS", "result": {"done": 5}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeResult(data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Kind == nil || r != nil {
				t.Fatalf("result %v, error %#v", r, err)
			}
			return
		}
		out, err := EncodeResult(r)
		if err != nil {
			return // what others may write and we must not
		}
		back, err := DecodeResult(out)
		if err != nil {
			t.Fatalf("decoding what was encoded: %v", err)
		}
		if r.Exception != nil {
			r.Value, back.Value = nil, nil
		}
		if r.Children == nil {
			r.Children = back.Children
		}
		r.DateDone = r.DateDone.Truncate(1000)
		if !Ready(r.State) {
			r.DateDone = back.DateDone
		}
		if diff := cmp.Diff(r, back, messageOpts); diff != "" {
			t.Fatalf("the result differs:\n%s", diff)
		}
	})
}
