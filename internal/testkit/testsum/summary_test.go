package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each case is a module of its own, run by the real `go test`.
func TestSummary(t *testing.T) {
	const (
		imports = "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n\t\"time\"\n)\n\nvar _ = os.Exit\nvar _ = time.Now\nvar _ testing.TB\n\n"
		pass    = "func TestPass(t *testing.T) { t.Run(\"sub\", func(t *testing.T) {}) }\n"
	)
	cases := map[string]struct {
		source string
		args   []string
		code   int
		last   string
		shows  []string
		hides  []string
	}{
		"all pass": {
			source: imports + pass + "func TestTalks(t *testing.T) { t.Log(\"chatter\") }\n",
			last:   "3 passed, 0 failed", shows: []string{"ok    example"}, hides: []string{"chatter"},
		},
		"one fails": {
			source: imports + pass + "func TestFail(t *testing.T) { t.Error(\"the reason\") }\n",
			code:   1, last: "2 passed, 1 failed", shows: []string{"the reason", "FAIL  example"},
		},
		"one skips": {
			source: imports + pass + "func TestSkip(t *testing.T) { t.Skip() }\n",
			code:   1, last: "2 passed, 0 failed", shows: []string{"skipped: example TestSkip", "1 skipped"},
		},
		"none runs": {
			source: imports, code: 1, last: "0 passed, 0 failed", shows: []string{"no test ran"},
		},
		"it does not build": {
			source: imports + "func TestX(t *testing.T) { nonsense() }\n",
			code:   1, last: "0 passed, 1 failed", shows: []string{"undefined: nonsense"},
		},
		"it panics": {
			source: imports + pass + "func TestPanic(t *testing.T) { panic(\"the cause\") }\n",
			code:   1, last: "2 passed, 1 failed", shows: []string{"the cause"},
		},
		"it exits": {
			source: imports + pass + "func TestMain(m *testing.M) { m.Run(); println(\"a leak\"); os.Exit(1) }\n",
			code:   1, last: "2 passed, 1 failed", shows: []string{"a leak"},
		},
		"it hangs": {
			source: imports + "func TestHang(t *testing.T) { time.Sleep(time.Hour) }\n",
			args:   []string{"-timeout", "300ms"},
			code:   1, last: "0 passed, 1 failed", shows: []string{"TestHang", "panic: test timed out"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Chdir(newModule(t, c.source))
			var out, errs bytes.Buffer
			code := run(append(c.args, "./..."), &out, &errs)
			text := out.String()
			lines := strings.Split(strings.TrimSpace(text), "\n")
			if last := lines[len(lines)-1]; code != c.code || last != c.last {
				t.Errorf("exit code %d, last line %q; want %d, %q", code, last, c.code, c.last)
			}
			if !regexp.MustCompile(`^\d+ passed, \d+ failed$`).MatchString(lines[len(lines)-1]) {
				t.Error("the last line is not the plain count")
			}
			for _, want := range c.shows {
				if !strings.Contains(text, want) {
					t.Errorf("does not show %q", want)
				}
			}
			for _, not := range c.hides {
				if strings.Contains(text, not) {
					t.Errorf("shows %q", not)
				}
			}
			if t.Failed() {
				t.Log(text, errs.String())
			}
		})
	}
}

func newModule(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example\n\ngo 1.26\n", "p_test.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
