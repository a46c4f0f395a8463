package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
)

// durationFlag adds a flag that is read as the durations of the files are, so
// that 2d means the same here and there.
func durationFlag(cmd *cobra.Command, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	cmd.Flags().Var((*duration)(into), name, usage)
}

type duration time.Duration

// Set implements the value of a flag. Other than in the files, where a unit
// may have been forgotten, 0 alone is clear.
func (d *duration) Set(text string) error {
	if text == "0" {
		*d = 0
		return nil
	}
	v, err := config.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%w (%s)", err, config.DurationCure(text))
	}
	if v < 0 {
		return errors.New("it is negative (write 0, or more)")
	}
	*d = duration(v)
	return nil
}

// String gives "0" for nothing, which the help text then leaves out.
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }
