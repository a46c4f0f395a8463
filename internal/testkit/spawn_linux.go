package testkit

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawn starts cmd in a process group of its own and calls exited, once, when it
// has ended. The kernel kills the child when this process dies, whichever way:
// a test binary that panics or times out runs no cleanup.
//
// The parent death signal follows the *thread* that forked (golang/go#27505), so
// one goroutine keeps its thread from the start to the end of the child.
func spawn(cmd *exec.Cmd, exited func(error)) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if !cmd.SysProcAttr.Setsid && !cmd.SysProcAttr.Setctty {
		cmd.SysProcAttr.Setpgid = true
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			exited(cmd.Wait())
		}
	}()
	return <-started
}
