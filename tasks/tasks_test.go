package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/tasks"
)

type in struct {
	Big   int64           `json:"big"`
	Price json.Number     `json:"price"`
	Text  string          `json:"text"`
	Any   any             `json:"any,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
}

func call[In, Out any](t *testing.T, fn func(context.Context, In) (Out, error), task *tasks.Task) (json.RawMessage, error) {
	t.Helper()
	var reg tasks.Registry
	if err := tasks.Register(&reg, "t", fn); err != nil {
		t.Fatal(err)
	}
	h, ok := reg.Lookup("t")
	if !ok {
		t.Fatal("registered handler is not found")
	}
	return h.Handle(t.Context(), task)
}

func raws(texts ...string) []json.RawMessage {
	var rs []json.RawMessage
	for _, s := range texts {
		rs = append(rs, json.RawMessage(s))
	}
	return rs
}

// Integers beyond 2^53, floats and unicode come back as they were sent; a
// decoder into any without UseNumber would give 9007199254740992.
func TestRegisterKeepsNumbersAndText(t *testing.T) {
	t.Parallel()
	echo := func(_ context.Context, v in) (in, error) { return v, nil }
	got, err := call(t, echo, &tasks.Task{
		Args:   raws(`9007199254740993`, `0.10`),
		Kwargs: map[string]json.RawMessage{"text": json.RawMessage(`"grüße <&> 💶"`), "any": json.RawMessage(`[9007199254740993]`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"big":9007199254740993,"price":0.10,"text":"grüße <&> 💶","any":[9007199254740993]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRegisterRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	fn := func(context.Context, in) (int, error) { return 1, nil }
	for name, task := range map[string]*tasks.Task{
		"unknown name":  {Kwargs: map[string]json.RawMessage{"bigg": json.RawMessage(`1`)}},
		"too many args": {Args: raws(`1`, `2`, `"a"`, `4`, `5`, `6`)},
		"given twice":   {Args: raws(`1`), Kwargs: map[string]json.RawMessage{"big": json.RawMessage(`1`)}},
		"wrong type":    {Args: raws(`"one"`)},
	} {
		_, err := call(t, fn, task)
		var perm *tasks.PermanentError
		if !errors.Is(err, tasks.ErrBadArguments) || !errors.As(err, &perm) {
			t.Errorf("%s: got %v, want a permanent ErrBadArguments", name, err)
		}
		if exc, ok := errors.AsType[*tasks.Exception](err); !ok || exc.Type != "TypeError" || exc.Module != "builtins" || len(exc.Args) != 1 {
			t.Errorf("%s: %#v, want the exception of a stock worker", name, exc)
		}
	}
}

func TestRegistryRefusesBadAndDuplicateNames(t *testing.T) {
	t.Parallel()
	var reg tasks.Registry
	h := tasks.HandlerFunc(func(context.Context, *tasks.Task) (json.RawMessage, error) { return nil, nil })
	if err := reg.Add("a.b", h); err != nil {
		t.Fatal(err)
	}
	if err := reg.Add("a.b", h); !errors.Is(err, tasks.ErrDuplicateName) {
		t.Errorf("second a.b: got %v, want ErrDuplicateName", err)
	}
	for _, bad := range []string{"", " a", "a b", ".a", "ä", strings.Repeat("x", 201)} {
		if err := reg.Add(bad, h); !errors.Is(err, tasks.ErrBadName) {
			t.Errorf("%q: got %v, want ErrBadName", bad, err)
		}
	}
	if err := tasks.Register(&reg, "n", func(context.Context, int) (int, error) { return 0, nil }); err == nil {
		t.Error("an int is no input for named arguments, but was accepted")
	}
	if diff := cmp.Diff([]string{"a.b"}, reg.Names()); diff != "" {
		t.Error(diff)
	}
}

func TestGuardRoundTrip(t *testing.T) {
	t.Parallel()
	g := &tasks.Guard{
		Job: "hourly-report", Tick: 1795968000000, Label: "2026-11-29T17:00:00+01:00", BeginBy: 1795971600000,
		Retries: &tasks.RetryPolicy{Max: 2},
		Lock:    &tasks.LockGuard{Key: "report:lock", TTLMS: 60000, OnBusy: tasks.OnBusySkip},
		Record:  &tasks.RecordGuard{Key: "report:2026-11-29T17+01:00"},
	}
	text, err := g.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := tasks.DecodeGuard(text)
	if err != nil {
		t.Fatal(err)
	}
	g.Version = 1
	if diff := cmp.Diff(g, got); diff != "" {
		t.Error(diff)
	}
}

// A message says the oldest version that tells all of its guard: what asks for
// nothing new is read by replicas that know version 1 alone, word by word as
// before; what asks for more is left alone by them.
func TestGuardSaysTheOldestVersion(t *testing.T) {
	t.Parallel()
	plain := tasks.LockGuard{Key: "k", TTLMS: 30_000, OnBusy: tasks.OnBusyRetry}
	for name, change := range map[string]func(*tasks.LockGuard){
		"":              func(*tasks.LockGuard) {},
		"the defaults":  func(l *tasks.LockGuard) { l.OnLost, l.OnStoreDown = tasks.OnLostCancel, tasks.OnStoreDownRetry },
		"min_hold":      func(l *tasks.LockGuard) { l.MinHoldMS = 1 },
		"stall_after":   func(l *tasks.LockGuard) { l.StallAfterMS = 1000 },
		"on_lost":       func(l *tasks.LockGuard) { l.OnLost = tasks.OnLostObserve },
		"on_store_down": func(l *tasks.LockGuard) { l.OnStoreDown = tasks.OnStoreDownRun },
		"on_busy":       func(l *tasks.LockGuard) { l.OnBusy = tasks.OnBusyWait },
	} {
		l := plain
		change(&l)
		g := &tasks.Guard{Lock: &l}
		text, err := g.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := tasks.DecodeGuard(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := 2
		if name == "" || name == "the defaults" {
			want = 1
		}
		if got.Version != want {
			t.Errorf("%s: version %d, want %d", name, got.Version, want)
		}
		if diff := cmp.Diff(&l, got.Lock); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if same := string(text) == `{"v":1,"lock":{"key":"k","ttl_ms":30000,"on_busy":"retry"}}`; same != (name == "") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A guard of a later version is told apart from one that is broken: the
// first waits for a newer replica, the second never gets better.
func TestGuardVersions(t *testing.T) {
	t.Parallel()
	if _, err := tasks.DecodeGuard([]byte(`{"v":3,"lock":{"key":"k","new":true}}`)); !errors.Is(err, tasks.ErrGuardVersion) {
		t.Errorf("version 3: got %v, want ErrGuardVersion", err)
	}
	for _, bad := range []string{
		`null`, `[]`, `{"v":"1"}`, `{"v":1,"lock":{"key":"","ttl_ms":5000,"on_busy":"skip"}}`,
		`{"v":1,"lock":{"key":"k","ttl_ms":0,"on_busy":"skip"}}`, `{"v":1,"lock":{"key":"k","ttl_ms":5000,"on_busy":"x"}}`,
		`{"v":0}`, `{"v":-1}`, `{}`, `{"v":1,"timeout_ms":-1}`, `{"v":1,"begin_by":-5}`, `{"v":1,"retries":{"max":-1}}`,
		`{"v":1,"lock":{"key":"k","ttl_ms":9223372036854775807,"on_busy":"skip"}}`, `{"v":1,"record":{"key":"k","fp":"zz"}}`,
		`{"v":1,"record":{"key":"k","retention_ms":-1}}`, `{"v":1,"lock":{"key":"k","ttl_ms":5000,"on_busy":"skip","renew_ms":-1}}`,
		`{"v":2,"lock":{"key":"k","ttl_ms":5000,"on_busy":"skip","on_lost":"x"}}`, `{"v":2,"lock":{"key":"k","ttl_ms":5000,"on_busy":"skip","on_store_down":"x"}}`,
		`{"v":2,"lock":{"key":"k","ttl_ms":5000,"on_busy":"wait","wait_ms":-1}}`, `{"v":2,"lock":{"key":"k","ttl_ms":5000,"on_busy":"skip","min_hold_ms":-1}}`,
		`{"v":1,"record":{}}`, `{"v":1,"job":"` + strings.Repeat("j", tasks.MaxGuardBytes) + `"}`,
	} {
		if _, err := tasks.DecodeGuard([]byte(bad)); err == nil || errors.Is(err, tasks.ErrGuardVersion) {
			t.Errorf("%.60s: got %v, want another error than ErrGuardVersion", bad, err)
		}
	}
	long := &tasks.Guard{Lock: &tasks.LockGuard{Key: strings.Repeat("k", 5000)}}
	if _, err := long.Encode(); err == nil {
		t.Error("a guard of over 4096 bytes was encoded")
	}
}

func TestRetryDelays(t *testing.T) {
	t.Parallel()
	var got []time.Duration
	for n := 1; n <= 8; n++ {
		got = append(got, tasks.RetryPolicy{}.Delay(n))
	}
	s := time.Second
	want := []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 320 * s, 600 * s, 600 * s}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if d := (tasks.RetryPolicy{}).Delay(1 << 30); d != 600*s {
		t.Errorf("a huge attempt gives %s", d)
	}
}

func TestRequestOptions(t *testing.T) {
	t.Parallel()
	r, err := tasks.NewRequest("reports.hourly",
		tasks.WithArgs(1, "zwei"), tasks.WithKwargs(map[string]any{"n": 9007199254740993}), tasks.WithQueue("q"),
		tasks.WithPriority(9), tasks.WithID("id-1"), tasks.WithHeaders(map[string]any{"traceparent": "00-1"}),
		tasks.WithRetries(tasks.RetryPolicy{Max: 5}))
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Kwargs["n"]) != "9007199254740993" || len(r.Args) != 2 || r.Guard.Retries.Max != 5 {
		t.Errorf("got %+v", r)
	}
	for name, o := range map[string]tasks.Option{
		"priority": tasks.WithPriority(10), "queue": tasks.WithQueue(""), "id": tasks.WithID("a\nb"),
		"reserved header": tasks.WithHeaders(map[string]any{"retries": 1}),
		"own header":      tasks.WithHeaders(map[string]any{"solobeat-guard": "{}"}),
		"kwargs":          tasks.WithKwargs([]int{1}), "args": tasks.WithArgs(func() {}),
	} {
		if _, err := tasks.NewRequest("a", o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
