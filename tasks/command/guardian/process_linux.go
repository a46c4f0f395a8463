package guardian

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a running program with its guardian. Its methods are safe for
// concurrent use. It must be waited for.
type Process struct {
	runID   string
	program string
	cmd     *exec.Cmd
	control *os.File

	// sending keeps orders in the order in which they are noted here.
	sending sync.Mutex

	mu       sync.Mutex
	deadline time.Time
	// killBy is when an order to kill must have been confirmed; zero: none.
	killBy time.Time
	asked  Reason
	// killing is when the guardian told that it kills; zero: not yet.
	killing  time.Time
	pid      int
	starting bool
	exit     *unix.WaitStatus
	gone     *Reason
	failed   *StartError

	changed    chan struct{} // deadline or killBy changed; holds one
	started    chan struct{} // closed when the program runs, or never will
	statusRead chan struct{} // closed at the end of the guardian's reports
	exited     chan struct{} // closed when the guardian is dead
	done       chan struct{} // closed when status and err are final
	status     Status
	err        error
}

// Start starts a program under a guardian and returns when it runs. ctx
// bounds the start only: to end the program use Kill, Terminate or the
// deadline. A program that cannot be started is a [*StartError].
func Start(ctx context.Context, cfg Config) (*Process, error) {
	if !hooked.Load() {
		return nil, ErrNotHooked
	}
	if len(cfg.Argv) == 0 || cfg.Argv[0] == "" {
		return nil, ErrNoProgram
	}
	if !cfg.Deadline.IsZero() && until(cfg.Deadline, time.Now()) <= 0 {
		return nil, ErrDeadline
	}
	p := newProcess(cfg)
	if ctx.Err() != nil {
		return nil, p.startError("guardian", context.Cause(ctx))
	}
	path, err := lookPath(cfg.Argv[0], cfg.Env)
	if err != nil {
		return nil, p.startError("find", err)
	}
	// What a guardian leaves behind that was killed falls to this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, p.startError("guardian", fmt.Errorf("become a subreaper: %w", err))
	}
	s := &spec{path: path, dir: cfg.Dir, argv: cfg.Argv, env: setEnv(cfg.Env, EnvTaskID, p.runID)}
	s.boot, s.wall = instants(cfg.Deadline)
	text, err := s.encode()
	if err != nil {
		return nil, p.startError("exec", err)
	}
	if err := p.launch(cfg, text); err != nil {
		return nil, p.startError("guardian", err)
	}
	return p.awaitStart(ctx)
}

func newProcess(cfg Config) *Process {
	p := &Process{
		runID:      cfg.RunID,
		program:    cfg.Argv[0],
		deadline:   cfg.Deadline,
		changed:    make(chan struct{}, 1),
		started:    make(chan struct{}),
		statusRead: make(chan struct{}),
		exited:     make(chan struct{}),
		done:       make(chan struct{}),
	}
	if p.runID == "" {
		p.runID = rand.Text()
	}
	return p
}

func (p *Process) startError(stage string, err error) error {
	return &StartError{Program: p.program, Stage: stage, Err: err}
}

// launch starts the guardian and hands it what to run.
func (p *Process) launch(cfg Config, spec []byte) error {
	controlR, controlW, err := os.Pipe()
	if err != nil {
		return err
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, controlR.Close(), controlW.Close())
	}
	p.control = controlW
	p.cmd = &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{childArg0, p.program},
		Env:         guardianEnv(os.Environ()),
		Stdin:       cfg.Stdin,
		Stdout:      cfg.Stdout,
		Stderr:      cfg.Stderr,
		ExtraFiles:  []*os.File{controlR, statusW},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		WaitDelay:   drainWithin,
	}
	err = p.cmd.Start()
	_ = controlR.Close()
	_ = statusW.Close()
	if err != nil {
		return errors.Join(err, controlW.Close(), statusR.Close())
	}
	go p.readStatus(statusR)
	go p.awaitExit()
	go p.supervise()
	_ = controlW.SetWriteDeadline(time.Now().Add(startWithin))
	if _, err := controlW.Write(spec); err != nil {
		// The guardian is killed here rather than by the end of the pipe: it
		// may be stopped.
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("hand over to the guardian: %w", err)
	}
	return nil
}

// guardianEnv is the guardian's own environment: nothing of the program's,
// and nothing secret, but what the loader and the runtime need to start the
// same binary again.
func guardianEnv(base []string) []string {
	env := []string{childEnv + "=1"}
	for _, kv := range base {
		if strings.HasPrefix(kv, "LD_") || strings.HasPrefix(kv, "GODEBUG=") {
			env = append(env, kv)
		}
	}
	return env
}

// awaitStart waits until the program runs, or did not start. An error means
// that it surely has not run: whoever gets one may say so of the effect.
func (p *Process) awaitStart(ctx context.Context) (*Process, error) {
	cause := p.awaitNews(ctx)
	if p.mayHaveRun() {
		return p, nil
	}
	p.Kill()
	<-p.done
	switch {
	case p.mayHaveRun():
		return p, nil
	case p.failed != nil:
		return nil, p.failed
	case p.status.Reason == DeadlinePassed:
		return nil, ErrDeadline
	case cause == nil:
		cause = errors.New("the guardian ended before the start")
	}
	return nil, p.startError("guardian", cause)
}

// awaitNews waits for the guardian's word about the start, and says why it has
// not come. A start that is cancelled gets a moment more: if the program runs
// by then, the caller decides how it is to end.
func (p *Process) awaitNews(ctx context.Context) (cause error) {
	limit := time.NewTimer(startWithin)
	defer limit.Stop()
	cancelled := ctx.Done()
	for {
		select {
		case <-p.started:
			return cause
		case <-cancelled:
			cancelled, cause = nil, context.Cause(ctx)
			limit.Reset(confirmWithin)
		case <-limit.C:
			if cause == nil {
				cause = fmt.Errorf("no news from the guardian for %s", startWithin)
			}
			return cause
		}
	}
}

// mayHaveRun reports whether the guardian has come to the start of the program
// and has not told that it failed.
func (p *Process) mayHaveRun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starting && p.failed == nil && (p.pid != 0 || isClosed(p.statusRead))
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Extend moves the deadline, usually after a confirmed renewal; the zero time
// removes it. A deadline that carries Go's monotonic reading is safe against
// steps of the wall clock.
func (p *Process) Extend(deadline time.Time) {
	p.sending.Lock()
	defer p.sending.Unlock()
	boot, wall := instants(deadline)
	p.mu.Lock()
	p.deadline = deadline
	p.mu.Unlock()
	p.order(frame{kind: frameDeadline, a: boot, b: wall})
}

// Kill kills the program and all its descendants at once. It does not wait.
func (p *Process) Kill() {
	p.killBefore(time.Now().Add(confirmWithin), Killed)
	p.order(frame{kind: frameKill})
}

// Terminate asks the program and its descendants to end (TERM), and kills
// after grace what is still there. It does not wait.
func (p *Process) Terminate(grace time.Duration) {
	boot := bootNow() + int64(grace)
	p.killBefore(time.Now().Add(grace+confirmWithin), Terminated)
	p.order(frame{kind: frameTerminate, a: boot})
}

// Wait waits until the program has ended and nothing of its tree is left, and
// its output has been copied. The error is a [*SurvivorsError] if something
// could not be killed; the status is right also then.
func (p *Process) Wait() (Status, error) {
	<-p.done
	return p.status, p.err
}

// Done is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

// order writes to the guardian. One that is dead or does not read is dealt
// with by supervise, so an error has no consequence here.
func (p *Process) order(f frame) {
	_ = p.control.SetWriteDeadline(time.Now().Add(confirmWithin))
	_ = f.write(p.control)
	p.wake()
}

func (p *Process) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// killBefore sets when the tree must be gone; an earlier instant wins.
func (p *Process) killBefore(t time.Time, why Reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killBy.IsZero() || t.Before(p.killBy) {
		p.killBy, p.asked = t, why
	}
}

// overdue returns how long to wait for the guardian until the caller kills by
// itself, and why it then would; false: for ever. A guardian that has told
// that it is killing gets the time that a large tree takes.
func (p *Process) overdue() (time.Duration, Reason, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.killing.IsZero() {
		return p.killing.Add(tidyWithin).Sub(now), p.asked, true
	}
	left, why, limited := time.Duration(0), p.asked, false
	if !p.killBy.IsZero() {
		left, limited = p.killBy.Sub(now), true
	}
	if !p.deadline.IsZero() {
		if d := until(p.deadline, now) + confirmWithin; !limited || d < left {
			left, why, limited = d, DeadlinePassed, true
		}
	}
	return left, why, limited
}

// supervise watches the guardian, and finishes when it is dead.
func (p *Process) supervise() {
	s := &sweeper{entry: EnvTaskID + "=" + p.runID, known: map[int]uint64{}}
	forced := p.awaitGuardian(s)
	<-p.statusRead
	p.mu.Lock()
	s.pgrp = p.pid
	gone := p.gone
	p.mu.Unlock()
	if gone == nil {
		if left := s.sweep(sweepWithin); len(left) > 0 {
			p.err = &SurvivorsError{PIDs: left}
		}
	}
	p.drain()
	_ = p.control.Close()
	p.status = p.outcome(forced)
	close(p.done)
}

// drain reaps the guardian and waits for the copying of what the program
// wrote. os/exec closes the pipes after a while, but would wait for ever for a
// writer of the caller's that blocks.
func (p *Process) drain() {
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		// The guardian's own exit status says nothing that its reports did
		// not, and copying that was cut short is no failure of the program.
		_ = p.cmd.Wait()
	}()
	limit := time.NewTimer(2 * drainWithin)
	defer limit.Stop()
	select {
	case <-copied:
	case <-limit.C:
	}
}

// awaitGuardian returns when the guardian is dead; if it was the caller that
// killed it, since it had not confirmed in time, then with the reason.
func (p *Process) awaitGuardian(s *sweeper) *Reason {
	for {
		left, why, limited := p.overdue()
		var due <-chan time.Time
		timer := time.NewTimer(left)
		if limited {
			due = timer.C
		}
		select {
		case <-p.exited:
			timer.Stop()
			return nil
		case <-p.changed:
			timer.Stop()
		case <-due:
			// The deadline may have been moved since the timer was set.
			if left, _, limited := p.overdue(); !limited || left > 0 {
				continue
			}
			s.note(p.cmd.Process.Pid)
			_ = p.cmd.Process.Kill()
			<-p.exited
			return &why
		}
	}
}

// outcome joins what the guardian reported and what the caller knows.
func (p *Process) outcome(forced *Reason) Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Status{ExitCode: -1, Signal: syscall.SIGKILL, Reason: GuardianLost}
	switch {
	case p.gone != nil:
		st.Reason = *p.gone
	case forced != nil:
		st.Reason = *forced
	case !p.killing.IsZero():
		st.Reason = p.asked
	case p.exit != nil:
		st.Reason = Ended
	case !p.killBy.IsZero():
		st.Reason = p.asked
	}
	if p.exit != nil {
		st.ExitCode, st.Signal = p.exit.ExitStatus(), 0
		if p.exit.Signaled() {
			st.Signal = p.exit.Signal()
		}
	}
	return st
}

// readStatus collects the guardian's reports until its death closes the pipe.
func (p *Process) readStatus(r io.ReadCloser) {
	defer func() {
		_ = r.Close()
		p.markStarted()
		close(p.statusRead)
	}()
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		p.note(f)
		if f.kind == frameStarted {
			p.markStarted()
		}
	}
}

func (p *Process) markStarted() {
	if !isClosed(p.started) {
		close(p.started)
	}
}

func (p *Process) note(f frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch f.kind {
	case frameStarting:
		p.starting = true
	case frameStarted:
		p.pid = int(f.a)
	case frameFailed:
		p.failed = &StartError{Program: p.program, Stage: stageName(f.b), Err: syscall.Errno(f.a)}
	case frameExited:
		ws := unix.WaitStatus(f.a)
		p.exit = &ws
	case frameKilling:
		p.killing, p.asked = time.Now(), Reason(f.a)
		p.wake()
	case frameGone:
		why := Reason(f.a)
		p.gone = &why
	}
}

func stageName(stage int64) string {
	switch stage {
	case stageChdir:
		return "chdir"
	case stageExec:
		return "exec"
	default:
		return "guardian"
	}
}

// awaitExit waits for the guardian's death without reaping it: that is left
// to os/exec, which then waits for the copying too. By then all that was
// below the guardian has fallen to this process.
func (p *Process) awaitExit() {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			close(p.exited)
			return
		}
	}
}
