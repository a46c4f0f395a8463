package command_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command"
)

// A program as a task's handler. The process's main must call
// guardian.RunIfChild first thing (solobeat.Main does): the program is started
// below a guardian, which ends it with its worker.
func ExampleNew() {
	h, err := command.New(command.Config{Argv: []string{"echo", "report of", "{{ .Params.day }}"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := h.Handle(context.Background(), &tasks.Task{
		ID: "7c1f", Name: "reports.hourly", Kwargs: map[string]json.RawMessage{"day": json.RawMessage(`"2026-11-29"`)},
	})
	fmt.Println(string(out), err)
	// Output: "report of 2026-11-29" <nil>
}
