package scheduler

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// checked is what check says of one job.
type checked struct {
	tmpl *templates
	err  error
}

// checkAll checks jobs on all CPUs, since parsing and rendering their templates
// is most of the work of a large file. The results are in the order of the jobs.
func checkAll(jobs []*Job) []checked {
	all := make([]checked, len(jobs))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(jobs)); i = next.Add(1) - 1 {
				all[i].tmpl, all[i].err = jobs[i].check()
			}
		})
	}
	wg.Wait()
	return all
}
