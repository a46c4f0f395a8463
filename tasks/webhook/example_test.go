package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/webhook"
)

// A request as a task's handler.
func ExampleNew() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s for %s", r.Method, r.RequestURI, r.Header.Get(webhook.HeaderKey))
	}))
	defer receiver.Close()
	h, err := webhook.New(webhook.Config{URL: webhook.Value{Text: receiver.URL + "/reports/{{ .Params.day }}"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := h.Handle(context.Background(), &tasks.Task{
		ID: "7c1f", Name: "reports.hourly", Kwargs: map[string]json.RawMessage{"day": json.RawMessage(`"2026-11-29"`)},
	})
	fmt.Println(string(out), err)
	// Output: "POST /reports/2026-11-29 for 7c1f" <nil>
}
