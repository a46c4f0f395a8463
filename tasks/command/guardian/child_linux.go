package guardian

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RunIfChild serves as a guardian, and then exits, if this process was
// started as one; otherwise it returns at once. Call it first thing in main.
func RunIfChild() {
	if len(os.Args) > 0 && os.Args[0] == childArg0 && os.Getenv(childEnv) != "" {
		// Not os.Exit: its hooks have nothing to do here, and one of them
		// sleeps for a second under the race detector.
		syscall.Exit(guard())
	}
	hooked.Store(true)
}

// child is the guardian's own state.
type child struct {
	status     io.Writer
	program    int
	ended      bool
	boot, wall int64
	// terminateAt is the CLOCK_BOOTTIME at which KILL follows TERM; 0: no
	// order to terminate. asked are the processes that were sent TERM.
	terminateAt int64
	asked       map[int]bool
}

// guard is the guardian's main; it returns the exit code.
func guard() int {
	unix.CloseOnExec(controlFD)
	unix.CloseOnExec(statusFD)
	control := os.NewFile(controlFD, "control")
	status := os.NewFile(statusFD, "status")
	if control == nil || status == nil {
		return 2
	}
	childDied := deafen()
	c := &child{status: status}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return c.failed(stageGuardian, err)
	}
	s, err := readSpec(control)
	if err != nil {
		return 2 // the caller is gone
	}
	c.boot, c.wall = s.boot, s.wall
	if c.late() {
		return c.gone(DeadlinePassed)
	}
	if stage, err := c.start(s); err != nil {
		return c.failed(stage, err)
	}
	return c.gone(c.watch(frames(control), childDied))
}

// deafen makes the guardian ignore what a terminal or a shutdown sends to
// everybody, and returns the channel of SIGCHLD. Caught signals get their
// default back in the program; what the caller itself was told to ignore
// (nohup) stays ignored there. TTIN and TTOU are ignored for good: a program
// in the background that reads from a terminal gets an error instead of
// being stopped, which would hold its lock for nothing.
func deafen() <-chan os.Signal {
	nobody := make(chan os.Signal, 1)
	for _, s := range []os.Signal{unix.SIGTSTP, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE} {
		if !signal.Ignored(s) {
			signal.Notify(nobody, s)
		}
	}
	signal.Ignore(unix.SIGTTIN, unix.SIGTTOU)
	childDied := make(chan os.Signal, 1)
	signal.Notify(childDied, unix.SIGCHLD)
	return childDied
}

// start starts the program in a process group of its own.
func (c *child) start(s *spec) (stage int, err error) {
	if s.dir != "" {
		if info, err := os.Stat(s.dir); err != nil {
			return stageChdir, err
		} else if !info.IsDir() {
			return stageChdir, syscall.ENOTDIR
		}
	}
	c.tell(frame{kind: frameStarting})
	c.program, err = syscall.ForkExec(s.path, s.argv, &syscall.ProcAttr{
		Dir:   s.dir,
		Env:   s.env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return stageExec, err
	}
	c.tell(frame{kind: frameStarted, a: int64(c.program)})
	// The program's ends of the caller's pipes are not for the guardian to
	// hold; its standard error stays, for a stack trace.
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup3(null, 0, 0)
		_ = unix.Dup3(null, 1, 0)
		_ = unix.Close(null)
	}
	return 0, nil
}

// frames reads the pipe; the channel is closed at its end.
func frames(control io.Reader) <-chan frame {
	out := make(chan frame)
	go func() {
		defer close(out)
		for {
			f, err := readFrame(control)
			if err != nil {
				return
			}
			out <- f
		}
	}()
	return out
}

// watch waits for the end of the program, by itself or by force, and returns
// the reason when nothing of its tree is left.
func (c *child) watch(orders <-chan frame, childDied <-chan os.Signal) Reason {
	clock := time.NewTicker(pollEvery)
	defer clock.Stop()
	for {
		select {
		case f, open := <-orders:
			if !open || f.kind == frameKill {
				return c.killTree(Killed)
			}
			c.obey(f)
		case <-childDied:
		case <-clock.C:
		}
		none := c.reapAll()
		if c.terminateAt != 0 && c.ended && !none {
			c.killOrphans()
		}
		switch {
		case c.terminateAt != 0 && none:
			return Terminated
		case c.terminateAt != 0 && bootNow() >= c.terminateAt:
			return c.killTree(Terminated)
		case c.terminateAt == 0 && c.ended:
			return c.killTree(Ended)
		case c.late():
			return c.killTree(DeadlinePassed)
		}
	}
}

func (c *child) obey(f frame) {
	switch f.kind {
	case frameDeadline:
		c.boot, c.wall = f.a, f.b
	case frameTerminate:
		if c.terminateAt == 0 {
			c.terminateAt = f.a
			c.terminate()
		}
		c.terminateAt = min(c.terminateAt, f.a)
	}
}

// terminate asks the whole tree to end. What stands in the program's group is
// reached at once by the group; CONT lets stopped ones take notice.
func (c *child) terminate() {
	group := c.program
	c.asked = map[int]bool{}
	all := descendants(os.Getpid())
	kill(-group, unix.SIGTERM)
	for _, pid := range all {
		c.asked[pid] = true
		if st, ok := readStat(pid); ok && st.pgrp != group {
			kill(pid, unix.SIGTERM)
			kill(pid, unix.SIGCONT)
		}
	}
	kill(-group, unix.SIGCONT)
}

// killOrphans kills, once the program has ended, what it left behind and what
// cannot be ending in order: what was started after the order to terminate,
// and what does not catch TERM and yet is there, since a process that a shell
// has just forked loses the signal. What a parent still waits for is no orphan:
// that may be the parent's way to end in order.
func (c *child) killOrphans() {
	for _, pid := range children(os.Getpid()) {
		if !c.asked[pid] || !catchesTerm(pid) {
			kill(pid, unix.SIGKILL)
		}
	}
}

// late reports whether either clock has passed the deadline.
func (c *child) late() bool {
	return c.boot != 0 && (bootNow() >= c.boot || time.Now().UnixNano() >= c.wall)
}

// killTree kills all that is below the guardian, again and again, since the
// orphans of what is killed fall to the guardian in the next round. Only while
// nothing changes, as with a process that may not be killed, do the rounds
// become slower.
func (c *child) killTree(why Reason) Reason {
	const least = 2 * time.Millisecond
	pause := least
	var before []int
	for told := false; ; told = true {
		now := children(os.Getpid())
		for _, pid := range now {
			kill(pid, unix.SIGKILL)
		}
		if !told {
			c.tell(frame{kind: frameKilling, a: int64(why)})
		}
		if c.reapAll() {
			return why
		}
		time.Sleep(pause)
		if pause = min(2*pause, pollEvery); !slices.Equal(now, before) {
			pause = least
		}
		before = now
	}
}

// reapAll collects dead children and reports whether no child is left. It is
// the only place of the guardian that waits.
func (c *child) reapAll() (none bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true // ECHILD
		case pid == 0:
			return false
		case pid == c.program && !c.ended:
			c.ended = true
			c.tell(frame{kind: frameExited, a: int64(ws)})
		}
	}
}

// tell writes to the caller, who may be gone: then nobody is to be told.
func (c *child) tell(f frame) { _ = f.write(c.status) }

func (c *child) gone(why Reason) int {
	c.tell(frame{kind: frameGone, a: int64(why)})
	return 0
}

func (c *child) failed(stage int, err error) int {
	errno := syscall.EIO
	errors.As(err, &errno)
	c.tell(frame{kind: frameFailed, a: int64(errno), b: int64(stage)})
	return 1
}
