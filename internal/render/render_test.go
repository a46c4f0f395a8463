package render_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/render"
)

func berlin(t *testing.T) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// fold is the later of the two 02:30 of the day on which the clocks go back.
func fold(t *testing.T) render.Data {
	t.Helper()
	at := time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC).In(berlin(t))
	return render.Data{
		Tick: &render.Tick{Local: at, Prev: at.Add(-time.Hour), Next: at.Add(time.Hour)},
		Job:  "hourly-report",
	}
}

func params(t *testing.T, kwargs string) render.Data {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(kwargs), &raw); err != nil {
		t.Fatal(err)
	}
	p, err := render.Params(nil, nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	return render.Data{Params: p, Task: "payments.charge"}
}

func parse(t *testing.T, text string, kind render.Kind) *render.Template {
	t.Helper()
	tmpl, err := render.Parse("test", text, kind)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tmpl
}

func mustRender(t *testing.T, text string, kind render.Kind, d render.Data) string {
	t.Helper()
	s, err := parse(t, text, kind).Render(d)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func TestTickFunctions(t *testing.T) {
	t.Parallel()
	d := fold(t)
	for text, want := range map[string]string{
		"report:{{ .Tick.Local | hour }}":                           "report:2026-10-25T02+01:00",
		"report:{{ .Tick.Prev | hour }}":                            "report:2026-10-25T02+02:00",
		"{{ .Tick.Local | date }}":                                  "2026-10-25",
		"{{ date .Tick.UTC }}":                                      "2026-10-25",
		"{{ .Tick.Local | minute }}":                                "2026-10-25T02:30+01:00",
		"{{ .Tick.UTC | minute }}":                                  "2026-10-25T01:30+00:00",
		"{{ .Tick.Local | rfc3339 }}":                               "2026-10-25T02:30:00+01:00",
		"{{ .Tick.UTC | rfc3339 }}":                                 "2026-10-25T01:30:00Z",
		"{{ .Tick.Local }}":                                         "2026-10-25T02:30:00+01:00",
		"{{ .Tick.Local | unix }}":                                  "1792891800",
		"{{ .Tick.Local | addDays -1 | date }}":                     "2026-10-24",
		"{{ .Tick.Local | addDays 1 | minute }}":                    "2026-10-26T02:30+01:00",
		`{{ .Tick.Local | in "America/New_York" | hour }}`:          "2026-10-24T21-04:00",
		"{{ .Job }}:{{ .Tick.Next | date }}":                        "hourly-report:2026-10-25",
		"{{ .Job }}/{{ .Tick.Local | date }}{{ .Job }}":             "hourly-report/2026-10-25hourly-report",
		"{{- .Job -}}  :  {{- /* a comment */ -}} {{ .Job }}":       "hourly-report:hourly-report",
		`{{ .Job | default "x" }}|{{ lower "ABC" }}`:                "hourly-report|abc",
		`{{ .Tick.Local | in "Asia/Kathmandu" | addDays 0 | hour}}`: "2026-10-25T07+05:45",
	} {
		want = strings.ReplaceAll(want, "1792891800", fmt.Sprint(d.Tick.Local.Unix()))
		for _, kind := range []render.Kind{render.Key, render.Text} {
			if got := mustRender(t, text, kind, d); got != want {
				t.Errorf("%s gave %q, want %q", text, got, want)
			}
		}
	}
	if a, b := mustRender(t, "{{ .Tick.Local | hour }}", render.Key, d), mustRender(t, "{{ .Tick.Prev | hour }}", render.Key, d); a == b {
		t.Errorf("both 02 o'clock of the fold are %s", a)
	}
}

func TestKeyEscapes(t *testing.T) {
	t.Parallel()
	d := params(t, `{"id":9007199254740993,"f":0.1e-7,"shop":"eu:1/ü","ok":true,"in":{"a":{"b":"x"}},"list":[1,{"b":2,"a":"<"}],"Up":"ÄB"}`)
	for text, want := range map[string]string{
		"{{ .Params.id }}":                          "9007199254740993",
		"{{ .Params.f }}":                           "0.1e-7",
		"{{ .Params.shop }}:{{ .Params.id }}":       "eu%3A1%2F%C3%BC:9007199254740993",
		"{{ .Params.ok }}":                          "true",
		"{{ .Params.in.a.b }}":                      "x",
		`{{ index .Params "id" }}`:                  "9007199254740993",
		"{{ .Params.list | json }}":                 "%5B1%2C%7B%22a%22%3A%22%3C%22%2C%22b%22%3A2%7D%5D",
		"{{ .Task.Name }}:{{ .Params.Up | lower }}": "payments.charge:%C3%A4b",
		`{{ .Params.absent | default "none" }}`:     "none",
		`{{ default "a:b" .Params.in.a.absent }}`:   "a%3Ab",
		`{{ default "none" .Params.id }}`:           "9007199254740993",
		`{{ default .Params.id .Params.absent }}`:   "9007199254740993",
		"literal:with any/text%":                    "literal:with any/text%",
		`{{ "2026-10-25T02+02:00" }}`:               "2026-10-25T02%2B02%3A00",
		"{{ $.Params.id }}":                         "9007199254740993",
	} {
		if got := mustRender(t, text, render.Key, d); got != want {
			t.Errorf("%s gave %q, want %q", text, got, want)
		}
	}
	// default makes text of whatever it passes on, so a key escapes it.
	if got := mustRender(t, `{{ .Tick.Local | hour | default "x" }}`, render.Key, fold(t)); got != "2026-10-25T02%2B01%3A00" {
		t.Errorf("a time through default: %s", got)
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	d := params(t, `{"day":"a:b ü","empty":"","n":5,"none":null,"list":["x"],"on":true}`)
	for text, want := range map[string]string{
		"--day={{ .Params.day }}": "--day=a:b ü",
		"{{ .Params.empty }}":     "",
		"":                        "",
		"no template":             "no template",
		"{{ if .Params.on }}on{{ else }}off{{ end }}":                     "on",
		"{{ with .Params }}{{ .n }}{{ end }}":                             "5",
		`{{ if eq .Params.n "5" }}five{{ else if .Params.on }}x{{ end }}`: "five",
		"{{ with $x := .Params.day }}{{ $x }}{{ end }}":                   "a:b ü",
		"{{ $x := .Params.n }}{{ $x }}{{ $x }}":                           "55",
		`{{ index .Params.list 0 }}{{ len .Params.list }}`:                "x1",
		`{{ .Params.none | default "null" }}`:                             "null",
		`{{ if and .Params.on (not .Params.empty) }}y{{ end }}`:           "y",
		`{{ 1.5 }}{{ true }}{{ 3 }}`:                                      "1.5true3",
	} {
		if got := mustRender(t, text, render.Text, d); got != want {
			t.Errorf("%s gave %q, want %q", text, got, want)
		}
	}
}

// TestURLs: a value that is inserted into a path, a query or a form stays one
// value there.
func TestURLs(t *testing.T) {
	t.Parallel()
	d := params(t, `{"v": "a/b?c=d&e #f%2F;ü+", "n": 9007199254740993, "empty": ""}`)
	for text, want := range map[string]string{
		"/x/{{ .Params.v }}-{{ .Params.n }}": "/x/a%2Fb%3Fc%3Dd%26e%20%23f%252F%3B%C3%BC%2B-9007199254740993",
		"{{ .Params.n }}{{ .Params.n }}/%2F": "90071992547409939007199254740993/%2F",
		`/{{ if .Params.empty }}x{{ end }}/`: "//",
	} {
		for _, kind := range []render.Kind{render.Path, render.Query} {
			if got := mustRender(t, text, kind, d); got != want {
				t.Errorf("%s gives %s, want %s", text, got, want)
			}
		}
	}
	if got := mustRender(t, "?q={{ .Params.empty }}", render.Query, d); got != "?q=" {
		t.Errorf("an empty value in a query gives %q", got)
	}
	if _, err := parse(t, "/users/{{ .Params.empty }}", render.Path).Render(d); !errors.Is(err, render.ErrMissing) || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty value in a path: %v", err)
	}
}

// TestMissing: a part without a value is an error that names it, never text.
func TestMissing(t *testing.T) {
	t.Parallel()
	d := params(t, `{"empty":"","none":null,"in":{}}`)
	for text, part := range map[string]string{
		"{{ .Params.absent }}":                 "absent",
		"a:{{ .Params.in.absent }}":            ".Params.in.absent",
		"{{ .Params.none }}":                   ".Params.none",
		"{{ .Params.absent | lower }}":         "absent",
		"{{ .Params.none | lower }}":           "lower",
		`{{ index .Params "absent" }}`:         "index .Params",
		"{{ .Tick.Prev | date }}":              "date",
		"{{ .Tick.Local }}":                    ".Tick.Local",
		"{{ .Tick.Local | addDays 1 | hour }}": "addDays",
	} {
		for _, kind := range []render.Kind{render.Key, render.Text} {
			got, err := parse(t, text, kind).Render(d)
			var m *render.MissingError
			if !errors.As(err, &m) || !errors.Is(err, render.ErrMissing) || !errors.Is(err, idempotency.ErrKeyMissing) || got != "" {
				t.Errorf("%s gave %q, %v", text, got, err)
				continue
			}
			if !strings.Contains(m.Part, part) || m.Template != "test" || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: part %q, error %v", text, m.Part, err)
			}
		}
	}
	for text, part := range map[string]string{
		"k:{{ .Params.empty }}":                        ".Params.empty",
		"{{ .Job }}":                                   ".Job",
		`{{ .Params.x | default "" }}:x`:               "default",
		"{{ .Params.empty | lower }}:{{ .Task.Name }}": "lower",
	} {
		if got, err := parse(t, text, render.Key).Render(d); !errors.Is(err, render.ErrMissing) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s gave %q, %v", text, got, err)
		}
	}
	if _, err := parse(t, "{{ .Params.x }}", render.Key).Render(render.Data{}); !errors.Is(err, render.ErrMissing) {
		t.Errorf("no params at all: %v", err)
	}
}

func TestBadValues(t *testing.T) {
	t.Parallel()
	d := params(t, `{"list":[1],"text":"x"}`)
	for _, text := range []string{
		"{{ .Params.list }}", "{{ .Params }}", "{{ .Params.text.deeper }}", "{{ .Params.text | date }}", `{{ .Tick }}`, "{{ . }}", "{{ json . }}",
		"{{ .Params.text | addDays 1 | date }}", "{{ .Now }}",
	} {
		if got, err := parse(t, text, render.Text).Render(d); err == nil || errors.Is(err, render.ErrMissing) {
			t.Errorf("%s gave %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`{{ .Tick.Local | addDays 1.5 | date }}`, `{{ .Tick.Local | addDays 99999999 | date }}`, `{{ .Tick.Local.Unix }}`, `{{ .Tick.Local.Local | date }}`, `{{ .Tick.Local.t }}`} {
		if got, err := parse(t, text, render.Key).Render(fold(t)); !errors.Is(err, render.ErrValue) {
			t.Errorf("%s gave %q, %v", text, got, err)
		}
	}
}

// TestI04_Impure: a key that holds the clock, a random value, the attempt or the
// id never matches, so what asks for one is refused when the file is loaded.
func TestI04_Impure(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{{ now }}", "{{ uuid }}", "{{ .Tick.Local | random }}", `{{ env "HOME" }}`, "{{ attempt }}",
		`{{ printf "%v" .Job }}`, "{{ print .Job }}", "{{ println .Job }}", "{{ call .Job }}", "{{ html .Job }}", "{{ urlquery .Job }}", "{{ js .Job }}", "{{ slice .Job 1 }}",
		"{{ _key `a` .Job }}", "{{ _text `a` .Job }}", "{{ _opt .Params }}",
	} {
		for _, kind := range []render.Kind{render.Key, render.Text} {
			if _, err := render.Parse("k", text, kind); !errors.Is(err, render.ErrSyntax) || !strings.Contains(err.Error(), "known are date, hour") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	for text, what := range map[string]string{
		"{{ .Now }}": ".Now", "{{ .Attempt }}": ".Attempt", "{{ .ID }}": ".ID", "{{ .UUID }}": ".UUID", "{{ .Task.ID }}": ".Task.ID",
		"{{ .Task }}": ".Task", "{{ .Tick }}": ".Tick", "{{ .Tick.Now }}": ".Tick.Now", "{{ .Tick.Local.Unix }}": ".Tick.Local.Unix",
		"{{ . }}": "no .", "{{ $ }}": "no .", "{{ $.Now }}": ".Now", "{{ json . }}": "no .", "{{ .Job.Name }}": ".Job.Name",
		`x{{ .Params.a | default .Now }}`: ".Now", "{{ (lower .Now) | lower }}": ".Now", "{{ .tick.Local }}": ".tick.Local",
	} {
		tmpl, err := render.Parse("k", text, render.Key)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		err = tmpl.CheckPure(".Tick", ".Job", ".Params", ".Task")
		if !errors.Is(err, render.ErrImpure) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), ".Tick.Local") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, inside := range map[string]string{
		"{{ with .Params }}{{ $.Now }}{{ end }}":            ".Now",
		"{{ with $.Tick.Prev }}{{ hour . }}{{ end }}":       "",
		"{{ with .Params }}{{ .x }}{{ end }}":               "",
		"{{ if .Now }}x{{ end }}":                           ".Now",
		"{{ with .Job }}{{ else }}{{ .Now }}{{ end }}":      ".Now",
		"{{ with lower .Job }}{{ .Now }}{{ $.Now }}{{end}}": ".Now",
	} {
		err := parse(t, text, render.Text).CheckPure(".Tick", ".Job", ".Params", ".Task")
		if (inside == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), inside) {
			t.Errorf("%s: %v", text, err)
		}
	}
	// What is known elsewhere is not known here.
	if err := parse(t, "{{ .Params.day }}", render.Key).CheckPure(".Tick", ".Job"); !errors.Is(err, render.ErrImpure) || !strings.Contains(err.Error(), ".Tick.Local") {
		t.Errorf("params in a job: %v", err)
	}
	if err := parse(t, "{{ .Params.day }}:{{ .Task.Name }}", render.Key).CheckPure(".Params", ".Task"); err != nil {
		t.Error(err)
	}
	if err := parse(t, "report:{{ .Tick.Local | hour }}", render.Key).CheckPure(".Tick", ".Job"); err != nil {
		t.Error(err)
	}
}

func TestSyntax(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{{", "{{ .Job", "{{ }}", "{{ end }}", "{{ if .Job }}", `{{ .Tick.Local | in "Mars/Base" | date }}`, `{{ in "Local" .Tick.Local }}`, `{{ in "" .Tick.Local }}`,
		"{{ range .Params.list }}x{{ end }}", "{{ range 1000000000 }}x{{ end }}", `{{ define "x" }}a{{ end }}b`, `{{ block "x" . }}a{{ end }}`, `{{ template "x" }}`,
		"{{ break }}", strings.Repeat("x", 8193), strings.Repeat("{{ (", 3000),
	} {
		for _, kind := range []render.Kind{render.Key, render.Text} {
			if tmpl, err := render.Parse("k", text, kind); !errors.Is(err, render.ErrSyntax) {
				t.Errorf("%.40s: %v, %v", text, tmpl, err)
			}
		}
	}
	for _, text := range []string{
		"", " \n", "{{ if .Job }}x{{ end }}", "{{ with .Job }}{{ . }}{{ end }}", "{{ $x := .Job }}{{ $x }}",
		// Two values that nothing keeps apart: "a-b" "c" and "a" "b-c" would be one.
		"{{ .Job }}{{ .Params.a }}", "{{ .Params.a }}-{{ .Params.b }}", "{{ .Params.a }}x_{{ .Params.b }}", "{{ .Params.a }}%3A{{ .Params.b }}",
		"{{ .Params.a }}{{ .Tick.Local | hour }}", "{{ .Tick.Local | unix }}0{{ .Params.a }}", "{{ .Tick.Local | hour | lower }}{{ .Job }}",
	} {
		if tmpl, err := render.Parse("k", text, render.Key); !errors.Is(err, render.ErrSyntax) {
			t.Errorf("%q: %v, %v", text, tmpl, err)
		}
	}
	if _, err := render.Parse("k", "x", 0); !errors.Is(err, render.ErrSyntax) {
		t.Errorf("no kind: %v", err)
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"report":                                {},
		"{{ .Job }}":                            {".Job"},
		"{{ .Tick.Local | date }}":              {".Tick", ".Tick.Local"},
		"{{ .Params.a.b }}":                     {".Params", ".Params.a", ".Params.a.b"},
		"{{ .Params | json }}":                  {".Params", ".Params.a", ".Params.a.b"},
		`{{ default "x" .Params.a }}`:           {".Params", ".Params.a", ".Params.a.b"},
		"{{ (.Tick.Next | addDays 1) | date }}": {".Tick"},
	} {
		tmpl := parse(t, text, render.Key)
		for _, root := range []string{".Tick", ".Tick.Local", ".Job", ".Params", ".Params.a", ".Params.a.b"} {
			if got := tmpl.Uses(root); got != slices.Contains(want, root) {
				t.Errorf("%s uses %s: %v", text, root, got)
			}
		}
	}
}

// TestKeysNeverCollide: over all pairs of a nasty set of values, two different
// rows never give one key. The plain join in the same test does.
func TestKeysNeverCollide(t *testing.T) {
	t.Parallel()
	nasty := []string{"a", "b", "a:b", ":", "::", "a%3Ab", "%", "%25", "3A", "-", "a-", "-a", "a/b", "/", "ü", "+", "2026-10-25", "2026-10-25T02+02:00", ".", "a.b", " ", "\n", "A", "~"}
	tmpl := parse(t, "{{ .Params.a }}:{{ .Params.b }}/{{ .Params.c }}", render.Key)
	seen, naive := map[string]string{}, map[string]bool{}
	collided := 0
	for _, a := range nasty {
		for _, b := range nasty {
			for _, c := range nasty {
				key, err := tmpl.Render(render.Data{Params: map[string]any{"a": a, "b": b, "c": c}})
				if err != nil {
					t.Fatal(err)
				}
				row := fmt.Sprintf("%q %q %q", a, b, c)
				if other, taken := seen[key]; taken {
					t.Fatalf("%s and %s are both %s", other, row, key)
				}
				seen[key] = row
				joined := a + ":" + b + "/" + c
				if naive[joined] {
					collided++
				}
				naive[joined] = true
			}
		}
	}
	if collided == 0 {
		t.Error("the plain join has no collision: this test shows nothing")
	}
	t.Logf("%d rows; joined without escapes %d collide", len(seen), collided)
}

func TestParams(t *testing.T) {
	t.Parallel()
	raw := func(s ...string) (list []json.RawMessage) {
		for _, x := range s {
			list = append(list, json.RawMessage(x))
		}
		return list
	}
	p, err := render.Params([]string{"id", "amount", "note"}, raw(`"p7"`, `9007199254740993`), map[string]json.RawMessage{"currency": []byte(`"EUR"`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(p)); !slices.Equal(got, []string{"amount", "currency", "id"}) || p["amount"] != json.Number("9007199254740993") || p["id"] != "p7" {
		t.Errorf("params %v", p)
	}
	if p, err := render.Params([]string{"a"}, raw("1", "2"), nil); err != nil || len(p) != 1 {
		t.Errorf("an argument without a name: %v, %v", p, err)
	}
	if _, err := render.Params([]string{"a"}, raw("1"), map[string]json.RawMessage{"a": []byte("2")}); !errors.Is(err, render.ErrValue) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("given twice: %v", err)
	}
	if _, err := render.Params(nil, nil, map[string]json.RawMessage{"a": []byte(`"\ud800"`)}); !errors.Is(err, render.ErrValue) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("half a surrogate pair: %v", err)
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	tree, err := render.ParseTree("kwargs", map[string]any{
		"day": "{{ .Tick.Local | date }}", "n": json.Number("9007199254740993"), "i": 3, "f": 1.5, "on": true, "none": nil, "u": uint64(1 << 63),
		"list": []any{"{{ .Job }}", "<plain>", map[string]any{"{{ .Job }}": "{{ .Tick.UTC | hour }}"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tree.JSON(fold(t))
	want := `{"day":"2026-10-25","f":1.5,"i":3,"list":["hourly-report","<plain>",{"{{ .Job }}":"2026-10-25T01+00:00"}],"n":9007199254740993,"none":null,"on":true,"u":9223372036854775808}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	if err := tree.CheckPure(".Tick", ".Job"); err != nil || !tree.Uses(".Tick") || tree.Uses(".Params") {
		t.Errorf("pure %v, tick %v, params %v", err, tree.Uses(".Tick"), tree.Uses(".Params"))
	}
	bad, err := render.ParseTree("args", []any{map[string]any{"x": "{{ .Now }}", "y": "{{ .Tick.Prev | date }}"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.CheckPure(".Tick"); !errors.Is(err, render.ErrImpure) || !strings.HasPrefix(err.Error(), "args[0].x: ") {
		t.Errorf("got %v", err)
	}
	one, err := render.ParseTree("kwargs.day", "{{ .Tick.Prev | date }}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.JSON(render.Data{}); !errors.Is(err, render.ErrMissing) || !strings.HasPrefix(err.Error(), "kwargs.day: ") {
		t.Errorf("got %v", err)
	}
	deep := any("x")
	for range 100 {
		deep = []any{deep}
	}
	for name, v := range map[string]any{"syntax": map[string]any{"a": []any{"{{ now }}"}}, "type": map[string]any{"a": time.Time{}}, "deep": deep, "nan": []any{nan()}} {
		if _, err := render.ParseTree("kwargs", v); !errors.Is(err, render.ErrSyntax) && !errors.Is(err, render.ErrValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = render.ParseTree("kwargs", map[string]any{"a": "{{ now }}", "b": "{{ uuid }}"})
	if err == nil || !strings.Contains(err.Error(), "kwargs.a: ") || !strings.Contains(err.Error(), "kwargs.b: ") {
		t.Errorf("both mistakes in one error: %v", err)
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

// FuzzTemplate: no text makes the parser, the checks or the rendering panic or
// hang, and what renders once renders the same again.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"report:{{ .Tick.Local | hour }}", "{{ .Params.a }}:{{ .Params.b }}", `{{ default "x" .Params.y | lower }}`, "{{ with .Tick }}{{ .Prev | addDays -1 | date }}{{ end }}",
		`{{ if eq .Params.a "x" }}{{ json .Params }}{{ end }}`, `{{ $x := index .Params "a" }}{{ $x }}`, `{{ (in "UTC" .Tick.Local) | unix }}`, "{{/* c */}}", "{{ range 9 }}", "{{ .Job | _key `x` }}",
	} {
		f.Add(s, "v")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		d := render.Data{
			Tick: &render.Tick{Local: time.Unix(1792891800, 0).UTC()}, Job: value, Task: "t",
			Params: map[string]any{"a": value, "b": json.Number("1"), "c": []any{value, nil}, "d": map[string]any{"e": value}},
		}
		for _, kind := range []render.Kind{render.Key, render.Text, render.Path, render.Query} {
			tmpl, err := render.Parse("f", text, kind)
			if err != nil {
				continue
			}
			_ = tmpl.CheckPure(".Tick", ".Job", ".Params", ".Task")
			a, errA := tmpl.Render(d)
			b, errB := tmpl.Render(d)
			if a != b || (errA == nil) != (errB == nil) {
				t.Errorf("%q gave %q, %v and %q, %v", text, a, errA, b, errB)
			}
			if errA != nil && a != "" {
				t.Errorf("%q gave %q beside its error %v", text, a, errA)
			}
		}
	})
}
