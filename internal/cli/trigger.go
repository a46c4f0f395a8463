package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

type triggerOptions struct {
	tick, by string
	wait     bool
	timeout  time.Duration
}

func (c *program) jobsTriggerCommand() *cobra.Command {
	var o triggerOptions
	cmd := &cobra.Command{
		Use: "trigger JOB", Short: "Run a job now, by hand",
		Long: `Run a job now, by hand, also a paused one or one that is not enabled. The job is read from schedule.file.
Its arguments and keys are those of its last tick up to now; the task id and the record's key end in
#manual: and a ULID, so that the run is one beside the schedule's own. Its lock is the job's.

With --tick it is the run of that tick itself, with the tick's own id and key: if it is completed, its
record answers and nothing runs.

The id is printed on stdout; with --wait the result is, and the id goes to stderr.

Exit codes with --wait: 0 SUCCESS; 1 any other end; 75 still pending.`,
		Example: `  solobeat jobs trigger hourly-report --wait
  solobeat jobs trigger hourly-report --tick 2026-12-01T03:00:00+01:00`,
		Args: args(1, 1, "one job name"),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := (byHand{by: o.by}).check(); err != nil {
				return err
			}
			return c.jobsTrigger(cmd.Context(), names[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.tick, "tick", "", "the tick to run, RFC 3339; without an offset in the job's zone")
	f.StringVar(&o.by, "by", "", "who (default: user@host)")
	f.BoolVar(&o.wait, "wait", false, "wait for the result")
	durationFlag(cmd, &o.timeout, "timeout", time.Minute, "how long --wait waits")
	return c.withOutput(cmd)
}

// triggerView is what `jobs trigger -o json` prints.
type triggerView struct {
	ID    string    `json:"id"`
	Job   string    `json:"job"`
	Tick  time.Time `json:"tick"`
	Label string    `json:"label"`
	// Manual is false for the tick's own run, Sent if that was still to run
	// anyway.
	Manual bool `json:"manual"`
	Sent   bool `json:"sent"`
}

func (c *program) jobsTrigger(ctx context.Context, name string, o triggerOptions) error {
	s, err := c.open(ctx, "jobs")
	if err != nil {
		return err
	}
	defer s.close()
	job, err := scheduledJob(s.cfg, name)
	if err != nil {
		return err
	}
	if err := c.noteState(ctx, s, job); err != nil {
		return err
	}
	now, err := s.state().Now(ctx)
	if err != nil {
		return err
	}
	req, tick, err := manualRequest(s.cfg, job, o.tick, now)
	if err != nil {
		return err
	}
	v := triggerView{ID: req.ID, Job: name, Tick: tick.At, Label: tick.Label, Manual: o.tick == ""}
	var before *wire.Result
	if o.wait { // of the tick's own run, an earlier one
		if err := s.reach(ctx, 0, s.resultServer()); err != nil {
			return err
		}
		if before, _, err = s.sender.Result(ctx, req.ID); err != nil {
			return err
		}
	}
	if v.Sent, err = s.sendByHand(ctx, job, req); err != nil {
		return err
	}
	if v.Sent {
		e := scheduler.HistoryEntry{Outcome: "triggered", Tick: tick.At, Label: tick.Label, By: cmp.Or(o.by, whoami()), TaskID: req.ID}
		if err := s.state().NoteTrigger(ctx, name, e); err != nil {
			c.note("the run was sent, but is not in the job's history: %v", err)
		}
	} else {
		c.note("a task of this tick is still to run; nothing was sent")
		before = nil
	}
	return c.triggered(ctx, s, job, v, req.Queue, before, o)
}

// triggered tells what was sent, or what comes of it.
func (c *program) triggered(ctx context.Context, s *stores, job *scheduler.Job, v triggerView, queue string, before *wire.Result, o triggerOptions) error {
	if !o.wait {
		if c.output == "json" {
			return printJSON(c.Out, v)
		}
		c.note("%s, tick %s", v.Job, v.Label)
		_, err := fmt.Fprintln(c.Out, v.ID)
		return err
	}
	c.note("%s, tick %s: waiting up to %s for the result of %s", v.Job, v.Label, o.timeout, v.ID)
	if engine := cmp.Or(job.Engine, celery.EngineName); !s.served(ctx, engine, queue) {
		c.note("no Solobeat worker serves the queue %q now; `solobeat queues` shows which do", queue)
	}
	began := time.Now()
	if err := s.awaitOther(ctx, v.ID, job.Record != nil, before, o.timeout); err != nil {
		return err
	}
	return c.showResult(ctx, s, v.ID, max(0, o.timeout-time.Since(began)))
}

// scheduledJob is a job of the schedule file.
func scheduledJob(cfg *config.Config, name string) (*scheduler.Job, error) {
	if cfg.Schedule.File == "" {
		return nil, errNoSchedule()
	}
	jobs, _, err := readSchedule(cfg) // warnings are for validate
	if err != nil {
		return nil, err
	}
	known := make([]string, len(jobs))
	for i, j := range jobs {
		if j.Name == name {
			return j, nil
		}
		known[i] = j.Name
	}
	return nil, exitf(exitFailed, "%s has no job %q%s", cfg.Schedule.File, name, meant(name, known))
}

// noteState tells what makes the run another one than the schedule's.
func (c *program) noteState(ctx context.Context, s *stores, job *scheduler.Job) error {
	states, err := s.state().Load(ctx, []string{job.Name})
	if err != nil {
		return err
	}
	switch st := states[0]; {
	case st.Paused != nil:
		c.note("%s is paused; this run goes ahead", job.Name)
	case job.Disabled:
		c.note("%s is not enabled; this run goes ahead", job.Name)
	case st.Known && (st.Revision != job.Revision() || !st.Current):
		c.note("%s is not the schedule file that is in force; the run is as this one has it", s.cfg.Schedule.File)
	}
	return nil
}

// manualRequest is the task of a run by hand: of its own, or the named tick's.
func manualRequest(cfg *config.Config, job *scheduler.Job, text string, now time.Time) (*tasks.Request, scheduler.Occurrence, error) {
	m := scheduler.Manual{Namespace: cfg.Namespace, KeyPrefix: cfg.Redis.GlobalKeyPrefix, Now: now}
	var err error
	if text == "" {
		m.Mark = scheduler.ManualMark(now)
		m.Tick, err = job.LastTick(now)
	} else if m.Tick, err = job.TickAt(text); err == nil && m.Tick.At.After(now) {
		err = fmt.Errorf("tick %s of job %q is still to come: leave --tick out to run the job now", m.Tick.Label, job.Name)
	}
	switch {
	case err == nil:
	case text != "":
		return nil, m.Tick, usagef("--tick: %w", err)
	default:
		return nil, m.Tick, exitf(exitFailed, "%w; solobeat enqueue %s sends its task", err, job.Task)
	}
	req, err := job.ManualRequest(m)
	return req, m.Tick, err
}

// sendByHand sends a task; false says that one of its id is still to run.
func (s *stores) sendByHand(ctx context.Context, job *scheduler.Job, req *tasks.Request) (bool, error) {
	if job.Engine == asynqengine.EngineName {
		client := s.asynqClient()
		if err := client.Prepare(req); err != nil {
			return false, err
		}
		return client.Again(ctx, req)
	}
	return true, s.sender.Send(ctx, req)
}

// sameResultPoll is how often awaitOther looks.
const sameResultPoll = 100 * time.Millisecond

// awaitOther waits until the result of an earlier run under the same id has
// been replaced. What stays as it was for so long is that result.
func (s *stores) awaitOther(ctx context.Context, id string, recorded bool, before *wire.Result, timeout time.Duration) error {
	switch {
	case before == nil || !wire.Ready(before.State):
		return nil
	case before.State != wire.StateSuccess:
	case recorded, s.results.Options().Addr != s.broker.Options().Addr:
		return nil // the record answers with it, or it is never written over
	}
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(sameResultPoll)
	defer tick.Stop()
	for {
		r, found, err := s.sender.Result(wait, id)
		if err == nil && (!found || r.State != before.State || !r.DateDone.Equal(before.DateDone)) {
			return nil
		}
		if err != nil && wait.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-wait.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return exitf(exitBusy, "the result of %s is still that of its earlier run, %s of %s", id, before.State, before.DateDone.Format(time.RFC3339))
		}
	}
}
