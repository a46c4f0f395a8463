package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/solobeat/solobeat/scheduler"
)

// secretURL is put into files; what stands in it shows in no message.
const secretURL = "redis://:hunter2secret@host:6379/0"

// seeds adds the files of testdata whose names begin so.
func seeds(f *testing.F, prefix string) {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "*", prefix+"*.yaml"))
	if err != nil || len(paths) < 50 {
		f.Fatal(len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
}

// lineBreaks are those of YAML, and those by which bytes that are no YAML are
// told; a carriage return alone is one of the first only.
var lineBreaks = []*regexp.Regexp{regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]"), regexp.MustCompile("\n")}

// inside reports whether a place is one of the text, or just behind a line of it.
func inside(text []byte, line, col int) bool {
	for _, breaks := range lineBreaks {
		lines := append(breaks.Split(string(text), -1), "")
		if line >= 1 && col >= 1 && line <= len(lines) && col <= len([]rune(lines[line-1]))+1 {
			return true
		}
	}
	return false
}

// told checks what holds for all that is said of a text: each error has a place
// in it and a cure, and no secret is shown.
func told(t *testing.T, text []byte, ps Problems, err error) {
	t.Helper()
	if (err == nil) != (len(ps.Errors()) == 0) {
		t.Errorf("error %v, problems %v", err, ps)
	}
	for _, p := range ps {
		if !inside(text, p.Line, p.Col) || p.File != "f" || p.Message == "" || p.Cure == "" && !p.Warning {
			t.Errorf("%+v", p)
		}
		if s := p.String(); strings.Contains(s, "hunter2secret") {
			t.Errorf("a secret: %s", s)
		}
	}
}

// FuzzScheduleFile: whatever the text is, it is loaded, to the same jobs each
// time, and fits the schema, or each of its mistakes has a place in it.
func FuzzScheduleFile(f *testing.F) {
	seeds(f, "schedule")
	f.Add([]byte("version: 1\njobs: {a: {task: " + secretURL + ", every: 1h, queue: " + secretURL + ", lock: {key: " + secretURL + "}}}\n"))
	schema := compileSchemas(f).schedule
	f.Fuzz(func(t *testing.T, text []byte) {
		jobs, ps, err := ParseSchedule("f", text)
		told(t, text, ps, err)
		again, _, errAgain := ParseSchedule("f", text)
		if (err == nil) != (errAgain == nil) {
			t.Errorf("%v, then %v", err, errAgain)
		}
		IsScheduleFile(text)
		if err != nil {
			return
		}
		if diff := cmp.Diff(jobs, again, cmpopts.IgnoreUnexported(scheduler.Job{}), cmpopts.IgnoreFields(scheduler.Job{}, "Schedule")); diff != "" {
			t.Errorf("the same text gives two things:\n%s", diff)
		}
		for i, j := range jobs {
			if j.Revision() != again[i].Revision() {
				t.Errorf("job %s has two revisions", j.Name)
			}
			if err := j.Validate(); err != nil {
				t.Errorf("job %s is loaded and not valid: %v", j.Name, err)
			}
		}
		if err := schema.CheckYAML(text); err != nil {
			t.Errorf("loaded, and the schema refuses it: %v", err)
		}
	})
}

// FuzzConfigFile is FuzzScheduleFile for solobeat.yaml.
func FuzzConfigFile(f *testing.F) {
	seeds(f, "solobeat")
	f.Add([]byte("redis: {url: " + secretURL + ", results_url: " + secretURL + "}\nworker: {name: " + secretURL + ", queues: " + secretURL + "}\n"))
	f.Add([]byte("tasks:\n  t:\n    webhook: {url: \"https://u:hunter2secret@host:x/\", headers: {A: \"" + secretURL + "\"}, method: " + secretURL + "}\n"))
	schema := compileSchemas(f).config
	f.Fuzz(func(t *testing.T, text []byte) {
		c, ps, err := parseConfig(newDecoder("f"), text, nil)
		told(t, text, ps, err)
		again, _, errAgain := parseConfig(newDecoder("f"), text, nil)
		if (err == nil) != (errAgain == nil) {
			t.Errorf("%v, then %v", err, errAgain)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Task{})); diff != "" {
			t.Errorf("the same text gives two things:\n%s", diff)
		}
		if err := schema.CheckYAML(text); err != nil {
			t.Errorf("loaded, and the schema refuses it: %v", err)
		}
	})
}
