//go:build !unix

package guardian

import (
	"os"
	"syscall"
)

func groupAttr() *syscall.SysProcAttr { return nil }

// signalGroup can only kill here.
func signalGroup(p *os.Process, _ syscall.Signal) { _ = p.Kill() }

func endSignal(*os.ProcessState) syscall.Signal { return 0 }
