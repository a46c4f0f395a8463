//go:build unix

package demo

import "syscall"

// childAttr puts a child into a process group of its own: Ctrl-C goes to the
// parent alone, which ends its children in order.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
