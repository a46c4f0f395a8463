// Package guardian runs a program that must not outlive its lock.
//
// The program is not started by the caller itself. The binary executes
// itself once more, as a guardian: a process in a process group of its own
// that starts the program, and to which everything falls that the program
// leaves behind (it is a "subreaper", so setsid and double forks do not
// escape). A pipe leads from the caller to the guardian. Down the pipe go
// deadlines, as instants of CLOCK_BOOTTIME and of the wall clock, never as
// durations: a caller that is stopped between reckoning and writing must not
// lengthen the program's life. Every 100 ms the guardian compares both
// clocks; at the deadline, or at the end of the pipe, it kills the whole
// tree. So neither a killed nor a stopped caller leaves a program running.
//
// The caller watches the guardian in turn: one that has not confirmed 300 ms
// after a deadline or a kill order is killed, and what then falls to the
// caller, a subreaper too, is killed by the run id in its environment.
//
// The caller becomes a subreaper with the first start and stays one. If it
// starts programs by other means too, orphans of these fall to it and stay as
// zombies until it ends.
//
// The price is the start of one more process: about 11 ms a command.
//
// All of this is Linux. Elsewhere the program gets a process group, which is
// killed at the deadline by the caller; a killed or stopped caller leaves the
// program running there.
//
// A program that uses this package, directly or through command handlers,
// calls [RunIfChild] first thing in main (and in TestMain):
//
//	func main() {
//		guardian.RunIfChild()
//		…
//	}
package guardian
