package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/internal/demo"
	"github.com/solobeat/solobeat/scheduler"
)

func (c *program) demoCommand() *cobra.Command {
	o := demo.Options{Out: c.Out, Err: c.Err}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it: the hourly report on 4 replicas, with a kill -9 in mid-run",
		Long: `Four real processes form one report per (shrunk) hour: first as plain cron
jobs, which gives four reports, then with Solobeat, which gives one, also when
the process that works on it is killed. Needs nothing but this binary.

A demo with --redis that was killed by kill -9 leaves its keys there, all of
which begin with solobeat-demo-. Once no demo runs on that Redis, remove them by
  redis-cli --scan --pattern 'solobeat-demo-*' | xargs -r redis-cli unlink`,
		Example: `  solobeat demo
  solobeat demo --once --ticks 6 --dir out
  solobeat demo --redis redis://localhost:6379/0
  solobeat demo --engine asynq --once`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.demo(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.RedisURL, "redis", "", "a Redis to use instead of the embedded one; the demo's keys are removed at the end")
	f.StringVar(&o.Engine, "engine", "celery", "celery or asynq, where a killed replica's task takes 1 to 2 minutes to come back")
	f.IntVar(&o.Replicas, "replicas", 4, "number of processes")
	durationFlag(cmd, &o.Tick, "tick", 5*time.Second, "the length of an hour")
	f.IntVar(&o.Ticks, "ticks", 6, "number of guarded hours")
	f.StringVar(&o.Dir, "dir", "", "folder for files and logs (default: a temporary one)")
	f.BoolVar(&o.Once, "once", false, "end after the scenes: exit 0 only if every hour has exactly one report")
	f.BoolVar(&o.Unsafe, "unsafe", false, "take the guards off")
	_ = f.MarkHidden("unsafe")
	return c.withOutput(cmd)
}

func (c *program) demo(ctx context.Context, o demo.Options) error {
	if c.output == "json" {
		o.Out = c.Err
	}
	sum, err := demo.Run(ctx, o)
	if c.output == "json" && sum != nil {
		if perr := printJSON(c.Out, sum); perr != nil {
			return perr
		}
	}
	var bad *demo.OptionError
	switch {
	case errors.As(err, &bad):
		return usagef("%w", bad)
	case ctx.Err() == nil || errors.Is(err, demo.ErrNotSolo):
		return err
	case sum == nil:
		return ctx.Err()
	default:
		return nil
	}
}

// demoReplicaCommand is a replica process of the demo.
func (c *program) demoReplicaCommand() *cobra.Command {
	var dir string
	var n int
	var o processOptions
	cmd := &cobra.Command{
		Use: "demo-replica", Hidden: true, Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			child := demo.NewChild(dir, n, c.In, c.Out)
			reg, err := child.Registry()
			if err != nil {
				return err
			}
			o.worker, o.scheduler, o.registry = true, true, reg
			o.node = demo.NodeName(n)
			o.ready = func(addr string) { child.Emit(demo.Event{Event: "ready", Detail: addr}) }
			o.gate = child.Gate
			o.fired = func(tick scheduler.Occurrence) { child.Fired(tick.At) }
			return c.process(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "")
	cmd.Flags().IntVar(&n, "replica", 0, "")
	o.hidden(cmd)
	return cmd
}

// demoCronCommand is one of the plain cron jobs of scene 1.
func (c *program) demoCronCommand() *cobra.Command {
	var dir, tick string
	cmd := &cobra.Command{
		Use: "demo-cron", Hidden: true, Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Unguarded(cmd.Context(), c.In, dir, tick)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "")
	cmd.Flags().StringVar(&tick, "tick", "", "")
	cmd.SetOut(io.Discard)
	return cmd
}
