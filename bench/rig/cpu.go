package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU is the CPU time that the processes of p's group have used so far, user and
// system, all threads that live. It is read from the scheduler's statistics,
// in nanoseconds; where the kernel keeps none, in its ticks of 10 ms.
func (p *Proc) CPU() (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	found := false
	for _, name := range stats {
		st, err := readStat(name)
		if err != nil || st.group != p.Pid {
			continue // it has ended meanwhile, or is another's
		}
		found = true
		sum += max(threads(filepath.Dir(name)), st.used)
	}
	if !found {
		return 0, fmt.Errorf("rig: %s has no process to read CPU time of", p.Name)
	}
	return sum, nil
}

// tick is USER_HZ, which is 100 on every Linux that Go runs on.
const tick = time.Second / 100

type stat struct {
	group int
	used  time.Duration
}

func readStat(name string) (stat, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return stat{}, err
	}
	// The command stands in brackets and may hold any byte.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 13 {
		return stat{}, fmt.Errorf("rig: %s is too short", name)
	}
	group, _ := strconv.Atoi(f[2])
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return stat{group, time.Duration(user+system) * tick}, nil
}

// threads is the sum over the threads of a process that live, 0 where the
// kernel keeps no such statistics.
func threads(dir string) time.Duration {
	names, _ := filepath.Glob(filepath.Join(dir, "task", "*", "schedstat"))
	var sum time.Duration
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		ns, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}
