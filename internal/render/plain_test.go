package render

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A plain key is rendered as text/template would, or left to it.
func TestPlainKeyIsTheTemplates(t *testing.T) {
	t.Parallel()
	values := []any{"a", "a:b/ü%", "", json.Number("12.50"), json.Number("9007199254740993"), true, nil, []any{"x"}, 7}
	plain := map[Kind]int{}
	texts := []string{
		"order:{{ .Params.id }}", "{{ .Params.id }}", "a{{- .Params.id -}} :{{ .Params.other }}/", "fixed", "{{/* no */}}x{{ .Params.id }}",
		"{{ .Params.id | lower }}", "{{ .Params.id | default \"none\" }}", "{{ .Task.Name }}:{{ .Params.id }}", "{{ .Params.missing }}",
		"{{ .Params.id.deep }}",
	}
	for _, kind := range []Kind{Text, Key, Path, Query} {
		for _, text := range texts {
			tmpl, err := Parse("key", text, kind)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			slow := *tmpl
			slow.plain = nil
			if tmpl.plain != nil {
				plain[kind]++
			}
			for _, v := range values {
				d := Data{Task: "shop.pay", Params: map[string]any{"id": v, "other": "o"}}
				got, err := tmpl.Render(d)
				want, wantErr := slow.Render(d)
				if got != want || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
					t.Errorf("kind %d, %s with %v: %q, %v; the template says %q, %v", kind, text, v, got, err, want, wantErr)
				}
			}
		}
	}
	if diff := cmp.Diff(map[Kind]int{Text: 6, Key: 6}, plain); diff != "" {
		t.Error("taken for plain ones: ", diff)
	}
}

func BenchmarkPlainKey(b *testing.B) {
	tmpl, err := Parse("key", "order:{{ .Params.id }}", Key)
	if err != nil {
		b.Fatal(err)
	}
	d := Data{Params: map[string]any{"id": "4711"}}
	for b.Loop() {
		if _, err := tmpl.Render(d); err != nil {
			b.Fatal(err)
		}
	}
}
