package main

import (
	"fmt"
	"io"
	"strings"
)

// The two verdicts stand at the end of rows and nowhere else in the file.
const (
	pass  = "PASS"
	short = "SHORT"
)

// row is a line of the table.
type row struct {
	line, bar, figure string
	met               bool
	// profile is where the CPU time of a row that was not met goes.
	profile string
}

// report is what a run has found.
type report struct {
	// tiny: nothing was measured, so nothing is judged.
	tiny bool
	rows []*row
	// info are figures without a bar: what was measured, figure.
	info [][2]string
	// notes say how the lines of a group are measured.
	notes []string
}

func (r *report) judge(line, bar, figure string, met bool) *row {
	r.rows = append(r.rows, &row{line: line, bar: bar, figure: figure, met: met})
	return r.rows[len(r.rows)-1]
}

// missed says whether a row is to be explained by a profile.
func (r *report) missed(line *row) bool { return !line.met && !r.tiny }

func (r *report) tell(line, figure string) { r.info = append(r.info, [2]string{line, figure}) }

func (r *report) note(text string) { r.notes = append(r.notes, text) }

func (r *report) write(w io.Writer, machine []string) error {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\nWritten by `make bench`; how to run it is told in [README.md](README.md). Figures are medians of the rounds, with the\nsmallest and the largest in brackets; ratios are taken round by round.\n\n")
	for _, m := range machine {
		fmt.Fprintf(&b, "- %s\n", m)
	}
	b.WriteString("\n| line | bar | figure | |\n|---|---|---|---|\n")
	for _, row := range r.rows {
		verdict := short
		switch {
		case r.tiny:
			verdict = "not judged"
		case row.met:
			verdict = pass
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.line, row.bar, row.figure, verdict)
	}
	if len(r.info) > 0 {
		b.WriteString("\n## Beside the lines\n\n| measured | figure |\n|---|---|\n")
		for _, i := range r.info {
			fmt.Fprintf(&b, "| %s | %s |\n", i[0], i[1])
		}
	}
	b.WriteString("\n## How each line is measured\n\n")
	for _, n := range r.notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	for i, row := range r.rows {
		if row.profile == "" {
			continue
		}
		if i == 0 || r.rows[i-1].profile != row.profile {
			fmt.Fprintf(&b, "\n## Where the CPU time goes: %s\n\n```text\n%s\n```\n", row.line, strings.TrimSpace(row.profile))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
