package worker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// All mistakes of a configuration are told at once, each with its task.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	lock := func(key, backend string) worker.TaskConfig {
		return worker.TaskConfig{Lock: &worker.LockConfig{Key: key, Backend: backend}}
	}
	record := func(key, store string) worker.TaskConfig {
		return worker.TaskConfig{Record: &worker.RecordConfig{Key: key, Store: store}}
	}
	good := worker.Config{
		Registry: &tasks.Registry{},
		Locks:    map[string]*lockguard.Guard{worker.DefaultBackend: nil}, Records: map[string]*idempotency.Guard{worker.DefaultBackend: nil},
		Tasks: map[string]worker.TaskConfig{
			"constant": lock("report:lock", ""), "lock": lock("pay:{{ .Params.id }}", "redis"),
			"record": record("{{ .Task.Name }}:{{ .Params.id }}", ""), "id": record("", ""),
		},
	}
	if _, err := worker.New(good); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	bad := good
	bad.Registry = nil
	bad.Tasks = map[string]worker.TaskConfig{
		"no-key": lock("", ""), "elsewhere": lock("k", "etcd"), "no-store": record("", "postgres"),
		"syntax": lock("pay:{{ .Params.id", ""), "impure": lock("{{ .Tick.Local }}", ""), "blank": record("{{ now }}", ""),
	}
	_, err := worker.New(bad)
	if !errors.Is(err, worker.ErrConfig) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"no registry", "task no-key: lock without key", `task elsewhere: lock back end "etcd"`, `task no-store: record store "postgres"`,
		"task syntax: lock key: ", "task impure: lock key: ", "task blank: record key: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told: %v", want, err)
		}
	}
}
