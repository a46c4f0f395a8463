package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/solobeat/solobeat/internal/typo"
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
	if near := typo.Nearest(name, known); near != "" {
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
	return usagef("unknown command %q for %q%s", name, parent.CommandPath(), meant(name, known))
}

// meant is the hint at the name that was probably meant, "" without one.
func meant(name string, known []string) string {
	if near := typo.Nearest(name, known); near != "" {
		return fmt.Sprintf(" (did you mean %s?)", near)
	}
	return ""
}
