//go:build solobeat_failpoints

package failpoint

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type point struct {
	name, task, action string
	mu                 sync.Mutex
	hits               int
}

var points, offset = load()

func load() ([]*point, time.Duration) {
	var ps []*point
	for _, item := range strings.Split(os.Getenv("SOLOBEAT_FAILPOINTS"), ",") {
		where, action, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			continue
		}
		name, task, _ := strings.Cut(where, "@")
		ps = append(ps, &point{name: name, task: task, action: action})
	}
	d, _ := time.ParseDuration(os.Getenv("SOLOBEAT_CLOCK_OFFSET"))
	return ps, d
}

// Hit marks that a place was reached while running a task, told by its name
// and its id, "" where there is none.
func Hit(name, task, id string) {
	for _, p := range points {
		if p.name == name && (p.task == "" || p.task == task || p.task == id) {
			p.hit(task, id)
		}
	}
}

func (p *point) hit(task, id string) {
	p.mu.Lock()
	p.hits++
	n := p.hits
	p.mu.Unlock()
	switch verb, arg, _ := strings.Cut(p.action, ":"); {
	case verb == "sleep":
		d, _ := time.ParseDuration(arg)
		time.Sleep(d)
	case verb == "stop" && n == 1:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case verb == "kill" && (arg == "" && n == 1 || arg == strconv.Itoa(n)):
		die(p.name, task, id)
	case strings.HasPrefix(verb, "kill%"):
		if c, err := strconv.Atoi(strings.TrimPrefix(verb, "kill%")); err == nil && c > 0 && rand.IntN(c) == 0 {
			die(p.name, task, id)
		}
	}
}

func die(name, task, id string) {
	fmt.Fprintf(os.Stderr, "failpoint %s: kill -9 of pid %d in %s[%s]\n", name, os.Getpid(), task, id)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Now is the local wall clock, shifted by SOLOBEAT_CLOCK_OFFSET.
func Now() time.Time { return time.Now().Add(offset) }

// Enabled reports whether this is a test binary.
func Enabled() bool { return true }
