package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var done = time.Date(2026, 11, 29, 12, 0, 0, 500000, time.UTC)

type PaymentDeclined struct{ Code int }

func (e *PaymentDeclined) Error() string { return fmt.Sprintf("declined: %d", e.Code) }

type Generic[T any] struct{ V T }

func (Generic[T]) Error() string { return "generic" }

type wrapper struct{ error }

func (w wrapper) Unwrap() error { return w.error }

func encoded(t *testing.T, r Result) map[string]json.RawMessage {
	t.Helper()
	b, err := EncodeResult(&r)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return m
}

func TestR01_GoErrorsHaveANameAndTheThreeKeys(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("charging: %w", &PaymentDeclined{Code: 51})
	e := ExceptionOf(err)
	m := encoded(t, Result{TaskID: "i", State: StateFailure, Exception: &e, DateDone: done})
	want := `{"exc_type": "PaymentDeclined", "exc_message": ["charging: declined: 51"], "exc_module": null}`
	if got := string(m["result"]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestR02_FailuresHoldAnExceptionAndTracebackIsTextOrNull(t *testing.T) {
	t.Parallel()
	for _, state := range []string{StateFailure, StateRevoked} {
		if b, err := EncodeResult(&Result{TaskID: "i", State: state, Value: json.RawMessage(`{"a": 1}`), DateDone: done}); err == nil {
			t.Errorf("%s without an exception: %s", state, b)
		}
		e := NewException("LockBusy", "held by another")
		for traceback, want := range map[string]string{"": "null", "goroutine 1:\n\t{x}": `"goroutine 1:\n\t{x}"`} {
			m := encoded(t, Result{TaskID: "i", State: state, Exception: &e, Traceback: traceback, DateDone: done, Value: json.RawMessage("5")})
			if got := string(m["traceback"]); got != want {
				t.Errorf("%s: traceback %s, want %s", state, got, want)
			}
			var exc struct {
				Type    string   `json:"exc_type"`
				Message []string `json:"exc_message"`
				Module  *string  `json:"exc_module"`
			}
			if err := json.Unmarshal(m["result"], &exc); err != nil || exc.Type != "LockBusy" || len(exc.Message) != 1 || exc.Module != nil {
				t.Errorf("%s: %s %v", state, m["result"], err)
			}
		}
	}
}

func TestR08_DateDoneIsUTCWhenReadyAndNullElse(t *testing.T) {
	t.Parallel()
	e := NewException("E")
	local := done.In(time.FixedZone("", 9*3600))
	for state, want := range map[string]string{
		StateSuccess: `"2026-11-29T12:00:00.000500+00:00"`, StateFailure: `"2026-11-29T12:00:00.000500+00:00"`,
		StateRevoked: `"2026-11-29T12:00:00.000500+00:00"`, StateRetry: `null`, "STARTED": `null`,
	} {
		r := Result{TaskID: "i", State: state, DateDone: local}
		if state != StateSuccess {
			r.Exception = &e
		}
		if got := string(encoded(t, r)["date_done"]); got != want {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
	if b, err := EncodeResult(&Result{TaskID: "i", State: StateSuccess}); err == nil {
		t.Errorf("SUCCESS without a date: %s", b)
	}
	// What older versions wrote: no offset, which means UTC; or a typed value.
	for _, date := range []string{`"2026-11-29T12:00:00.000500"`, `{"__type__": "datetime", "__value__": "2026-11-29T12:00:00.0005Z"}`} {
		r, err := DecodeResult([]byte(`{"status": "SUCCESS", "result": 1, "date_done": ` + date + `}`))
		if err != nil || !r.DateDone.Equal(done) {
			t.Errorf("%s: %+v %v", date, r, err)
		}
	}
}

func TestResultShape(t *testing.T) {
	t.Parallel()
	b, err := EncodeResult(&Result{
		TaskID: "i", State: StateSuccess, Value: json.RawMessage(`{"a":[1.50,"ä"]}`), DateDone: done, GroupID: "g", ParentID: "p",
		Solobeat: json.RawMessage(`{"outcome":"skipped"}`),
	})
	want := `{"status": "SUCCESS", "result": {"a": [1.50, "\u00e4"]}, "traceback": null, "children": [], ` +
		`"date_done": "2026-11-29T12:00:00.000500+00:00", "group_id": "g", "parent_id": "p", "solobeat": {"outcome": "skipped"}, "task_id": "i"}`
	if err != nil || string(b) != want {
		t.Errorf("%s %v", b, err)
	}
	r, err := DecodeResult(b)
	if err != nil || string(r.Solobeat) != `{"outcome": "skipped"}` || r.GroupID != "g" || r.ParentID != "p" {
		t.Errorf("%+v %v", r, err)
	}
	e := NewException("E")
	for _, bad := range []Result{
		{State: StateSuccess, DateDone: done},
		{TaskID: "i", DateDone: done},
		{TaskID: "i", State: StateSuccess, DateDone: done, Exception: &e},
		{TaskID: "i", State: StateSuccess, DateDone: done, Value: json.RawMessage("NaN")},
		{TaskID: "i", State: StateSuccess, DateDone: done, Solobeat: json.RawMessage("{")},
	} {
		if b, err := EncodeResult(&bad); err == nil {
			t.Errorf("%s", b)
		}
	}
	for _, bad := range []string{
		"", "null", "5", `{"result": 5}`, `{"status": 5}`, "{", "\x00celery-compressed\x00", "\x00celery-compressed\x00gzip\x00junk",
		"{\"status\": \"\xff\"}",
	} {
		if r, err := DecodeResult([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, r)
		}
	}
	r, err = DecodeResult([]byte(`{"status": "FAILURE", "result": {"exc_type": "E", "exc_message": "text", "exc_module": "m"}, "traceback": {"a": 1}}`))
	if err != nil || r.Exception == nil || r.Exception.Text() != "text" || r.Traceback != "" {
		t.Errorf("%+v %v", r, err)
	}
	r, err = DecodeResult([]byte(`{"status": "FAILURE", "result": {"no": "exception"}}`))
	if err != nil || r.Exception != nil || string(r.Value) != `{"no": "exception"}` {
		t.Errorf("%+v %v", r, err)
	}
}

func TestExceptionNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err          error
		name, module string
	}{
		{errors.New("plain"), "RuntimeError", "builtins"},
		{fmt.Errorf("a: %w", errors.New("plain")), "RuntimeError", "builtins"},
		{&PaymentDeclined{}, "PaymentDeclined", ""},
		{errors.Join(errors.New("x"), fmt.Errorf("y: %w", &PaymentDeclined{})), "PaymentDeclined", ""},
		{fmt.Errorf("%w and %w", errors.New("x"), &PaymentDeclined{}), "PaymentDeclined", ""},
		{Generic[map[string]int]{}, "Generic", ""},
		{wrapper{&PaymentDeclined{}}, "wrapper", ""},
		{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, "PathError", ""},
		{context.DeadlineExceeded, "TimeoutError", "builtins"},
		{fmt.Errorf("calling: %w", context.DeadlineExceeded), "TimeoutError", "builtins"},
		{context.Canceled, "RuntimeError", "builtins"},
		{&Error{Kind: ErrUnsupported, Field: "chain"}, "Unsupported", ""},
		{&Error{Kind: ErrMalformed, Field: "body"}, "MalformedMessage", ""},
		{&Error{Kind: ErrNotEnvelope}, "MalformedMessage", ""},
		{&Error{Kind: ErrTooLarge}, "TooLarge", ""},
		{fmt.Errorf("x: %w", &Error{Kind: ErrContentDisallowed, Reason: "r"}), "ContentDisallowed", "kombu.exceptions"},
	} {
		e := ExceptionOf(c.err)
		if e.Type != c.name || e.Module != c.module || len(e.Args) != 1 {
			t.Errorf("%#v: %+v", c.err, e)
		}
	}
	if e := ExceptionOf(nil); e.Type != "RuntimeError" {
		t.Errorf("nil: %+v", e)
	}
	if e := ExceptionOf(&PaymentDeclined{Code: 3}); e.Text() != "declined: 3" {
		t.Error(e.Text())
	}
	for name, want := range map[string]string{
		"LockBusy": "LockBusy", "a.b": "a_b", "3x": "_3x", "": "_", "ähm": "_hm", "two words": "two_words", "os.system": "os_system",
	} {
		if got := NewException(name).Type; got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestExceptionsOfCelery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e    Exception
		want string
	}{
		{NotRegistered("t"), `{"exc_type": "NotRegistered", "exc_message": ["t"], "exc_module": "celery.exceptions"}`},
		{ContentDisallowed("c"), `{"exc_type": "ContentDisallowed", "exc_message": ["c"], "exc_module": "kombu.exceptions"}`},
		{WorkerLost("w"), `{"exc_type": "WorkerLostError", "exc_message": ["w"], "exc_module": "billiard.exceptions"}`},
		{TaskRevoked("expired"), `{"exc_type": "TaskRevokedError", "exc_message": ["expired"], "exc_module": "celery.exceptions"}`},
		{MaxRetriesExceeded("m"), `{"exc_type": "MaxRetriesExceededError", "exc_message": ["m"], "exc_module": "celery.exceptions"}`},
		{NewException("E", 1, "ü", nil, math.NaN()), `{"exc_type": "E", "exc_message": [1, "\u00fc", null, "json: unsupported value: NaN"], "exc_module": null}`},
		{NewException("E"), `{"exc_type": "E", "exc_message": [], "exc_module": null}`},
	} {
		var w writer
		w.exception(&c.e)
		if string(w.b) != c.want || w.err != nil {
			t.Errorf("%s, want %s, %v", w.b, c.want, w.err)
		}
		back := exceptionIn(w.b)
		if back == nil || cmp.Diff(c.e, *back) != "" {
			t.Errorf("%s: back %+v", w.b, back)
		}
	}
}

func TestReprs(t *testing.T) {
	t.Parallel()
	raw := func(s ...string) []json.RawMessage {
		out := []json.RawMessage{}
		for _, x := range s {
			out = append(out, json.RawMessage(x))
		}
		return out
	}
	for want, args := range map[string][]json.RawMessage{
		"()":                               nil,
		"(2,)":                             raw("2"),
		"(True, False, None)":              raw("true", "false", "null"),
		"(nan, inf, -inf, -1.50)":          raw("NaN", "Infinity", "-Infinity", "-1.50"),
		`('it\'s', 'q"', 'a\nb\x00', 'ä')`: raw(`"it's"`, `"q\""`, `"a\nb\u0000"`, `"ä"`),
		"([[[...]]], [1, {'a': {...}}])":   raw(`[[[1]]]`, `[1,{"a":{"b":1}}]`),
		"({'a': 1, 'b': [2, 3]},)":         raw(` { "a" : 1 , "b" : [ 2 , 3 ] } `),
	} {
		got := ReprArgs(args)
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := ReprArgs(raw("{nonsense", "[1")); len(got) < len("{nonsense") {
		t.Errorf("what is no JSON: %s", got)
	}
	if got := ReprKwargs(map[string]json.RawMessage{"b": raw("2")[0], "a": raw(`"x"`)[0]}); got != "{'a': 'x', 'b': 2}" {
		t.Error(got)
	}
	for _, long := range []json.RawMessage{
		json.RawMessage(`"` + strings.Repeat("ä", 5000) + `"`),
		json.RawMessage("[" + strings.Repeat("[1, 2], ", 5000) + "1]"),
		json.RawMessage(strings.Repeat("9", 5000)),
	} {
		got := ReprArgs([]json.RawMessage{long})
		if len(got) > reprLimit || !strings.HasSuffix(got, "...") || strings.ContainsRune(got, '\uFFFD') {
			t.Errorf("%d bytes: %s", len(got), got[max(0, len(got)-40):])
		}
	}
}
