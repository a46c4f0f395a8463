// Package command is the ready-made handler that runs a program for a task,
// declared in the worker's configuration:
//
//	tasks:
//	  reports.hourly:
//	    command: ["./build-report", "--day", "{{ .Params.day }}"]
//
// The program gets the task's arguments by templates in its own arguments and
// environment, and whole as JSON on its standard input:
//
//	{"args": [], "kwargs": {"day": "2026-01-02"}}
//
// What it writes to standard output, trimmed, is the task's result, a string;
// the last 64 KiB count. Exit code 0 is success, 75 says that the effect
// surely did not happen (tasks.ErrNotExecuted), anything else is a failed run
// with an exception CommandError that tells exit code and last lines of
// standard error.
//
// Its environment is the worker's without Solobeat's settings, which hold
// secrets, plus SOLOBEAT_RUN_TASK_ID, _TICK, _KEY and _FENCE.
//
// Where the lock of its task has stall_after, each write to its standard output or
// error is a heartbeat: a program that says nothing for so long is taken for
// stalled, loses its lock, and is killed then.
//
// It runs under a guardian (package guardian): it does not outlive its lock
// or its worker, and nothing that it started outlives it. A timeout or a
// shutdown is TERM, and KILL 5 s later; a lost lock or record is KILL.
package command
