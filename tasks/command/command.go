package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command/guardian"
	"github.com/solobeat/solobeat/tasks/internal/ready"
)

const (
	// maxResult is how much of the end of standard output is the result.
	maxResult = 64 << 10
	// killAfter is the time between TERM and KILL.
	killAfter = 5 * time.Second
	// exitNotExecuted is EX_TEMPFAIL of sysexits.h.
	exitNotExecuted = 75
	// lossWithin is how long a run waits for the loss of its lock to be told
	// when its program was killed at the lock's deadline.
	lossWithin = time.Second
)

type handler struct {
	cfg     Config
	program *program
	log     *slog.Logger
}

// New returns the handler of a program. The process must call
// guardian.RunIfChild first thing in main.
func New(cfg Config) (tasks.Handler, error) {
	p, err := compile(&cfg)
	if err != nil {
		return nil, err
	}
	h := &handler{cfg: cfg, program: p, log: cfg.Logger}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	return h, nil
}

// Handle runs the program for one task.
func (h *handler) Handle(ctx context.Context, t *tasks.Task) (json.RawMessage, error) {
	cfg, err := h.config(ctx, t)
	if err != nil {
		return nil, tasks.BadArguments(err)
	}
	log := h.log.With("task_id", t.ID, "task", t.Name)
	stdout, stderr := guardian.NewTail(maxResult), newErrorLog(log)
	beat := func() { tasks.Heartbeat(ctx) }
	cfg.Stdout, cfg.Stderr = beating{beat, stdout}, beating{beat, stderr}
	validity := newValidity(ctx)
	cfg.Deadline = validity.deadline
	p, err := guardian.Start(ctx, cfg)
	if err != nil {
		return nil, notStarted(ctx, err)
	}
	supervise(ctx, p, validity)
	st, err := p.Wait()
	if err != nil {
		log.Error("processes of a command are left", "error", err)
	}
	stderr.flush()
	if st.Success() {
		return result(stdout), nil
	}
	return nil, failure(ctx, st, stderr)
}

// beating takes a program's output for the heartbeat of its run.
type beating struct {
	beat func()
	to   io.Writer
}

// Write passes on what the program writes.
func (b beating) Write(p []byte) (int, error) {
	b.beat()
	return b.to.Write(p)
}

// config renders what the guardian is to run.
func (h *handler) config(ctx context.Context, t *tasks.Task) (guardian.Config, error) {
	argv, env, err := h.program.render(t, h.cfg.Params)
	if err != nil {
		return guardian.Config{}, err
	}
	stdin, err := ready.Input(t)
	if err != nil {
		return guardian.Config{}, err
	}
	return guardian.Config{
		Argv: argv, Dir: h.cfg.Dir, RunID: t.ID, Stdin: bytes.NewReader(stdin),
		Env: environment(os.Environ(), env, runOf(ctx, t)),
	}, nil
}

func runOf(ctx context.Context, t *tasks.Task) guardian.Run {
	run := guardian.Run{TaskID: t.ID, Tick: ready.Tick(t)}
	run.Key, _ = tasks.Key(ctx)
	if fence, ok := tasks.Fence(ctx); ok {
		run.Fence = strconv.FormatUint(fence, 10)
	}
	return run
}

// validity follows the deadline of the run's lock or record.
type validity struct {
	source   tasks.Validity
	changed  <-chan struct{}
	deadline time.Time
}

func newValidity(ctx context.Context) *validity {
	v := &validity{}
	if source, ok := tasks.ValidityFromContext(ctx); ok {
		v.source = source
		v.read()
	}
	return v
}

// read asks for the channel first, so that no move is missed. When the hold is
// over the last deadline stands.
func (v *validity) read() {
	v.changed = v.source.Changed()
	if d, ok := v.source.Deadline(); ok {
		v.deadline = d
	}
}

// supervise hands each renewal on and ends the program with its context.
func supervise(ctx context.Context, p *guardian.Process, v *validity) {
	cancelled := ctx.Done()
	for {
		select {
		case <-p.Done():
			return
		case <-v.changed:
			v.read()
			p.Extend(v.deadline)
		case <-cancelled:
			cancelled = nil
			if graceful(context.Cause(ctx)) {
				p.Terminate(killAfter)
			} else {
				p.Kill()
			}
		}
	}
}

// graceful tells what is the run's own end, while it may still trust its lock,
// from a loss.
func graceful(cause error) bool {
	for _, end := range []error{
		tasks.ErrTimeout, tasks.ErrShutdown, lockguard.ErrMaxHold, idempotency.ErrMaxHold,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(cause, end) {
			return true
		}
	}
	return false
}

// result is the trimmed output as a JSON string.
func result(stdout *guardian.Tail) json.RawMessage {
	out := stdout.Bytes()
	if stdout.Truncated() {
		// The cut may have left the rest of a character.
		for i := 0; i < 3 && len(out) > 0 && out[0]&0xC0 == 0x80; i++ {
			out = out[1:]
		}
	}
	return ready.Text(string(bytes.TrimSpace(out)))
}
