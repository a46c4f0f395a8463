package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

type enqueueOptions struct {
	args, kwargs, queue, engine, eta, id string
	countdown, expires, timeout          time.Duration
	priority                             int
	wait                                 bool
}

func (c *program) enqueueCommand() *cobra.Command {
	var o enqueueOptions
	cmd := &cobra.Command{
		Use:   "enqueue TASK",
		Short: "Send a task",
		Long: `Send a task, as a Celery client would, or to an asynq queue. The id is printed on stdout; with --wait
the result is, and the id goes to stderr.

Exit codes with --wait: 0 SUCCESS; 1 any other end; 75 still pending.`,
		Example: `  solobeat enqueue reports.hourly --kwargs '{"hour": "2026-11-29T17"}'
  solobeat enqueue tasks.add --args '[2, 3]' --wait
  solobeat enqueue payments.charge --args '["pay-42", 1000, "EUR"]' --queue payments --eta 2026-12-01T03:00:00Z
  solobeat enqueue images.resize --kwargs '{"id": 7}' --engine asynq`,
		Args: args(1, 1, "one task name"),
		RunE: func(cmd *cobra.Command, names []string) error { return c.enqueue(cmd.Context(), names[0], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.args, "args", "", "positional arguments, a JSON list")
	f.StringVar(&o.kwargs, "kwargs", "", "named arguments, a JSON object")
	f.StringVar(&o.queue, "queue", "", "queue (default: the first of worker.queues)")
	f.StringVar(&o.engine, "engine", celery.EngineName, "celery or asynq")
	f.StringVar(&o.eta, "eta", "", "not before this instant, RFC 3339 with an offset")
	durationFlag(cmd, &o.countdown, "countdown", 0, "not before now + this")
	durationFlag(cmd, &o.expires, "expires", 0, "revoke it if it has not begun by now + this")
	f.IntVar(&o.priority, "priority", 0, "0 (first) to 9")
	f.StringVar(&o.id, "id", "", "task id (default: random)")
	f.BoolVar(&o.wait, "wait", false, "wait for the result")
	durationFlag(cmd, &o.timeout, "timeout", time.Minute, "how long --wait waits")
	return c.withOutput(cmd)
}

func (o *enqueueOptions) options() ([]tasks.Option, error) {
	switch {
	case o.engine != celery.EngineName && o.engine != asynqengine.EngineName:
		return nil, usagef("--engine %s: celery and asynq are known", o.engine)
	case o.engine == asynqengine.EngineName && o.priority != 0:
		return nil, usagef("--priority: asynq has none; use a queue of its own")
	case o.engine == asynqengine.EngineName && o.queue != "" && !asynqengine.ValidQueue(o.queue):
		return nil, usagef("--queue %q: %s", o.queue, asynqengine.QueueRule)
	}
	opts := []tasks.Option{tasks.WithPriority(o.priority)}
	if o.args != "" {
		var list []json.RawMessage
		if err := decodeExact(o.args, &list); err != nil {
			return nil, usagef("--args: want a JSON list: %w", err)
		}
		for _, a := range list {
			opts = append(opts, tasks.WithArgs(a))
		}
	}
	if o.kwargs != "" {
		var object map[string]json.RawMessage
		if err := decodeExact(o.kwargs, &object); err != nil {
			return nil, usagef("--kwargs: want a JSON object: %w", err)
		}
		opts = append(opts, tasks.WithKwargs(object))
	}
	if o.queue != "" {
		if msg := config.QueueProblem(o.queue); msg != "" {
			return nil, usagef("--queue: %s", msg)
		}
		opts = append(opts, tasks.WithQueue(o.queue))
	}
	if o.id != "" {
		opts = append(opts, tasks.WithID(o.id))
	}
	switch {
	case o.eta != "" && o.countdown != 0:
		return nil, usagef("--eta and --countdown: one of the two")
	case o.eta != "":
		at, err := time.Parse(time.RFC3339, o.eta)
		if err != nil {
			return nil, usagef("--eta %q: want RFC 3339 with an offset, for example 2026-12-01T03:00:00Z", o.eta)
		}
		opts = append(opts, tasks.WithETA(at))
	case o.countdown > 0:
		opts = append(opts, tasks.WithCountdown(o.countdown))
	}
	if o.expires > 0 {
		opts = append(opts, tasks.WithExpires(time.Now().Add(o.expires)))
	}
	return opts, nil
}

// decodeExact decodes one JSON value and nothing behind it; the parts keep
// their text, so that no digit is lost.
func decodeExact(text string, into any) error {
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("text after the value")
	}
	return nil
}

func (c *program) enqueue(ctx context.Context, name string, o enqueueOptions) error {
	opts, err := o.options()
	if err != nil {
		return err
	}
	if _, err := tasks.NewRequest(name, opts...); err != nil {
		return usagef("%w", err)
	}
	s, err := c.open(ctx, "enqueue")
	if err != nil {
		return err
	}
	defer s.close()
	var to tasks.Enqueuer = s.sender
	if o.engine == asynqengine.EngineName {
		to = s.asynqClient()
	}
	id, err := to.Enqueue(ctx, name, opts...)
	if err != nil {
		return err
	}
	if !o.wait {
		if c.output == "json" {
			return printJSON(c.Out, map[string]string{"id": id})
		}
		_, err = fmt.Fprintln(c.Out, id)
		return err
	}
	c.note("sent %s, waiting up to %s for its result", id, o.timeout)
	if queue := cmp.Or(o.queue, s.cfg.Worker.Queues[0]); !s.served(ctx, o.engine, queue) {
		c.note("no Solobeat worker serves the queue %q now; `solobeat queues` shows which do", queue)
	}
	return c.showResult(ctx, s, id, o.timeout)
}

// served tells whether a live worker takes from a queue of an engine; where
// that can't be known, it is taken for granted.
func (s *stores) served(ctx context.Context, engine, queue string) bool {
	if engine == asynqengine.EngineName {
		workers, err := s.asynqAdmin(nil).Workers()
		return err != nil || slices.ContainsFunc(workers, func(w asynqengine.Worker) bool { return slices.Contains(w.Queues, queue) })
	}
	replicas, err := s.admin(nil).Replicas(ctx)
	return err != nil || slices.ContainsFunc(replicas, func(r celery.Replica) bool { return r.Live && slices.Contains(r.Queues, queue) })
}

// open reads the configuration and reaches the broker, for short commands.
func (c *program) open(ctx context.Context, role string) (*stores, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	if c.logLevel == "" {
		cfg.Log.Level = "warn"
	}
	s, err := openStores(cfg, newLogger(c.Err, cfg.Log.Level, cfg.Log.Format), role)
	if err != nil {
		return nil, err
	}
	if err := s.reach(ctx, 0, s.brokerServer()); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (c *program) resultCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "result ID",
		Short: "Read the result of a task",
		Long: `Read the state of a task, and its result on stdout or what went wrong. A task that nobody knows is
PENDING, as in Celery; results are kept for results.expires.

Exit codes: 0 SUCCESS; 1 any other end; 75 still pending.`,
		Example: `  solobeat result 7c1f0c8e-3f0a-4d5e-9d2f-2b1f6d0a9e11
  solobeat result 7c1f0c8e-3f0a-4d5e-9d2f-2b1f6d0a9e11 --wait 30s -o json`,
		Args: args(1, 1, "one task id"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			s, err := c.open(cmd.Context(), "result")
			if err != nil {
				return err
			}
			defer s.close()
			if err := s.reach(cmd.Context(), wait, s.resultServer()); err != nil {
				return err
			}
			return c.showResult(cmd.Context(), s, ids[0], wait)
		},
	}
	durationFlag(cmd, &wait, "wait", 0, "how long to wait for a final state")
	return c.withOutput(cmd)
}

// resultView is a result as `result -o json` prints it.
type resultView struct {
	ID        string          `json:"id"`
	Status    string          `json:"status"`
	Result    json.RawMessage `json:"result"`
	Error     string          `json:"error,omitempty"`
	Traceback string          `json:"traceback,omitempty"`
	DateDone  *time.Time      `json:"date_done"`
	Solobeat  json.RawMessage `json:"solobeat,omitempty"`
}

func (c *program) showResult(ctx context.Context, s *stores, id string, wait time.Duration) error {
	r, done, err := s.sender.Wait(ctx, id, wait)
	switch {
	case err == nil:
	case ctx.Err() == nil && (unanswered(err) || errors.Is(err, context.DeadlineExceeded)):
		one := s.resultServer()
		return redisconn.ReachError(one.url, one.setting(), err)
	default:
		return err
	}
	v := resultView{ID: id, Status: "PENDING", Result: json.RawMessage("null")}
	if r != nil {
		v = viewOf(r)
	}
	if c.output == "json" {
		err = printJSON(c.Out, v)
	} else {
		err = c.printResult(v)
	}
	switch {
	case err != nil:
		return err
	case !done:
		return exit(exitBusy, nil)
	case v.Status != wire.StateSuccess:
		return exit(exitFailed, nil)
	}
	return nil
}

func viewOf(r *wire.Result) resultView {
	v := resultView{ID: r.TaskID, Status: r.State, Result: r.Value, Traceback: r.Traceback, Solobeat: r.Solobeat}
	if len(v.Result) == 0 || !json.Valid(v.Result) {
		v.Result = json.RawMessage("null")
	}
	if r.Exception != nil {
		v.Error = exceptionText(r.Exception)
	}
	if !r.DateDone.IsZero() {
		v.DateDone = &r.DateDone
	}
	return v
}

// printResult puts the value alone on stdout, all else on stderr.
func (c *program) printResult(v resultView) error {
	c.note("%s", v.Status)
	if v.Error != "" {
		_, _ = fmt.Fprintln(c.Err, printableLines(v.Error))
	}
	if v.Traceback != "" {
		_, _ = fmt.Fprintln(c.Err, printableLines(v.Traceback))
	}
	if len(v.Solobeat) > 0 {
		c.note("solobeat: %s", v.Solobeat)
	}
	if v.Status != wire.StateSuccess {
		return nil
	}
	_, err := fmt.Fprintln(c.Out, string(v.Result))
	return err
}

// exceptionText is an exception as Python prints it: the class and its
// arguments.
func exceptionText(e *wire.Exception) string {
	text := e.Type + "("
	for i, a := range e.Args {
		if i > 0 {
			text += ", "
		}
		text += string(a)
	}
	return text + ")"
}
