package cli

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// heapGoal is the size of the heap at which the collector runs next, bytes.
func heapGoal() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestSpareGarbage(t *testing.T) {
	env := map[string]string{}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	before := heapGoal()
	spare := spareGarbage(lookup)
	if got := heapGoal(); got < before+spareHeap {
		t.Errorf("the collector runs at %d bytes, at %d before: want %d more", got, before, spareHeap)
	}
	runtime.KeepAlive(spare)
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		env = map[string]string{name: "200"}
		if spareGarbage(lookup) != nil {
			t.Errorf("%s is set, and not left to its own", name)
		}
	}
}
