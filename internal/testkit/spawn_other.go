//go:build unix && !linux

package testkit

import (
	"os/exec"
	"syscall"
)

// spawn starts cmd in a process group of its own and calls exited, once, when it
// has ended. Where there is no parent death signal, a test binary that dies
// without its cleanups leaves the child behind.
func spawn(cmd *exec.Cmd, exited func(error)) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if !cmd.SysProcAttr.Setsid && !cmd.SysProcAttr.Setctty {
		cmd.SysProcAttr.Setpgid = true
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { exited(cmd.Wait()) }()
	return nil
}
