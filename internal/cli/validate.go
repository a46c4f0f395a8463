package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
)

func (c *program) validateCommand() *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check solobeat.yaml and schedule.yaml: all errors, with file:line:col",
		Long: `Check files of both kinds; a schedule is told by its jobs: key. With a
solobeat.yaml the schedule.file that it names is checked too, and what only both
tell, once neither has errors of its own.

Exit codes: 0 clean; 78 errors; 3 warnings, with --strict.`,
		Example: `  solobeat validate solobeat.yaml schedule.yaml
  solobeat validate --strict -o json schedule.yaml`,
		Args: args(1, -1, "one or more files"),
		RunE: func(_ *cobra.Command, files []string) error { return c.validate(files, strict) },
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit 3 if there are warnings")
	return c.withOutput(cmd)
}

func (c *program) validate(files []string, strict bool) error {
	problems := config.Problems{}
	done := map[string]bool{}
	for _, f := range files {
		problems = append(problems, c.validateFile(f, done)...)
	}
	if err := c.printProblems(problems, len(done)); err != nil {
		return err
	}
	switch {
	case len(problems.Errors()) > 0:
		return exit(exitConfig, nil)
	case strict && len(problems) > 0:
		return exit(exitWarnings, nil)
	}
	return nil
}

// validateFile checks one file, once, and with a solobeat.yaml its schedule.
// done are the files that were read, true for those read as schedules: a
// solobeat.yaml that names itself as its schedule is read as one too.
func (c *program) validateFile(path string, done map[string]bool) config.Problems {
	abs := absolute(path)
	if _, twice := done[abs]; twice {
		return nil
	}
	done[abs] = false
	text, err := config.ReadFile(path)
	if err == nil && config.IsScheduleFile(text) {
		done[abs] = true
		_, ps, _ := config.ParseSchedule(path, text)
		return ps
	}
	cfg, ps, wrong := config.Load(path, c.env)
	named := config.NamedSchedule(path, c.env)
	if named == "" {
		return ps
	}
	jobs, more, err := config.LoadSchedule(named)
	if abs := absolute(named); done[abs] {
		more = nil
	} else {
		done[abs] = true
	}
	ps = append(ps, more...)
	if wrong == nil && err == nil {
		together, _ := config.Together(cfg, jobs)
		ps = append(ps, together...)
	}
	return ps
}

// absolute is a path by which files are told apart.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

func (c *program) printProblems(ps config.Problems, files int) error {
	if c.output == "json" {
		return printJSON(c.Out, ps)
	}
	for _, line := range ps.Lines() {
		if _, err := fmt.Fprintln(c.Out, printable(line)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(c.Err, "%d file(s): %d error(s), %d warning(s)\n", files, len(ps.Errors()), len(ps.Warnings()))
	return err
}
