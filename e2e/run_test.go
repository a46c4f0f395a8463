package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// reportScript appends one line to reports, by O_APPEND, after a while.
const reportScript = `#!/bin/sh
# usage: report TICK; appends one line when it is formed
echo "$1 $$" >> started
sleep 1
echo "$1 $$ $SOLOBEAT_RUN_FENCE" >> reports
`

// loops are four crontabs on four machines: each ticks by its own clock, one
// of them 2 s ahead, one 2 s behind.
type loops struct {
	t      *testing.T
	dir    string
	ticks  int
	period time.Duration
	argv   func(tick string) []string
	env    []string

	mu    sync.Mutex
	codes map[string]int // "loop tick" → exit code
	procs map[string]*testkit.Proc
}

func (l *loops) run(first time.Time) {
	l.codes, l.procs = map[string]int{}, map[string]*testkit.Proc{}
	var wg sync.WaitGroup
	for loop, offset := range []time.Duration{0, 2 * time.Second, -2 * time.Second, 0} {
		wg.Go(func() {
			var jobs sync.WaitGroup
			for i := range l.ticks {
				tick := fmt.Sprintf("t%02d", i)
				timer := time.NewTimer(time.Until(first.Add(time.Duration(i)*l.period - offset)))
				<-timer.C
				jobs.Go(func() { l.job(loop, tick) })
			}
			jobs.Wait()
		})
	}
	wg.Wait()
}

func (l *loops) job(loop int, tick string) {
	name := fmt.Sprintf("loop%d %s", loop, tick)
	cmd := command(l.dir, l.env, l.argv(tick)...)
	l.mu.Lock()
	p := testkit.StartCmd(l.t, name, cmd)
	l.procs[name] = p
	l.mu.Unlock()
	code := p.Wait(90 * time.Second)
	l.mu.Lock()
	l.codes[name] = code
	l.mu.Unlock()
}

// holder is the pid of `solobeat run` whose program works on a tick.
func (l *loops) holder(tick string) *testkit.Proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, p := range l.procs {
		if strings.HasSuffix(name, " "+tick) && p.Alive() && len(descendants(p.Pid)) > 1 {
			return p
		}
	}
	return nil
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// Ten ticks on four crontabs with skewed clocks: ten reports, each once, also
// when one holder is killed in mid-run; the same loops without `solobeat run`
// form forty.
func TestRunLoops(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "report")
	if err := os.WriteFile(script, []byte(reportScript), 0o700); err != nil {
		t.Fatal(err)
	}
	bin := testkit.Binary(t)
	l := &loops{t: t, dir: dir, ticks: 10, period: 3 * time.Second, env: s.env(), argv: func(tick string) []string {
		return []string{bin, "run", "--lock", "report:lock", "--key", "report:" + tick, "--ttl", "3s", "--wait", "20s", "--", script, tick}
	}}
	first := time.Now().Add(3 * time.Second)
	done := make(chan struct{})
	go func() { defer close(done); l.run(first) }()
	var killed *testkit.Proc
	var victim string
	testkit.Poll(t, 60*time.Second, 20*time.Millisecond, func() bool {
		for _, line := range lines(t, filepath.Join(dir, "started")) {
			if tick, _, ok := strings.Cut(line, " "); ok && tick >= "t03" {
				if killed = l.holder(tick); killed != nil {
					victim = tick
					return true
				}
			}
		}
		return false
	}, "no holder was found in mid-run")
	killed.Signal(syscall.SIGKILL)
	<-done
	perTick := map[string]int{}
	for _, line := range lines(t, filepath.Join(dir, "reports")) {
		perTick[strings.Fields(line)[0]]++
	}
	for i := range l.ticks {
		if tick := fmt.Sprintf("t%02d", i); perTick[tick] != 1 {
			t.Errorf("tick %s has %d reports, want 1 (the killed one was %s)", tick, perTick[tick], victim)
		}
	}
	for name, code := range l.codes {
		if code != 0 && l.procs[name] != killed {
			t.Errorf("%s: exit code %d\n%s", name, code, l.procs[name].Stderr())
		}
	}

	control := t.TempDir()
	plain := &loops{t: t, dir: control, ticks: 10, period: 200 * time.Millisecond, argv: func(tick string) []string { return []string{script, tick} }}
	plain.run(time.Now().Add(2 * time.Second))
	if n := len(lines(t, filepath.Join(control, "reports"))); n != 40 {
		t.Errorf("without solobeat run: %d reports, want 40", n)
	}
}

// The exit codes that scripts rely on.
func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	bin := testkit.Binary(t)
	run := func(args ...string) (int, string) {
		p := testkit.StartCmd(t, "run", command(s.dir, s.env(), append([]string{bin, "run"}, args...)...))
		code := p.Wait(30 * time.Second)
		return code, p.Stdout() + p.Stderr()
	}
	hold := testkit.StartCmd(t, "holder", command(s.dir, s.env(), bin, "run", "--lock", "held", "--", "sh", "-c", "echo up; exec sleep 60"))
	hold.WaitOutput(20*time.Second, "up")
	for name, tc := range map[string]struct {
		args []string
		code int
		text string
	}{
		"ok":            {[]string{"--lock", "a", "--", "true"}, 0, ""},
		"program's own": {[]string{"--lock", "b", "--", "sh", "-c", "exit 7"}, 7, ""},
		"signal":        {[]string{"--lock", "c", "--", "sh", "-c", "kill -TERM $$"}, 128 + 15, ""},
		"busy":          {[]string{"--lock", "held", "--", "true"}, 75, "held"},
		"busy, waited":  {[]string{"--lock", "held", "--wait", "1s", "--", "true"}, 75, "held"},
		"no lock":       {[]string{"--", "true"}, 2, "--lock"},
		"no program":    {[]string{"--lock", "d"}, 2, "program"},
		"not found":     {[]string{"--lock", "d", "--", "/no/such/program"}, 127, "/no/such/program"},
		"a queue":       {[]string{"--lock", "celery", "--", "true"}, 2, "is a queue"},
		"Celery's own":  {[]string{"--lock", "unacked", "--", "true"}, 2, "Celery's own"},
		"long":          {[]string{"--lock", strings.Repeat("l", 600), "--", "true"}, 2, "at most 512"},
		"ttl 0":         {[]string{"--lock", "d", "--ttl", "0s", "--", "true"}, 2, "ttl"},
		"record":        {[]string{"--lock", "e", "--key", "k1", "--", "echo", "ran"}, 0, "ran"},
		"stdin":         {[]string{"--lock", "f", "--", "cat"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if code, out := run(tc.args...); code != tc.code || !strings.Contains(out, tc.text) {
				t.Errorf("exit %d, want %d; output %q, want %q in it", code, tc.code, out, tc.text)
			}
		})
	}
	if code, out := run("--lock", "e", "--key", "k1", "--", "echo", "ran"); code != 0 || strings.Contains(out, "ran\n") || !strings.Contains(out, "completed before") {
		t.Errorf("second run of k1: exit %d, output %q", code, out)
	}
	if code, _ := run("--lock", "e", "--key", "k2", "--", "sh", "-c", "exit 3"); code != 3 {
		t.Errorf("failing program: exit %d", code)
	}
	if code, out := run("--lock", "e", "--key", "k2", "--", "echo", "again"); code != 0 || !strings.Contains(out, "again") {
		t.Errorf("a failed run counts as done: exit %d, output %q", code, out)
	}
	s.redis.Stop()
	began := time.Now()
	if code, out := run("--lock", "a", "--", "true"); code != 1 || !strings.Contains(out, "does not answer") {
		t.Errorf("store down: exit %d, output %q", code, out)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("store down without --wait took %s", d)
	}
}

// The lock is lost in mid-run: the program and what it left behind are gone,
// and the exit code says so.
func TestRunLostLock(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p := testkit.StartCmd(t, "run", command(s.dir, s.env(), testkit.Binary(t), "run", "--lock", "stolen", "--ttl", "2s", "--",
		"sh", "-c", "setsid sleep 300 & echo up; sleep 300"))
	p.WaitOutput(20*time.Second, "up")
	tree := descendants(p.Pid)
	if len(tree) < 3 {
		t.Fatalf("descendants %v", tree)
	}
	s.broker.Set(t.Context(), "stolen", "another's token", 0)
	if code := p.Wait(10 * time.Second); code != 70 {
		t.Errorf("exit code %d, want 70; %s", code, p.Stderr())
	}
	gone(t, tree, time.Second)
	if v := s.broker.Get(t.Context(), "stolen").Val(); v != "another's token" {
		t.Errorf("the new holder's lock was touched: %q", v)
	}
}

// kill -9 and SIGSTOP of `solobeat run`: nothing is left 1 s after the kill,
// or 1 s after the lock's deadline. Ctrl-Z stops what the user sees, not the
// deadline.
func TestRunKilledStoppedSuspended(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		signal  syscall.Signal
		group   bool
		patient time.Duration
	}{
		"kill -9": {syscall.SIGKILL, false, time.Second},
		"SIGSTOP": {syscall.SIGSTOP, false, 3 * time.Second},
		"Ctrl-Z":  {syscall.SIGTSTP, true, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			p := testkit.StartCmd(t, "run", command(s.dir, s.env(), testkit.Binary(t), "run", "--lock", "k", "--ttl", "2s", "--",
				"sh", "-c", "setsid sh -c 'sleep 300 & sleep 300' & (sleep 300 &) ; echo up; sleep 300"))
			p.WaitOutput(20*time.Second, "up")
			var tree []int
			testkit.Poll(t, 10*time.Second, 20*time.Millisecond, func() bool { // guardian, sh, setsid sh, 4 sleeps
				tree = descendants(p.Pid)
				return len(tree) >= 7
			}, "the program's tree did not grow")
			pid := p.Pid
			if tc.group {
				pid = -pid
			}
			if err := syscall.Kill(pid, tc.signal); err != nil {
				t.Fatal(err)
			}
			gone(t, tree, tc.patient)
			if tc.signal != syscall.SIGKILL {
				_ = syscall.Kill(p.Pid, syscall.SIGCONT)
				if code := p.Wait(10 * time.Second); code != 70 {
					t.Errorf("after waking: exit code %d, want 70: %s", code, p.Stderr())
				}
			}
		})
	}
}

// A program that does not go at once has its 5 s also where the lock's TTL is
// shorter: the lock is renewed meanwhile, and the code is that of the signal.
func TestRunGivesItsGrace(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	p := testkit.StartCmd(t, "run", command(s.dir, s.env(), testkit.Binary(t), "run", "--lock", "k", "--ttl", "2s", "--",
		"sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"))
	p.WaitOutput(20*time.Second, "up")
	began := time.Now()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(20 * time.Second); code != 128+9 {
		t.Errorf("exit code %d, want 137: %s", code, p.Stderr())
	}
	if took := time.Since(began); took < 4500*time.Millisecond || took > 9*time.Second {
		t.Errorf("ended after %s, want the grace of 5 s", took)
	}
	if n := s.broker.Exists(t.Context(), "k").Val(); n != 0 {
		t.Error("the lock is still held")
	}
}
