package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/cli"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
)

// listing runs a command in this process; not in parallel, since each sets the
// process's Redis logger.
func listing(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, environ(env), nil)
	if code != 0 || errs.Len() > 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

func environ(env map[string]string) []string {
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

// A command knows no other environment than the one it is given.
func TestEnvironmentIsGiven(t *testing.T) {
	t.Setenv("SOLOBEAT_FAVOURITE_COLOUR", "red")
	t.Setenv("SOLOBEAT_NAMESPACE", "no such thing!")
	listing(t, map[string]string{"SOLOBEAT_REDIS_URL": testkit.Redis(t).URL(0)}, "queues", "-o", "json")
}

// Before a job's first tick its next one is reckoned from the schedule file, if
// that is the one in force; and a run that failed shows beside its tick.
func TestJobsList(t *testing.T) {
	srv := testkit.Redis(t)
	c := srv.Client(t)
	file := filepath.Join(t.TempDir(), "schedule.yaml")
	text := "version: 1\njobs:\n  fresh: {task: t, every: 1h}\n  other: {task: t, every: 1h}\n  ran: {task: t, every: 1h}\n  well: {task: t, every: 1h}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	jobs, _, err := config.LoadSchedule(file)
	if err != nil {
		t.Fatal(err)
	}
	since := time.Date(2027, 1, 1, 10, 20, 0, 0, time.UTC)
	c.HSet(t.Context(), "solobeat:default:sched:current", "gen", "g", "file", "f")
	for _, j := range jobs {
		rev := j.Revision()
		if j.Name == "other" {
			rev = "of another file"
		}
		c.HSet(t.Context(), "solobeat:default:sched:revs:f", j.Name, rev)
		key := "solobeat:default:sched:job:" + j.Name
		c.HSet(t.Context(), key, "rev", rev, "gen", "g", "since", since.UnixMilli())
		if j.Name == "ran" || j.Name == "well" {
			c.HSet(t.Context(), key, "last", since.UnixMilli(), "next", since.Add(3*time.Hour).UnixMilli(), "result", "fired", "task", "id")
		}
	}
	s := schedredis.New(c, schedredis.Options{})
	for job, outcomes := range map[string][]string{"ran": {"succeeded", "failed"}, "well": {"failed", "succeeded"}} {
		for _, o := range outcomes {
			if err := s.AddHistory(t.Context(), job, scheduler.HistoryEntry{Outcome: o, TaskID: "id", Run: &scheduler.RunEntry{Attempt: 1}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	env := map[string]string{"SOLOBEAT_REDIS_URL": srv.URL(0), "SOLOBEAT_SCHEDULE_FILE": file}
	var views []struct {
		Job     string
		Next    time.Time
		LastRun *scheduler.HistoryEntry `json:"last_run"`
	}
	if err := json.Unmarshal([]byte(listing(t, env, "jobs", "list", "-o", "json")), &views); err != nil || len(views) != 4 {
		t.Fatalf("%v: %v", err, views)
	}
	for i, want := range []time.Time{since.Add(40 * time.Minute), {}, since.Add(3 * time.Hour), since.Add(3 * time.Hour)} {
		if v := views[i]; !v.Next.Equal(want) {
			t.Errorf("%s: next %s, want %s", v.Job, v.Next, want)
		}
	}
	if l := views[2].LastRun; l == nil || l.Outcome != "failed" || views[0].LastRun != nil {
		t.Errorf("last runs %+v, %+v", l, views[0].LastRun)
	}
	table := listing(t, env, "jobs", "list")
	for _, line := range []string{`(?m)^ran .* fired, last run failed `, `(?m)^well .* fired  `} {
		if !regexp.MustCompile(line).MatchString(table) {
			t.Errorf("no line %s in\n%s", line, table)
		}
	}
	if show := listing(t, env, "jobs", "show", "fresh"); !regexp.MustCompile(`next tick +2027-01-01`).MatchString(show) {
		t.Error(show)
	}
}

// A holder is named with the replica that runs it.
func TestLocksListNamesReplicas(t *testing.T) {
	srv := testkit.Redis(t)
	c := srv.Client(t)
	b, err := lockredis.New(c, lockredis.Options{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	for key, instance := range map[string]string{"a:lock": "one", "b:lock": "gone"} {
		if _, err := b.TryAcquire(t.Context(), lockguard.Attempt{Key: key, Token: key, TTL: time.Minute, TaskID: "task-" + key[:1], Instance: instance}); err != nil {
			t.Fatal(err)
		}
	}
	c.ZAdd(t.Context(), "solobeat:default:replicas", redis.Z{Score: float64(time.Now().Add(time.Minute).Unix()), Member: "one"})
	c.HSet(t.Context(), "solobeat:default:replica:one", "node", "solobeat@host-1", "lists", "")
	env := map[string]string{"SOLOBEAT_REDIS_URL": srv.URL(0)}
	table := listing(t, env, "locks", "list")
	for _, line := range []string{`(?m)^a:lock +task-a \(solobeat@host-1\) `, `(?m)^b:lock +task-b  `} {
		if !regexp.MustCompile(line).MatchString(table) {
			t.Errorf("no line %s in\n%s", line, table)
		}
	}
	if show := listing(t, env, "locks", "show", "a:lock", "-o", "json"); !strings.Contains(show, `"node": "solobeat@host-1"`) {
		t.Error(show)
	}
}

// A lock is released by force only where somebody has said so, and only if it is
// one.
func TestLocksRelease(t *testing.T) {
	srv := testkit.Redis(t)
	c := srv.Client(t)
	b, err := lockredis.New(c, lockredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (code int, out, errs string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code = cli.Main(t.Context(), append([]string{"locks", "release"}, args...),
			cli.Streams{In: strings.NewReader("y\n"), Out: &stdout, Err: &stderr}, environ(map[string]string{"SOLOBEAT_REDIS_URL": srv.URL(0)}), nil)
		return code, stdout.String(), stderr.String()
	}
	grant, err := b.TryAcquire(t.Context(), lockguard.Attempt{Key: "report:lock", Token: "x", TTL: time.Minute, TaskID: "task-1", Instance: "one"})
	if err != nil {
		t.Fatal(err)
	}
	c.LPush(t.Context(), "celery", "message")
	c.Set(t.Context(), "py:lock", "token", 0)
	fence := strconv.FormatUint(uint64(grant.Fence), 10)
	for _, step := range []struct {
		args  []string
		code  int
		words []string
		free  bool
	}{
		{[]string{"report:lock"}, 2, []string{"held by task-1", fence, "--yes"}, false},
		{[]string{"report:lock", "--yes"}, 0, []string{"held by task-1", "released", "cancelled as lost", fence}, true},
		{[]string{"report:lock", "-y"}, 0, []string{"is free"}, true},
		{[]string{"py:lock", "--yes"}, 0, []string{"redis-py", "for ever", "is not told"}, true},
		{[]string{"celery", "--yes"}, 1, []string{"is a list", "left alone"}, false},
		{[]string{}, 2, []string{"one lock key"}, false},
	} {
		code, out, errs := run(step.args...)
		if code != step.code || out != "" {
			t.Errorf("%v: exit %d, %q", step.args, code, out)
		}
		for _, w := range step.words {
			if !strings.Contains(errs, w) {
				t.Errorf("%v: no %q in %q", step.args, w, errs)
			}
		}
		if len(step.args) > 0 && (c.Exists(t.Context(), step.args[0]).Val() == 0) != step.free {
			t.Errorf("%v: free is not %v", step.args, step.free)
		}
	}
	// One that is kept by its min hold.
	ref := lockguard.Ref{Key: "report:lock", Token: "y"}
	if _, err := b.TryAcquire(t.Context(), lockguard.Attempt{Key: ref.Key, Token: ref.Token, TTL: time.Minute, TaskID: "task-2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Release(t.Context(), ref, time.Hour); err != nil {
		t.Fatal(err)
	}
	if table := listing(t, map[string]string{"SOLOBEAT_REDIS_URL": srv.URL(0)}, "locks", "list"); !strings.Contains(table, "task-2, ended") {
		t.Error(table)
	}
	var v struct {
		TaskID string `json:"task_id"`
		Kept   bool
	}
	code, out, errs := run("report:lock", "--yes", "-o", "json")
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || v.TaskID != "task-2" || !v.Kept || !strings.Contains(errs, "its run had ended") {
		t.Errorf("exit %d, %v: %s %s", code, err, out, errs)
	}
}
