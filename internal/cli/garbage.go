package cli

import (
	"math"
	"runtime/debug"
)

// spareHeap is how much garbage a worker may make beyond the size of what it
// uses before the collector runs, bytes. Its own heap is a few MiB and each task
// leaves some KiB, so that by Go's default alone it would be collected dozens of
// times a second, for a fifth of its CPU time.
const spareHeap = 8 << 20

// spareGarbage gives memory that must be kept reachable for as long as the
// worker runs. It is never written to, so it takes no room, but the collector
// counts it as used and starts that much later. A higher GOGC would do the same
// for a small heap and multiply that of a handler that needs much. Whoever
// has set up the collector, by the environment or in the program, gets nil.
func spareGarbage(env func(string) (string, bool)) []byte {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if v, _ := env(name); v != "" {
			return nil
		}
	}
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return nil
	}
	return make([]byte, spareHeap)
}
