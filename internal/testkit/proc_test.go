package testkit_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// child is what the test binary does when a test starts it as a child.
func child(role string) int {
	switch role {
	case "exit7":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
		return 7
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
		return 0
	case "sleep":
		fmt.Println("ready", os.Getpid())
		select {}
	case "family":
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "TESTKIT_CHILD=sleep")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			return 1
		}
		select {}
	case "term":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		return 3
	case "abandon": // starts a child with testkit and dies without cleanups
		abandon()
	}
	return 99
}

func self(t *testing.T, role string, env ...string) *testkit.Proc {
	t.Helper()
	return testkit.Start(t, role, append(env, "TESTKIT_CHILD="+role), os.Args[0])
}

func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestProcTellsExitCodeAndOutput(t *testing.T) {
	t.Parallel()
	p := self(t, "exit7")
	if got := p.Wait(10 * time.Second); got != 7 {
		t.Errorf("exit code %d, want 7", got)
	}
	if got := p.Stdout(); got != "to stdout\n" {
		t.Errorf("stdout %q", got)
	}
	if got := p.Stderr(); got != "to stderr\n" {
		t.Errorf("stderr %q", got)
	}
	if p.Alive() || p.State() == nil {
		t.Error("an ended process is shown as alive")
	}
}

func TestProcEnvironment(t *testing.T) {
	t.Setenv("SOLOBEAT_REDIS_URL", "redis://somewhere")
	p := self(t, "env", "SOLOBEAT_NAMESPACE=mine")
	p.Wait(10 * time.Second)
	if out := p.Stdout(); strings.Contains(out, "SOLOBEAT_REDIS_URL") || !strings.Contains(out, "SOLOBEAT_NAMESPACE=mine") {
		t.Errorf("environment:\n%s", out)
	}
}

func TestProcSignalKillPause(t *testing.T) {
	t.Parallel()
	p := self(t, "term")
	p.WaitOutput(10*time.Second, `(?m)^ready$`)
	p.Pause()
	p.Signal(syscall.SIGTERM)
	if p.State() != nil {
		t.Error("a paused process acted on a signal")
	}
	p.Continue()
	if got := p.Wait(10 * time.Second); got != 3 {
		t.Errorf("exit code %d, want 3", got)
	}
	p.Signal(syscall.SIGTERM) // after the end: no error

	k := self(t, "sleep")
	k.WaitOutput(10*time.Second, `ready`)
	k.Kill()
	if status, ok := k.State().Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("state %v, want killed", k.State())
	}
}

// A grandchild is killed with the group when the test ends.
func TestProcEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var pids []int
	t.Run("inner", func(t *testing.T) {
		p := self(t, "family")
		m := p.WaitOutput(10*time.Second, `ready (\d+)`)
		grandchild, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		pids = []int{p.Pid, grandchild}
	})
	for _, pid := range pids {
		testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return gone(pid) }, "pid %d is gone", pid)
	}
}

// abandon runs in a child: no cleanup of its pretended test ever runs.
func abandon() {
	dir, err := os.MkdirTemp("", "abandon")
	if err != nil {
		os.Exit(1)
	}
	p := testkit.Start(&fakeTB{dir: dir}, "orphan", []string{"TESTKIT_CHILD=sleep"}, os.Args[0])
	fmt.Println("orphan", p.Pid, dir)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(2)
}

// fakeTB is a test without an end.
type fakeTB struct {
	testing.TB
	dir      string
	failed   bool
	messages strings.Builder
	cleanups []func()
}

func (f *fakeTB) Helper()                         {}
func (f *fakeTB) TempDir() string                 { return f.dir }
func (f *fakeTB) Failed() bool                    { return f.failed }
func (f *fakeTB) Cleanup(fn func())               { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Logf(format string, args ...any) { fmt.Fprintf(&f.messages, format+"\n", args...) }
func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failed = true
	panic(fmt.Sprintf(format, args...))
}

func TestChildDiesWithTheTestBinary(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = testkit.Environ("TESTKIT_CHILD=abandon")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := testkit.StartCmd(t, "abandon", cmd)
	m := p.WaitOutput(10*time.Second, `orphan (\d+) (\S+)`)
	t.Cleanup(func() { _ = os.RemoveAll(m[2]) })
	orphan, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	if gone(orphan) {
		t.Fatal("the child ended before its parent")
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	p.Wait(10 * time.Second)
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return gone(orphan) }, "the orphan is gone")
}

func TestProcPrintsItsLogsWhenTheTestFailed(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		f := &fakeTB{dir: t.TempDir()}
		p := testkit.Start(f, "teller", []string{"TESTKIT_CHILD=exit7"}, os.Args[0])
		p.Wait(10 * time.Second)
		f.failed = failed
		for _, fn := range f.cleanups {
			fn()
		}
		if got := strings.Contains(f.messages.String(), "to stderr"); got != failed {
			t.Errorf("failed=%v: logs printed: %v", failed, got)
		}
	}
}

func TestWaitFailsAtItsDeadline(t *testing.T) {
	t.Parallel()
	f := &fakeTB{dir: t.TempDir()}
	p := testkit.Start(f, "sleeper", []string{"TESTKIT_CHILD=sleep"}, os.Args[0])
	defer func() {
		if msg := fmt.Sprint(recover()); !strings.Contains(msg, "sleeper") || !strings.Contains(msg, "still runs") {
			t.Errorf("message %q", msg)
		}
		for _, fn := range f.cleanups {
			fn()
		}
	}()
	p.Wait(20 * time.Millisecond)
}
