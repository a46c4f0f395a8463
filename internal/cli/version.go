package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in a release.
var version = ""

// Version is the program's version: of the release, else of the module.
func Version() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "devel"
}

func (c *program) versionCommand() *cobra.Command {
	return c.withOutput(&cobra.Command{
		Use: "version", Short: "Show the version", Args: args(0, 0, ""), Example: "  solobeat version",
		RunE: func(*cobra.Command, []string) error {
			if c.output == "json" {
				return printJSON(c.Out, map[string]string{"version": Version(), "go": runtime.Version()})
			}
			_, err := fmt.Fprintln(c.Out, "solobeat", Version(), runtime.Version())
			return err
		},
	})
}
