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
// runs beside the commands of tasks:; nil for none. The environment is what
// os.Environ returns.
func Main(ctx context.Context, args []string, s Streams, environ []string, handlers *tasks.Registry) int {
	c := &program{Streams: s, environ: environ, handlers: handlers}
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
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code, err = signalCode(ctx), errInterrupted
	}
	if msg := message(c.withRights(ctx, err)); msg != "" {
		_, _ = fmt.Fprintln(s.Err, "solobeat: "+strings.ReplaceAll(msg, "\n", "\nsolobeat: "))
	}
	return code
}

// message is the text of a command's error, with its cure, without passwords
// and without control characters.
func message(err error) string {
	msg := strings.TrimSpace(err.Error())
	if msg == "" {
		return ""
	}
	if !errors.As(err, new(config.Problems)) { // they are masked, and show how a URL is written
		msg = redisconn.MaskText(msg)
	}
	if cure := redisconn.Cure(err); cure != "" {
		msg += " (" + cure + ")"
	}
	if refusalOf(err) != "" {
		msg += "; " + allRights
	}
	return printableLines(msg)
}

// SignalError is the cause of a command's context that a signal has ended.
type SignalError struct{ Signal os.Signal }

// Error names the signal.
func (e *SignalError) Error() string { return e.Signal.String() + " signal received" }

// errInterrupted is what people read where a signal has ended a command before
// it could do its work; the command itself returns its context's error.
var errInterrupted = errors.New("interrupted")

// signalCode is 128+n for the signal that has ended a command's context.
func signalCode(ctx context.Context) int {
	var e *SignalError
	if errors.As(context.Cause(ctx), &e) {
		if s, ok := e.Signal.(syscall.Signal); ok {
			return 128 + int(s)
		}
	}
	return 128 + int(syscall.SIGINT)
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
	environ  []string
	handlers *tasks.Registry

	configPath string
	output     string
	logLevel   string

	cfg *config.Config // that was loaded, nil if none was
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
		c.queuesCommand(), c.doctorCommand(), c.schemaCommand(), c.versionCommand(),
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

// env is os.LookupEnv in the environment that the program was given.
func (c *program) env(name string) (string, bool) {
	for _, kv := range c.environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

var logLevels = []string{"debug", "info", "warn", "error"}

// configFile is -c, $SOLOBEAT_CONFIG, or ./solobeat.yaml if it is there; "" for
// none.
func (c *program) configFile() string {
	path := c.configPath
	if path == "" {
		path, _ = c.env("SOLOBEAT_CONFIG")
	}
	if path == "" {
		if _, err := os.Stat("solobeat.yaml"); err == nil {
			path = "solobeat.yaml"
		}
	}
	return path
}

// load reads the configuration; the environment alone is enough.
func (c *program) load() (*config.Config, error) {
	c.warn(config.CheckEnv(c.environ))
	cfg, problems, err := config.Load(c.configFile(), c.env)
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
	c.cfg = cfg
	return cfg, nil
}

func (c *program) warn(ps config.Problems) {
	for _, line := range ps.Warnings().Lines() {
		c.note("solobeat: %s", line)
	}
}
