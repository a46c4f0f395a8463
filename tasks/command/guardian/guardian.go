package guardian

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"
)

// Times of the guard; the promises of the package rest on them.
const (
	// pollEvery is how often the guardian compares the clocks.
	pollEvery = 100 * time.Millisecond
	// confirmWithin is how long after a deadline or an order to kill the
	// caller waits for the guardian before it kills by itself.
	confirmWithin = 300 * time.Millisecond
	// tidyWithin is how long the guardian may take to kill a tree, once it has
	// told that it does.
	tidyWithin = 2 * time.Second
	// sweepWithin bounds the caller's own killing.
	sweepWithin = 5 * time.Second
	// startWithin bounds the start of the guardian and of the program.
	startWithin = 10 * time.Second
	// drainWithin bounds the copying of output after the tree is gone.
	drainWithin = time.Second
)

// Errors of Start and Wait.
var (
	// ErrNotHooked: main does not call RunIfChild, so the binary cannot serve
	// as a guardian.
	ErrNotHooked = errors.New("guardian: call guardian.RunIfChild first thing in main (in tests: in TestMain)")
	// ErrDeadline: the deadline had passed before the program was started.
	ErrDeadline = errors.New("guardian: deadline passed before the start")
	// ErrNoProgram: Config.Argv is empty.
	ErrNoProgram = errors.New("guardian: no program given")
)

// hooked is set by RunIfChild. It is about the process as a whole, like the
// arguments that RunIfChild looks at: without the hook a guardian's start
// would run the caller's main a second time.
var hooked atomic.Bool

// StartError is a program that could not be started.
type StartError struct {
	// Program is the program's name as it was given.
	Program string
	// Stage is what failed: "find", "chdir", "exec" or "guardian".
	Stage string
	// Err is the reason; errors.Is works with fs.ErrNotExist and
	// fs.ErrPermission.
	Err error
}

// Error tells program, stage and reason.
func (e *StartError) Error() string {
	return fmt.Sprintf("guardian: %s %s: %v", e.Stage, e.Program, e.Err)
}

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// SurvivorsError is returned by Wait if processes of the run could not be
// killed in time: they run under another user, or wait inside the kernel.
type SurvivorsError struct {
	// PIDs are the processes that were left.
	PIDs []int
}

// Error tells the processes.
func (e *SurvivorsError) Error() string {
	return fmt.Sprintf("guardian: could not kill processes %v", e.PIDs)
}

// Config says what to run.
type Config struct {
	// Argv is the program and its arguments; at least one.
	Argv []string
	// Dir is the working directory; "" is the caller's.
	Dir string
	// Env is the whole environment as "NAME=value"; see [Env]. A program
	// without a slash is looked for in its PATH. SOLOBEAT_RUN_TASK_ID is set
	// (or replaced) from RunID.
	Env []string
	// Stdin is copied to the program; nil is empty. An *os.File is inherited.
	Stdin io.Reader
	// Stdout and Stderr receive what the program writes; nil discards it. An
	// *os.File is inherited.
	Stdout, Stderr io.Writer
	// RunID tells this run's processes from others and stands in their
	// environment as SOLOBEAT_RUN_TASK_ID; "" makes a random one.
	RunID string
	// Deadline is the instant at which the program is killed unless
	// [Process.Extend] has moved it; zero means none.
	Deadline time.Time
}

// Reason says why a program ended.
type Reason int

// The reasons for an end.
const (
	// Ended by itself.
	Ended Reason = iota
	// DeadlinePassed: killed at its deadline.
	DeadlinePassed
	// Killed by an order of [Process.Kill].
	Killed
	// Terminated by an order of [Process.Terminate]; it may have ended with
	// any exit code.
	Terminated
	// GuardianLost: somebody killed the guardian, so the caller killed the
	// program.
	GuardianLost
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case Ended:
		return "ended"
	case DeadlinePassed:
		return "deadline passed"
	case Killed:
		return "killed"
	case Terminated:
		return "terminated"
	case GuardianLost:
		return "guardian lost"
	default:
		return "unknown"
	}
}

// Status is how a program ended.
type Status struct {
	// ExitCode is the program's exit code, -1 if a signal ended it.
	ExitCode int
	// Signal is what ended the program, 0 if it exited.
	Signal syscall.Signal
	// Reason says who wanted it.
	Reason Reason
}

// Success reports whether the program ended by itself with exit code 0.
func (s Status) Success() bool { return s.ExitCode == 0 && s.Signal == 0 && s.Reason == Ended }

// Shell returns the status as a shell does: the exit code, or 128 + the
// signal's number.
func (s Status) Shell() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.ExitCode
}

// String tells exit code or signal, and the reason.
func (s Status) String() string {
	text := fmt.Sprintf("exit status %d", s.ExitCode)
	if s.Signal != 0 {
		text = "signal: " + s.Signal.String()
	}
	if s.Reason != Ended {
		text += " (" + s.Reason.String() + ")"
	}
	return text
}

// until returns the time left to t by the clock that leaves less: the
// monotonic clock stands still while the machine is suspended, the wall clock
// can be set back.
func until(t, now time.Time) time.Duration {
	return min(t.Sub(now), t.Round(0).Sub(now.Round(0)))
}
