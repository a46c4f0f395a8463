package guardian

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// procStat is the part of /proc/PID/stat that is needed here.
type procStat struct {
	state      byte
	ppid, pgrp int
	start      uint64
}

// readStat reads a process's state, false if it is gone.
func readStat(pid int) (procStat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, false
	}
	// The command's name in parentheses may hold blanks and parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return procStat{}, false
	}
	st := procStat{state: fields[0][0]}
	st.ppid, _ = strconv.Atoi(fields[1])
	st.pgrp, _ = strconv.Atoi(fields[2])
	st.start, _ = strconv.ParseUint(fields[19], 10, 64)
	return st, true
}

// carries reports whether a process was started with NAME=value in its
// environment.
func carries(pid int, entry string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+entry+"\x00"))
}

// catchesTerm reports whether a process has a handler for TERM.
func catchesTerm(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(text), "\nSigCgt:")
	line, _, _ := strings.Cut(after, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && mask&(1<<(unix.SIGTERM-1)) != 0
}

// children returns the direct children of a process, zombies among them.
// While children come and go the kernel may leave some out, so callers ask
// again until nothing is left.
func children(pid int) []int {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil // the process is gone
	}
	var pids []int
	known := false
	for _, thread := range threads {
		text, err := os.ReadFile(tasks + "/" + thread.Name() + "/children")
		if err != nil {
			continue // the thread is gone
		}
		known = true
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	if !known {
		return childrenByScan(pid)
	}
	return pids
}

// childrenByScan is for kernels without CONFIG_PROC_CHILDREN.
func childrenByScan(pid int) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if st, ok := readStat(child); ok && st.ppid == pid {
			pids = append(pids, child)
		}
	}
	return pids
}

// descendants returns all that stands below a process.
func descendants(pid int) []int {
	var all []int
	seen := map[int]bool{pid: true}
	queue := []int{pid}
	for len(queue) > 0 {
		next := children(queue[0])
		queue = queue[1:]
		for _, child := range next {
			if !seen[child] {
				seen[child] = true
				all = append(all, child)
				queue = append(queue, child)
			}
		}
	}
	return all
}

// kill sends a signal; that the process is gone is no error worth telling,
// and one of another user is seen by what is left over.
func kill(pid int, sig syscall.Signal) { _ = unix.Kill(pid, sig) }

// reap waits for one child without blocking.
func reap(pid int) {
	for {
		_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// sweeper kills what fell to the caller after a guardian's death. It looks at
// the caller's own children only, and of these only at those that belong to
// the run: they carry its id, or stand in the program's process group, or
// were seen below the guardian or below one of these.
type sweeper struct {
	entry string
	pgrp  int
	// known maps process ids to their start, which tells a process from a
	// later one of the same number.
	known map[int]uint64
}

// note remembers all that stands below pid.
func (s *sweeper) note(pid int) []int {
	below := descendants(pid)
	for _, d := range below {
		if st, ok := readStat(d); ok {
			s.known[d] = st.start
		}
	}
	return below
}

func (s *sweeper) ours(pid int, st procStat) bool {
	if start, ok := s.known[pid]; ok && start == st.start {
		return true
	}
	return (s.pgrp > 0 && st.pgrp == s.pgrp) || carries(pid, s.entry)
}

// round kills what it finds, and returns what of it is not yet gone.
func (s *sweeper) round() (found bool, left []int) {
	for _, pid := range children(os.Getpid()) {
		st, ok := readStat(pid)
		if !ok || !s.ours(pid, st) {
			continue
		}
		found = true
		s.known[pid] = st.start
		below := s.note(pid)
		kill(pid, unix.SIGKILL)
		for _, pid := range below {
			kill(pid, unix.SIGKILL)
		}
		if st.state != 'Z' {
			left = append(left, pid)
		}
		reap(pid)
	}
	return found, left
}

// sweep repeats until a round finds nothing, and returns what is left when
// the time is up.
func (s *sweeper) sweep(limit time.Duration) []int {
	end := time.Now().Add(limit)
	pause := 2 * time.Millisecond
	for {
		found, left := s.round()
		if !found || time.Now().After(end) {
			return left
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}
