//go:build !linux

package guardian

import (
	"context"
	"crypto/rand"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// RunIfChild has nothing to do on this system, where there is no guardian.
func RunIfChild() { hooked.Store(true) }

// Process is a running program in a process group of its own. Its methods are
// safe for concurrent use. It must be waited for.
type Process struct {
	runID string
	cmd   *exec.Cmd

	mu       sync.Mutex
	deadline time.Time
	killBy   time.Time
	asked    Reason
	reason   Reason

	changed chan struct{}
	exited  chan struct{}
	done    chan struct{}
	status  Status
}

// Start starts a program. ctx bounds the start only: to end the program use
// Kill, Terminate or the deadline. A program that cannot be started is a
// [*StartError].
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
	if err := ctx.Err(); err != nil {
		return nil, &StartError{Program: cfg.Argv[0], Stage: "exec", Err: context.Cause(ctx)}
	}
	path, err := lookPath(cfg.Argv[0], cfg.Env)
	if err != nil {
		return nil, &StartError{Program: cfg.Argv[0], Stage: "find", Err: err}
	}
	p := &Process{
		runID:    cfg.RunID,
		deadline: cfg.Deadline,
		changed:  make(chan struct{}, 1),
		exited:   make(chan struct{}),
		done:     make(chan struct{}),
	}
	if p.runID == "" {
		p.runID = rand.Text()
	}
	p.cmd = &exec.Cmd{
		Path: path, Args: cfg.Argv, Dir: cfg.Dir, Env: setEnv(cfg.Env, EnvTaskID, p.runID),
		Stdin: cfg.Stdin, Stdout: cfg.Stdout, Stderr: cfg.Stderr,
		SysProcAttr: groupAttr(), WaitDelay: drainWithin,
	}
	if err := p.cmd.Start(); err != nil {
		return nil, &StartError{Program: cfg.Argv[0], Stage: "exec", Err: err}
	}
	go p.await()
	go p.supervise()
	return p, nil
}

// Extend moves the deadline, usually after a confirmed renewal; the zero time
// removes it.
func (p *Process) Extend(deadline time.Time) {
	p.mu.Lock()
	p.deadline = deadline
	p.mu.Unlock()
	p.wake()
}

// Kill kills the program's process group at once. It does not wait.
func (p *Process) Kill() { p.killAt(time.Now(), Killed) }

// Terminate asks the program's process group to end (TERM), and kills after
// grace what is still there. It does not wait.
func (p *Process) Terminate(grace time.Duration) {
	p.killAt(time.Now().Add(grace), Terminated)
	signalGroup(p.cmd.Process, syscall.SIGTERM)
}

// Wait waits until the program has ended and its output has been copied.
func (p *Process) Wait() (Status, error) {
	<-p.done
	return p.status, nil
}

// Done is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) killAt(t time.Time, why Reason) {
	p.mu.Lock()
	if p.killBy.IsZero() || t.Before(p.killBy) {
		p.killBy, p.asked = t, why
	}
	p.mu.Unlock()
	p.wake()
}

func (p *Process) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// due reports whether the program is to be killed now, and why.
func (p *Process) due() (Reason, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.deadline.IsZero() && until(p.deadline, now) <= 0 {
		return DeadlinePassed, true
	}
	return p.asked, !p.killBy.IsZero() && !now.Before(p.killBy)
}

func (p *Process) supervise() {
	clock := time.NewTicker(pollEvery)
	defer clock.Stop()
	for {
		if why, now := p.due(); now {
			p.mu.Lock()
			p.reason = why
			p.mu.Unlock()
			signalGroup(p.cmd.Process, syscall.SIGKILL)
		}
		select {
		case <-p.exited:
			return
		case <-p.changed:
		case <-clock.C:
		}
	}
}

func (p *Process) await() {
	_ = p.cmd.Wait()
	signalGroup(p.cmd.Process, syscall.SIGKILL)
	close(p.exited)
	p.mu.Lock()
	reason := p.reason
	if reason == Ended && !p.killBy.IsZero() {
		reason = p.asked
	}
	p.mu.Unlock()
	p.status = Status{ExitCode: p.cmd.ProcessState.ExitCode(), Signal: endSignal(p.cmd.ProcessState), Reason: reason}
	close(p.done)
}
