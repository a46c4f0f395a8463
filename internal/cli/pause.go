package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/scheduler"
)

// byHand says who does something to a job by hand, and why.
type byHand struct {
	all        bool
	by, reason string
}

// reasonLength bounds what a pause keeps of a person's words, in characters.
const reasonLength = 200

func (c *program) jobsPauseCommand() *cobra.Command {
	var o byHand
	cmd := &cobra.Command{
		Use: "pause JOB… | --all", Short: "Publish no ticks of jobs until they are resumed",
		Long: `Publish no ticks of jobs until they are resumed. It holds for all replicas from the next tick on, and
over restarts and new schedule files. Ticks meanwhile are recorded as paused, not as missed, and do not run
later. What is in a queue already still runs; jobs trigger works as ever.

--all is all jobs of the current file; a job that is new in a later file is not paused.`,
		Example: `  solobeat jobs pause hourly-report --reason 'the database is being moved'
  solobeat jobs pause --all`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.jobsPause(cmd.Context(), names, o, (*stores).pause)
		},
	}
	return c.withByHand(cmd, &o)
}

func (c *program) jobsResumeCommand() *cobra.Command {
	var o byHand
	cmd := &cobra.Command{
		Use: "resume JOB… | --all", Short: "Let paused jobs have ticks again",
		Long: `Let paused jobs have ticks again, from now on: nothing of the time before runs, whatever the misfire policy.
To run one of those ticks: jobs trigger JOB --tick T.`,
		Example: `  solobeat jobs resume hourly-report
  solobeat jobs resume --all`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return c.jobsPause(cmd.Context(), names, o, (*stores).resume)
		},
	}
	return c.withByHand(cmd, &o)
}

// withByHand adds what pause and resume have in common.
func (c *program) withByHand(cmd *cobra.Command, o *byHand) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, names []string) error {
		switch {
		case o.all && len(names) > 0:
			return usagef("job names and --all: one of the two")
		case !o.all && len(names) == 0:
			return usagef("name one job or more, or --all")
		}
		return o.check()
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "all jobs of the current file")
	f.StringVar(&o.reason, "reason", "", "why, for others who look at the job")
	f.StringVar(&o.by, "by", "", "who (default: user@host)")
	return c.withOutput(cmd)
}

// check bounds what is kept of a person's words.
func (o byHand) check() error {
	for _, w := range []struct{ flag, text string }{{"reason", o.reason}, {"by", o.by}} {
		if !utf8.ValidString(w.text) || utf8.RuneCountInString(w.text) > reasonLength {
			return usagef("--%s: at most %d characters", w.flag, reasonLength)
		}
	}
	return nil
}

// pauseView is a job as pause and resume print it.
type pauseView struct {
	Job string `json:"job"`
	// State is paused or active now, Changed tells that it was the other before.
	State   string `json:"state"`
	Changed bool   `json:"changed"`
	// Pause is the one in force, or the one that has just ended.
	Pause *scheduler.Pause `json:"pause"`
}

func (s *stores) pause(ctx context.Context, job string, o byHand) (pauseView, error) {
	p, changed, err := s.state().Pause(ctx, job, o.by, o.reason)
	return pauseView{job, jobPaused, changed, &p}, err
}

func (s *stores) resume(ctx context.Context, job string, o byHand) (pauseView, error) {
	p, changed, err := s.state().Resume(ctx, job, o.by, o.reason)
	v := pauseView{job, jobActive, changed, &p}
	if !changed {
		v.Pause = nil
	}
	return v, err
}

// The states of a job, as people read them.
const (
	jobActive = "active"
	jobPaused = "paused"
)

func stateOf(j scheduler.JobState) string {
	if j.Paused != nil {
		return jobPaused
	}
	return jobActive
}

// jobsPause does the same to all jobs that are named, or to none if one of them
// is not known.
func (c *program) jobsPause(ctx context.Context, names []string, o byHand, do func(*stores, context.Context, string, byHand) (pauseView, error)) error {
	s, err := c.open(ctx, "jobs")
	if err != nil {
		return err
	}
	defer s.close()
	o.by = cmp.Or(o.by, whoami())
	if names, err = s.jobsMeant(ctx, names); err != nil {
		return err
	}
	views := make([]pauseView, 0, len(names))
	t := &table{header: []string{"JOB", "STATE", "PAUSED SINCE", "BY", "REASON"}}
	for _, name := range names {
		v, err := do(s, ctx, name, o)
		switch {
		case err != nil && len(views) == 0:
			return err
		case err != nil:
			return errors.Join(err, c.print(views, t, ""))
		}
		views = append(views, v)
		if !v.Changed {
			c.note("%s was %s already", name, v.State)
		}
		p := orZero(v.Pause)
		t.add(v.Job, v.State, stamp(p.Since), p.By, p.Reason)
	}
	return c.print(views, t, "no jobs: no scheduler has run in this namespace")
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// jobsMeant are the jobs that are named, each once, or all of the current file.
func (s *stores) jobsMeant(ctx context.Context, names []string) ([]string, error) {
	if len(names) == 0 {
		jobs, err := s.state().Jobs(ctx)
		for _, j := range jobs {
			names = append(names, j.Job)
		}
		return names, err
	}
	slices.Sort(names)
	names = slices.Compact(names)
	states, err := s.state().Load(ctx, names)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, j := range states {
		if !j.Known {
			errs = append(errs, s.unknownJob(ctx, j.Job))
		}
	}
	return names, errors.Join(errs...)
}

// unknownJob is the error for a job of which the store knows nothing.
func (s *stores) unknownJob(ctx context.Context, name string) error {
	if err := s.state().CheckJob(ctx, name); err != nil {
		return err
	}
	return exitf(exitFailed, "no job %q is known in namespace %s%s (see solobeat jobs list)", name, s.cfg.Namespace, s.meantJob(ctx, name))
}

// whoami is user@host, as far as it can be known.
func whoami() string {
	name := fmt.Sprintf("uid %d", os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return strings.ToValidUTF8(name, "?")
}
