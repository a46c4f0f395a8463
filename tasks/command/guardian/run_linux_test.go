package guardian_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks/command/guardian"
)

func TestProgramEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		name   string
		script string
		stdin  string
		want   guardian.Status
		stdout string
	}{
		{name: "success", script: "echo out; echo err >&2", stdout: "out\n"},
		{name: "exit code", script: "exit 37", want: guardian.Status{ExitCode: 37}},
		{name: "signal", script: "kill -ALRM $$", want: guardian.Status{ExitCode: -1, Signal: syscall.SIGALRM}},
		{name: "stdin", script: "cat", stdin: "word", stdout: "word"},
		{name: "directory", script: "pwd", stdout: dir + "\n"},
		{name: "environment", script: "echo $SOLOBEAT_RUN_TASK_ID $A", stdout: "the-run b\xff\n"},
		{name: "no guardian's variable", script: "env | grep -c GUARDIAN", want: guardian.Status{ExitCode: 1}, stdout: "0\n"},
		{name: "no descriptor of the guardian's", script: "exec ls /proc/self/fd", stdout: descriptors(t)},
		{name: "input is not read", script: "exit 0", stdin: strings.Repeat("x", 1<<20)},
		{name: "a large output", script: "head -c 1000000 /dev/zero | tr '\\0' x", stdout: strings.Repeat("x", 1000000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			cfg := guardian.Config{
				Argv: []string{"sh", "-c", c.script}, Dir: dir, RunID: "the-run",
				Env:   []string{"PATH=" + os.Getenv("PATH"), "A=b\xff", "SOLOBEAT_RUN_TASK_ID=outer"},
				Stdin: strings.NewReader(c.stdin), Stdout: &stdout, Stderr: &stderr,
			}
			p, err := guardian.Start(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			st, err := p.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, st); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.stdout, stdout.String()); diff != "" {
				t.Error(diff)
			}
			if want := (c.want == guardian.Status{}); st.Success() != want {
				t.Errorf("Success() = %v", st.Success())
			}
		})
	}
}

// descriptors lists what a child of the test inherits without a guardian.
func descriptors(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ls", "/proc/self/fd").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		cfg   guardian.Config
		stage string
		want  error
	}{
		{"not in PATH", guardian.Config{Argv: []string{"no-such-program"}}, "find", fs.ErrNotExist},
		{"no such file", guardian.Config{Argv: []string{"./no-such-program"}}, "exec", fs.ErrNotExist},
		{"not executable", guardian.Config{Argv: []string{plain}}, "exec", fs.ErrPermission},
		{"not executable in PATH", guardian.Config{Argv: []string{"plain"}, Env: []string{"PATH=" + dir}}, "find", fs.ErrPermission},
		{"no such directory", guardian.Config{Argv: []string{"/bin/true"}, Dir: dir + "/none"}, "chdir", fs.ErrNotExist},
		{"directory is a file", guardian.Config{Argv: []string{"/bin/true"}, Dir: plain}, "chdir", syscall.ENOTDIR},
		{"NUL", guardian.Config{Argv: []string{"/bin/true", "a\x00b"}}, "exec", syscall.EINVAL},
		{"too long", guardian.Config{Argv: []string{"/bin/true", strings.Repeat("x", 1<<20)}}, "exec", syscall.E2BIG},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.cfg.Env == nil {
				c.cfg.Env = os.Environ()
			}
			_, err := guardian.Start(context.Background(), c.cfg)
			start, ok := errors.AsType[*guardian.StartError](err)
			if !ok || start.Stage != c.stage || !errors.Is(err, c.want) {
				t.Errorf("got %v (%T), want %v in stage %s", err, err, c.want, c.stage)
			}
		})
	}
	if _, err := guardian.Start(context.Background(), guardian.Config{}); !errors.Is(err, guardian.ErrNoProgram) {
		t.Errorf("without program: %v", err)
	}
	late := guardian.Config{Argv: []string{"/bin/true"}, Deadline: time.Now().Add(-time.Millisecond)}
	if _, err := guardian.Start(context.Background(), late); !errors.Is(err, guardian.ErrDeadline) {
		t.Errorf("after the deadline: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(io.ErrClosedPipe)
	if _, err := guardian.Start(ctx, guardian.Config{Argv: []string{"/bin/sleep", "300"}, RunID: runID(t)}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("with a cancelled context: %v", err)
	}
	if left := alive(runID(t)); len(left) > 0 {
		t.Errorf("a cancelled start left %v", left)
	}
}

// A start that is cancelled at any moment either has surely not run the
// program, or returns it: an error never hides an effect.
func TestStartCancelled(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	for i := range 25 {
		file := fmt.Sprintf("%s-%d", ran, i)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
		p, err := guardian.Start(ctx, guardian.Config{Argv: []string{"sh", "-c", "echo >" + file + "; exec sleep 300"}, Env: os.Environ()})
		if err == nil {
			p.Kill()
			wait(t, p)
		}
		cancel()
		if _, statErr := os.Stat(file); statErr == nil && err != nil {
			t.Errorf("cancelled after %d ms: %v, but the program ran", i, err)
		}
	}
}

// What a program leaves behind is gone when Wait returns, and holds up
// neither the output nor the end.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	out := guardian.NewTail(100)
	p := start(t, guardian.Config{
		Argv:   []string{"sh", "-c", "setsid sleep 300 & (sleep 300 &) ; sleep 300 & echo done; exit 3"},
		Stdout: out, Stderr: out, Stdin: strings.NewReader("unread"),
	})
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return len(out.Bytes()) > 0 }, "program writes")
	wrote := time.Now()
	st := wait(t, p)
	if took := time.Since(wrote); took > 1900*time.Millisecond {
		t.Errorf("%v from the program's end to the end of its leftovers: the guardian did not kill them", took)
	}
	if diff := cmp.Diff(guardian.Status{ExitCode: 3}, st); diff != "" {
		t.Error(diff)
	}
	if got := string(out.Bytes()); got != "done\n" {
		t.Errorf("output %q", got)
	}
	if st.Shell() != 3 {
		t.Errorf("Shell() = %d", st.Shell())
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	t.Run("passes", func(t *testing.T) {
		t.Parallel()
		p := startTree(t, guardian.Config{})
		deadline := time.Now().Add(400 * time.Millisecond)
		p.Extend(deadline)
		<-time.After(time.Until(deadline.Add(-100 * time.Millisecond)))
		if n := len(alive(p.RunID())); n != treeSize && time.Now().Before(deadline) {
			t.Errorf("%d of %d processes before the deadline", n, treeSize)
		}
		awaitGone(t, p.RunID(), deadline.Add(time.Second))
		st := wait(t, p)
		want := guardian.Status{ExitCode: -1, Signal: syscall.SIGKILL, Reason: guardian.DeadlinePassed}
		if diff := cmp.Diff(want, st); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("of the start passes", func(t *testing.T) {
		t.Parallel()
		p := start(t, guardian.Config{Argv: []string{"sleep", "300"}, Deadline: time.Now().Add(700 * time.Millisecond)})
		if st := wait(t, p); st.Reason != guardian.DeadlinePassed {
			t.Errorf("status %v", st)
		}
	})
	t.Run("is moved", func(t *testing.T) {
		t.Parallel()
		p := start(t, guardian.Config{Argv: []string{"sleep", "1.5"}, Deadline: time.Now().Add(time.Second)})
		renew := time.NewTicker(200 * time.Millisecond)
		defer renew.Stop()
		for running := true; running; {
			select {
			case <-renew.C:
				p.Extend(time.Now().Add(time.Second))
			case <-p.Done():
				running = false
			}
		}
		if st := wait(t, p); !st.Success() {
			t.Errorf("status %v", st)
		}
	})
	t.Run("is removed", func(t *testing.T) {
		t.Parallel()
		p := start(t, guardian.Config{Argv: []string{"sleep", "1.2"}, Deadline: time.Now().Add(600 * time.Millisecond)})
		p.Extend(time.Time{})
		if st := wait(t, p); !st.Success() {
			t.Errorf("status %v", st)
		}
	})
	t.Run("of the wall clock passes", func(t *testing.T) {
		t.Parallel()
		// Without a monotonic reading there is only the wall clock to go by.
		p := start(t, guardian.Config{Argv: []string{"sleep", "300"}, Deadline: time.Now().Add(500 * time.Millisecond).Round(0)})
		if st := wait(t, p); st.Reason != guardian.DeadlinePassed {
			t.Errorf("status %v", st)
		}
	})
}

func TestKill(t *testing.T) {
	t.Parallel()
	p := startTree(t, guardian.Config{})
	p.Kill()
	want := guardian.Status{ExitCode: -1, Signal: syscall.SIGKILL, Reason: guardian.Killed}
	if diff := cmp.Diff(want, wait(t, p)); diff != "" {
		t.Error(diff)
	}
	p.Kill()
	p.Terminate(0)
	p.Extend(time.Now())
}

// A tree that keeps forking while it is killed, by the guardian or in its
// place.
func TestKillForking(t *testing.T) {
	t.Parallel()
	script := `f() { while :; do (setsid sh -c 'sleep 0.05; sleep 300' &) ; sleep 0.02; done; }; f & f & f & f`
	for name, end := range map[string]func(*guardian.Process){
		"by the guardian": func(p *guardian.Process) { p.Kill() },
		"by the caller":   func(p *guardian.Process) { sign(t, p.GuardianPID(), unix.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, guardian.Config{Argv: []string{"sh", "-c", script}})
			testkit.Poll(t, 20*time.Second, 5*time.Millisecond, func() bool { return len(alive(p.RunID())) > 60 }, "60 processes")
			end(p)
			began := time.Now()
			wait(t, p)
			t.Logf("gone after %v", time.Since(began))
		})
	}
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		grace        time.Duration
		want         guardian.Status
		stop         bool
	}{
		{
			name: "is obeyed", script: `trap 'exit 7' TERM; echo ready; sleep 300 & wait`, grace: 10 * time.Second,
			want: guardian.Status{ExitCode: 7, Reason: guardian.Terminated},
		},
		{
			name: "is obeyed, and a child comes too late for it", script: `trap 'sleep 300 & exit 7' TERM; echo ready; while :; do sleep 0.05; done`, grace: 10 * time.Second,
			want: guardian.Status{ExitCode: 7, Reason: guardian.Terminated},
		},
		{
			name: "ends by the signal", script: `echo ready; exec sleep 300`, grace: 10 * time.Second,
			want: guardian.Status{ExitCode: -1, Signal: syscall.SIGTERM, Reason: guardian.Terminated},
		},
		{
			name: "reaches a stopped program", script: `echo ready; exec sleep 300`, grace: 10 * time.Second, stop: true,
			want: guardian.Status{ExitCode: -1, Signal: syscall.SIGTERM, Reason: guardian.Terminated},
		},
		{
			name: "is ignored", script: `trap '' TERM; echo ready; while :; do sleep 1; done`, grace: 300 * time.Millisecond,
			want: guardian.Status{ExitCode: -1, Signal: syscall.SIGKILL, Reason: guardian.Terminated},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := guardian.NewTail(100)
			p := start(t, guardian.Config{Argv: []string{"sh", "-c", c.script}, Stdout: out})
			testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return len(out.Bytes()) > 0 }, "program is ready")
			if c.stop {
				sign(t, p.PID(), unix.SIGSTOP)
			}
			p.Terminate(c.grace)
			if diff := cmp.Diff(c.want, wait(t, p)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A shell dies of TERM at once; what it waited for still gets its grace, also
// in a session of its own.
func TestTerminateLeavesGrace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orderly")
	out := guardian.NewTail(100)
	child := `trap "sleep 0.3; echo bye >` + file + `; exit" TERM; echo ready; while :; do sleep 0.1; done`
	p := start(t, guardian.Config{Argv: []string{"sh", "-c", "setsid sh -c '" + child + "'; exit 1"}, Stdout: out})
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return len(out.Bytes()) > 0 }, "program is ready")
	p.Terminate(10 * time.Second)
	wait(t, p)
	if text, err := os.ReadFile(file); err != nil || string(text) != "bye\n" {
		t.Errorf("the child did not end in order: %q %v", text, err)
	}
}

func TestTerminateThenDeadline(t *testing.T) {
	t.Parallel()
	out := guardian.NewTail(100)
	p := start(t, guardian.Config{
		Argv: []string{"sh", "-c", `trap '' TERM; echo ready; while :; do sleep 1; done`}, Stdout: out,
		Deadline: time.Now().Add(20 * time.Second),
	})
	testkit.Poll(t, 10*time.Second, time.Millisecond, func() bool { return len(out.Bytes()) > 0 }, "program is ready")
	p.Terminate(30 * time.Second)
	p.Extend(time.Now().Add(300 * time.Millisecond))
	if st := wait(t, p); st.Reason != guardian.DeadlinePassed {
		t.Errorf("status %v", st)
	}
}

// The program's signals have their defaults, but for the two with which a
// terminal stops a program in the background.
func TestSignalDefaults(t *testing.T) {
	t.Parallel()
	out := guardian.NewTail(1000)
	p := start(t, guardian.Config{Argv: []string{"grep", "SigIgn", "/proc/self/status"}, Stdout: out})
	wait(t, p)
	var mask uint64
	if _, err := fmt.Sscanf(string(out.Bytes()), "SigIgn:\t%x", &mask); err != nil {
		t.Fatalf("%q: %v", out.Bytes(), err)
	}
	for s := unix.SIGHUP; s <= unix.SIGSYS; s++ {
		want := s == unix.SIGTTIN || s == unix.SIGTTOU
		if ignored := mask&(1<<(s-1)) != 0; ignored != want {
			t.Errorf("%v: ignored is %v", s, ignored)
		}
	}
}

// An output that nobody takes does not hold up the end.
func TestOutputBlocks(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	p := start(t, guardian.Config{Argv: []string{"echo", "text"}, Stdout: w})
	wait(t, p)
	_ = r.Close()
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			out := guardian.NewTail(100)
			p, err := guardian.Start(context.Background(), guardian.Config{
				Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i)}, Stdout: out,
			})
			if err != nil {
				t.Error(err)
				return
			}
			st, err := p.Wait()
			if st.ExitCode != i || string(out.Bytes()) != fmt.Sprintf("%d\n", i) || err != nil {
				t.Errorf("run %d: %v %q %v", i, st, out.Bytes(), err)
			}
		})
	}
	wg.Wait()
}

// withArgument returns the processes with text in their command line.
func withArgument(text string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(text)) {
			found = append(found, file)
		}
	}
	return found
}

// BenchmarkCommand is what a command costs with a guardian; BenchmarkPlain is
// the same without.
func BenchmarkCommand(b *testing.B) {
	for b.Loop() {
		p, err := guardian.Start(context.Background(), guardian.Config{Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		if st, err := p.Wait(); err != nil || !st.Success() {
			b.Fatal(st, err)
		}
	}
}

func BenchmarkPlain(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
