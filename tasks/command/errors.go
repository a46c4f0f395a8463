package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command/guardian"
	"github.com/solobeat/solobeat/tasks/internal/ready"
)

// Error is a program that failed. It comes as the cause of a tasks.Exception
// of type CommandError.
type Error struct {
	// ExitCode is the program's exit code, -1 if a signal ended it or it was
	// not started.
	ExitCode int
	// Signal is what ended the program, 0 if it exited.
	Signal syscall.Signal
	// Stderr are the last lines of standard error.
	Stderr string
	// Err is why the program was not started, or was ended; nil if it failed
	// by itself.
	Err error
}

// Error tells how the program ended, and its last lines.
func (e *Error) Error() string {
	var text string
	switch {
	case e.Signal != 0:
		text = "signal: " + e.Signal.String()
	case e.ExitCode >= 0:
		text = fmt.Sprintf("exit status %d", e.ExitCode)
	default:
		text = "not started"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Is makes exit code 75, and a program that was not started, match
// tasks.ErrNotExecuted, and one for which the machine lacked something
// tasks.ErrShortage too.
func (e *Error) Is(target error) bool {
	notStarted := e.ExitCode < 0 && e.Signal == 0
	switch target {
	case tasks.ErrNotExecuted:
		return notStarted || e.ExitCode == exitNotExecuted
	case tasks.ErrShortage:
		return notStarted && shortage(e.Err)
	}
	return false
}

func (e *Error) exception() error {
	return &tasks.Exception{Type: "CommandError", Args: []any{e.Error()}, Cause: e}
}

// notStarted is the error of a run whose program was not started.
func notStarted(ctx context.Context, err error) error {
	if errors.Is(err, guardian.ErrDeadline) {
		awaitLoss(ctx)
		err = fmt.Errorf("the lock's validity was over: %w", err)
	}
	return (&Error{ExitCode: -1, Err: ready.Stopped(ctx, err)}).exception()
}

// shortage tells what the machine lacks for now, such as file descriptors,
// from what is wrong with the program.
func shortage(err error) bool {
	// EBADF: the child may not put a descriptor at a number above the limit
	// (dup2(2)).
	for _, lack := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.EBADF} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// failure is the error of a run whose program has not succeeded.
func failure(ctx context.Context, st guardian.Status, stderr *errorLog) error {
	e := &Error{ExitCode: st.ExitCode, Signal: st.Signal, Stderr: stderr.lastLines()}
	switch st.Reason {
	case guardian.Ended:
		// It failed by itself, whatever has happened to the run meanwhile.
	case guardian.DeadlinePassed:
		awaitLoss(ctx)
		e.Err = ready.Stopped(ctx, errors.New("the lock's validity passed"))
	case guardian.GuardianLost:
		e.Err = ready.Stopped(ctx, errors.New("its guardian was killed"))
	default:
		e.Err = ready.Stopped(ctx, errors.New(st.Reason.String()))
	}
	return e.exception()
}

// awaitLoss waits until the loss of the lock, which the guardian has acted
// upon, has reached the run's context too.
func awaitLoss(ctx context.Context) {
	limit := time.NewTimer(lossWithin)
	defer limit.Stop()
	select {
	case <-ctx.Done():
	case <-limit.C:
	}
}

func trimLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
