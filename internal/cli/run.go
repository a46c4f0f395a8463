package cli

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks/command/guardian"
)

// runGrace is what a program gets between TERM and KILL.
const runGrace = 5 * time.Second

// runNamespace keeps the records of `run --key` apart from those of tasks.
const runNamespace = "run"

type runOptions struct {
	lock, backend, key string
	ttl, wait          time.Duration
	argv               []string
}

func (c *program) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run --lock NAME [flags] -- CMD ARG...",
		Short: "Run any program under a lock, for existing crontabs",
		Long: `Run a program under a lock that a watchdog renews while the program runs. If
the lock is lost, the program and all its children are killed.

NAME is the lock's key in Redis, verbatim. With --key, a record is kept of that
key: if it is completed, the program is not run and the exit code is 0.

Exit codes: the program's own; 75 the lock or the record is busy; 70 the lock
was lost; 128+n the program was ended by signal n; 1 Redis is out of reach.`,
		Example: `  solobeat run --lock report:lock -- ./build-report
  solobeat run --lock report:lock --key "report:$(date +%FT%H)" --ttl 30s --wait 20s -- ./build-report --hourly
  # in a crontab on every replica:
  0 * * * *  solobeat run --lock report:lock --key "report:$(date -u +\%FT\%H)" --wait 1m -- /usr/local/bin/build-report`,
		Args: args(1, -1, "a program after --"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			o.argv = argv
			return c.run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.lock, "lock", "", "the lock's key, verbatim (needed)")
	f.StringVar(&o.backend, "backend", "redis", "where the lock lives: redis")
	f.StringVar(&o.key, "key", "", "the record's key: what must happen once, for example report:2026-11-29T17")
	durationFlag(cmd, &o.ttl, "ttl", lockguard.DefaultTTL, "the lock's time to live, at least 1s; it is renewed while the program runs")
	durationFlag(cmd, &o.wait, "wait", 0, "how long to wait for a busy lock, a record in progress, or Redis")
	f.SetInterspersed(false)
	return cmd
}

func (o *runOptions) check() error {
	switch {
	case o.lock == "":
		return usagef("--lock NAME is needed: the key of the lock")
	case len(o.lock) > idempotency.MaxKeyText:
		return usagef("--lock: the name has %d bytes, at most %d are allowed", len(o.lock), idempotency.MaxKeyText)
	case o.backend != "redis":
		return usagef("--backend %s: redis is known", o.backend)
	}
	if _, err := (lockguard.Numbers{TTL: o.ttl}).Check(); err != nil {
		return usagef("--ttl: %w", err)
	}
	if o.key != "" {
		if err := (idempotency.Key{Namespace: runNamespace, Text: o.key}).Validate(); err != nil {
			return usagef("--key: %w", err)
		}
	}
	return nil
}

func (c *program) run(ctx context.Context, o runOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if _, err := exec.LookPath(o.argv[0]); err != nil {
		return exit(notStarted(err), err)
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if c.logLevel == "" {
		cfg.Log.Level = "warn" // the program's output is what people want to see
	}
	if msg := cfg.LockKeyProblem(o.lock); msg != "" {
		return usagef("--lock: %s: choose another name, for example report:lock", msg)
	}
	log := newLogger(c.Err, cfg.Log.Level, cfg.Log.Format)
	s, err := openStores(cfg, log, "run")
	if err != nil {
		return err
	}
	defer s.close()
	r := &guardedRun{c: c, o: o, log: log, stores: s, until: time.Now().Add(o.wait)}
	return r.run(ctx)
}

// guardedRun is one program under a lock and, with --key, a record.
type guardedRun struct {
	c      *program
	o      runOptions
	log    *slog.Logger
	stores *stores
	until  time.Time

	locks   *lockguard.Guard
	records *idempotency.Guard
}

func (r *guardedRun) run(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = r.locks.Close(closing)
		if r.records != nil {
			r.records.Close()
		}
	}()
	for {
		h, err := r.acquire(ctx)
		if err != nil {
			return err
		}
		hold, err := r.claim(ctx, h)
		if err == nil {
			return r.program(ctx, h, hold)
		}
		r.release(ctx, h)
		if !r.again(ctx, err) {
			return r.refused(ctx, err)
		}
	}
}

// open reaches the locks' store, for at most --wait. The broker is not needed:
// who waits there for this lock looks by himself, if later.
func (r *guardedRun) open(ctx context.Context) error {
	if err := r.stores.reach(ctx, r.o.wait, r.stores.lockServer()); err != nil {
		return err
	}
	var err error
	if r.locks, err = r.stores.lockGuard(ctx, lockguard.Observer{}); err != nil {
		return err
	}
	if r.o.key != "" {
		r.records, err = r.stores.recordGuard(ctx, idempotency.Observer{})
	}
	return err
}

func (r *guardedRun) recordKey() idempotency.Key {
	return idempotency.Key{Namespace: runNamespace, Text: r.o.key}
}

// slice is how long one wait for the lock lasts before the record is looked
// at: once it is completed there is nothing to wait for, whoever has the lock.
const slice = 2 * time.Second

func (r *guardedRun) acquire(ctx context.Context) (*lockguard.Handle, error) {
	for {
		if err := r.peek(ctx); err != nil {
			return nil, err
		}
		left := time.Until(r.until)
		wait := max(0, left)
		if r.records != nil {
			wait = min(wait, slice)
		}
		h, err := r.locks.Acquire(ctx, r.o.lock, lockguard.WithTTL(r.o.ttl), lockguard.WithWait(wait),
			lockguard.WithLabels(lockguard.Labels{Lock: r.o.lock}))
		if err == nil {
			return h, nil
		}
		if ctx.Err() != nil || !errors.Is(err, lockguard.ErrBusy) || left <= wait {
			return nil, r.refused(ctx, err)
		}
	}
}

// peek ends the command if the record is completed.
func (r *guardedRun) peek(ctx context.Context) error {
	if r.records == nil {
		return nil
	}
	_, _, err := r.records.Peek(ctx, r.recordKey())
	var done *idempotency.CompletedError
	if errors.As(err, &done) {
		return r.completed(done)
	}
	return nil // any other answer is the claim's business
}

func (r *guardedRun) completed(done *idempotency.CompletedError) error {
	r.c.note("solobeat: %s was completed before (%s), not run again", r.o.key, stamp(done.Record.Done))
	return exit(exitOK, nil)
}

func (r *guardedRun) claim(ctx context.Context, h *lockguard.Handle) (*idempotency.Hold, error) {
	if r.records == nil {
		return nil, nil //nolint:nilnil // no record is asked for
	}
	opts := []idempotency.Option{idempotency.WithRun("", runNamespace, runID(r.stores.instance)), idempotency.WithLease(r.o.ttl, 0)}
	if f, ok := h.Fence(); ok {
		opts = append(opts, idempotency.WithFence(uint64(f)))
	}
	return r.records.Claim(ctx, r.recordKey(), opts...)
}

// runID is the id under which holders and records know this run.
func runID(instance string) string { return "run-" + instance[:16] }

// again waits for a record in progress, at most to the end of --wait.
func (r *guardedRun) again(ctx context.Context, err error) bool {
	wait := time.Second
	var busy *idempotency.BusyError
	var backoff *idempotency.BackoffError
	switch {
	case errors.As(err, &busy):
		wait = min(busy.Left+10*time.Millisecond, wait)
	case errors.As(err, &backoff):
		wait = min(backoff.Left+10*time.Millisecond, wait)
	case errors.Is(err, idempotency.ErrStoreUnavailable):
	default:
		return false
	}
	if time.Until(r.until) < wait {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// refused turns the reason for not running into message and exit code.
func (r *guardedRun) refused(ctx context.Context, err error) error {
	var (
		done *idempotency.CompletedError
		busy *lockguard.BusyError
		ee   *exitError
	)
	switch {
	case errors.As(err, &ee):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &done):
		return r.completed(done)
	case errors.As(err, &busy):
		return exitf(exitBusy, "lock %s is held%s", r.o.lock, holderText(busy.Holder))
	case errors.Is(err, lockguard.ErrBusy):
		return exitf(exitBusy, "lock %s is held by another", r.o.lock)
	case isRecordBusy(err):
		return exitf(exitBusy, "%s is in progress elsewhere", r.o.key)
	case errors.Is(err, lockguard.ErrForeignKey):
		return exitf(exitConfig, "%w: choose another --lock", err)
	default:
		return exit(exitFailed, r.named(err))
	}
}

// named says of the store's trouble which server has it.
func (r *guardedRun) named(err error) error {
	if redisconn.Answered(err) || errors.Is(err, lockguard.ErrStoreUnavailable) || errors.Is(err, idempotency.ErrStoreUnavailable) {
		one := r.stores.lockServer()
		return redisconn.ReachError(one.url, one.setting(), err)
	}
	return err
}

func isRecordBusy(err error) bool {
	var busy *idempotency.BusyError
	var backoff *idempotency.BackoffError
	return errors.As(err, &busy) || errors.As(err, &backoff)
}

func holderText(h lockguard.Holder) string {
	switch {
	case h.TaskID != "":
		return " by " + h.TaskID + ", " + short(h.Left) + " left"
	case h.Left > 0:
		return ", " + short(h.Left) + " left"
	default:
		return " by another"
	}
}

// program runs the program until it ends, is stopped, or the lock is lost.
func (r *guardedRun) program(ctx context.Context, h *lockguard.Handle, hold *idempotency.Hold) error {
	id := runID(r.stores.instance)
	env := guardian.Run{TaskID: id, Key: r.o.key}
	if hold != nil {
		env.Fence = strconv.FormatUint(hold.Fence(), 10)
	} else if f, ok := h.Fence(); ok {
		env.Fence = strconv.FormatUint(uint64(f), 10)
	}
	deadline, _ := h.Deadline()
	p, err := guardian.Start(context.WithoutCancel(ctx), guardian.Config{
		Argv: r.o.argv, Env: guardian.Env(r.c.environ, guardian.Settings, env), RunID: id,
		Stdin: r.c.In, Stdout: r.c.Out, Stderr: r.c.Err, Deadline: deadline,
	})
	if err != nil {
		r.end(ctx, h, hold, err)
		return exit(notStarted(err), err)
	}
	r.watch(ctx, h, p)
	status, err := p.Wait()
	lost := h.Check()
	return r.ended(ctx, h, hold, status, lost, err)
}

// notStarted is a shell's exit code for a program that cannot be started.
func notStarted(err error) int {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return 127
	}
	return 126
}

// watch passes the lock's deadline on to the guardian, and stops or kills the
// program, until it has ended.
func (r *guardedRun) watch(ctx context.Context, h *lockguard.Handle, p *guardian.Process) {
	go func() {
		stop, lost := ctx.Done(), h.Context().Done()
		for {
			changed := h.Changed()
			if d, ok := h.Deadline(); ok {
				p.Extend(d)
			}
			select {
			case <-p.Done():
				return
			case <-changed:
			case <-stop:
				stop = nil
				p.Terminate(runGrace)
			case <-lost:
				if h.Check() != nil {
					p.Kill()
					return
				}
				// Our own stop ended this context too. The lock is held on and
				// renewed while the program has its grace; should it be lost then,
				// the guardian's deadline ends the program.
				lost = nil
			}
		}
	}()
}

// ended ends record and lock, and says with what code to exit.
func (r *guardedRun) ended(ctx context.Context, h *lockguard.Handle, hold *idempotency.Hold, st guardian.Status, lost, waitErr error) error {
	if st.Success() {
		if err := r.complete(ctx, hold); err != nil {
			r.release(ctx, h)
			return exitf(exitSoftware, "the program ended well, but its record was taken over meanwhile: %w", err)
		}
		r.release(ctx, h)
		return nil
	}
	if lost != nil && st.Reason != guardian.Ended && st.Reason != guardian.Terminated || st.Reason == guardian.DeadlinePassed {
		r.end(ctx, h, hold, lockguard.ErrLost)
		return exitf(exitSoftware, "lock %s was lost, the program was killed: %v", r.o.lock, lost)
	}
	r.end(ctx, h, hold, errors.New(st.String()))
	if waitErr != nil {
		r.log.Error("guardian", "error", waitErr)
	}
	return exit(shellCode(st), nil)
}

// shellCode is the exit code of a program that did not end well by itself. One
// that was told to stop and answered with 0 has not done its work: that must
// not look like success.
func shellCode(st guardian.Status) int {
	if code := st.Shell(); code != 0 {
		return code
	}
	return 128 + int(syscall.SIGTERM)
}

func (r *guardedRun) complete(ctx context.Context, hold *idempotency.Hold) error {
	if hold == nil {
		return nil
	}
	err := hold.Complete(ctx, nil)
	if err != nil && !errors.Is(err, idempotency.ErrStale) {
		r.log.Error("record could not be completed: its lease keeps others out for a while", "key", r.o.key, "error", err)
		return nil
	}
	return err
}

// release gives the lock back, and does for tasks that wait for it what a
// worker does.
func (r *guardedRun) release(ctx context.Context, h *lockguard.Handle) {
	_, _ = h.Release(ctx) // counted and logged by the guard
	r.stores.wake(ctx, r.o.lock)
}

// end gives record and lock back.
func (r *guardedRun) end(ctx context.Context, h *lockguard.Handle, hold *idempotency.Hold, cause error) {
	if hold != nil {
		_ = hold.Release(ctx, cause, 0) // stale or out of reach: the lease ends it
	}
	r.release(ctx, h)
}
