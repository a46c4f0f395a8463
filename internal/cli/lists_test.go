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
	code := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs},
		func(name string) (string, bool) { v, ok := env[name]; return v, ok }, nil)
	if code != 0 || errs.Len() > 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
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
