// Package lockguard runs functions under a distributed lock that is renewed
// while they run, and tells them when it is lost.
//
//	err := guard.Do(ctx, "report:lock", func(ctx context.Context) error {
//		return buildReport(ctx) // ctx ends, with a cause, when the lock is lost
//	}, lockguard.WithTTL(30*time.Second))
//
// # What a lock gives
//
// A lock with a TTL makes double work rare. It cannot make it impossible: a
// process can be paused between its last check and its next write for longer
// than any TTL. Three things narrow that gap:
//
//   - The context of the function ends, with a cause, before the lock can have
//     run out: at send time of the last confirmed acquire or renewal + TTL −
//     margin, on whichever of the monotonic and the wall clock says so first.
//   - [Handle.Check] looks at both clocks and does no I/O: call it before each
//     side effect.
//   - [Handle.Fence] is a number that grows with each grant. A resource that
//     refuses a smaller number than the largest it has seen is safe also from a
//     holder that was paused. lockredis.SetFenced does it for Redis values, one
//     condition in an UPDATE does it for SQL.
//
// # The rules it keeps
//
//   - The token is random and new for each attempt, never the task id.
//   - A lost reply never locks its caller out: a repeated acquire accepts its own
//     token, and each attempt that failed, was cancelled or came too late is
//     followed by a release by token, on a context of its own.
//   - A renewal error is not a loss; the deadline is. A lock that the store says
//     is not ours is lost at once.
//   - A lock is renewed only while its function runs, and never longer than its
//     max hold; passing that is no loss, the cause is then [ErrMaxHold].
//   - A lock belongs to a run, not to a message: it is taken when the run starts,
//     so what waits in a queue for longer than a TTL holds nothing and loses nothing.
//   - A lost lock crashes nobody.
//   - There is no re-entrancy: code deep in a run uses [FromContext].
//   - If the store is down, nothing runs.
package lockguard
