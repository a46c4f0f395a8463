package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
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
	do("acl", "setuser", "noget", "reset", "on", ">pw", "~*", "&*", "+@all", "-hmget")
	const (
		replica = "name the primary"
		full    = "maxmemory"
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
		{"keys of a worker", "", "", as("keys:pw"), "worker", 78, keys},
		{"keys of a list", "", "", as("keys:pw"), "jobs list", 1, keys},
		{"keys of a lock", "", "", as("keys:pw"), "run --lock l -- true", 1, keys},
		{"keys of a message", "", "", as("keys:pw"), "enqueue t --queue q", 1, keys},
		{"full, worker", "config set maxmemory 1", "config set maxmemory 0", srv.URL(0), "worker", 1, full},
		{"full, scheduler", "config set maxmemory 1", "config set maxmemory 0", srv.URL(0), "scheduler", 1, full},
		{"full, run", "config set maxmemory 1", "config set maxmemory 0", srv.URL(0), "run --lock l -- true", 1, full},
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
			code := cli.Main(ctx, strings.Fields(tc.args), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs},
				func(name string) (string, bool) { v, ok := env[name]; return v, ok }, nil)
			text := errs.String()
			if code != tc.code || !strings.Contains(text, tc.words) || ctx.Err() != nil {
				t.Errorf("exit code %d, want %d and %q: %s", code, tc.code, tc.words, text)
			}
			for _, lie := range []string{"does not answer", "EXECABORT", "hush", "+eval", "ACL rule +set:"} {
				if strings.Contains(text, lie) {
					t.Errorf("%q in %s", lie, text)
				}
			}
		})
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
