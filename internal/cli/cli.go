// Package cli is the command line: one file per command. Commands return
// errors; [Main] alone turns them into messages and exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
)

// Exit codes of every command; `run` also passes its program's own.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitWarnings = 3
	exitSoftware = 70 // run: the lock was lost
	exitBusy     = 75 // a lock is held by another, a result is pending
	exitConfig   = 78
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Env returns an environment variable, as os.LookupEnv does.
type Env = config.Lookup

// exitError is an error with an exit code. An empty message prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit returns an error that ends the program with code; err may be nil where
// everything has been said.
func exit(code int, err error) error { return &exitError{code: code, err: err} }

func exitf(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// Main runs one command and returns its exit code. Handlers are what a worker
// runs beside the commands of tasks:; nil for none.
func Main(ctx context.Context, args []string, s Streams, env Env, handlers *tasks.Registry) int {
	c := &program{Streams: s, env: env, handlers: handlers}
	root := c.root() //nolint:contextcheck // commands get their context from ExecuteContext
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var ee *exitError
	var ps config.Problems
	switch {
	case errors.As(err, &ee):
		code = ee.code
	case errors.As(err, &ps):
		code = exitConfig
	case isUsage(err):
		code = exitUsage
	}
	if msg := strings.TrimSpace(err.Error()); msg != "" {
		if cure := redisconn.Cure(err); cure != "" && !errors.Is(err, celery.ErrProbe) { // which has its own
			msg += " (" + cure + ")"
		}
		_, _ = fmt.Fprintln(s.Err, "solobeat: "+strings.ReplaceAll(msg, "\n", "\nsolobeat: "))
	}
	return code
}

// SignalError is the cause of a command's context that a signal has ended.
type SignalError struct{ Signal os.Signal }

// Error names the signal.
func (e *SignalError) Error() string { return e.Signal.String() + " signal received" }

// interrupted is the end of a command whose context a signal has ended before
// it could do its work: exit code 128+n.
func interrupted(ctx context.Context, when string) error {
	code := 128 + int(syscall.SIGINT)
	var e *SignalError
	if errors.As(context.Cause(ctx), &e) {
		if s, ok := e.Signal.(syscall.Signal); ok {
			code = 128 + int(s)
		}
	}
	return exitf(code, "interrupted %s", when)
}

// usageError marks errors about flags and arguments.
type usageError struct{ err error }

func (e *usageError) Error() string {
	return e.err.Error() + "\nadd --help to the command to see how it is used"
}
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

func isUsage(err error) bool {
	var u *usageError
	return errors.As(err, &u)
}

// program is what all commands share.
type program struct {
	Streams
	env      Env
	handlers *tasks.Registry

	configPath string
	output     string
	logLevel   string
}

func (c *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "solobeat",
		Short: "A Celery-compatible worker and cron scheduler in which every guarded job runs solo",
		Long: `Solobeat runs Celery tasks and cron jobs on any number of replicas. Every
guarded run has a lock with a watchdog, an idempotency record as the safety
net, and a metric that says when a job outlives its lock.

Start with: solobeat demo`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetFlagErrorFunc(flagError)
	root.Args = func(cmd *cobra.Command, got []string) error {
		if len(got) > 0 {
			return unknownCommand(cmd, got[0])
		}
		return nil
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.PersistentFlags().StringVarP(&c.configPath, "config", "c", "", "solobeat.yaml (default: $SOLOBEAT_CONFIG, else ./solobeat.yaml if it is there)")
	root.PersistentFlags().StringVar(&c.logLevel, "log-level", "", "debug, info, warn or error (default: log.level of the file)")
	root.AddCommand(
		c.demoCommand(), c.demoReplicaCommand(), c.demoCronCommand(), c.workerCommand(), c.schedulerCommand(), c.validateCommand(), c.nextCommand(), c.runCommand(),
		c.enqueueCommand(), c.resultCommand(), c.jobsCommand(), c.locksCommand(), c.recordsCommand(), c.deadCommand(),
		c.queuesCommand(), c.versionCommand(),
	)
	return root
}

// withOutput adds -o to a command that prints data.
func (c *program) withOutput(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVarP(&c.output, "output", "o", "table", "table or json")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if c.output != "table" && c.output != "json" {
			return usagef("-o %s: table or json is known", c.output)
		}
		return nil
	}
	return cmd
}

// args checks the number of arguments with a message that names them.
func args(low, high int, names string) cobra.PositionalArgs {
	return func(_ *cobra.Command, got []string) error {
		if len(got) < low || high >= 0 && len(got) > high {
			if names == "" {
				return usagef("no arguments are taken, got %q", strings.Join(got, " "))
			}
			return usagef("want %s, got %d arguments", names, len(got))
		}
		return nil
	}
}

var logLevels = []string{"debug", "info", "warn", "error"}

// load reads the configuration: -c, $SOLOBEAT_CONFIG, or ./solobeat.yaml if it
// is there; the environment alone is enough.
func (c *program) load() (*config.Config, error) {
	path := c.configPath
	if path == "" {
		path, _ = c.env("SOLOBEAT_CONFIG")
	}
	if path == "" {
		if _, err := os.Stat("solobeat.yaml"); err == nil {
			path = "solobeat.yaml"
		}
	}
	c.warn(config.CheckEnv(os.Environ()))
	cfg, problems, err := config.Load(path, c.env)
	c.warn(problems)
	if err != nil {
		return nil, err
	}
	if c.logLevel != "" {
		if !slices.Contains(logLevels, c.logLevel) {
			return nil, usagef("--log-level %s: %s are known", c.logLevel, strings.Join(logLevels, ", "))
		}
		cfg.Log.Level = c.logLevel
	}
	return cfg, nil
}

func (c *program) warn(ps config.Problems) {
	for _, line := range ps.Warnings().Lines() {
		_, _ = fmt.Fprintln(c.Err, "solobeat: "+line)
	}
}
