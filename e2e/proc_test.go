package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// command is a program in a folder, with the environment of the stack.
func command(dir string, env []string, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, testkit.Environ(env...)
	return cmd
}

// stat reads state and parent of a process; ok is false if it is gone.
func stat(pid int) (state string, parent int, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	rest := string(b[strings.LastIndexByte(string(b), ')')+2:])
	f := strings.Fields(rest)
	parent, _ = strconv.Atoi(f[1])
	return f[0], parent, true
}

// descendants are the pids below a process, zombies left out.
func descendants(root int) []int {
	entries, _ := os.ReadDir("/proc")
	parents := map[int]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if state, parent, ok := stat(pid); ok && state != "Z" {
				parents[pid] = parent
			}
		}
	}
	var found []int
	below := []int{root}
	for len(below) > 0 {
		p := below[0]
		below = below[1:]
		for pid, parent := range parents {
			if parent == p && !slices.Contains(found, pid) {
				found, below = append(found, pid), append(below, pid)
			}
		}
	}
	return found
}

// gone waits until none of the processes lives; zombies do not count.
func gone(t *testing.T, pids []int, within time.Duration) {
	t.Helper()
	testkit.Eventually(t, within+500*time.Millisecond, func() error {
		for _, pid := range pids {
			if state, _, ok := stat(pid); ok && state != "Z" {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				return fmt.Errorf("pid %d still lives: %s", pid, strings.ReplaceAll(string(b), "\x00", " "))
			}
		}
		return nil
	})
}
