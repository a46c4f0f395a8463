package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/solobeat/solobeat/bench/rig"
)

const (
	allJobs   = 10_000
	ticksASec = 200
	tinyJobs  = 300
)

// jobs measures the scheduler with many jobs.
func jobs(ctx context.Context, b *bench) error {
	quiet, err := b.scheduleFile("quiet", b.of(allJobs, tinyJobs), 0)
	if err != nil {
		return err
	}
	busy, err := b.scheduleFile("busy", b.of(allJobs, tinyJobs)-ticksASec, ticksASec)
	if err != nil {
		return err
	}
	if err := b.validateMany(ctx, quiet, busy); err != nil {
		return err
	}
	if err := b.idleScheduler(ctx, quiet); err != nil {
		return err
	}
	return b.lateness(ctx, busy)
}

// scheduleFile writes a schedule of so many daily jobs, due hours from now, and
// so many that are due each second, and a solobeat.yaml that names it.
func (b *bench) scheduleFile(name string, daily, everySecond int) (string, error) {
	var s strings.Builder
	s.WriteString("version: 1\ndefaults:\n  timezone: Europe/Berlin\njobs:\n")
	hour := time.Now().In(time.UTC).Hour() + 7 // six hours from now, whatever the season
	for i := range daily {
		fmt.Fprintf(&s, "  daily-%d:\n    task: bench.noop\n    cron: \"%d %d * * *\"\n    args: [%d, 2]\n", i, i%60, (hour+i%8)%24, i)
	}
	for i := range everySecond {
		fmt.Fprintf(&s, "  second-%d:\n    task: bench.noop\n    every: 1s\n    kwargs: {tick: \"{{ .Tick.UTC | unix }}\"}\n", i)
	}
	schedule := filepath.Join(b.dir, name+"-schedule.yaml")
	config := filepath.Join(b.dir, name+".yaml")
	return config, errors.Join(
		os.WriteFile(schedule, []byte(s.String()), 0o600),
		os.WriteFile(config, []byte("schedule:\n  file: "+filepath.Base(schedule)+"\n"), 0o600))
}

// validateMany times `solobeat validate`.
func (b *bench) validateMany(ctx context.Context, configs ...string) error {
	var took series
	for round := range b.rounds {
		for _, config := range configs {
			began := time.Now()
			out, err := exec.CommandContext(ctx, b.bin("solobeat"), "validate", config).CombinedOutput()
			if err != nil {
				return fmt.Errorf("validate: %w\n%s", err, out[:min(len(out), 2000)])
			}
			took = append(took, time.Since(began).Seconds())
		}
		b.say("round %d, validate %.2f s", round+1, took[len(took)-1])
	}
	line := b.judge("10,000 jobs: load and validate", "≤ 2 s", took.show("%.2f", "s"), took.median() <= 2)
	if b.missed(line) {
		line.profile = b.profileScheduler(ctx, configs[0], true)
	}
	return nil
}

// idleScheduler reads the CPU time of a scheduler none of whose jobs is due.
func (b *bench) idleScheduler(ctx context.Context, config string) error {
	srv, err := rig.StartRedis(ctx, b.dir)
	if err != nil {
		return err
	}
	defer srv.Stop()
	p, err := b.startOurs(ctx, "solobeat", "scheduler", srv.Addr, config)
	if err != nil {
		return err
	}
	defer p.Stop()
	if err := b.seeded(ctx, srv, p); err != nil {
		return err
	}
	var cpu, redis series
	span := time.Duration(b.of(6000, 1500)) * time.Millisecond
	for round := range b.rounds {
		before, redisBefore, err := used(ctx, srv, p)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := pause(ctx, span); err != nil {
			return err
		}
		after, redisAfter, err := used(ctx, srv, p)
		if err != nil {
			return errors.Join(err, p.Failure())
		}
		took := time.Since(began).Seconds()
		cpu = append(cpu, 100*(after-before).Seconds()/took)
		redis = append(redis, 100*(redisAfter-redisBefore).Seconds()/took)
		b.say("round %d, idle scheduler %.2f %% CPU, its Redis %.2f %%", round+1, cpu[round], redis[round])
	}
	if line := b.judge("10,000 jobs: idle CPU of the scheduler", "< 1 %", cpu.show("%.2f", "%"), cpu.median() < 1); b.missed(line) {
		line.profile = b.profileScheduler(ctx, config, false)
	}
	b.tell("10,000 jobs: idle CPU of its Redis", redis.show("%.2f", "%"))
	return nil
}

// seeded waits until the scheduler has loaded and settled: its Redis is asked
// for little.
func (b *bench) seeded(ctx context.Context, srv *rig.Redis, p *rig.Proc) error {
	last := time.Duration(-1)
	return rig.Until(ctx, 2*time.Minute, time.Second, func() (bool, error) {
		now, err := p.CPU()
		if err != nil {
			return false, errors.Join(err, p.Failure())
		}
		n, err := srv.Client.DBSize(ctx).Result()
		settled := n > 0 && last >= 0 && now-last < 50*time.Millisecond
		last = now
		return settled, err
	})
}

// profileScheduler is a profile of the same scheduler in a program that can be
// told to write one: of its first seconds, with the loading of its file, or of
// those after.
func (b *bench) profileScheduler(ctx context.Context, config string, start bool) string {
	return b.profileOf(ctx, func(path string) error {
		srv, err := rig.StartRedis(ctx, b.dir)
		if err != nil {
			return err
		}
		defer srv.Stop()
		env := []string{"BENCH_PROFILE=" + path}
		if start {
			env = append(env, "BENCH_PROFILE_START=1")
		}
		p, err := b.startOurs(ctx, "worker", "scheduler", srv.Addr, config, env...)
		if err != nil {
			return err
		}
		defer p.Stop()
		mark := profileMark(ctx, path)
		if !start {
			if err := pause(ctx, 15*time.Second); err != nil {
				return err
			}
			mark(p, true)
		}
		if err := pause(ctx, 6*time.Second); err != nil {
			return err
		}
		mark(p, false)
		return p.Failure()
	})
}
