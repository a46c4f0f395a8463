package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/cli"
	"github.com/solobeat/solobeat/internal/testkit"
)

// A server that answers, and says no: the message tells what to do about it,
// and never that the server does not answer or that a rule is missing where
// none is. Not parallel: each command sets the process's Redis logger.
func TestRefusals(t *testing.T) {
	srv := testkit.Redis(t)
	c := srv.Client(t)
	schedule := filepath.Join(t.TempDir(), "schedule.yaml")
	if err := os.WriteFile(schedule, []byte("version: 1\njobs: {j: {task: t, every: 1h}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do := func(args ...any) {
		t.Helper()
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	do("acl", "setuser", "keys", "reset", "on", ">pw", "~celery*", "&*", "+@all")
	do("acl", "setuser", "noname", "reset", "on", ">pw", "~*", "&*", "+@all", "-client|setname")
	do("acl", "setuser", "noscript", "reset", "on", ">pw", "~*", "&*", "+@all", "-get", "-pttl", "-xlen")
	do("acl", "setuser", "nopause", "reset", "on", ">pw", "~*", "&*", "+@all", "-hset", "-xadd")
	do("set", "held", "token")
	do("set", "solobeat:default:held:{held}", "7 1 token 0 1 t i")
	do("hset", "solobeat:default:sched:current", "gen", "g", "file", "f")
	do("hset", "solobeat:default:sched:revs:f", "j", "r")
	do("hset", "solobeat:default:sched:job:j", "rev", "r", "gen", "g", "since", "1")
	do("acl", "setuser", "noget", "reset", "on", ">pw", "~*", "&*", "+@all", "-hmget")
	const (
		replica = "name the primary"
		full    = "raise its maxmemory"
		keys    = "~<pattern>"
		login   = "redis://user:password@host:6379/0"
	)
	as := func(user string) string { return strings.Replace(srv.URL(0), "//", "//"+user+"@", 1) }
	for _, tc := range []struct {
		name, set, unset string // commands for the server
		url, args        string
		code             int
		words            string
	}{
		{"db of a worker", "", "", srv.URL(99), "worker", 78, "number after the slash"},
		{"db of a list", "", "", srv.URL(99), "locks list", 78, "number after the slash"},
		{"wrong password", "", "", as("keys:hush"), "worker", 78, login},
		{"no password", "config set requirepass pw", "config set requirepass ", srv.URL(0), "jobs list", 78, login},
		{"no name", "", "", as("noname:pw"), "queues", 78, "+client|setname"},
		{"a command", "", "", as("noget:pw"), "jobs list", 1, "ACL rule +hmget"},
		{"a script's command, show", "", "", as("noscript:pw"), "locks show held", 1, "ACL rule +get +pttl +xlen"},
		{"a script's command, release", "", "", as("noscript:pw"), "locks release held --yes", 1, "ACL rule +get +pttl +xlen"},
		{"a script's command, pause", "", "", as("nopause:pw"), "jobs pause j", 1, "ACL rule +hset +xadd"},
		{"a command in a transaction", "", "", as("noscript:pw"), "queues", 1, "ACL rule +xlen"},
		{"a lock that cannot be read", "", "", as("noscript:pw"), "locks list", 1, "no lock that could be read is held"},
		{"keys of a worker", "", "", as("keys:pw"), "worker", 78, keys},
		{"keys of a list", "", "", as("keys:pw"), "jobs list", 1, keys},
		{"keys of a lock", "", "", as("keys:pw"), "run --lock l -- true", 1, keys},
		{"keys of a message", "", "", as("keys:pw"), "enqueue t --queue q", 1, keys},
		{"full, worker", "config set maxmemory 1", "config set maxmemory 0", srv.URL(0), "worker", 1, full},
		{"full, scheduler", "config set maxmemory 1", "config set maxmemory 0", srv.URL(0), "scheduler", 1, full},
		{"full, run", "config set maxmemory 1", "config set maxmemory 0", srv.URL(0), "run --lock l -- true", 1, full},
		{"full, server of run", "config set maxmemory 1", "config set maxmemory 0", srv.URL(0), "run --lock l -- true", 1, srv.URL(0) + " of redis.url (SOLOBEAT_REDIS_URL): "},
		{"replica, worker", "replicaof 127.0.0.1 1", "replicaof no one", srv.URL(0), "worker", 1, replica},
		{"replica, scheduler", "replicaof 127.0.0.1 1", "replicaof no one", srv.URL(0), "scheduler", 1, replica},
		{"replica, run", "replicaof 127.0.0.1 1", "replicaof no one", srv.URL(0), "run --lock l -- true", 1, replica},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := func(command string) {
				if command != "" {
					do(fields(command)...)
				}
			}
			server(tc.set)
			defer server(tc.unset)
			env := map[string]string{"SOLOBEAT_REDIS_URL": tc.url, "SOLOBEAT_SCHEDULE_FILE": schedule, "SOLOBEAT_METRICS_LISTEN": "off"}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var out, errs bytes.Buffer
			code := cli.Main(ctx, strings.Fields(tc.args), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, environ(env), nil)
			text := errs.String()
			if code != tc.code || !strings.Contains(text, tc.words) || ctx.Err() != nil {
				t.Errorf("exit code %d, want %d and %q: %s", code, tc.code, tc.words, text)
			}
			if n := strings.Count(text, "ACL rule"); n > 1 {
				t.Errorf("%d cures: %s", n, text)
			}
			if strings.Contains(text, "ACL rule") && !strings.Contains(text, "docs/operations.md#redis") {
				t.Errorf("the page is not named: %s", text)
			}
			for _, lie := range []string{"no lock is held", "does not answer", "EXECABORT", "hush", "+eval", "ACL rule +set:"} {
				if strings.Contains(text, lie) {
					t.Errorf("%q in %s", lie, text)
				}
			}
		})
	}
}

// Doctor names what is missing too.
func TestDoctorNamesMissingRights(t *testing.T) {
	srv := testkit.Redis(t)
	c := srv.Client(t)
	if err := c.Do(t.Context(), "acl", "setuser", "u", "reset", "on", ">pw", "~*", "&*", "+@all", "-xlen", "-del").Err(); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SOLOBEAT_REDIS_URL": strings.Replace(srv.URL(0), "//", "//u:pw@", 1)}
	code, out, _ := examined(t, env, "doctor", "-o", "json")
	r := reportOf(t, out)
	for check, cure := range map[string]string{"queues": "+xlen", "locks": "+del +xlen", "acl": "docs/operations.md#redis"} {
		if code != 1 || !slices.ContainsFunc(r.Checks, func(f struct{ Check, Verdict, Detail, Cure string }) bool {
			return f.Check == check && f.Verdict == "fail" && strings.Contains(f.Cure+f.Detail, cure) && !strings.Contains(f.Detail, "EXECABORT")
		}) {
			t.Errorf("exit %d, %s has not the cure %s:\n%s", code, check, cure, out)
		}
	}
}

// A file whose name looks like a reply of Redis gets no cure of Redis'.
func TestNoCureForFiles(t *testing.T) {
	for _, file := range []string{"LOADING.yaml", "READONLY/NOPERM-key.yaml"} {
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), []string{"next", filepath.Join(t.TempDir(), file)}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, nil, nil)
		if code == 0 || !strings.HasSuffix(errs.String(), ": no such file (check the path, and schedule.file)\n") {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
	}
}

// A signal while Redis is reached ends each command in one way.
func TestSignalWhileRedisIsReached(t *testing.T) {
	env := environ(map[string]string{"SOLOBEAT_REDIS_URL": "redis://" + testkit.FreeAddr(t) + "/0"})
	for _, args := range []string{"queues", "locks list", "enqueue t", "result id", "run --lock l -- true"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(&cli.SignalError{Signal: syscall.SIGTERM})
		var out, errs bytes.Buffer
		code := cli.Main(ctx, strings.Fields(args), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, env, nil)
		if code != 143 || errs.String() != "solobeat: interrupted\n" {
			t.Errorf("%s: exit code %d: %s", args, code, errs.String())
		}
	}
}

// What stands in arguments, names and files of others reaches the terminal
// without its control characters, and starts no line of its own.
func TestNoControlCharacters(t *testing.T) {
	srv := testkit.Redis(t)
	const evil = "j1\x1b[31m\nfake\u009b"
	schedule := filepath.Join(t.TempDir(), "solobeat.yaml")
	do := func(args ...string) string {
		var out, errs bytes.Buffer
		env := environ(map[string]string{"SOLOBEAT_REDIS_URL": srv.URL(0), "PATH": os.Getenv("PATH"), "SOLOBEAT_" + evil: "x"})
		cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, env, nil)
		return out.String() + errs.String()
	}
	if err := srv.Client(t).Set(t.Context(), evil, "t", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	do("run", "--lock", "k", "--key", evil, "--", "true") // completes it
	for _, args := range [][]string{
		{"jobs", "history", evil},
		{"jobs", "show", evil},
		{"jobs", "pause", evil},
		{"jobs", "resume", evil},
		{"jobs", "trigger", evil},
		{"run", "--lock", evil, "--", "true"},
		{"run", "--lock", "k", "--key", evil, "--", "true"},
		{"queues", "-o", evil},
		{"queues", "--" + evil},
		{"queues", "-c", schedule + evil},
		{"validate", evil},
		{"next", evil},
		{evil},
		{"enqueue", "t", "--queue", evil},
		{"queues", "--log-level", evil},
		{"result", evil},
		{"queues"},
	} {
		text := do(args...)
		if text == "" || strings.ContainsAny(text, "\x1b\u009b") {
			t.Errorf("%q: %q", args, text)
		}
	}
}

// fields splits at blanks; one at the end stands for an empty word.
func fields(command string) []any {
	var list []any
	for _, f := range strings.Split(command, " ") {
		list = append(list, f)
	}
	return list
}
