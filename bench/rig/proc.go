package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Proc is a child process in a process group of its own. Its output goes to a
// file.
type Proc struct {
	Name string
	Pid  int

	log    string
	exited chan struct{}
	err    error // valid once exited is closed
}

// Start runs argv in the folder dir, where its output is kept too. env is added
// to this process's environment without its SOLOBEAT_ variables. The process
// group is killed when ctx ends; see also Stop.
func Start(ctx context.Context, dir, name string, env []string, argv ...string) (*Proc, error) {
	out, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Proc{Name: name, log: out.Name(), exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The parent death signal follows the thread that forked (golang/go#27505).
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("rig: %s: %w", name, err)
	}
	p.Pid = cmd.Process.Pid
	context.AfterFunc(ctx, p.Kill)
	return p, nil
}

func environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SOLOBEAT_") && !strings.HasPrefix(kv, "PYTHON") {
			env = append(env, kv)
		}
	}
	return append(env, "PYTHONDONTWRITEBYTECODE=1")
}

// Output is what it has written so far.
func (p *Proc) Output() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

// Failure is an error with the end of the output if the process has ended, else
// nil.
func (p *Proc) Failure() error {
	select {
	case <-p.exited:
	default:
		return nil
	}
	out := p.Output()
	return fmt.Errorf("rig: %s ended too early: %w\n%s", p.Name, errors.Join(errors.New("log "+filepath.Base(p.log)), p.err), out[max(0, len(out)-4000):])
}

// Wait waits for the end of the process and returns its error.
func (p *Proc) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		if p.err != nil {
			return p.Failure()
		}
		return nil
	case <-ctx.Done():
		p.Kill()
		return context.Cause(ctx)
	}
}

// Signal sends a signal to the process alone.
func (p *Proc) Signal(s syscall.Signal) {
	select {
	case <-p.exited:
	default:
		_ = syscall.Kill(p.Pid, s)
	}
}

// Stop ends the process by SIGTERM, after 10 s by SIGKILL, and what is left of
// its group with it.
func (p *Proc) Stop() {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
	}
	p.Kill()
}

// Kill ends the whole process group and waits for the process.
func (p *Proc) Kill() {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
	<-p.exited
}
