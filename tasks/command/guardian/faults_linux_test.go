package guardian_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks/command/guardian"
)

// A caller that is killed leaves nothing running 1 s later; one that uses a
// process group and a parent-death signal does.
func TestCallerKilled(t *testing.T) {
	t.Parallel()
	t.Run("guardian", func(t *testing.T) {
		t.Parallel()
		c := caller{RunID: runID(t), Argv: tree}
		proc, _ := c.start(t)
		proc.Kill()
		awaitGone(t, c.RunID, time.Now().Add(time.Second))
	})
	t.Run("naive control", func(t *testing.T) {
		t.Parallel()
		c := caller{RunID: runID(t), Argv: tree, Naive: true}
		proc, _ := c.start(t)
		proc.Kill()
		<-time.After(time.Second)
		left := alive(c.RunID)
		if len(left) == 0 {
			t.Error("the naive caller left nothing: this test cannot tell a guardian from none")
		}
		t.Logf("the naive caller left %d of %d processes", len(left), treeSize)
	})
}

// So does one that is killed at any moment of the start.
func TestCallerKilledWhileStarting(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		c := caller{RunID: fmt.Sprintf("%s-%d", runID(t), i), Argv: tree}
		killLeftovers(t, c.RunID)
		proc := testkit.Start(t, "caller", []string{c.env(t)}, "/proc/self/exe")
		<-time.After(time.Duration(i) * 6 * time.Millisecond)
		proc.Kill()
		by := time.Now().Add(time.Second)
		// Until then the guardian may still be on its way to the start.
		<-time.After(200 * time.Millisecond)
		awaitGone(t, c.RunID, by)
	}
}

// A caller that is stopped past the lock's validity: the tree is gone 1 s
// after the deadline, and not before it.
func TestCallerStopped(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	t.Run("guardian", func(t *testing.T) {
		t.Parallel()
		c := caller{RunID: runID(t), Argv: tree, TTL: ttl}
		proc, guardianPID := c.start(t)
		// All of the caller's process group: the guardian must not be in it.
		sign(t, -proc.Pid, unix.SIGSTOP)
		stopped := time.Now()
		// The last confirmed renewal is at most TTL/4 old.
		<-time.After(time.Until(stopped.Add(ttl - ttl/4 - 300*time.Millisecond)))
		if n := len(alive(c.RunID)); n != treeSize {
			t.Errorf("%d of %d processes before the deadline", n, treeSize)
		}
		awaitGone(t, c.RunID, stopped.Add(ttl+time.Second))
		if s := state(proc.Pid); s != 'T' {
			t.Errorf("caller is in state %c, the test needs it stopped", s)
		}
		// The guardian itself has nothing more to do; its zombie is the
		// stopped caller's.
		testkit.Poll(t, time.Second, 5*time.Millisecond, func() bool { return state(guardianPID) == 'Z' }, "guardian has ended")
		proc.Continue()
		proc.WaitOutput(5*time.Second, `end signal: killed \(deadline passed\) <nil>`)
	})
	t.Run("naive control", func(t *testing.T) {
		t.Parallel()
		c := caller{RunID: runID(t), Argv: tree, Naive: true}
		proc, _ := c.start(t)
		proc.Pause()
		<-time.After(ttl + time.Second)
		if n := len(alive(c.RunID)); n != treeSize {
			t.Errorf("the naive caller has %d of %d processes: this test cannot tell a guardian from none", n, treeSize)
		}
	})
}

// Ctrl-Z on a terminal stops the caller and neither guardian nor program, and
// the program is gone at the deadline.
func TestTerminalStop(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	c := caller{RunID: runID(t), Argv: tree, TTL: ttl}
	terminal, tty := openTerminal(t)
	// The shell has job control: it gives the caller a foreground group.
	cmd := exec.Command("sh", "-mc", quoteSelf(t)+"; exec sleep 300")
	cmd.Env = testkit.Environ(c.env(t))
	cmd.Stdin = tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	proc := testkit.StartCmd(t, "shell", cmd)
	guardianPID := c.awaitTree(t, proc)
	if _, err := terminal.Write([]byte{0x1a}); err != nil {
		t.Fatal(err)
	}
	callerPID := parentOf(t, guardianPID)
	testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool { return state(callerPID) == 'T' }, "caller stops on Ctrl-Z")
	stopped := time.Now()
	if s := state(guardianPID); s == 'T' {
		t.Error("the guardian was stopped too")
	}
	awaitGone(t, c.RunID, stopped.Add(ttl+time.Second))
	if s := state(callerPID); s != 'T' {
		t.Errorf("caller is in state %c, the test needs it stopped", s)
	}
}

func quoteSelf(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "'" + exe + "'"
}

// openTerminal returns both ends of a new pseudo-terminal.
func openTerminal(t *testing.T) (terminal, tty *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	fd := int(terminal.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return terminal, tty
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	var ppid int
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	rest := text[slices.Index(text, ')')+1:]
	var st string
	if _, err := fmt.Sscan(string(rest), &st, &ppid); err != nil {
		t.Fatal(err)
	}
	return ppid
}

// start starts a tree in the test's own process.
func start(t *testing.T, cfg guardian.Config) *guardian.Process {
	t.Helper()
	if cfg.RunID == "" {
		cfg.RunID = runID(t)
	}
	if cfg.Env == nil {
		cfg.Env = os.Environ()
	}
	killLeftovers(t, cfg.RunID)
	p, err := guardian.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		_, _ = p.Wait()
	})
	return p
}

func startTree(t *testing.T, cfg guardian.Config) *guardian.Process {
	t.Helper()
	cfg.Argv = tree
	p := start(t, cfg)
	awaitAlive(t, p.RunID(), treeSize)
	return p
}

// wait waits for the end, and for nothing left. How soon it must come is for
// awaitGone to say.
func wait(t *testing.T, p *guardian.Process) guardian.Status {
	t.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		t.Fatal("still running after 20 s")
	}
	st, err := p.Wait()
	if err != nil {
		t.Errorf("Wait: %v", err)
	}
	if left := alive(p.RunID()); len(left) > 0 {
		t.Errorf("processes %v are left after Wait", left)
	}
	return st
}

func TestGuardianKilled(t *testing.T) {
	t.Parallel()
	p := startTree(t, guardian.Config{})
	sign(t, p.GuardianPID(), unix.SIGKILL)
	awaitGone(t, p.RunID(), time.Now().Add(time.Second))
	if st := wait(t, p); st.Reason != guardian.GuardianLost || st.ExitCode != -1 {
		t.Errorf("status %v", st)
	}
}

// The tree of a guardian that is killed also holds processes without the run
// id in their environment, if only they are children of some that have it.
func TestGuardianKilledEnvironmentCleared(t *testing.T) {
	t.Parallel()
	marker := "guardian-cleared-" + runID(t)
	p := start(t, guardian.Config{Argv: []string{"sh", "-c", "env -i setsid sh -c 'sleep 300; : " + marker + "' & sleep 300"}})
	awaitAlive(t, p.RunID(), 2)
	below := func() int { return len(withArgument(marker)) }
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return below() >= 2 }, "child with an empty environment runs")
	sign(t, p.GuardianPID(), unix.SIGKILL)
	wait(t, p)
	testkit.Poll(t, time.Second, 5*time.Millisecond, func() bool { return below() == 0 }, "child with an empty environment is gone")
}

// A guardian that is stopped ignores orders; the caller kills it and then the
// tree.
func TestGuardianStopped(t *testing.T) {
	t.Parallel()
	t.Run("kill", func(t *testing.T) {
		t.Parallel()
		p := startTree(t, guardian.Config{})
		sign(t, p.GuardianPID(), unix.SIGSTOP)
		p.Kill()
		awaitGone(t, p.RunID(), time.Now().Add(time.Second))
		if st := wait(t, p); st.Reason != guardian.Killed {
			t.Errorf("status %v", st)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		p := startTree(t, guardian.Config{})
		sign(t, p.GuardianPID(), unix.SIGSTOP)
		p.Extend(time.Now().Add(500 * time.Millisecond))
		awaitGone(t, p.RunID(), time.Now().Add(1500*time.Millisecond))
		if st := wait(t, p); st.Reason != guardian.DeadlinePassed {
			t.Errorf("status %v", st)
		}
	})
	t.Run("many extensions do not block", func(t *testing.T) {
		t.Parallel()
		p := startTree(t, guardian.Config{Deadline: time.Now().Add(time.Minute)})
		sign(t, p.GuardianPID(), unix.SIGSTOP)
		begin := time.Now()
		for range 3000 {
			p.Extend(time.Now().Add(time.Minute))
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("3,000 extensions took %v", took)
		}
	})
}

// What is not of the run is left alone, also if it is a child of the caller,
// and other waits in the process keep their statuses.
func TestOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	other := exec.Command("sh", "-c", "sleep 300 & exec sleep 300")
	other.Env = append(os.Environ(), guardian.EnvTaskID+"="+runID(t)+"-other")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killLeftovers(t, runID(t)+"-other")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	awaitAlive(t, runID(t)+"-other", 2)
	second := start(t, guardian.Config{Argv: tree, RunID: runID(t) + "-second"})
	awaitAlive(t, second.RunID(), treeSize)

	statuses := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		defer close(statuses)
		for i := 0; ; i = (i + 1) % 100 {
			select {
			case <-stop:
				return
			default:
			}
			cmd := exec.Command("sh", "-c", fmt.Sprintf("exit %d", i))
			_ = cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != i {
				statuses <- fmt.Errorf("exit code %d instead of %d", got, i)
				return
			}
		}
	}()
	for i := range 5 {
		p := startTree(t, guardian.Config{RunID: fmt.Sprintf("%s-%d", runID(t), i)})
		sign(t, p.GuardianPID(), unix.SIGKILL)
		wait(t, p)
	}
	close(stop)
	if err := <-statuses; err != nil {
		t.Error(err)
	}
	if n := len(alive(runID(t) + "-other")); n != 2 {
		t.Errorf("%d of 2 processes of another's child are left", n)
	}
	if n := len(alive(second.RunID())); n != treeSize {
		t.Errorf("%d of %d processes of another run are left", n, treeSize)
	}
	sign(t, other.Process.Pid, unix.SIGKILL)
	if err := other.Wait(); err == nil {
		t.Error("the other child's status was lost")
	}
}

// What a terminal or a shutdown sends to everybody does not reach the
// guardian.
func TestGuardianIgnoresSignals(t *testing.T) {
	t.Parallel()
	p := startTree(t, guardian.Config{})
	for _, s := range []unix.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		sign(t, p.GuardianPID(), s)
	}
	// It still obeys: the program's own end comes through it.
	sign(t, p.PID(), unix.SIGUSR1)
	if st := wait(t, p); st.Signal != unix.SIGUSR1 || st.Reason != guardian.Ended {
		t.Errorf("status %v", st)
	}
}

func sign(t *testing.T, pid int, s unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}
