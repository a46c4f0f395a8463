package wire

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// envelopeOf builds an envelope from its parts; a part "" is left out.
func envelopeOf(headers, body string) []byte {
	return []byte(`{"body": "` + base64.StdEncoding.EncodeToString([]byte(body)) +
		`", "content-encoding": "utf-8", "content-type": "application/json", "headers": ` + headers +
		`, "properties": {"delivery_tag": "d", "delivery_info": {"exchange": "", "routing_key": "celery"},` +
		` "priority": 0, "body_encoding": "base64"}}`)
}

const emptyBody = `[[], {}, {}]`

func withHeader(name, value string) []byte {
	return envelopeOf(`{"task": "t", "id": "i", "`+name+`": `+value+`}`, emptyBody)
}

func mustDecode(t *testing.T, raw []byte) *Message {
	t.Helper()
	m, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wantError(t *testing.T, raw []byte, kind error, field string) Error {
	t.Helper()
	m, err := Decode(raw)
	var e *Error
	if m != nil || !errors.As(err, &e) || !errors.Is(err, kind) || e.Field != field || e.Reason == "" {
		t.Fatalf("%.200s\nmessage %v, error %v; want %v at %q", raw, m, err, kind, field)
	}
	return *e
}

func TestW04_WhatIsNoTaskIsNamedAndTheNextOneDecodes(t *testing.T) {
	t.Parallel()
	wantError(t, []byte("hello"), ErrNotEnvelope, "")
	wantError(t, envelopeOf(`{}`, `{"x":1}`), ErrMalformed, "headers.task")
	m := mustDecode(t, envelopeOf(`{"task": "tasks.add", "id": "1"}`, `[[1], {}, {}]`))
	if m.Task != "tasks.add" || len(m.Args) != 1 {
		t.Errorf("%+v", m)
	}
}

func TestW07_NullArgumentsAreReadAndNeverWritten(t *testing.T) {
	t.Parallel()
	shanghai := time.FixedZone("Asia/Shanghai", 8*3600)
	raw, err := Encode(&Message{
		ID: "i", Task: "t", RoutingKey: "celery",
		ETA: time.Date(2030, 1, 2, 11, 4, 5, 123456789, shanghai),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(raw, []byte(`"eta": "2030-01-02T03:04:05.123456+00:00"`)) {
		t.Errorf("eta: %s", raw)
	}
	var e envelope
	if werr := e.scan(string(raw)); werr != nil {
		t.Fatal(werr)
	}
	body, werr := e.body()
	if werr != nil {
		t.Fatal(werr)
	}
	if want := `[[], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`; string(body) != want {
		t.Errorf("body %s, want %s", body, want)
	}
	m := mustDecode(t, envelopeOf(`{"task": "t", "id": "i"}`, `[null, null, null]`))
	if len(m.Args) != 0 || len(m.Kwargs) != 0 || m.Unsupported() != "" {
		t.Errorf("%+v", m)
	}
}

func TestW12_RefusedContentIsNeverDecodedAndItsIDIsKnown(t *testing.T) {
	t.Parallel()
	for _, ct := range []string{
		"application/x-python-serialize", "application/x-yaml", "application/x-msgpack",
		"application/data", "text/plain", "application/nobody-knows", "",
	} {
		raw := bytes.Replace(envelopeOf(`{"task": "t", "id": "i"}`, "\x80\x04pickle"),
			[]byte("application/json"), []byte(ct), 1)
		e := wantError(t, raw, ErrContentDisallowed, "content-type")
		if e.ID != "i" || e.Task != "t" {
			t.Errorf("%s: id %q, task %q", ct, e.ID, e.Task)
		}
		if got := ExceptionOf(&e); got.Type != "ContentDisallowed" || got.Module != "kombu.exceptions" {
			t.Errorf("%s: %+v", ct, got)
		}
	}
	mustDecode(t, envelopeOf(`{"task": "t", "id": "i"}`, emptyBody))
}

func TestW15_NaiveExpiresIsUTCAndFlagged(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 250000000, time.UTC)
	tokyo := time.FixedZone("Asia/Tokyo", 9*3600)
	due := now.Add(5 * time.Second)
	for text, naive := range map[string]bool{
		due.Format("2006-01-02T15:04:05.000000"):              true, // (a) read as UTC by rule
		due.Format("2006-01-02T15:04:05.000000") + "Z":        false,
		due.In(tokyo).Format("2006-01-02T15:04:05.000-07:00"): false,
	} {
		m := mustDecode(t, withHeader("expires", `"`+text+`"`))
		if !m.Expires.Equal(due) || m.ExpiresNaive != naive || m.Expires.Location() != time.UTC {
			t.Errorf("%s: %v naive=%v, want %v naive=%v", text, m.Expires, m.ExpiresNaive, due, naive)
		}
	}
	// What a local clock ahead of UTC writes without an offset is hours off:
	// it cannot be told, so it is flagged.
	m := mustDecode(t, withHeader("expires", `"`+due.In(tokyo).Format("2006-01-02T15:04:05")+`"`))
	if got := m.Expires.Sub(due.Truncate(time.Second)); got != 9*time.Hour || !m.ExpiresNaive {
		t.Errorf("off by %v, naive=%v", got, m.ExpiresNaive)
	}
	raw, err := Encode(&Message{ID: "i", Task: "t", Expires: due.In(tokyo), ETA: due.Local()})
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(raw, []byte(`: "2026-11-29T12:00:05.250000+00:00"`)); n != 2 {
		t.Errorf("our own times: %s", raw)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-01-02T03:04:05":             base,
		"2026-01-02T03:04:05Z":            base,
		"2026-01-02 03:04:05z":            base,
		"2026-01-02T03:04:05.5":           base.Add(500 * time.Millisecond), // 5.2 would read 5 µs
		"2026-01-02T03:04:05.123456789Z":  base.Add(123456789),
		"2026-01-02T03:04:05.1234567891Z": base.Add(123456789),
		"2026-01-02T03:04:05,000001Z":     base.Add(time.Microsecond),
		"2026-01-02T12:04:05+09:00":       base,
		"2026-01-02T12:04:05+0900":        base,
		"2026-01-02T12:04:05+09":          base,
		"2026-01-01T21:34:05-05:30":       base,
		"2026-01-02T03:57:33+00:53:28":    base,
		"2026-01-02T03:04":                base.Truncate(time.Minute),
		"2026-01-02":                      time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		"2024-02-29T23:59:59.999999Z":     time.Date(2024, 2, 29, 23, 59, 59, 999999000, time.UTC),
		"9999-12-31T23:59:59Z":            time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		"0001-01-01T00:00:01+00:00":       time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
	} {
		got, _, err := parseTime(text)
		if err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "now", "2026", "2026-1-2", "2026-02-30", "2025-02-29T00:00:00Z", "2026-13-01", "2026-00-10", "2026-01-00",
		"2026-01-02T", "2026-01-02T3:04:05", "2026-01-02T24:00:00", "2026-01-02T03:60:00", "2026-01-02T03:04:60",
		"2026-01-02T03:04:05.", "2026-01-02T03:04:05.Z", "2026-01-02T03:04:05+", "2026-01-02T03:04:05+9",
		"2026-01-02T03:04:05+24:00", "2026-01-02T03:04:05+09:60", "2026-01-02T03:04:05Z ", "2026-01-02T03:04:05ZZ",
		"2026-01-02T03:04:05 UTC", "-026-01-02T03:04:05", "2026-01-02x03:04:05", "0000-01-01T00:00:00Z",
		"٢٠٢٦-01-02", "2026-01-02T03:04:05+٠٩:00",
	} {
		if got, _, err := parseTime(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestEmptyTimesMeanNone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"eta", "expires"} {
		for _, value := range []string{`null`, `""`} {
			if m := mustDecode(t, withHeader(name, value)); !m.ETA.IsZero() || !m.Expires.IsZero() {
				t.Errorf("%s %s: %v %v", name, value, m.ETA, m.Expires)
			}
		}
	}
}

func TestEveryMandatoryFieldIsNamedWhenMissing(t *testing.T) {
	t.Parallel()
	whole := string(envelopeOf(`{"task": "t", "id": "i"}`, emptyBody))
	mustDecode(t, []byte(whole))
	for _, c := range []struct{ old, replacement, field string }{
		{`"headers"`, `"x"`, "headers"},
		{`{"task": "t", "id": "i"}`, `null`, "headers"},
		{`{"task": "t", "id": "i"}`, `[]`, "headers"},
		{`"properties"`, `"x"`, "properties"},
		{`"delivery_tag": "d"`, `"x": 1`, "properties.delivery_tag"},
		{`"delivery_tag": "d"`, `"delivery_tag": null`, "properties.delivery_tag"},
		{`"delivery_info"`, `"x"`, "properties.delivery_info"},
		{`"exchange": ""`, `"x": 1`, "properties.delivery_info.exchange"},
		{`"routing_key": "celery"`, `"x": 1`, "properties.delivery_info.routing_key"},
		{`"routing_key": "celery"`, `"routing_key": 5`, "properties.delivery_info.routing_key"},
		{`"content-type": "application/json"`, `"x": 1`, "content-type"},
		{`"content-type": "application/json"`, `"content-type": null`, "content-type"},
	} {
		raw := strings.Replace(whole, c.old, c.replacement, 1)
		e := wantError(t, []byte(raw), ErrNotEnvelope, c.field)
		if c.field != "headers" && (e.ID != "i" || e.Task != "t") {
			t.Errorf("%s: id %q, task %q", c.field, e.ID, e.Task)
		}
		if _, err := Redeliver([]byte(raw), 1); !errors.Is(err, ErrNotEnvelope) {
			t.Errorf("%s: Redeliver: %v", c.field, err)
		}
	}
	for _, raw := range []string{"", " ", "{", "[]", "null", `"x"`, `{"a": 1} {}`, `{"a": tru}`, "{\"a\": \"\xff\"}", `{"a": 01}`} {
		wantError(t, []byte(raw), ErrNotEnvelope, "")
	}
	// Cut off after the headers: the id is known all the same.
	e := wantError(t, []byte(whole[:strings.Index(whole, `"properties"`)]), ErrNotEnvelope, "")
	if e.ID != "i" || e.Task != "t" {
		t.Errorf("id %q, task %q", e.ID, e.Task)
	}
}

func TestMalformedHeadersAndBodies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value string }{
		{"eta", `"soon"`},
		{"eta", `5`},
		{"expires", `"2026-02-30T00:00:00Z"`},
		{"expires", `{}`},
		{"retries", `-1`},
		{"retries", `1.5`},
		{"retries", `"1"`},
		{"retries", `99999999999999999999`},
		{"group_index", `"a"`},
		{"replaced_task_nesting", `[]`},
		{"ignore_result", `"no"`},
	} {
		e := wantError(t, withHeader(c.name, c.value), ErrMalformed, "headers."+c.name)
		if e.ID != "i" || e.Task != "t" {
			t.Errorf("%s: id %q, task %q", c.name, e.ID, e.Task)
		}
	}
	for _, id := range []string{`null`, `""`, `5`, `{}`} {
		wantError(t, envelopeOf(`{"task": "t", "id": `+id+`}`, emptyBody), ErrMalformed, "headers.id")
	}
	wantError(t, envelopeOf(`{"task": 5, "id": "i"}`, emptyBody), ErrMalformed, "headers.task")
	for body, field := range map[string]string{
		``: "body", `notjson`: "body", `[]`: "body", `[[], {}]`: "body", `[[], {}, {}, {}]`: "body", `[[], {}, {}] x`: "body",
		`"text"`: "body", `[[1,], {}, {}]`: "body", `[[], {"a"}, {}]`: "body", `[[], {}, {]`: "body", "[[\"\xff\"], {}, {}]": "body",
		`[{}, {}, {}]`: "args", `[5, {}, {}]`: "args", `[[], [], {}]`: "kwargs", `[[], {}, []]`: "embed", `[nul, {}, {}]`: "body",
		`{"a": `: "body",
	} {
		e := wantError(t, envelopeOf(`{"task": "t", "id": "i"}`, body), ErrMalformed, field)
		if e.ID != "i" {
			t.Errorf("%s: id %q", body, e.ID)
		}
	}
	whole := string(envelopeOf(`{"task": "t", "id": "i"}`, emptyBody))
	b64 := base64.StdEncoding.EncodeToString([]byte(emptyBody))
	for _, c := range []struct {
		old, replacement, field string
		kind                    error
	}{
		{b64, "%%%", "body", ErrMalformed},
		{`"` + b64 + `"`, "null", "body", ErrMalformed},
		{`"body"`, `"x"`, "body", ErrMalformed},
		{`"body_encoding": "base64"`, `"body_encoding": "base85"`, "properties.body_encoding", ErrUnsupported},
		{`"content-encoding": "utf-8"`, `"content-encoding": "latin-1"`, "content-encoding", ErrUnsupported},
		{`"id": "i"`, `"id": "i", "compression": "application/zstd"`, "headers.compression", ErrUnsupported},
		{`"id": "i"`, `"id": "i", "compression": 5`, "headers.compression", ErrUnsupported},
		{`"id": "i"`, `"id": "i", "compression": "zlib"`, "body", ErrMalformed},
	} {
		wantError(t, []byte(strings.Replace(whole, c.old, c.replacement, 1)), c.kind, c.field)
	}
}

func TestProtocol1IsNamedWithIDAndTask(t *testing.T) {
	t.Parallel()
	e := wantError(t, envelopeOf(`{}`, `{"id": "i1", "task": "ping", "args": [NaN]}`), ErrUnsupported, "protocol")
	if e.ID != "i1" || e.Task != "ping" {
		t.Errorf("id %q, task %q", e.ID, e.Task)
	}
	e = wantError(t, envelopeOf(`{"task": "t", "id": "i"}`, `{"args": [], "kwargs": {}}`), ErrUnsupported, "protocol")
	if e.ID != "i" || e.Task != "t" {
		t.Errorf("hybrid: id %q, task %q", e.ID, e.Task)
	}
}

func TestBodiesPlainAndCompressed(t *testing.T) {
	t.Parallel()
	m := mustDecode(t, []byte(plainEnvelope))
	if string(m.Args[1]) != `"\u00e4"` || string(m.Kwargs["k"]) != "1.50" || m.Priority != 7 || m.Retries != 2 || m.RoutingKey != "qä" {
		t.Errorf("%+v", m)
	}
	if string(m.Headers["solobeat-guard"]) != `{"v": 1}` || string(m.Headers["x-app"]) != `[1, {}]` || len(m.Headers) != 2 {
		t.Errorf("headers %s", m.Headers)
	}
	for _, name := range []string{"application/x-gzip", "gzip", "zlib"} {
		m := mustDecode(t, compressed(t, name, strings.NewReader(`[[1], {}, {}]`)))
		if len(m.Args) != 1 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	// Slashes written with a backslash, as PHP does.
	body := base64.StdEncoding.EncodeToString([]byte(`[["???>>>"], {}, {}]`))
	if !strings.Contains(body, "/") {
		t.Fatal("the body has no slash: ", body)
	}
	raw := bytes.Replace(envelopeOf(`{"task": "t", "id": "i"}`, `[["???>>>"], {}, {}]`),
		[]byte(body), []byte(strings.ReplaceAll(body, "/", `\/`)), 1)
	if m := mustDecode(t, raw); string(m.Args[0]) != `"???>>>"` {
		t.Errorf("%s", m.Args)
	}
}

func deflate(t *testing.T, body io.Reader) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zlib.NewWriter(&buf)
	if _, err := io.Copy(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func compressed(t *testing.T, name string, body io.Reader) []byte {
	t.Helper()
	return envelopeOf(fmt.Sprintf(`{"task": "t", "id": "i", "compression": %q}`, name), string(deflate(t, body)))
}

// bomb is a zlib stream of n MiB of blanks. One flushed block refers to nothing
// before it, so it can be repeated.
func bomb(t *testing.T, n int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := flate.NewWriter(&buf, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return append([]byte{0x78, 0x01}, bytes.Repeat(buf.Bytes(), n)...)
}

// A body that inflates to more than fits is given up at the limit; its end,
// which is missing here, is never reached.
func TestInflatedBodiesAreLimited(t *testing.T) {
	t.Parallel()
	e := wantError(t, envelopeOf(`{"task": "t", "id": "i", "compression": "zlib"}`, string(bomb(t, MaxInflated>>20+1))), ErrTooLarge, "body")
	if e.ID != "i" {
		t.Errorf("id %q", e.ID)
	}
	data := deflate(t, strings.NewReader("123456789"))
	if out, err := inflate(data, 9); err != nil || string(out) != "123456789" {
		t.Errorf("at the limit: %q %v", out, err)
	}
	if out, err := inflate(data, 8); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the limit: %q %v", out, err)
	}
	if _, err := inflate(data[:len(data)-5], 9); err == nil {
		t.Error("a stream that was cut off was taken")
	}
}

func TestUnsupportedFieldsAreNamed(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`[[], {}, {"chord": {"task": "x"}, "chain": [{}]}]`:                  "chord",
		`[[], {}, {"chain": [{}]}]`:                                          "chain",
		`[[], {}, {"callbacks": [{}]}]`:                                      "callbacks",
		`[[], {}, {"errbacks": [{}]}]`:                                       "errbacks",
		`[[], {}, {"chain": [], "chord": null, "callbacks": [ ]}]`:           "",
		`[[{"__type__": "uuid", "__value__": 1}], {}, {}]`:                   "__type__",
		`[[[{"a": {"__value__": 1, "__type__": "x"}}]], {}, {}]`:             "__type__",
		`[[], {"k": {"__ty\u0070e__": 1, "__value__": 1}}, {}]`:              "__type__",
		`[[], {"__type__": 1, "__value__": 1}, {}]`:                          "__type__",
		`[[{"__type__": "uuid", "__value__": 1, "third": 1}], {}, {}]`:       "",
		`[[{"__type__": "uuid"}, {"__value__": 1}], {"__type__": 1}, {}]`:    "",
		`[["__type__", "__value__"], {}, {}]`:                                "",
		`[[NaN], {}, {}]`:                                                    "NaN",
		`[[], {"k": [-Infinity]}, {}]`:                                       "NaN",
		`[["NaN"], {"NaN": "Infinity"}, {"other": NaN}]`:                     "",
		`[[], {}, {"chain": null, "callbacks": null, "some": {"thing": 1}}]`: "",
	} {
		m := mustDecode(t, envelopeOf(`{"task": "t", "id": "i"}`, body))
		if got := m.Unsupported(); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	for value, want := range map[string]string{
		`[null, null]`: "", `null`: "", `[]`: "", `[null,null]`: "", `[ null , null ]`: "",
		`[10, null]`: "timelimit", `[null, 0.5]`: "timelimit", `10`: "timelimit",
	} {
		if got := mustDecode(t, withHeader("timelimit", value)).Unsupported(); got != want {
			t.Errorf("timelimit %s: %q, want %q", value, got, want)
		}
	}
	// A group without a chord asks for nothing.
	if m := mustDecode(t, withHeader("group", `"g"`)); m.Unsupported() != "" || m.Group != "g" {
		t.Errorf("%+v", m)
	}
}

func TestPriorityIsReadAsKombuDoes(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{
		`0`: 0, `5`: 5, `9`: 9, `10`: 9, `255`: 9, `-3`: 0, `"7"`: 7, `" 7 "`: 7, `"x"`: 0, `null`: 0, `{}`: 0, `[3]`: 0,
		`5.9`: 5, `1e3`: 9, `1e999`: 9, `true`: 1, `false`: 0, `NaN`: 0, `-Infinity`: 0,
	} {
		raw := bytes.Replace(envelopeOf(`{"task": "t", "id": "i"}`, emptyBody), []byte(`"priority": 0`), []byte(`"priority": `+value), 1)
		if got := mustDecode(t, raw).Priority; got != want {
			t.Errorf("%s: %d, want %d", value, got, want)
		}
	}
}

func TestIgnoreResultHasThreeValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]Tri{`null`: Unset, `true`: True, `false`: False} {
		if got := mustDecode(t, withHeader("ignore_result", value)).IgnoreResult; got != want {
			t.Errorf("%s: %v", value, got)
		}
	}
	if !Unset.Or(true) || Unset.Or(false) || !True.Or(false) || False.Or(true) {
		t.Error("Or")
	}
}

func TestRedeliveredIsReadFromBothPlaces(t *testing.T) {
	t.Parallel()
	if !mustDecode(t, withHeader("redelivered", "true")).Redelivered || mustDecode(t, withHeader("redelivered", "false")).Redelivered {
		t.Error("headers")
	}
	raw := bytes.Replace(withHeader("x", "1"), []byte(`"exchange": ""`), []byte(`"exchange": "", "redelivered": true`), 1)
	if !mustDecode(t, raw).Redelivered {
		t.Error("delivery info")
	}
}

// The scanner recurses; text of any depth must not exhaust the stack.
func TestDepthIsLimited(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	mustDecode(t, envelopeOf(`{"task": "t", "id": "i"}`, `[[`+deep(9000)+`], {}, {}]`))
	wantError(t, envelopeOf(`{"task": "t", "id": "i"}`, `[[`+deep(1_000_000)+`], {}, {}]`), ErrMalformed, "body")
	wantError(t, []byte(`{"a": `+strings.Repeat(`{"a":`, 1_000_000)), ErrNotEnvelope, "")
}

func TestNumbersAndTextKeepTheirText(t *testing.T) {
	t.Parallel()
	const values = `9007199254740993, -170141183460469231731687303715884105729, 0.1, 1.50, 1e-7, 1E+2, -0.0, "\ud800", "ä\u00e4😀"`
	m := mustDecode(t, envelopeOf(`{"task": "t", "id": "i"}`, `[[`+values+`], {}, {}]`))
	var got []string
	for _, a := range m.Args {
		got = append(got, string(a))
	}
	if s := strings.Join(got, ", "); s != values {
		t.Errorf("%s", s)
	}
	raw, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	back := mustDecode(t, raw)
	for i, want := range strings.Split(strings.Replace(values, `"ä\u00e4😀"`, `"\u00e4\u00e4\ud83d\ude00"`, 1), ", ") {
		if string(back.Args[i]) != want {
			t.Errorf("%s became %s", want, back.Args[i])
		}
	}
}

func TestHeaderInt(t *testing.T) {
	t.Parallel()
	m := &Message{Headers: map[string]json.RawMessage{"a": json.RawMessage("3"), "b": json.RawMessage(`"3"`)}}
	if n, ok := m.HeaderInt("a"); n != 3 || !ok {
		t.Error(n, ok)
	}
	for _, k := range []string{"b", "c"} {
		if n, ok := m.HeaderInt(k); n != 0 || ok {
			t.Error(k, n, ok)
		}
	}
}
