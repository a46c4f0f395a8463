package render_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/render"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "aZ09._~-": "aZ09._~-", "a:b/c": "a%3Ab%2Fc", "100%": "100%25", "ü": "%C3%BC", "\x00": "%00", "%3A": "%253A",
	} {
		if got := render.Escape(in); got != want {
			t.Errorf("%q gave %q, want %q", in, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a:b", "a%3Ab")
	f.Fuzz(func(t *testing.T, a, b string) {
		ea, eb := render.Escape(a), render.Escape(b)
		if (ea == eb) != (a == b) {
			t.Errorf("%q and %q give %q and %q", a, b, ea, eb)
		}
		if strings.ContainsAny(ea, ":/|#@ +") {
			t.Errorf("%q gives %q", a, ea)
		}
	})
}

func TestValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"\ud83d\ude00"`: "😀", `"\ufffd"`: "\ufffd", `"\\ud800"`: `\ud800`, `"\u00e4\\"`: `ä\`, `"a\"\\\ud83d\ude00"`: `a"\😀`,
	} {
		if v, err := render.Value([]byte(text)); err != nil || v != want {
			t.Errorf("%s: %q, %v", text, v, err)
		}
	}
	for _, text := range []string{`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, `"\\\ud83d"`, `"\ud83d\\ude00"`, "\"\xff\"", `"\ud83d\ude00\ud83d"`, `{"\udbff":1}`} {
		if v, err := render.Value([]byte(text)); err == nil {
			t.Errorf("%s: %q, %v", text, v, err)
		}
	}
	for _, text := range []string{``, `1 2`, `[1`, `nul`, `1]`} {
		if v, err := render.Value([]byte(text)); err == nil {
			t.Errorf("%s: %v", text, v)
		}
	}
	if v, err := render.Value([]byte(" 9007199254740993\n")); err != nil || v != json.Number("9007199254740993") {
		t.Errorf("%v, %v", v, err)
	}
}

// What is read by hand is what the decoder reads.
func FuzzValue(f *testing.F) {
	for _, text := range []string{`17`, `-0.5e+3`, `"a"`, `"a\nb"`, `"`, `""`, `-`, `01`, `1.`, `"a"b"`, `true`, `{"a":1}`, ` 1`, `1 `, `"\ud800"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := render.Value([]byte(text))
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var want any
		if derr := d.Decode(&want); derr != nil || d.More() {
			if err == nil {
				t.Fatalf("%q gives %v, and the decoder %v", text, got, derr)
			}
			return
		}
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	})
}
