// Package worker runs the handlers of a registry on what engines take, each
// run through one chain:
//
//	recover → observe → lock → record → handler
//
// The order is written in one place, [Worker.Run]. The lock makes double work
// rare; the record, which is completed before the lock is released, makes it
// harmless: whoever meets a completed record answers from it.
//
// What a stop by a guard looks like to the caller of a task:
//
//   - the lock is busy and the policy is skip: SUCCESS, null, and a note; but
//     only for a message that has not begun, behind which nothing waits, and
//     while another task holds the lock. Everything else waits;
//   - the record is completed: SUCCESS with the stored result;
//   - the record belongs to other arguments: FAILURE, never run;
//   - a store is out of reach: the message is parked, no attempt is counted.
//
// A run that returns an error because its lock or record was lost, or because
// of a shutdown, has not failed: its message goes back. A run that returns a
// result has succeeded, unless its record was taken over meanwhile.
package worker
