package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/solobeat/solobeat/bench/rig"
)

// profileLines is how much of pprof's table is shown, its head included.
const profileLines = 15

// profileOf runs work, which writes a CPU profile to a path, and shows where the
// time went.
func (b *bench) profileOf(ctx context.Context, work func(path string) error) string {
	b.say("once more, with a CPU profile")
	path := filepath.Join(b.dir, fmt.Sprintf("profile-%d", time.Now().UnixNano()))
	if err := work(path); err != nil {
		return "no profile: " + err.Error()
	}
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", path).CombinedOutput()
	if err != nil {
		return "no profile: " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[:min(profileLines, len(lines))], "\n")
}

// profileSide is one more round of a side whose worker is ours.
func (b *bench) profileSide(ctx context.Context, s side) string {
	return b.profileOf(ctx, func(path string) error {
		_, err := b.measure(ctx, s, profileMark(ctx, path), "BENCH_PROFILE="+path)
		return err
	})
}

// profileMark tells our worker when its profile begins and ends.
func profileMark(ctx context.Context, path string) func(p *rig.Proc, begins bool) {
	return func(p *rig.Proc, begins bool) {
		if begins {
			p.Signal(syscall.SIGUSR1)
			return
		}
		p.Signal(syscall.SIGUSR2)
		_ = rig.Until(ctx, 10*time.Second, 10*time.Millisecond, func() (bool, error) {
			_, err := os.Stat(path)
			return err == nil, nil
		})
	}
}

// profileHere profiles work that is done in this process.
func (b *bench) profileHere(ctx context.Context, work func() error) string {
	return b.profileOf(ctx, func(path string) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		return work()
	})
}
