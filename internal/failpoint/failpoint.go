//go:build !solobeat_failpoints

// Package failpoint lets test binaries die, stall or shift their clock at
// named places. In an ordinary build every function is empty; only a build
// with the tag solobeat_failpoints reads the environment.
package failpoint

import "time"

// The names of the places.
const (
	AfterTake   = "after-take"   // messages are in unacked, no run has begun
	InRun       = "in-run"       // lock and record are held, the handler is about to start
	AfterEffect = "after-effect" // the handler has returned, its record is not completed
	AfterRecord = "after-record" // the record is completed, the lock is still held
	BeforeAck   = "before-ack"   // lock and record are done, result and ack are not written
	AfterClaim  = "after-claim"  // a scheduler has claimed a tick and not noted it yet
)

// Hit marks that a place was reached while running the named task.
func Hit(_, _ string) {}

// Now is the local wall clock.
func Now() time.Time { return time.Now() }

// Enabled reports whether this is a test binary.
func Enabled() bool { return false }
