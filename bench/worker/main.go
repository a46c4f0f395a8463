// Command worker is what the benchmarks run of Solobeat: the stock program, with
// the defaults of the product, and handlers that do nothing. It writes a CPU
// profile to BENCH_PROFILE between SIGUSR1 and SIGUSR2.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/solobeat/solobeat"
	"github.com/solobeat/solobeat/tasks"
)

type noopIn struct {
	I int64 `json:"i"`
	J int64 `json:"j"`
}

func noop(context.Context, noopIn) (any, error) { return nil, nil }

// clock returns when it was called, in nanoseconds since 1970.
func clock(context.Context, noopIn) (int64, error) { return time.Now().UnixNano(), nil }

func main() {
	if path := os.Getenv("BENCH_PROFILE"); path != "" {
		marks := make(chan os.Signal, 2)
		if os.Getenv("BENCH_PROFILE_START") != "" {
			marks <- syscall.SIGUSR1
		}
		signal.Notify(marks, syscall.SIGUSR1, syscall.SIGUSR2)
		go profile(path, marks)
	}
	var reg tasks.Registry
	if err := errors.Join(tasks.Register(&reg, "bench.noop", noop), tasks.Register(&reg, "bench.clock", clock)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	solobeat.Main(&reg)
}

func profile(path string, marks <-chan os.Signal) {
	for mark := range marks {
		if mark == syscall.SIGUSR2 {
			pprof.StopCPUProfile()
			_ = os.Rename(path+".part", path)
			continue
		}
		f, err := os.Create(path + ".part")
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
		}
	}
}
