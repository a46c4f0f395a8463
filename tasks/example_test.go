package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/solobeat/solobeat/tasks"
)

type reportIn struct {
	Day string `json:"day"`
}

type reportOut struct {
	Rows int `json:"rows"`
}

func ExampleRegister() {
	var reg tasks.Registry
	err := tasks.Register(&reg, "reports.hourly", func(_ context.Context, in reportIn) (reportOut, error) {
		return reportOut{Rows: len(in.Day)}, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h, _ := reg.Lookup("reports.hourly")
	out, err := h.Handle(context.Background(), &tasks.Task{Kwargs: map[string]json.RawMessage{"day": json.RawMessage(`"2026-11-29"`)}})
	fmt.Println(string(out), err)
	// Output: {"rows":10} <nil>
}

func ExampleFence() {
	ctx := tasks.ContextWithFence(context.Background(), 1795968000000000)
	fence, ok := tasks.Fence(ctx)
	fmt.Println(fence, ok)
	// Output: 1795968000000000 true
}
