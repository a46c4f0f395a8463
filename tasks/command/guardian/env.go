package guardian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The variables that tell a program about its run.
const (
	// EnvTaskID is the task's id; `solobeat run` sets a random one.
	EnvTaskID = "SOLOBEAT_RUN_TASK_ID"
	// EnvTick is the job's tick as RFC 3339 in UTC.
	EnvTick = "SOLOBEAT_RUN_TICK"
	// EnvKey is the idempotency key.
	EnvKey = "SOLOBEAT_RUN_KEY"
	// EnvFence is the run's fence, a decimal number.
	EnvFence = "SOLOBEAT_RUN_FENCE"
)

// Run is what a program is told about its run; empty fields are not set.
type Run struct {
	TaskID, Tick, Key, Fence string
}

// Env returns base without the variables that strip names, and without those
// of an enclosing run, plus those of run. A nil strip keeps everything else;
// [Settings] removes what configures Solobeat, its secrets among them.
func Env(base []string, strip func(name string) bool, run Run) []string {
	env := make([]string, 0, len(base)+4)
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		if isRunVariable(name) || (strip != nil && strip(name)) {
			continue
		}
		env = append(env, kv)
	}
	for _, v := range [...][2]string{
		{EnvTaskID, run.TaskID}, {EnvTick, run.Tick}, {EnvKey, run.Key}, {EnvFence, run.Fence},
	} {
		if v[1] != "" {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}

// Settings reports whether an environment variable configures Solobeat: all
// of SOLOBEAT_*, since URLs with passwords are among them and every new
// setting has a variable.
func Settings(name string) bool { return strings.HasPrefix(name, "SOLOBEAT_") }

func isRunVariable(name string) bool {
	return name == EnvTaskID || name == EnvTick || name == EnvKey || name == EnvFence
}

// setEnv returns env with name set to value, once.
func setEnv(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, name+"=") {
			out = append(out, kv)
		}
	}
	return append(out, name+"="+value)
}

// getEnv returns the last value of name in env.
func getEnv(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// lookPath finds a program in the PATH of env. One with a slash is taken as
// it is, relative to the program's own working directory. Relative entries of
// PATH are passed over, since they mean another program in each directory.
func lookPath(program string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	err := fs.ErrNotExist
	for _, dir := range filepath.SplitList(getEnv(env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, program)
		info, statErr := os.Stat(path)
		switch {
		case statErr != nil:
			if errors.Is(statErr, fs.ErrPermission) {
				err = fs.ErrPermission
			}
		case info.IsDir() || info.Mode()&0o111 == 0:
			err = fs.ErrPermission
		default:
			return path, nil
		}
	}
	return "", fmt.Errorf("not found in PATH: %w", err)
}
