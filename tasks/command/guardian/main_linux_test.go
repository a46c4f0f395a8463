package guardian_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks/command/guardian"
)

const callerEnv = "GUARDIAN_TEST_CALLER"

func TestMain(m *testing.M) {
	guardian.RunIfChild()
	if text := os.Getenv(callerEnv); text != "" {
		os.Exit(callerMain(text))
	}
	// Under nohup HUP is ignored, and programs would inherit that.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreTopFunction("os/signal.signal_recv"))
}

// caller is what a child process of a test does: it plays the worker, so that
// it can be killed and stopped.
type caller struct {
	// Naive starts the program with a process group and a parent-death signal
	// instead of a guardian.
	Naive bool
	RunID string
	Argv  []string
	// TTL is the validity that is confirmed every TTL/4; 0: no deadline.
	TTL time.Duration
}

func callerMain(text string) int {
	var c caller
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if c.Naive {
		return c.naive()
	}
	deadline := func() time.Time {
		if c.TTL == 0 {
			return time.Time{}
		}
		return time.Now().Add(c.TTL)
	}
	p, err := guardian.Start(context.Background(), guardian.Config{
		Argv: c.Argv, Env: os.Environ(), RunID: c.RunID, Deadline: deadline(),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Printf("up %d %d\n", p.GuardianPID(), p.PID())
	renew := time.NewTicker(max(c.TTL/4, 50*time.Millisecond))
	for {
		select {
		case <-renew.C:
			p.Extend(deadline())
		case <-p.Done():
			st, err := p.Wait()
			fmt.Printf("end %s %v\n", st, err)
			return 0
		}
	}
}

func (c *caller) naive() int {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(os.Environ(), guardian.EnvTaskID+"="+c.RunID)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 2
	}
	fmt.Printf("up 0 %d\n", cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		return 1
	}
	return 0
}

// env returns the variable with which a copy of the test binary plays c.
func (c *caller) env(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return callerEnv + "=" + string(text)
}

// start starts the test binary as a caller and waits for its program's tree.
func (c *caller) start(t *testing.T) (proc *testkit.Proc, guardianPID int) {
	t.Helper()
	proc = testkit.Start(t, "caller", []string{c.env(t)}, "/proc/self/exe")
	return proc, c.awaitTree(t, proc)
}

func (c *caller) awaitTree(t *testing.T, proc *testkit.Proc) (guardianPID int) {
	t.Helper()
	killLeftovers(t, c.RunID)
	up := proc.WaitOutput(20*time.Second, `up (\d+) (\d+)`)
	awaitAlive(t, c.RunID, treeSize)
	pid, err := strconv.Atoi(up[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// tree is a program with a plain child, a setsid child, and two kinds of
// double fork: with and without a session of its own. It has treeSize
// processes that never end by themselves.
var tree = []string{"sh", "-c", `
sleep 300 &
setsid sleep 300 &
(setsid sh -c 'sleep 300 & exec sleep 300' &)
( (sleep 300 &) & )
exec sleep 300`}

const treeSize = 6

// runID names a run after its test.
func runID(t *testing.T) string {
	t.Helper()
	return strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + "-" + strconv.Itoa(os.Getpid())
}

// alive returns the processes that carry a run id, zombies excluded.
func alive(id string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+guardian.EnvTaskID+"="+id+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && state(pid) != 'Z' && state(pid) != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// state returns the process's state letter, 0 if it is gone.
func state(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	rest := bytes.TrimLeft(text[bytes.LastIndexByte(text, ')')+1:], " ")
	return rest[0]
}

func awaitAlive(t *testing.T, id string, n int) {
	t.Helper()
	testkit.Poll(t, 20*time.Second, 5*time.Millisecond, func() bool { return len(alive(id)) == n },
		"run %s has %d processes", id, n)
}

// awaitGone fails unless all processes of a run are gone by the given instant.
func awaitGone(t *testing.T, id string, by time.Time) {
	t.Helper()
	start := time.Now()
	testkit.Poll(t, time.Until(by), 20*time.Millisecond, func() bool { return len(alive(id)) == 0 },
		"run %s is gone", id)
	t.Logf("gone %v after the last act, %v before the limit", time.Since(start).Round(time.Millisecond), time.Until(by).Round(time.Millisecond))
}

// killLeftovers ends at the test's end what a naive caller, or a failed test,
// left behind.
func killLeftovers(t *testing.T, id string) {
	t.Helper()
	t.Cleanup(func() {
		for range 100 {
			left := alive(id)
			if len(left) == 0 {
				return
			}
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}
