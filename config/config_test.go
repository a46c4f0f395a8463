package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command"
	"github.com/solobeat/solobeat/tasks/worker"
)

func lookup(env map[string]string) Lookup {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, text string, env map[string]string) *Config {
	t.Helper()
	c, ps, err := Load(write(t, "solobeat.yaml", text), lookup(env))
	if err != nil || len(ps) > 0 {
		t.Fatalf("%v %v", ps, err)
	}
	return c
}

func TestDefaultsWithoutFile(t *testing.T) {
	t.Parallel()
	c, ps, err := Load("", lookup(nil))
	if err != nil || len(ps) > 0 {
		t.Fatal(ps, err)
	}
	want := &Config{
		Namespace: "default", Dir: ".",
		Redis:   Redis{URL: "redis://localhost:6379/0", ResultsURL: "redis://localhost:6379/0", LocksURL: "redis://localhost:6379/0"},
		Worker:  Worker{Engines: []string{"celery"}, Queues: []string{"celery"}, Concurrency: c.Worker.Concurrency, Grace: 20 * time.Second, PoisonAfter: 3},
		Asynq:   Asynq{Servers: 1},
		Results: Results{Expires: 24 * time.Hour}, Metrics: Metrics{Listen: "127.0.0.1:9464"}, Log: Log{Level: "info"},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if c.Worker.Concurrency < 4 {
		t.Errorf("concurrency %d", c.Worker.Concurrency)
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "good", "solobeat-all-keys.yaml")
	c, _, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	day := []string{"day"}
	want := &Config{
		Namespace: "shop-1", Dir: dir,
		Redis: Redis{
			URL: "redis://:secret@redis.internal:6379/0", ResultsURL: "redis://:secret@redis.internal:6379/1", LocksURL: "rediss://locks.internal:6380",
			GlobalKeyPrefix: "shop:", ResultsKeyPrefix: "shop_",
		},
		Worker:   Worker{Engines: []string{"celery", "asynq"}, Queues: []string{"celery", "reports"}, Concurrency: 8, Grace: 25 * time.Second, PoisonAfter: 5, Name: "worker1@host"},
		Asynq:    Asynq{Servers: 4},
		Schedule: Schedule{File: filepath.Join(dir, "schedule.yaml")}, Results: Results{Expires: 36 * time.Hour},
		Metrics: Metrics{Listen: "0.0.0.0:9464", Explicit: true}, Log: Log{Level: "debug", Format: "json"},
		Tasks: []Task{
			{
				Name: "reports.hourly",
				Command: &command.Config{
					Argv: []string{"./build-report", "{{ .Params.day }}", "--verbose"}, Params: day, Dir: "/srv/reports",
					Env: map[string]string{"REPORT_DAY": "{{ .Params.day }}", "TZ": "UTC"},
				},
				Config: worker.TaskConfig{
					Params: day, Timeout: 10 * time.Minute, Retries: &tasks.RetryPolicy{Max: 5, BaseMS: 1000, MaxDelayMS: 60_000}, AckEarly: true,
					Lock: &worker.LockConfig{
						Key: "report:lock", Backend: "redis", TTL: 30 * time.Second, Renew: 10 * time.Second,
						Expect: 5 * time.Minute, MaxHold: 15 * time.Minute, OnBusy: tasks.OnBusySkip, FenceBase: 1 << 52,
					},
					Record: &worker.RecordConfig{Key: "{{ .Params.day }}", Store: "redis", Retention: 48 * time.Hour, Fingerprint: day},
				},
			},
			{Name: "apps.no-number", Config: worker.TaskConfig{Retries: &tasks.RetryPolicy{BaseMS: 10_000, MaxDelayMS: 600_000}}},
		},
	}
	if diff := cmp.Diff(want, c, cmpopts.IgnoreUnexported(Task{}, scheduler.Job{})); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultKeyOfATaskLock(t *testing.T) {
	t.Parallel()
	c := load(t, "namespace: shop\ntasks: {pay: {lock: {}, idempotency: {}}}\n", nil)
	cfg := c.Tasks[0].Config
	if cfg.Lock.Key != "solobeat:shop:lock:task:pay" || cfg.Record.Key != "" {
		t.Errorf("%+v %+v", cfg.Lock, cfg.Record)
	}
}

func TestEnvironmentWinsOverFile(t *testing.T) {
	t.Parallel()
	c := load(t, "namespace: file\nworker: {queues: [a, b], concurrency: 2, grace: 1m}\nredis: {url: redis://file}\nlog: {level: error}\n", map[string]string{
		"SOLOBEAT_NAMESPACE": "env", "SOLOBEAT_WORKER_QUEUES": "c, d", "SOLOBEAT_WORKER_CONCURRENCY": "7", "SOLOBEAT_REDIS_URL": "redis://env", "SOLOBEAT_WORKER_GRACE": "", "SOLOBEAT_LOG_LEVEL": " debug ",
	})
	got := []any{c.Namespace, c.Worker.Queues, c.Worker.Concurrency, c.Redis.URL, c.Redis.LocksURL, c.Worker.Grace, c.Log.Level}
	want := []any{"env", []string{"c", "d"}, 7, "redis://env", "redis://env", time.Minute, "debug"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Each key has a variable, and it alone is enough.
func TestEveryKeyHasAVariable(t *testing.T) {
	t.Parallel()
	secret := write(t, "url", "redis://localhost:6379/5\n")
	jobs := write(t, "s.yaml", "version: 1\njobs: {}\n")
	values := map[string]string{
		"namespace": "n", "redis.url": "redis://localhost/1", "redis.results_url": "redis://localhost/2", "redis.locks_url": "redis://localhost/3",
		"redis.url_file": secret, "redis.results_url_file": secret, "redis.locks_url_file": secret,
		"redis.global_keyprefix": "p", "redis.results_keyprefix": "q", "worker.queues": "a,b", "worker.engines": "celery,asynq", "asynq.servers": "3", "worker.concurrency": "9", "worker.grace": "5s",
		"worker.poison_after": "4", "worker.name": "w@h", "schedule.file": jobs, "results.expires": "2d", "metrics.listen": "off",
		"log.level": "warn", "log.format": "text",
	}
	plain, _, err := Load("", lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	r := &configReader{d: newDecoder(""), c: &Config{}}
	for key := range r.allLeaves() {
		value, ok := values[key]
		if !ok {
			t.Errorf("%s is not tried", key)
			continue
		}
		c, ps, err := Load("", lookup(map[string]string{EnvName(key): value}))
		if err != nil || len(ps) > 0 {
			t.Errorf("%s: %v", EnvName(key), ps)
			continue
		}
		if cmp.Equal(plain, c) {
			t.Errorf("%s changes nothing", EnvName(key))
		}
	}
}

// A mistake in a variable names it, also where the mistake shows only beside
// the rest.
func TestErrorsInTheEnvironment(t *testing.T) {
	t.Parallel()
	file := "worker: {queues: [a]}\nredis: {url: redis://file}\n"
	for name, c := range map[string]struct{ value, words string }{
		"SOLOBEAT_WORKER_CONCURRENCY":     {"many", `want a whole number, got the text "many" (write a number from 1`},
		"SOLOBEAT_WORKER_GRACE":           {"30", "write the unit"},
		"SOLOBEAT_LOG_LEVEL":              {"warning", "known here"},
		"SOLOBEAT_WORKER_QUEUES":          {"a,,b", "empty"},
		"SOLOBEAT_NAMESPACE":              {"My App", "write my-app"},
		"SOLOBEAT_REDIS_URL":              {"redis://:hunter2@host:x", "no port"},
		"SOLOBEAT_REDIS_LOCKS_URL":        {"redis://host/-1", "out of range"},
		"SOLOBEAT_REDIS_RESULTS_URL":      {"redis://other/x", "database number"},
		"SOLOBEAT_REDIS_URL_FILE":         {"/no/such/file", "no such file"},
		"SOLOBEAT_METRICS_LISTEN":         {"9464", "127.0.0.1:9464"},
		"SOLOBEAT_WORKER_NAME":            {"w", "name@host"},
		"SOLOBEAT_REDIS_GLOBAL_KEYPREFIX": {"a b", "blank"},
		"SOLOBEAT_RESULTS_EXPIRES":        {"0s", "too short"},
		"SOLOBEAT_WORKER_POISON_AFTER":    {"1", "from 3"},
	} {
		got, ps, err := Load(write(t, "solobeat.yaml", file), lookup(map[string]string{name: c.value}))
		if err == nil || got != nil || len(ps) != 1 {
			t.Errorf("%s: %v", name, ps)
			continue
		}
		p := ps[0]
		if p.File != "environment variable "+name || p.Line != 0 || p.Cure == "" || !strings.Contains(p.String(), c.words) || strings.Contains(p.String(), "hunter2") {
			t.Errorf("%s: %s", name, p)
		}
		if !strings.HasPrefix(EnvName(p.Path), name) && !strings.Contains(p.Path, "[") {
			t.Errorf("%s: path %s", name, p.Path)
		}
	}
}

// The file and the environment each know one of url and url_file: the
// environment's counts.
func TestURLFile(t *testing.T) {
	t.Parallel()
	secret := write(t, "secret", "  redis://:pw@secret:6379/2\n")
	for _, c := range []struct {
		file string
		env  map[string]string
		want string
	}{
		{"redis: {url_file: " + secret + "}\n", nil, "redis://:pw@secret:6379/2"},
		{"redis: {url: redis://file}\n", map[string]string{"SOLOBEAT_REDIS_URL_FILE": secret}, "redis://:pw@secret:6379/2"},
		{"redis: {url_file: " + secret + "}\n", map[string]string{"SOLOBEAT_REDIS_URL": "redis://env"}, "redis://env"},
	} {
		if got := load(t, c.file, c.env).Redis.URL; got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	_, ps, err := Load("", lookup(map[string]string{"SOLOBEAT_REDIS_URL_FILE": secret, "SOLOBEAT_REDIS_URL": "redis://env"}))
	if err == nil || len(ps) != 1 || !strings.Contains(ps[0].String(), "keep one of the two") {
		t.Errorf("both: %v", ps)
	}
	for _, text := range []string{"", " \n", "redis://a\nredis://b\n", "redis://:hunter2\n"} {
		_, ps, err := Load("", lookup(map[string]string{"SOLOBEAT_REDIS_URL_FILE": write(t, "url", text)}))
		if err == nil || len(ps) != 1 || ps[0].Path != "redis.url_file" || ps[0].Cure == "" || strings.Contains(ps[0].String(), "hunter2") {
			t.Errorf("%q: %v", text, ps)
		}
	}
	// A path is relative to the file that names it.
	dir := t.TempDir()
	for name, text := range map[string]string{"solobeat.yaml": "redis: {url_file: url}\nschedule: {file: s.yaml}\ntasks: {a: {command: [./x], dir: sub}}\n", "url": "redis://here", "s.yaml": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _, err := Load(filepath.Join(dir, "solobeat.yaml"), nil)
	if err != nil || cfg.Redis.URL != "redis://here" || cfg.Schedule.File != filepath.Join(dir, "s.yaml") || cfg.Tasks[0].Command.Dir != filepath.Join(dir, "sub") {
		t.Errorf("%+v %v", cfg, err)
	}
}

func TestCheckEnv(t *testing.T) {
	t.Parallel()
	fine := []string{
		"HOME=/root", "SOLOBEAT_CONFIG=a", "SOLOBEAT_REDIS_URL=x", "SOLOBEAT_WORKER_QUEUES=a", "SOLOBEAT_RUN_TASK_ID=1", "SOLOBEAT_RUN_X=1", "SOLOBEAT_GUARDIAN=1",
		"SOLOBEAT_FAILPOINTS=x=kill", "SOLOBEAT_CLOCK_OFFSET=5s",
		// What Kubernetes sets for services named solobeat and solobeat-worker.
		"SOLOBEAT_SERVICE_HOST=10.0.0.1", "SOLOBEAT_SERVICE_PORT=80", "SOLOBEAT_SERVICE_PORT_HTTP=80", "SOLOBEAT_PORT=tcp://10.0.0.1:80",
		"SOLOBEAT_WORKER_PORT_80_TCP=tcp://10.0.0.1:80", "SOLOBEAT_WORKER_PORT_80_TCP_ADDR=10.0.0.1", "SOLOBEAT_PORT_80_TCP_PROTO=tcp", "XSOLOBEAT_Y=1",
	}
	if ps := CheckEnv(fine); len(ps) > 0 {
		t.Errorf("%v", ps)
	}
	ps := CheckEnv(append(fine, "SOLOBEAT_REDIS_ULR=redis://:hunter2@x", "SOLOBEAT_WORKER_CONCURENCY=5", "SOLOBEAT_FAVOURITE_COLOUR=red"))
	var got []string
	for _, p := range ps {
		got = append(got, p.String())
		if !p.Warning || strings.Contains(p.String(), "hunter2") {
			t.Errorf("%s", p)
		}
	}
	want := []string{
		"environment variable SOLOBEAT_FAVOURITE_COLOUR: warning: no key has this name, and it is ignored (unset it)",
		"environment variable SOLOBEAT_REDIS_ULR: warning: no key has this name, and it is ignored (did you mean SOLOBEAT_REDIS_URL?)",
		"environment variable SOLOBEAT_WORKER_CONCURENCY: warning: no key has this name, and it is ignored (did you mean SOLOBEAT_WORKER_CONCURRENCY?)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Whatever is wrong with a URL, and wherever it was put by mistake, no message
// holds its password.
func TestNoSecretInMessages(t *testing.T) {
	t.Parallel()
	urls := []string{
		"redis://:hunter2@host:6379/0", "redis://user:hunter2@host", "redis://hunter2@host:x", "redis://:hunter2", "redis://user:hunter2", "redis://:hunter2@",
		"redis://:hun@ter2hunter2@host:x", "redis://:a/hunter2@host", "redis://:a#hunter2@host", "redis://:a?hunter2@host:1", "redis://:a hunter2@host", "redis://:%zzhunter2@host",
		"redis://:a'hunter2@host", "http://:hunter2@host", "redis://host?password=hunter2", "redis://host/0?password=hunter2&x=1", "redis://host/hunter2:x@y", "rediss://:hunter2@host/x",
		"://:hunter2@host", "redis://:hunter2@[::1", "REDIS://:hunter2@host:x", "redis://:hunter2@host/0?read_timeout=x",
		"redis://host/0?dial_timeout=hunter2", "user:hunter2@host:6379", "user:hunter2@host", "hunter2@host:6379", ":hunter2@host:6379/0",
	}
	for _, u := range urls {
		q := fmt.Sprintf("%q", u)
		texts := map[string]string{
			"url": "redis: {url: " + q + ", results_url: " + q + ", locks_url: " + q + "}\n", "block": "redis: " + q + "\n", "key": "redis: {" + q + ": 1}\n", "top": q + "\n",
			"level": "log: {level: " + q + "}\n", "queue": "worker: {queues: [" + q + ", " + q + "], grace: " + q + ", concurrency: " + q + ", name: " + q + "}\n",
			"namespace": "namespace: " + q + "\n", "listen": "metrics: {listen: " + q + "}\n", "file": "redis: {url_file: " + q + "}\n", "schedule": "schedule: {file: " + q + "}\n", "dir": "tasks: {a: {command: [x], dir: " + q + ", env: {" + q + ": a}}}\n", "twice": "redis:\n  url: " + q + "\n  url: " + q + "\n",
			"unquoted": "redis:\n  url: *" + u + "\n", "broken": "redis:\n  url: \"" + u + "\n", "task": "tasks: {" + q + ": {command: " + q + "}}\n", "lock": "tasks: {a: {lock: {key: " + q + ", backend: " + q + "}}}\n",
		}
		for place, text := range texts {
			_, ps, _ := parseConfig(newDecoder("solobeat.yaml"), []byte(text), nil)
			for _, p := range ps {
				if strings.Contains(p.String(), "hunter2") {
					t.Errorf("%s, %s: %s", place, u, p)
				}
			}
		}
		_, ps, _ := Load("", lookup(map[string]string{"SOLOBEAT_REDIS_URL": u, "SOLOBEAT_WORKER_NAME": u, "SOLOBEAT_LOG_LEVEL": u, "SOLOBEAT_WORKER_GRACE": u}))
		for _, p := range ps {
			if strings.Contains(p.String(), "hunter2") {
				t.Errorf("environment, %s: %s", u, p)
			}
		}
		_, ps, _ = ParseSchedule("s", oneJob("cron: "+q, "timezone: "+q, "every: "+q, "task: "+q, "queue: "+q, "kwargs: {a: "+q+"}", "lock: {key: "+q+", ttl: "+q+"}", "days: "+q, "priority: "+q))
		for _, p := range ps {
			if strings.Contains(p.String(), "hunter2") {
				t.Errorf("schedule, %s: %s", u, p)
			}
		}
	}
}

// A lock's key that is a queue is an error in each file alone, and together.
func TestTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	scheduleFile := put("schedule.yaml", `version: 1
defaults: {lock: {key: "low-{{ .Job }}"}}
jobs:
  a:
    task: t
    every: 5m
    lock:
      key: reports
  b: {task: t, every: 5m, queue: jobs}
`)
	path := put("solobeat.yaml", "schedule: {file: schedule.yaml}\nworker: {queues: [reports]}\ntasks:\n  t:\n    lock: {key: jobs}\n  u:\n    lock: {key: free}\n")
	c, _, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	jobs, _, err := LoadSchedule(c.Schedule.File)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var ps Problems
	all, err := Together(c, jobs)
	if !errors.As(err, &ps) {
		t.Fatalf("error %v", err)
	}
	for _, p := range all {
		got = append(got, p.String())
	}
	want := []string{
		scheduleFile + `:8:12: jobs.a.lock.key: "reports" is a queue: its list would be taken for a lock (choose another key, for example report:lock)`,
		path + `:5:17: tasks.t.lock.key: "jobs" is a queue: its list would be taken for a lock (choose another key, for example report:lock)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c.Worker.Queues = []string{"celery"}
	c.Tasks = nil
	// kombu's prefix stands before the lists: then it is the prefixed name that
	// would be taken for a lock.
	c.Redis.GlobalKeyPrefix = "app:"
	jobs[0].Lock.Key = "app:celery\x06\x163"
	if _, err := Together(c, jobs); err == nil {
		t.Error("a prefixed list was accepted as a lock key")
	}
	if c.LockKeyProblem("app:celery") == "" || c.LockKeyProblem("app:unacked") == "" || c.LockKeyProblem("report:lock") != "" {
		t.Error("LockKeyProblem does not know the prefix")
	}
	jobs[0].Lock.Key = "free"
	if ps, err := Together(c, jobs); err != nil || len(ps) > 0 {
		t.Error(ps, err)
	}
	// A name that is nearly that of an entry.
	c.Tasks = []Task{{Name: "reports.hourly"}, {Name: "sync.us"}, {Name: "report.v1"}}
	jobs = append(jobs, jobs[1], jobs[1])
	for i, name := range []string{"reports.hourli", "billing.charge", "sync.eu", "report.v2"} {
		job := *jobs[i]
		job.Task = name
		jobs[i] = &job
	}
	wantWarning := scheduleFile + ":5:11: warning: jobs.a.task: no entry of tasks: has the name reports.hourli (did you mean reports.hourly?)"
	if ps, err := Together(c, jobs); err != nil || len(ps) != 1 || ps[0].String() != wantWarning {
		t.Error(ps, err)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none.yaml"), dir} {
		if _, ps, err := Load(path, nil); err == nil || len(ps) != 1 || ps[0].File != path || ps[0].Cure == "" {
			t.Errorf("Load: %v %v", ps, err)
		}
		if _, ps, err := LoadSchedule(path); err == nil || len(ps) != 1 || ps[0].File != path || ps[0].Cure == "" {
			t.Errorf("LoadSchedule: %v %v", ps, err)
		}
	}
	for text, words := range map[string]string{
		strings.Repeat("#", maxFileBytes+1): "split it", "jobs: {}": "this is a schedule file", "\xff\xfea": "UTF-16", "a: \u0001": "control character",
	} {
		if _, ps, err := parseConfig(newDecoder("f"), []byte(text), nil); err == nil || !strings.Contains(ps[0].String(), words) || ps[0].Line < 1 {
			t.Errorf("%.20q: %v", text, ps)
		}
	}
}

// The line of a syntax error is the one where it begins, in long files too.
func TestSyntaxErrorLine(t *testing.T) {
	t.Parallel()
	const filler = "  - {name: a, values: [1,\n    2,\n    3]}\n  - \"text over\n    two lines\"\n"
	for _, n := range []int{0, 1, 7, 60, 600} {
		before := "list:\n" + strings.Repeat(filler, n)
		for _, bad := range []string{"a: b: c\n", "key: \"open\n", "list: [1, 2\n", "\tx: 1\n", "a: }\n", "  odd: 1\n"} {
			if n == 0 && bad[0] == ' ' {
				continue // there it is right
			}
			if n == 600 && bad[0] != 'k' {
				continue // one is enough of what takes long
			}
			text := before + bad + "z:\n" + strings.Repeat(filler, n)
			d := newDecoder("f")
			d.parse([]byte(text))
			want := strings.Count(before, "\n") + 1
			if len(d.problems) != 1 || d.problems[0].Line != want || d.problems[0].Cure == "" {
				t.Errorf("%q after %d lines: %v", bad, want-1, d.problems)
			}
		}
	}
}

// A key that other tools have is answered with ours, which exists.
func TestOtherWords(t *testing.T) {
	t.Parallel()
	keys := accepted(t)
	for _, word := range []string{
		"schedule", "crontab", "interval", "tz", "payload", "suspend", "description", "max_retries", "time_limit", "startingDeadlineSeconds", "concurrencyPolicy",
		"broker_url", "redbeat_redis_url", "result_backend", "locks_url", "global_keyprefix", "worker_concurrency", "task_default_queue", "result_expires", "beat_schedule",
	} {
		to := otherWords(word)
		if !slices.Contains(keys["jobs"], to) && !slices.Contains(keys["solobeat.yaml"], to) {
			t.Errorf("%s: %q is no key", word, to)
		}
	}
	for block, word := range map[string]string{"worker": "poison_after", "lock": "ttl", "retries": "max"} {
		if got := elsewhere("x", word, []string{"a", block}); got != "it belongs under "+block+":" {
			t.Errorf("%s: %q", word, got)
		}
	}
}

func TestQueueNames(t *testing.T) {
	t.Parallel()
	for _, q := range []string{"", " ", " a", "a ", "a,b", "a\x06\x16" + "3", "a\n", "a\x7f", strings.Repeat("q", 201)} {
		if QueueProblem(q) == "" {
			t.Errorf("%q is taken", q)
		}
	}
	for _, q := range []string{"celery", "high priority", "a.b-c_d:e/f", "ü", strings.Repeat("q", 200)} {
		if msg := QueueProblem(q); msg != "" {
			t.Errorf("%q: %s", q, msg)
		}
	}
}

// What Problems offer to a caller.
func TestProblems(t *testing.T) {
	t.Parallel()
	_, ps, err := ParseSchedule("s", oneJob(`cron: "0 0 1 * 1"`, "tz: UTC"))
	if len(ps) != 2 || len(ps.Errors()) != 1 || len(ps.Warnings()) != 1 || strings.Contains(err.Error(), "warning") {
		t.Errorf("%v; %v", ps, err)
	}
	if err := ps.Warnings().err(); err != nil {
		t.Error(err)
	}
}

// A mistake that is made everywhere does not fill the screen; errors are shown
// before warnings.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	var ps Problems
	for i := range 120 {
		ps = append(ps, Problem{File: "f", Line: i + 1, Col: 1, Message: "m", Warning: i < 60})
	}
	lines := ps.Lines()
	if len(lines) != 51 || lines[0] != "f:61:1: m" || lines[50] != "and 70 more" {
		t.Errorf("%d lines: %s … %s", len(lines), lines[0], lines[len(lines)-1])
	}
	if text := ps.Error(); strings.Count(text, "\n") != 50 || !strings.HasSuffix(text, "\nand 10 more") {
		t.Errorf("error: %s", text)
	}
	if got := ps[:50].Lines(); len(got) != 50 || got[0] != "f:1:1: warning: m" {
		t.Errorf("50 problems: %d lines, %s first", len(got), got[0])
	}
}
