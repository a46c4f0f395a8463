// Package lease keeps leases alive: it is the watchdog that locks and records
// share. It imports the standard library only and knows nothing of a store.
//
// # The trust window
//
// A holder trusts its lease only until
//
//	send time of the last confirmed acquire or renewal + TTL − margin
//
// measured from before the request was sent, on the monotonic and on the wall
// clock: the lease is dead as soon as either says so. Go's monotonic clock need
// not count the time that a machine sleeps (golang/go#24595), and a wall clock
// can be set: a jump forward costs a false loss, which is safe; a jump back is
// ignored, since the monotonic clock goes on.
//
// # Life of an entry
//
// Add it (or Enter one that is part of something else) before the acquire is
// sent, call [Entry.Sending] right before each send, [Entry.Confirm] when the
// store has granted it, and [Entry.Remove] before the release is sent. So no
// renewal can be started after the release (redisson#7272). Entries are told apart by identity, never by name: state of
// an old grant cannot touch a new one of the same name (redisson#2515).
//
// # Renewal
//
// One goroutine owns a heap of next renewals and sends what is due in batches. A
// renewal has three ends: renewed, lost, unknown. Unknown (an error, a timeout)
// is not a loss: it is tried again until the window closes; watchdogs that give
// up at the first error lose locks that are still theirs (redisson#775). A
// second goroutine owns the deadlines alone, so that a store that does not
// answer cannot delay a cancel.
package lease
