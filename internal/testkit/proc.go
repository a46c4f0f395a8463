package testkit

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Proc is a child process of a test. Its output goes to files, not pipes, so a
// grandchild that keeps them open delays nobody.
type Proc struct {
	// Name stands before its logs when the test has failed.
	Name string
	// Pid is the process id; it is also the id of its process group.
	Pid int

	t      testing.TB
	cmd    *exec.Cmd
	dir    string
	exited chan struct{}
	err    error
}

// Start runs argv as a child process in a process group of its own. Its
// environment is the test's, without SOLOBEAT_* variables, plus env
// ("KEY=value", the last one wins). When the test ends the whole group is
// killed, and the logs are printed if the test has failed.
func Start(t testing.TB, name string, env []string, argv ...string) *Proc {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = Environ(env...)
	return StartCmd(t, name, cmd)
}

// StartCmd is Start for a command that needs more than arguments and an
// environment (a working folder, standard input, a session of its own). Its
// Stdout and Stderr are replaced. With a nil Env it gets Environ().
func StartCmd(t testing.TB, name string, cmd *exec.Cmd) *Proc {
	t.Helper()
	p := &Proc{Name: name, t: t, cmd: cmd, dir: t.TempDir(), exited: make(chan struct{})}
	if cmd.Env == nil {
		cmd.Env = Environ()
	}
	out, err := os.Create(p.file("stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	errs, err := os.Create(p.file("stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	err = spawn(cmd, func(err error) {
		p.err = err
		close(p.exited)
	})
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	p.Pid = cmd.Process.Pid
	t.Cleanup(p.cleanup)
	return p
}

// Environ is the environment that Start gives a child: the test's own without
// SOLOBEAT_* variables, without Python's byte-code files, plus extra.
func Environ(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SOLOBEAT_") {
			env = append(env, kv)
		}
	}
	env = append(env, "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
	return append(env, extra...)
}

// Signal sends sig to the process alone, not to its group. A process that has
// ended already is no error.
func (p *Proc) Signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("%s: signal %v: %v", p.Name, sig, err)
	}
}

// Kill sends SIGKILL to the process alone and waits until it is gone.
func (p *Proc) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	p.Wait(10 * time.Second)
}

// Pause stops the process with SIGSTOP and returns when all of it stands still.
func (p *Proc) Pause() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	Poll(p.t, 10*time.Second, time.Millisecond, func() bool { return stopped(p.Pid) || !p.Alive() },
		"%s stands still after SIGSTOP", p.Name)
}

// Continue lets a paused process run on.
func (p *Proc) Continue() {
	p.t.Helper()
	p.Signal(syscall.SIGCONT)
}

// Exited is closed when the process has ended and was waited for.
func (p *Proc) Exited() <-chan struct{} { return p.exited }

// Alive says whether the process has not ended yet; a paused one is alive.
func (p *Proc) Alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Wait waits until the process has ended and returns its exit code, -1 if a
// signal ended it. It fails the test when timeout passes first.
func (p *Proc) Wait(timeout time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-timer.C:
		p.t.Fatalf("%s (pid %d) still runs after %v", p.Name, p.Pid, timeout)
		return 0
	}
}

// State is what the system told about the end of the process; nil before.
func (p *Proc) State() *os.ProcessState {
	if p.Alive() {
		return nil
	}
	return p.cmd.ProcessState
}

// Stdout is what the process has written to its standard output so far.
func (p *Proc) Stdout() string { return p.read("stdout") }

// Stderr is what the process has written to its standard error so far.
func (p *Proc) Stderr() string { return p.read("stderr") }

// StderrFrom is what the process has written to its standard error after the
// first offset bytes.
func (p *Proc) StderrFrom(offset int64) string {
	f, err := os.Open(p.file("stderr"))
	if err != nil {
		p.t.Errorf("%s: %v", p.Name, err)
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		p.t.Errorf("%s: %v", p.Name, err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		p.t.Errorf("%s: %v", p.Name, err)
	}
	return string(b)
}

// WaitOutput waits until a line of standard output or standard error matches
// the regular expression and returns the match with its groups. It fails the
// test at once when the process ends without such a line.
func (p *Proc) WaitOutput(timeout time.Duration, expr string) []string {
	p.t.Helper()
	re := regexp.MustCompile(expr)
	var found []string
	Poll(p.t, timeout, 10*time.Millisecond, func() bool {
		p.t.Helper()
		alive := p.Alive()
		for _, text := range []string{p.Stdout(), p.Stderr()} {
			if found = re.FindStringSubmatch(text); found != nil {
				return true
			}
		}
		if !alive {
			p.t.Fatalf("%s ended (%v) without a line that matches %q", p.Name, p.cmd.ProcessState, expr)
		}
		return false
	}, "%s writes a line that matches %q", p.Name, expr)
	return found
}

func (p *Proc) file(stream string) string { return filepath.Join(p.dir, stream) }

func (p *Proc) read(stream string) string {
	b, err := os.ReadFile(p.file(stream))
	if err != nil {
		p.t.Errorf("%s: %v", p.Name, err)
	}
	return string(b)
}

func (p *Proc) cleanup() {
	// The group id stays taken while any member lives, so this meets no stranger.
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
	<-p.exited
	if !p.t.Failed() {
		return
	}
	p.t.Logf("%s (pid %d): %v", p.Name, p.Pid, p.cmd.ProcessState)
	for _, stream := range []string{"stdout", "stderr"} {
		if text := tail(p.read(stream), 200); text != "" {
			p.t.Logf("%s of %s:\n%s", stream, p.Name, text)
		}
	}
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = append([]string{"…"}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "\n")
}

// stopped says whether the kernel shows the process as stopped. Where /proc is
// missing it answers true, since then nothing better can be known.
func stopped(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return true
	}
	// The state follows the name, which stands in parentheses and may hold any byte.
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(") "))
	return ok && len(rest) > 0 && rest[0] == 'T'
}
