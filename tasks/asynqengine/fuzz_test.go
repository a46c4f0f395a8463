package asynqengine

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/solobeat/solobeat/tasks"
)

// Whatever stands in a message: it is decoded or named as malformed, and what
// was decoded is the same after it was encoded and decoded again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"a": 1}`), `[1, "x"]`, `2026-11-29T20:00:00.5Z`, `{"v": 1, "retries": {"max": 3}}`, `00-1`)
	f.Add([]byte(``), ``, ``, ``, `7`)
	f.Add([]byte(`null`), `null`, `x`, `{"v": 9}`, ``)
	f.Add([]byte(`{"<": "&"}`), `[{"a": [1e400]}]`, `0001-01-01T00:00:00Z`, `[]`, `"q"`)
	f.Fuzz(func(t *testing.T, payload []byte, args, eta, guard, header string) {
		h := map[string]string{headerVersion: wireVersion, headerArgs: args, headerETA: eta, tasks.GuardHeader: guard, "app": header}
		d, err := decode("name", payload, h)
		if err != nil {
			if !errors.Is(err, errMalformed) || d == nil || d.task.Name != "name" {
				t.Fatalf("%v", err)
			}
			return
		}
		if d.guardErr != nil || d.task.ETA.Year() < 1 || d.task.ETA.Year() > 9998 {
			return
		}
		task := d.task
		msg, _, err := encode(&tasks.Request{
			Name: "name", ID: "id", Queue: "q", Args: task.Args, Kwargs: task.Kwargs, ETA: task.ETA, Headers: task.Headers, Guard: task.Guard,
		})
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		again, err := decode("name", msg.Payload(), msg.Headers())
		if err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v", err)
		}
		once, _, err := encode(&tasks.Request{
			Name: "name", ID: "id", Queue: "q", Args: again.task.Args, Kwargs: again.task.Kwargs, ETA: again.task.ETA,
			Headers: again.task.Headers, Guard: again.task.Guard,
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(msg.Payload()), string(once.Payload())); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(msg.Headers(), once.Headers(), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
