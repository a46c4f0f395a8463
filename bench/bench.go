package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// bench is what all groups use.
type bench struct {
	report

	root   string // of the repository
	dir    string // of this run, removed at its end
	python string // of the newest Celery
	rounds int
	group  string
	began  time.Time
	stderr io.Writer

	sides string // of throughput, "" for all
	// explained: a tiny run has its profile.
	explained bool

	// made are Celery's messages by task, kept their file if any.
	made map[string][]string
	kept string
}

// prepare finds what is needed and builds the programs.
func prepare(ctx context.Context, rounds int, tiny bool, stderr io.Writer) (*bench, error) {
	b := &bench{report: report{tiny: tiny}, rounds: max(rounds, 1), began: time.Now(), stderr: stderr, made: map[string][]string{}}
	if tiny {
		b.rounds = 1
	}
	var err error
	if b.root, err = repoRoot(); err != nil {
		return nil, err
	}
	b.python = filepath.Join(b.root, ".cache", "venv", "celery-5.7", "bin", "python")
	if _, err := os.Stat(filepath.Join(filepath.Dir(b.python), "..", "stamp")); err != nil {
		return nil, errors.New("no Python environment with Celery; run: make setup")
	}
	if b.dir, err = os.MkdirTemp("", "solobeat-bench-"); err != nil {
		return nil, err
	}
	b.say("building")
	var g errgroup.Group
	for out, pkg := range map[string]string{
		"solobeat": "github.com/solobeat/solobeat/cmd/solobeat",
		"worker":   "./worker", "asynqworker": "./asynqworker", "floor": "./floor",
	} {
		g.Go(func() error {
			cmd := exec.CommandContext(ctx, "go", "build", "-o", b.bin(out), pkg)
			cmd.Dir = filepath.Join(b.root, "bench")
			if text, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("go build %s: %w\n%s", pkg, err, text)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) close() error { return os.RemoveAll(b.dir) }

// bin is the path of a program that was built.
func (b *bench) bin(name string) string { return filepath.Join(b.dir, name) }

// say prints a line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.stderr, "%5.0f s  %-10s %s\n", time.Since(b.began).Seconds(), b.group, fmt.Sprintf(format, args...))
}

// of is n, or few in a tiny run.
func (b *bench) of(n, few int) int {
	if b.tiny {
		return few
	}
	return n
}

func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module github.com/solobeat/solobeat\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("run it in a clone of the repository")
		}
		dir = parent
	}
}

// machine tells what the figures were taken on.
func (b *bench) machine(ctx context.Context, began time.Time) []string {
	version := func(name string, args ...string) string {
		out, _ := exec.CommandContext(ctx, name, args...).Output()
		return strings.TrimSpace(string(out))
	}
	redis := version("redis-server", "--version")
	if f := strings.Fields(redis); len(f) > 2 {
		redis = strings.TrimPrefix(f[2], "v=")
	}
	commit := version("git", "-C", b.root, "rev-parse", "--short=12", "HEAD")
	if version("git", "-C", b.root, "status", "--porcelain", "--untracked-files=no") != "" {
		commit += ", with changes"
	}
	return []string{
		fmt.Sprintf("%s, commit %s", began.UTC().Format("2006-01-02 15:04 UTC"), commit),
		fmt.Sprintf("%d × %s, Linux %s, load at the start %s", runtime.NumCPU(), cpuModel(), strings.TrimSpace(readFile("/proc/sys/kernel/osrelease")), load()),
		fmt.Sprintf("Redis %s on the same machine, without persistence; %s; %s", redis, runtime.Version(), version(b.python, "-c",
			`import sys; from importlib.metadata import version as v
print("Python", sys.version.split()[0], "with Celery", v("celery") + ", kombu", v("kombu") + ", redis-py", v("redis"))`)),
		"Peers: " + strings.Join(modules("github.com/hibiken/asynq", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis", "github.com/redis/go-redis/v9"), ", "),
	}
}

// load is the load of the last 1, 5 and 15 minutes.
func load() string {
	f := strings.Fields(readFile("/proc/loadavg"))
	return strings.Join(f[:min(3, len(f))], " ")
}

func readFile(name string) string {
	text, _ := os.ReadFile(name)
	return string(text)
}

func cpuModel() string {
	for line := range strings.Lines(readFile("/proc/cpuinfo")) {
		if key, val, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(val)
		}
	}
	return runtime.GOARCH
}

// modules names those of the paths that are linked, with their versions.
func modules(paths ...string) []string {
	info, _ := debug.ReadBuildInfo()
	var named []string
	for _, path := range paths {
		for _, m := range info.Deps {
			if m.Path == path {
				named = append(named, strings.TrimPrefix(path, "github.com/")+" "+m.Version)
			}
		}
	}
	return named
}
