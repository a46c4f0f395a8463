package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/cli"
	"github.com/solobeat/solobeat/internal/testkit"
)

// examined runs a command and returns its code and streams.
func examined(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	var environ []string
	for k, v := range env {
		environ = append(environ, k+"="+v)
	}
	code = cli.Main(context.Background(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, environ, nil)
	return code, out.String(), errs.String()
}

type reportText struct {
	Versions    map[string]any
	Config      map[string]any
	LockBackend map[string]any `json:"lock_backend"`
	ClockOffset *float64       `json:"clock_offset_seconds"`
	Redis       []map[string]any
	Checks      []struct{ Check, Verdict, Detail, Cure string }
}

func (r *reportText) has(verdict, check, pattern string) bool {
	re := regexp.MustCompile(pattern)
	return slices.ContainsFunc(r.Checks, func(f struct{ Check, Verdict, Detail, Cure string }) bool {
		return f.Verdict == verdict && f.Check == check && re.MatchString(f.Detail)
	})
}

func reportOf(t *testing.T, text string) (r reportText) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return r
}

// The report for bug trackers is one JSON value with versions, the masked
// configuration, the lock back end, the clock's offset to Redis, and all
// checks, also where a server is away; no password is in it.
func TestX10_ReportForBugTrackers(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t, "--requirepass", "hunter2", "--appendonly", "yes")
	with := func(db string) string { return "redis://:hunter2@" + srv.Addr + "/" + db }
	file := filepath.Join(t.TempDir(), "solobeat.yaml")
	text := `redis:
  url: ` + with("0") + `
  results_url: ` + with("1") + `?client_name=hunter2
tasks:
  pay:
    command: [./pay, --token, hunter2]
    env: {TOKEN: hunter2}
    lock: {key: "pay:{{ .Params.id }}"}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, locks := range map[string]string{"up": with("0"), "locks away": "redis://user:hunter2@" + testkit.FreeAddr(t) + "/0"} {
		code, out, errs := examined(t, map[string]string{"SOLOBEAT_REDIS_LOCKS_URL": locks}, "doctor", "-c", file, "-o", "json")
		if strings.Contains(out+errs, "hunter2") || strings.TrimSpace(errs) != "" {
			t.Errorf("%s: a password, or words beside the report: %s\n%s", name, errs, out)
		}
		r := reportOf(t, out)
		if want := map[string]int{"up": 0, "locks away": 1}[name]; code != want {
			t.Errorf("%s: exit %d, want %d:\n%s", name, code, want, out)
		}
		if r.Versions["solobeat"] == "" || !strings.HasPrefix(r.Versions["go"].(string), "go1") || r.ClockOffset == nil || *r.ClockOffset > 1 || *r.ClockOffset < -1 {
			t.Errorf("%s: versions %v, offset %v", name, r.Versions, r.ClockOffset)
		}
		if r.Config["redis.url"] != "redis://****@"+srv.Addr+"/0" || r.Config["worker.concurrency"] == nil {
			t.Errorf("%s: config %v", name, r.Config)
		}
		switch {
		case name == "up" && (r.LockBackend["name"] != "redis" || r.LockBackend["fence"] != "best effort" || !r.has("ok", "locks", "taken and released")):
			t.Errorf("lock back end %v", r.LockBackend)
		case name != "up" && !r.has("fail", "redis", `does not answer.*redis\.locks_url`):
			t.Errorf("%+v", r.Checks)
		}
		if r.Redis[0]["version"] == nil || r.Redis[0]["aof"] != true {
			t.Errorf("%s: %v", name, r.Redis[0])
		}
	}
}

// Each thing that is wrong is found, said in one line, with what to do.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t, "--maxmemory-policy", "allkeys-lru", "--save", "")
	c := srv.Client(t)
	ctx := t.Context()
	now := time.Now()
	k := func(name string) string { return "solobeat:default:" + name }
	c.ZAdd(ctx, k("replicas"), redis.Z{Score: float64(now.Add(time.Minute).Unix()), Member: "live"}, redis.Z{Score: float64(now.Add(time.Minute).Unix()), Member: "old"},
		redis.Z{Score: float64(now.Add(-time.Minute).Unix()), Member: "dead"})
	c.HSet(ctx, k("replica:live"), "node", "solobeat@one", "version", "v2", "lists", `["celery"]`)
	c.HSet(ctx, k("replica:old"), "node", "solobeat@two", "version", "v1", "lists", `["celery"]`)
	c.HSet(ctx, k("replica:dead"), "node", "solobeat@three", "lists", `["celery", "left"]`)
	c.LPush(ctx, k("inflight:dead:celery"), "{}")
	c.LPush(ctx, k("inflight:live:celery"), "{}")
	c.LPush(ctx, "payments", "{}")
	c.LPush(ctx, "left", "{}")
	c.LPush(ctx, "celery", slices.Repeat([]any{"{}"}, 1000)...)
	c.HSet(ctx, k("dead-dropped"), "celery", 3)
	c.XAdd(ctx, &redis.XAddArgs{Stream: k("dead:celery"), Values: []any{"raw", "x", "reason", "Malformed"}})
	c.SAdd(ctx, k("dead-queues"), "celery")
	c.HSet(ctx, "unacked", "a-python-tag", `[{"body": ""}, "", "celery"]`)
	c.HSet(ctx, k("sched:current"), "gen", "2", "file", "b", "path", "/new.yaml", "name", "solobeat@one")
	dir := t.TempDir()
	schedule := filepath.Join(dir, "schedule.yaml")
	if err := os.WriteFile(schedule, []byte("version: 1\njobs:\n  nightly: {task: pay, every: 1h, queue: celery, lock: {ttl: 30s, renew: 14s}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"SOLOBEAT_REDIS_URL": srv.URL(0), "SOLOBEAT_SCHEDULE_FILE": schedule, "SOLOBEAT_WORKER_QUEUES": "celery,payments,left",
		"SOLOBEAT_WORKER_ENGINES": "celery,asynq", "KUBERNETES_SERVICE_HOST": "10.0.0.1",
	}
	code, out, _ := examined(t, env, "doctor", "-o", "json")
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	r := reportOf(t, out)
	for _, want := range [][3]string{
		{"warn", "config", "renew"},
		{"fail", "memory", "allkeys-lru and may drop messages, locks, records"},
		{"warn", "persistence", "keeps nothing"},
		{"warn", "workers", "different versions: v1, v2"},
		{"warn", "workers", "not taken over yet: solobeat@three"},
		{"warn", "queues", "1 messages wait in payments, which no live worker"},
		{"warn", "queues", "1 messages wait in left, which no live worker"},
		{"warn", "queues", "1000 messages wait in celery$"},
		{"warn", "dead letters", "3 fell out of bounds"},
		{"warn", "dead letters", `1 dead letter in celery \(1\)`},
		{"warn", "in-flight", "1 messages in the in-flight lists of dead workers: .*inflight:dead:celery$"},
		{"warn", "python", "celery has guarded tasks, and 1 of its messages were taken by a worker that does not know"},
		{"warn", "schedulers", "no scheduler is registered"},
		{"warn", "asynq", "no asynq server"},
		{"warn", "metrics", "in a pod"},
		{"ok", "acl", "allows what a worker needs"},
	} {
		if !r.has(want[0], want[1], want[2]) {
			t.Errorf("not said: %v", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
	for _, f := range r.Checks {
		if f.Verdict != "ok" && f.Cure == "" {
			t.Errorf("%s without a cure: %s", f.Check, f.Detail)
		}
	}
	if n := c.Exists(ctx, k("lock:doctor")).Val(); n != 0 {
		t.Error("the lock that it has tried is held still")
	}
	before := c.Keys(ctx, "*").Val()
	code, out, errs := examined(t, env, "doctor")
	if code != 1 || !regexp.MustCompile(`(?m)^fail  memory .*\(set maxmemory-policy to noeviction\)$`).MatchString(out) || !regexp.MustCompile(`\d+ ok, \d+ warnings?, 1 failure\n`).MatchString(errs) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if after := c.Keys(ctx, "*").Val(); len(after) != len(before) {
		t.Errorf("it left keys: %v, before %v", after, before)
	}
}

// Nothing is wrong but a warning: 0, and 3 for those who want to be strict.
func TestDoctorExitCodes(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t, "--appendonly", "yes")
	env := map[string]string{"SOLOBEAT_REDIS_URL": srv.URL(0)}
	if code, out, _ := examined(t, env, "doctor"); code != 0 || !strings.Contains(out, "warn  workers") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, _, _ := examined(t, env, "doctor", "--strict"); code != 3 {
		t.Errorf("--strict: exit %d", code)
	}
	env["SOLOBEAT_WORKER_CONCURRENCY"] = "many"
	code, out, _ := examined(t, env, "doctor", "-o", "json")
	if r := reportOf(t, out); code != 1 || !r.has("fail", "config", "SOLOBEAT_WORKER_CONCURRENCY") {
		t.Errorf("exit %d\n%s", code, out)
	}
	srv.Pause()
	defer srv.Continue()
	delete(env, "SOLOBEAT_WORKER_CONCURRENCY")
	began := time.Now()
	code, out, _ = examined(t, env, "doctor")
	if took := time.Since(began); code != 1 || took > 20*time.Second || !strings.Contains(out, "fail  redis") {
		t.Errorf("a frozen server: exit %d after %s\n%s", code, took, out)
	}
}

// Options stand before and after the command.
func TestX01_OptionsBeforeAndAfterTheCommand(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t)
	file := filepath.Join(t.TempDir(), "solobeat.yaml")
	if err := os.WriteFile(file, []byte("redis: {url: "+srv.URL(0)+"}\nworker: {queues: [named-in-the-file]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{
		"before":  {"-c", file, "--log-level", "error", "queues"},
		"after":   {"queues", "-c", file, "--log-level=error"},
		"both":    {"--config", file, "queues", "--log-level", "error"},
		"between": {"dead", "-c", file, "list", "--queue", "x"},
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		code, out, errs := examined(t, nil, lines[name]...)
		if code != 0 || name != "between" && !strings.Contains(out, "named-in-the-file") {
			t.Errorf("%s: exit %d, %s%s", name, code, out, errs)
		}
	}
}
