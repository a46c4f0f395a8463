package cli

import (
	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
)

func (c *program) schemaCommand() *cobra.Command {
	cmd := group("schema", "JSON Schemas of both files, for editors")
	cmd.Long = `Print the JSON Schema of schedule.yaml or solobeat.yaml, draft 07: editors
complete and check keys by it as you type. What only the whole file tells,
solobeat validate finds.`
	sub := func(name, file string, schema func() []byte) *cobra.Command {
		return &cobra.Command{
			Use:     name,
			Short:   "The schema of " + file,
			Example: "  solobeat schema " + name,
			Args:    args(0, 0, ""),
			RunE: func(*cobra.Command, []string) error {
				_, err := c.Out.Write(schema())
				return err
			},
		}
	}
	cmd.AddCommand(sub("schedule", "schedule.yaml", config.ScheduleSchema), sub("config", "solobeat.yaml", config.ConfigSchema))
	return cmd
}
