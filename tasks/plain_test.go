package tasks_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/tasks"
)

type named string

// plainIn is filled without encoding/json, slowIn, for its last field, with it.
type plainIn struct {
	I  int     `json:"i"`
	I8 int8    `json:"i8"`
	U  uint16  `json:"u"`
	F  float64 `json:"f"`
	G  float32 `json:"g"`
	B  bool    `json:"b"`
	S  named   `json:"s,omitempty"`
	Up string
}

type slowIn struct {
	plainIn

	Not int `json:"-"`
}

func samePlain(t *testing.T, task *tasks.Task) {
	t.Helper()
	var fast, slow plainIn
	var fastRan, slowRan bool
	_, fastErr := call(t, func(_ context.Context, v plainIn) (any, error) { fast, fastRan = v, true; return nil, nil }, task)
	_, slowErr := call(t, func(_ context.Context, v slowIn) (any, error) { slow, slowRan = v.plainIn, true; return nil, nil }, task)
	if fastRan != slowRan || (fastErr == nil) != (slowErr == nil) {
		t.Fatalf("args %s, kwargs %s: %v, encoding/json: %v", task.Args, task.Kwargs, fastErr, slowErr)
	}
	if diff := cmp.Diff(slow, fast); diff != "" {
		t.Fatalf("args %s, kwargs %s, by encoding/json (-) and without (+):\n%s", task.Args, task.Kwargs, diff)
	}
	var through *plainIn
	_, err := call(t, func(_ context.Context, v *plainIn) (any, error) { through = v; return nil, nil }, task)
	if err == nil && (through == nil || *through != fast) || (err == nil) != (fastErr == nil) {
		t.Fatalf("args %s, kwargs %s: through a pointer %+v, %v", task.Args, task.Kwargs, through, err)
	}
}

var plainTexts = []string{
	`0`, `-0`, `1`, `-1`, `127`, `128`, `-129`, `65536`, `9223372036854775807`, `9223372036854775808`, `01`, `+1`, `1_0`, `0x1`, ` 1`, `1 `,
	`1.0`, `1.5`, `1e2`, `-1.5E-3`, `1e400`, `3.5e38`, `.5`, `5.`, `NaN`, `Infinity`, `-Infinity`, `inf`, `-`, ``,
	`true`, `false`, `True`, `tru`, `null`, `nul`, `"a"`, `"grüße"`, `"\u00e4"`, `"\n"`, "\"\n\"", "\"\xff\"", "\"\x7f\"", `"`, `""`, `"a"b"`,
	`[]`, `{}`, `[1]`, `1, "i8": 2`,
}

func TestPlainArguments(t *testing.T) {
	t.Parallel()
	names := []string{"i", "i8", "u", "f", "g", "b", "s", "Up", "I", "up", "other"}
	for _, text := range plainTexts {
		for n, name := range names {
			samePlain(t, &tasks.Task{Kwargs: map[string]json.RawMessage{name: json.RawMessage(text)}})
			samePlain(t, &tasks.Task{Args: append(raws(`1`, `2`, `3`, `4`, `5`, `true`, `"s"`, `"up"`, `9`)[:n%9], json.RawMessage(text))})
			samePlain(t, &tasks.Task{Args: raws(text), Kwargs: map[string]json.RawMessage{name: json.RawMessage(`1`)}})
		}
	}
	samePlain(t, &tasks.Task{})
}

func FuzzPlainArguments(f *testing.F) {
	for i, text := range plainTexts {
		f.Add(text, uint8(i), `"x"`, `up`)
	}
	f.Fuzz(func(t *testing.T, text string, at uint8, other, name string) {
		args := raws(`1`, `2`, `3`, `4`, `5`, `true`, `"s"`, `"up"`)[:at%8]
		samePlain(t, &tasks.Task{
			Args:   append(args, json.RawMessage(text)),
			Kwargs: map[string]json.RawMessage{name: json.RawMessage(other)},
		})
	})
}

// An argument that the struct treats in another way is left to encoding/json.
func TestArgumentsThatAreNotPlain(t *testing.T) {
	t.Parallel()
	one := &tasks.Task{Args: raws(`"7"`)}
	type quoted struct {
		N int `json:"n,string"`
	}
	if _, err := call(t, func(_ context.Context, v quoted) (any, error) {
		if v.N != 7 {
			t.Errorf("quoted number: %d", v.N)
		}
		return nil, nil
	}, one); err != nil {
		t.Error(err)
	}
	type readsItself struct{ N upside }
	if _, err := call(t, func(_ context.Context, v readsItself) (any, error) {
		if v.N != math.MaxInt {
			t.Errorf("type with a method of its own: %d", v.N)
		}
		return nil, nil
	}, &tasks.Task{Args: raws(`7`)}); err != nil {
		t.Error(err)
	}
}

type upside int

func (u *upside) UnmarshalJSON([]byte) error { *u = math.MaxInt; return nil }

func BenchmarkRegister(b *testing.B) {
	var reg tasks.Registry
	type noop struct {
		I int64 `json:"i"`
		J int64 `json:"j"`
	}
	if err := tasks.Register(&reg, "t", func(context.Context, noop) (any, error) { return nil, nil }); err != nil {
		b.Fatal(err)
	}
	h, _ := reg.Lookup("t")
	task := &tasks.Task{Args: raws(`1`, `2`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Handle(b.Context(), task); err != nil {
			b.Fatal(err)
		}
	}
}
