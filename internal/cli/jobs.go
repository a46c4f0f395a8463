package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
)

func (c *program) jobsCommand() *cobra.Command {
	cmd := group("jobs", "The schedule's state: what ran, what comes")
	cmd.AddCommand(
		c.withOutput(&cobra.Command{
			Use: "list", Short: "All jobs of the current file", Args: args(0, 0, ""),
			Example: "  solobeat jobs list -c solobeat.yaml",
			RunE:    func(cmd *cobra.Command, _ []string) error { return c.jobsList(cmd.Context()) },
		}),
		c.withOutput(&cobra.Command{
			Use: "show JOB", Short: "One job", Args: args(1, 1, "one job name"),
			Example: "  solobeat jobs show hourly-report",
			RunE:    func(cmd *cobra.Command, names []string) error { return c.jobsShow(cmd.Context(), names[0]) },
		}),
		c.jobsHistoryCommand(), c.jobsTriggerCommand(), c.jobsPauseCommand(), c.jobsResumeCommand(),
	)
	return cmd
}

// group is a command that only has subcommands; a typo among them is a usage
// error and no silent help.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short,
		Args: func(cmd *cobra.Command, got []string) error {
			if len(got) > 0 {
				return unknownCommand(cmd, got[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr()) // help that nobody asked for is no output
			_ = cmd.Help()
			return usagef("%s: a subcommand is needed", cmd.Name())
		},
	}
}

func (c *program) jobsList(ctx context.Context) error {
	s, err := c.open(ctx, "jobs")
	if err != nil {
		return err
	}
	defer s.close()
	jobs, err := s.state().Jobs(ctx)
	if err != nil {
		return err
	}
	views, err := jobViews(ctx, s, jobs)
	if err != nil {
		return err
	}
	t := &table{header: []string{"JOB", "STATE", "LAST TICK", "RESULT", "BY", "NEXT", "PUBLISHED", "MISSED"}}
	for _, j := range views {
		t.add(j.Job, stateOf(j.JobState), stamp(j.Last), j.result(), j.By, stamp(j.Next), fmt.Sprint(j.Seq), fmt.Sprint(j.Missed))
	}
	return c.print(views, t, "no jobs: no scheduler has run in this namespace")
}

// jobView is a job as `jobs list` prints it.
type jobView struct {
	scheduler.JobState
	// LastRun is the newest end of a run that the history knows.
	LastRun *scheduler.HistoryEntry `json:"last_run,omitempty"`
}

// result is what became of the last tick, and that the last run failed.
func (j jobView) result() string {
	if j.LastRun != nil && j.LastRun.Outcome == tasks.Failed.String() {
		return strings.TrimPrefix(j.Result+", last run failed", ", ")
	}
	return j.Result
}

func jobViews(ctx context.Context, s *stores, jobs []scheduler.JobState) ([]jobView, error) {
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.Job
	}
	runs, err := s.state().LastRuns(ctx, names)
	if err != nil {
		return nil, err
	}
	next := nextTicks(s.cfg)
	views := make([]jobView, len(jobs))
	for i, j := range jobs {
		views[i].JobState = j
		views[i].Next = next(j)
		if e, ok := runs[j.Job]; ok {
			views[i].LastRun = &e
		}
	}
	return views, nil
}

// nextTicks reckons the next tick of a job that has had none, from the schedule
// file if this process has the one that is in force; the store learns of it
// only with the first tick.
func nextTicks(cfg *config.Config) func(scheduler.JobState) time.Time {
	schedules := map[string]*scheduler.Job{}
	if cfg.Schedule.File != "" {
		jobs, _, _ := config.LoadSchedule(cfg.Schedule.File) // not the business of who only looks
		for _, j := range jobs {
			schedules[j.Name] = j
		}
	}
	return func(s scheduler.JobState) time.Time {
		j := schedules[s.Job]
		if !s.Next.IsZero() || j == nil || j.Disabled || j.Schedule == nil || j.Revision() != s.Revision || s.Mark().IsZero() {
			return s.Next
		}
		return j.Schedule.Next(s.Mark()).At
	}
}

func (c *program) jobsShow(ctx context.Context, name string) error {
	s, err := c.open(ctx, "jobs")
	if err != nil {
		return err
	}
	defer s.close()
	states, err := s.state().Load(ctx, []string{name})
	if err != nil {
		return err
	}
	if len(states) == 0 || !states[0].Known {
		return s.unknownJob(ctx, name)
	}
	views, err := jobViews(ctx, s, states)
	if err != nil {
		return err
	}
	j := views[0]
	t := &table{}
	t.add("job", j.Job)
	t.add("state", stateOf(j.JobState))
	if p := j.Paused; p != nil {
		t.add("paused", stamp(p.Since)+" by "+p.By)
		t.add("reason", p.Reason)
	}
	t.add("revision", j.Revision)
	t.add("in the current file", fmt.Sprint(j.Current))
	t.add("since", stamp(j.Since))
	t.add("last tick", stamp(j.Last)+" "+j.Label)
	t.add("result", j.result())
	t.add("settled", stamp(j.At)+" by "+j.By)
	t.add("task id", j.TaskID)
	t.add("next tick", stamp(j.Next))
	t.add("published", fmt.Sprint(j.Seq))
	t.add("missed", fmt.Sprint(j.Missed))
	t.add("skipped while paused", fmt.Sprint(j.Skipped))
	return c.print(j, t, "")
}

// meantJob is the hint at the job that was probably meant. It is an extra: where
// the jobs can't be read there is none.
func (s *stores) meantJob(ctx context.Context, name string) string {
	jobs, err := s.state().Jobs(ctx)
	if err != nil {
		return ""
	}
	known := make([]string, len(jobs))
	for i, j := range jobs {
		known[i] = j.Job
	}
	if slices.Contains(known, name) {
		return ""
	}
	return meant(name, known)
}

func (c *program) jobsHistoryCommand() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use: "history JOB", Short: "The last decisions about a job's ticks and the ends of its runs, the newest first", Args: args(1, 1, "one job name"),
		Example: "  solobeat jobs history hourly-report -n 20",
		RunE: func(cmd *cobra.Command, names []string) error {
			s, err := c.open(cmd.Context(), "jobs")
			if err != nil {
				return err
			}
			defer s.close()
			entries, err := s.state().History(cmd.Context(), names[0], n)
			if err != nil {
				return err
			}
			note := ""
			if len(entries) == 0 {
				entries = []scheduler.HistoryEntry{}
				note = "no history: no scheduler has settled a tick of " + names[0] + s.meantJob(cmd.Context(), names[0])
			}
			return c.print(entries, historyTable(entries), note)
		},
	}
	cmd.Flags().IntVarP(&n, "count", "n", 0, "at most so many (default: all that are kept)")
	return c.withOutput(cmd)
}

func historyTable(entries []scheduler.HistoryEntry) *table {
	t := &table{header: []string{"AT", "OUTCOME", "TICK", "BY", "DETAIL", "TASK ID"}}
	for _, e := range entries {
		t.add(stamp(e.At), e.Outcome, e.Label, e.By, historyDetail(e), e.TaskID)
	}
	return t
}

// historyDetail tells of a decision how many ticks it was about and how late
// they were, of a run how it went.
func historyDetail(e scheduler.HistoryEntry) string {
	var parts []string
	add := func(ok bool, format string, args ...any) {
		if ok {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	if r := e.Run; r != nil {
		add(r.Reason != "", "%s", r.Reason)
		add(r.Takeover, "takeover")
		add(r.Attempt > 1, "attempt %d", r.Attempt)
		add(r.TookMS > 0, "took %s", short(time.Duration(r.TookMS)*time.Millisecond))
		add(r.Fence > 0, "fence %d", r.Fence)
		return strings.Join(parts, ", ")
	}
	add(e.Reason != "", "%s", e.Reason)
	add(e.Count > 1, "%d ticks", e.Count)
	add(e.LateMS >= 1000, "%s late", short(time.Duration(e.LateMS)*time.Millisecond))
	return strings.Join(parts, ", ")
}
