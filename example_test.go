package solobeat_test

import (
	"context"
	"fmt"
	"os"

	"github.com/solobeat/solobeat"
	"github.com/solobeat/solobeat/tasks"
)

// A worker with a handler in Go: `./reports worker -c solobeat.yaml`.
func ExampleMain() { //nolint:testableexamples // Main ends the process
	type args struct {
		Day string `json:"day"`
	}
	var reg tasks.Registry
	err := tasks.Register(&reg, "reports.hourly", func(ctx context.Context, in args) (string, error) {
		fence, _ := tasks.Fence(ctx) // hand it on to whatever the report is written to
		return fmt.Sprintf("report of %s, fence %d", in.Day, fence), nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	solobeat.Main(&reg) // does not return
}
