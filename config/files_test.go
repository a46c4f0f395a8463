package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the want lines of testdata anew")

const wantPrefix = "# want: "

// check reads a file of either kind.
func check(t *testing.T, path string, text []byte) (Problems, error) {
	t.Helper()
	if strings.HasPrefix(filepath.Base(path), "schedule") {
		jobs, ps, err := ParseSchedule(path, text)
		if (err == nil) != (len(ps.Errors()) == 0) || err != nil && jobs != nil {
			t.Errorf("%s: error %v, %d jobs, problems %v", path, err, len(jobs), ps)
		}
		return ps, err
	}
	c, ps, err := parseConfig(newDecoder(path), text, nil)
	if (err == nil) != (len(ps.Errors()) == 0) || (err == nil) != (c != nil) {
		t.Errorf("%s: error %v, config %v, problems %v", path, err, c, ps)
	}
	return ps, err
}

// lines are the problems without the file's name.
func lines(path string, ps Problems) []string {
	out := make([]string, 0, len(ps))
	for _, p := range ps {
		out = append(out, strings.TrimPrefix(p.String(), path+":"))
	}
	return out
}

// splitWants takes the want lines off the beginning of a file.
func splitWants(text []byte) (wants []string, body []byte) {
	for bytes.HasPrefix(text, []byte(wantPrefix)) {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		wants = append(wants, string(line[len(wantPrefix):]))
		text = rest
	}
	return wants, text
}

// rewrite puts what a file gives into its want lines.
func rewrite(t *testing.T, path string, body []byte) {
	t.Helper()
	ps, _ := check(t, path, body)
	blank := strings.Repeat("#\n", len(ps))
	ps, _ = check(t, path, append([]byte(blank), body...))
	var b bytes.Buffer
	for _, l := range lines(path, ps) {
		b.WriteString(wantPrefix + l + "\n")
	}
	b.Write(body)
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func eachFile(t *testing.T, folder string, test func(t *testing.T, path string, text []byte)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			test(t, path, text)
		})
	}
}

// Each file has one mistake, or several that are all told in one run, and says
// in its first lines what is to be told of it.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	eachFile(t, "bad", func(t *testing.T, path string, text []byte) {
		wants, body := splitWants(text)
		if *update {
			rewrite(t, path, body)
			return
		}
		ps, err := check(t, path, text)
		if err == nil {
			t.Error("the file is loaded")
		}
		if diff := cmp.Diff(wants, lines(path, ps)); diff != "" {
			t.Errorf("want - got +\n%s", diff)
		}
		wellFormed(t, ps)
	})
}

// Each file is loaded, with the warnings of its first lines.
func TestWarnedFiles(t *testing.T) {
	t.Parallel()
	eachFile(t, "warn", func(t *testing.T, path string, text []byte) {
		wants, body := splitWants(text)
		if *update {
			rewrite(t, path, body)
			return
		}
		ps, err := check(t, path, text)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(wants, lines(path, ps)); diff != "" || len(ps) == 0 {
			t.Errorf("want - got +\n%s", diff)
		}
		wellFormed(t, ps)
	})
}

func TestGoodFiles(t *testing.T) {
	t.Parallel()
	eachFile(t, "good", func(t *testing.T, path string, text []byte) {
		if ps, err := check(t, path, text); err != nil || len(ps) > 0 {
			t.Errorf("%v", ps)
		}
		schedule := strings.HasPrefix(filepath.Base(path), "schedule")
		if IsScheduleFile(text) != schedule {
			t.Errorf("IsScheduleFile is %v", !schedule)
		}
	})
}

// wellFormed checks what holds for all that is told: a place, a cure for each
// error, nothing twice, no secret.
func wellFormed(t *testing.T, ps Problems) {
	t.Helper()
	type place struct {
		line, col int
		path      string
	}
	seen := map[place]string{}
	for _, p := range ps {
		if p.Line < 1 || p.Col < 1 {
			t.Errorf("no place: %s", p)
		}
		if p.Cure == "" && !p.Warning {
			t.Errorf("no cure: %s", p)
		}
		if s := p.String(); strings.Contains(s, "hunter2") || strings.Contains(s, "ter2") {
			t.Errorf("a secret: %s", s)
		}
		if p.Warning {
			continue
		}
		at := place{p.Line, p.Col, p.Path}
		if first, twice := seen[at]; twice {
			t.Errorf("told twice: %s; %s", first, p)
		}
		seen[at] = p.Message
	}
}
