package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/scheduler"
)

// nextTick is one line of `next -o json`.
type nextTick struct {
	Job string `json:"job"`
	// Tick is the instant in UTC, Local in the job's zone.
	Tick  string `json:"tick"`
	Local string `json:"local"`
	// Label is the tick's civil name, which keys are made of.
	Label string `json:"label"`
	// Shifted is true if the civil time fell into a gap of the clocks.
	Shifted bool `json:"shifted"`
	// Due is when the tick is published, for a job with jitter.
	Due string `json:"due,omitempty"`
}

func (c *program) nextCommand() *cobra.Command {
	var job, from string
	var n int
	cmd := &cobra.Command{
		Use:   "next FILE",
		Short: "Show the coming ticks of a schedule file",
		Example: `  solobeat next schedule.yaml
  solobeat next schedule.yaml --job hourly-report -n 10
  solobeat next schedule.yaml --from 2026-10-25T00:00:00+02:00 -o json`,
		Args: args(1, 1, "one schedule file"),
		RunE: func(_ *cobra.Command, files []string) error {
			at := time.Now()
			if from != "" {
				var err error
				if at, err = time.Parse(time.RFC3339, from); err != nil {
					return usagef("--from %q: want RFC 3339 with an offset, for example 2026-10-25T00:00:00+02:00", from)
				}
			}
			if n < 1 || n > 10_000 {
				return usagef("-n %d: 1 to 10000", n)
			}
			return c.next(files[0], job, at, n)
		},
	}
	f := cmd.Flags()
	f.StringVar(&job, "job", "", "this job only")
	f.IntVarP(&n, "count", "n", 5, "ticks per job")
	f.StringVar(&from, "from", "", "the instant to begin at, inclusive (default now)")
	return c.withOutput(cmd)
}

// dueLayout has the milliseconds that a job's part of its jitter has.
const dueLayout = "2006-01-02T15:04:05.000Z07:00"

func (c *program) next(file, job string, from time.Time, n int) error {
	jobs, problems, err := config.LoadSchedule(file)
	c.warn(problems)
	if err != nil {
		return err
	}
	ticks, found := []nextTick{}, job == ""
	var known []string
	for _, j := range jobs {
		known = append(known, j.Name)
		if job != "" && j.Name != job {
			continue
		}
		found = true
		if j.Disabled || j.Schedule == nil {
			continue
		}
		for _, o := range scheduler.Upcoming(j.Schedule, from, n) {
			k := nextTick{
				Job: j.Name, Tick: o.At.UTC().Format(time.RFC3339), Local: o.Local.Format(time.RFC3339), Label: o.Label, Shifted: o.Shifted,
			}
			if d := j.Delay(); d > 0 {
				k.Due = o.At.Add(d).UTC().Format(dueLayout)
			}
			ticks = append(ticks, k)
		}
	}
	if !found {
		return exitf(exitFailed, "%s has no job %q%s", file, job, meant(job, known))
	}
	slices.SortStableFunc(ticks, func(a, b nextTick) int { return cmp.Compare(a.Tick, b.Tick) })
	t := &table{header: []string{"TICK (UTC)", "LOCAL", "JOB", ""}}
	for _, k := range ticks {
		var notes []string
		if k.Shifted {
			notes = append(notes, "shifted: the clocks skip its time")
		}
		if k.Due != "" {
			notes = append(notes, "jitter: published "+k.Due)
		}
		t.rows = append(t.rows, []string{k.Tick, k.Local, k.Job, strings.Join(notes, "; ")})
	}
	return c.print(ticks, t, "no ticks to come")
}
