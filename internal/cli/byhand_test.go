package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/cli"
	"github.com/solobeat/solobeat/internal/testkit"
)

// jobsEnv is a store that knows the jobs a and b, and their file.
func jobsEnv(t *testing.T) map[string]string {
	t.Helper()
	srv := testkit.Redis(t)
	c := srv.Client(t)
	file := filepath.Join(t.TempDir(), "schedule.yaml")
	text := "version: 1\njobs:\n  a: {task: t, every: 1h}\n  b: {task: t, every: 1h}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.HSet(t.Context(), "solobeat:default:sched:current", "gen", "g", "file", "f")
	for _, job := range []string{"a", "b"} {
		c.HSet(t.Context(), "solobeat:default:sched:revs:f", job, "r")
		c.HSet(t.Context(), "solobeat:default:sched:job:"+job, "rev", "r", "gen", "g", "since", "1")
	}
	return map[string]string{"SOLOBEAT_REDIS_URL": srv.URL(0), "SOLOBEAT_SCHEDULE_FILE": file}
}

// refused runs a command that must fail with that code and say all the words.
func refused(t *testing.T, env map[string]string, code int, args []string, words ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, environ(env), nil); got != code {
		t.Errorf("%q: exit code %d, want %d: %s", args, got, code, errs.String())
	}
	for _, word := range words {
		if !strings.Contains(errs.String(), word) {
			t.Errorf("%q: %q lacks %q", args, errs.String(), word)
		}
	}
}

func TestPauseAndResumeRefuse(t *testing.T) {
	env := jobsEnv(t)
	for _, verb := range []string{"pause", "resume"} {
		refused(t, env, 2, []string{"jobs", verb}, "--all")
		refused(t, env, 2, []string{"jobs", verb, "a", "--all"}, "one of the two")
		refused(t, env, 2, []string{"jobs", verb, "a", "--reason", strings.Repeat("x", 201)}, "at most 200")
		refused(t, env, 1, []string{"jobs", verb, "a", "aa", "zz"}, `no job "aa"`, "did you mean a?", `no job "zz"`)
	}
	refused(t, env, 2, []string{"jobs", "pause", "a", "--by", strings.Repeat("x", 201)}, "--by: at most 200")
	refused(t, env, 2, []string{"jobs", "trigger", "a", "--by", strings.Repeat("x", 201)}, "--by: at most 200")
	refused(t, env, 2, []string{"locks", "release", "", "--yes"}, "key is empty")
	// An unset variable of a script does not stand for everything.
	refused(t, env, 2, []string{"dead", "drop", "--all", "--yes", "--queue", ""}, "--queue is empty")
	refused(t, env, 2, []string{"dead", "drop", "--all", "--yes", "--reason="}, "--reason is empty")
	refused(t, env, 1, []string{"jobs", "trigger", "aa"}, `no job "aa"`, "did you mean a?")
	refused(t, env, 2, []string{"jobs", "trigger", "a", "--tick", "yesterday"}, "is no instant")
	refused(t, env, 2, []string{"jobs", "trigger", "a", "--tick", "2026-11-29T10:30:00Z"}, "2026-11-29T10:00:00+00:00, 2026-11-29T11:00:00+00:00")
	refused(t, env, 2, []string{"jobs", "trigger", "a", "--tick", "2999-01-01T00:00:00Z"}, "still to come")
	delete(env, "SOLOBEAT_SCHEDULE_FILE")
	refused(t, env, 78, []string{"jobs", "trigger", "a"}, "schedule.file")
}

// Who looks at jobs sees which are paused, since when, by whom and why.
func TestPausedJobsShow(t *testing.T) {
	env := jobsEnv(t)
	listing(t, env, "jobs", "pause", "a", "--by", "ops", "--reason", "a move")
	for _, want := range []struct {
		args []string
		line string
	}{
		{[]string{"jobs", "list"}, `(?m)^a +paused `},
		{[]string{"jobs", "list"}, `(?m)^b +active `},
		{[]string{"jobs", "show", "a"}, `(?m)^paused +\d{4}-.* by ops$`},
		{[]string{"jobs", "show", "a"}, `(?m)^reason +a move$`},
		{[]string{"jobs", "history", "a"}, `(?m) pause +- +ops +a move `},
	} {
		if text := listing(t, env, want.args...); !regexp.MustCompile(want.line).MatchString(text) {
			t.Errorf("%q: no line %s in\n%s", want.args, want.line, text)
		}
	}
	var views []struct {
		Job, State string
		Changed    bool
		Pause      *struct {
			Since time.Time
			By    string
		}
	}
	if err := json.Unmarshal([]byte(listing(t, env, "jobs", "resume", "a", "-o", "json")), &views); err != nil {
		t.Fatal(err)
	}
	if len(views) != 1 || views[0].State != "active" || !views[0].Changed || views[0].Pause == nil || views[0].Pause.By != "ops" {
		t.Errorf("%+v", views)
	}
	if text := listing(t, env, "jobs", "list"); strings.Contains(text, "paused") {
		t.Error(text)
	}
}

// With jitter, next shows the tick and when it is published.
func TestNextShowsJitter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "schedule.yaml")
	text := "version: 1\njobs:\n  spread: {task: t, every: 1h, jitter: 30m}\n  sharp: {task: t, every: 1h}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var ticks []struct {
		Job       string
		Tick, Due time.Time
	}
	args := []string{"next", file, "-n", "3", "--from", "2026-12-01T00:00:00Z"}
	if err := json.Unmarshal([]byte(listing(t, nil, append(args, "-o", "json")...)), &ticks); err != nil || len(ticks) != 6 {
		t.Fatalf("%v: %+v", err, ticks)
	}
	var delay time.Duration
	for _, k := range ticks {
		switch d := k.Due.Sub(k.Tick); {
		case k.Job == "sharp" && !k.Due.IsZero():
			t.Errorf("sharp at %s is due at %s", k.Tick, k.Due)
		case k.Job == "spread" && (d <= 0 || d >= 30*time.Minute || delay != 0 && d != delay):
			t.Errorf("spread at %s is due %s later", k.Tick, d)
		case k.Job == "spread":
			delay = d
		}
	}
	if table := listing(t, nil, args...); strings.Count(table, "jitter: published 2026-12-01T") != 3 {
		t.Error(table)
	}
}
