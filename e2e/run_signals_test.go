package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// A program that is told to stop and says 0 has not done its work: its exit
// code is that of the signal, its lock is free, and its record lets the next
// one in.
func TestRunStopped(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		signal syscall.Signal
		trap   string
		code   int
	}{
		"TERM, and the program dies":   {syscall.SIGTERM, "", 143},
		"TERM, and the program says 0": {syscall.SIGTERM, "trap 'exit 0' TERM;", 143},
		"TERM, and the program says 4": {syscall.SIGTERM, "trap 'exit 4' TERM;", 4},
		"INT, and the program says 0":  {syscall.SIGINT, "trap 'exit 0' TERM;", 143},
		"HUP, and the program says 0":  {syscall.SIGHUP, "trap 'exit 0' TERM;", 143},
		"QUIT, and the program says 0": {syscall.SIGQUIT, "trap 'exit 0' TERM;", 143},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			bin := testkit.Binary(t)
			p := testkit.StartCmd(t, "run", command(s.dir, s.env(), bin, "run", "--lock", "l", "--key", "k", "--", "sh", "-c",
				tc.trap+" echo up; while :; do sleep 0.05; done"))
			p.WaitOutput(20*time.Second, "up")
			p.Signal(tc.signal)
			if code := p.Wait(20 * time.Second); code != tc.code {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, p.Stderr())
			}
			next := testkit.StartCmd(t, "next", command(s.dir, s.env(), bin, "run", "--lock", "l", "--key", "k", "--", "echo", "again"))
			if code := next.Wait(20 * time.Second); code != 0 || !strings.Contains(next.Stdout(), "again") {
				t.Errorf("the next run: exit code %d, %q %q", code, next.Stdout(), next.Stderr())
			}
		})
	}
}

// nohup reaches the program: a HUP that the caller ignores stops nobody, and
// neither does the Ctrl-C of the terminal for a job in the background of a
// script.
func TestRunKeepsIgnoredSignals(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p := testkit.StartCmd(t, "run", command(s.dir, s.env("BIN="+testkit.Binary(t)), "sh", "-c",
		`trap '' HUP INT; exec "$BIN" run --lock l -- sh -c 'echo up; kill -HUP $$; kill -INT $$; sleep 1; echo done'`))
	p.WaitOutput(20*time.Second, "up")
	p.Signal(syscall.SIGHUP)
	p.Signal(syscall.SIGINT)
	if code := p.Wait(20 * time.Second); code != 0 || !strings.Contains(p.Stdout(), "done") {
		t.Errorf("exit code %d, %q %q", code, p.Stdout(), p.Stderr())
	}
}

// Whoever stops it while it waits, for the lock or for Redis, finds its signal
// in the exit code, and the program never ran.
func TestRunStoppedWhileItWaits(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	if err := s.broker.Set(t.Context(), "l", "somebody's", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	connected := func() bool { return strings.Contains(s.broker.ClientList(t.Context()).Val(), "name=solobeat-run") }
	for name, tc := range map[string]struct {
		signal syscall.Signal
		down   bool
		code   int
	}{
		"TERM":                {syscall.SIGTERM, false, 143},
		"HUP":                 {syscall.SIGHUP, false, 129},
		"INT":                 {syscall.SIGINT, false, 130},
		"QUIT":                {syscall.SIGQUIT, false, 131},
		"TERM, Redis is down": {syscall.SIGTERM, true, 143},
	} {
		t.Run(name, func(t *testing.T) {
			env := s.env()
			if tc.down {
				env = s.env("SOLOBEAT_REDIS_URL=redis://" + testkit.FreeAddr(t))
			}
			p := testkit.StartCmd(t, "run", command(s.dir, env, testkit.Binary(t), "run", "--lock", "l", "--wait", "1m", "--", "echo", "ran"))
			if tc.down {
				p.WaitOutput(20*time.Second, "does not answer yet")
			} else { // its name on a connection: the signal is caught from before that on
				testkit.Poll(t, 20*time.Second, 5*time.Millisecond, connected, "run reaches Redis")
			}
			p.Signal(tc.signal)
			if code := p.Wait(20 * time.Second); code != tc.code || p.Stdout() != "" || !strings.Contains(p.Stderr(), "interrupted") {
				t.Errorf("exit code %d, want %d: %q %q", code, tc.code, p.Stdout(), p.Stderr())
			}
			testkit.Poll(t, 20*time.Second, 5*time.Millisecond, func() bool { return !connected() }, "run has left Redis")
		})
	}
}
