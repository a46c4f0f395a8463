package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError names the flag that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return &usageError{err}
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if near := nearest(name, known); near != "" {
		err = fmt.Errorf("%w (did you mean --%s?)", err, near)
	}
	return &usageError{err}
}

// unknownCommand names the subcommand that was probably meant.
func unknownCommand(parent *cobra.Command, name string) error {
	var known []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	hint := ""
	if near := nearest(name, known); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	return usagef("unknown command %q for %q%s", name, parent.CommandPath(), hint)
}

// nearest returns the name that is a typo away from text, "" if none is.
func nearest(text string, names []string) string {
	best, least := "", len(text)
	for _, n := range names {
		if d := distance(text, n); d < least && d <= max(1, max(len(text), len(n))/3) {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, change or swap with the next.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
