// Package failpoint lets test binaries die, stall or shift their clock at
// named places. In an ordinary build its functions do nothing; only a build
// with the tag solobeat_failpoints reads the environment.
//
// SOLOBEAT_FAILPOINTS is a comma-separated list of NAME[@TASK]=ACTION:
//
//	kill           SIGKILL to the own process at the first hit
//	kill:N         … at hit N, counted from 1 per process
//	kill%N         … at each hit with a chance of 1 in N
//	stop           SIGSTOP to the own process at the first hit
//	sleep:D        sleep for a duration at each hit
//
// @TASK restricts the place to one task name or task id.
// SOLOBEAT_CLOCK_OFFSET is a duration that is added to the local wall clock.
package failpoint

// The names of the places.
const (
	AfterTake   = "after-take"   // messages are in unacked, no run has begun
	InRun       = "in-run"       // lock and record are held, the handler is about to start
	AfterEffect = "after-effect" // the handler has returned, its record is not completed
	AfterRecord = "after-record" // the record is completed, the lock is still held
	BeforeAck   = "before-ack"   // lock and record are done, result and ack are not written
	AfterResult = "after-result" // the result is written on a server of its own, the message is not acked
	AfterSend   = "after-send"   // a scheduler has sent a tick's message and not claimed the tick yet
	AfterClaim  = "after-claim"  // a scheduler has claimed a tick and not noted it yet
)
