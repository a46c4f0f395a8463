// Package asynqguard puts locks and records around the handlers of a plain
// asynq program, as middlewares of its ServeMux. Nothing else of the program
// changes, but for two functions of its server's configuration: with
// [IsFailure] a task that waits for a busy lock uses up no retry, and with
// [RetryDelay] it comes back when the lock may be free.
//
// A task needs a MaxRetry of at least 1 to wait: asynq archives what has none
// left, also what has not failed. asynq does not bound such waits; where they
// shall end, enqueue with a Deadline.
//
// asynq may start a task a second time while its first run goes on (its lease
// was lost, or its timeout passed and the handler ignores it): the lock keeps
// the second out until the first has really returned or its lock has run out,
// and the record answers it then.
package asynqguard
