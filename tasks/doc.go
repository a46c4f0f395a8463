// Package tasks is the contract between handlers, the worker and the engines:
// a [Task] is a unit of work in a queue, a [Handler] runs it, a [Registry]
// knows which handler runs which name, and an [Enqueuer] sends one.
//
// The package imports the standard library only, so that a program that
// declares handlers links no broker client.
//
// A handler is an ordinary Go function:
//
//	tasks.Register(reg, "reports.hourly", func(ctx context.Context, in ReportIn) (ReportOut, error) { … })
//
// Named arguments (kwargs) fill the input struct by JSON name, positional
// arguments by field order. Integers stay exact beyond 2^53.
//
// What a handler returns decides what becomes of the message: a value is
// success; a plain error is a failed run (retried only where the message or
// the worker's configuration says so); [Retry] asks for another run;
// [Permanent] ends the task for good; [ErrNotExecuted] says that the effect
// surely did not happen.
package tasks
