package cli_test

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/solobeat/solobeat"
	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks/command/guardian"
)

func TestMain(m *testing.M) {
	guardian.RunIfChild() // the scripts' solobeat is this binary, and so is its guardian
	testscript.Main(m, map[string]func(){"solobeat": func() { solobeat.Main(nil) }})
}

const databases = 64

// Each script of testdata/script runs with an empty database: SOLOBEAT_REDIS_URL
// names it, `redis COMMAND…` looks into it, DOWN is a URL where nobody listens.
// `code N COMMAND…` wants an exit code.
func TestScripts(t *testing.T) {
	t.Parallel()
	srv := testkit.Redis(t, "--databases", strconv.Itoa(databases))
	_, port, _ := strings.Cut(srv.Addr, ":")
	var last atomic.Int64
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			db := int(last.Add(1) - 1)
			if db >= databases {
				return errors.New("more scripts than databases")
			}
			env.Setenv("SOLOBEAT_REDIS_URL", srv.URL(db))
			env.Setenv("URL", srv.URL(db)) // for commands in a program of run, which gets no SOLOBEAT_*
			env.Setenv("DB", strconv.Itoa(db))
			env.Setenv("DOWN", "redis://:hush-hush@"+testkit.FreeAddr(t)+"/0")
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // 1 s per command otherwise
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": wantCode,
			"redis": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(ts.Exec("redis-cli", append([]string{"-p", port, "-n", ts.Getenv("DB")}, args...)...))
			},
		},
		RequireExplicitExec: true,
	})
}

// wantCode runs a command and wants its exit code.
func wantCode(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var ended *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &ended):
		got = ended.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
