package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// registry holds one task whose result is a word; it waits before, if it has
// something to wait for.
func registry(t *testing.T, name, word string, begun chan<- struct{}, wait <-chan struct{}) *tasks.Registry {
	t.Helper()
	reg := &tasks.Registry{}
	err := reg.Add(name, tasks.HandlerFunc(func(context.Context, *tasks.Task) (json.RawMessage, error) {
		if begun != nil {
			close(begun)
			<-wait
		}
		return json.RawMessage(`"` + word + `"`), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// What is delivered after a change has the new handler and guards; a run that
// goes on keeps those with which it began, and releases them.
func TestReplaceLeavesRunsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	use := func(reg *tasks.Registry, configs map[string]worker.TaskConfig) {
		t.Helper()
		set, err := b.chain.Prepare(reg, configs)
		if err != nil {
			t.Fatal(err)
		}
		b.chain.Replace(set)
	}
	begun, wait := make(chan struct{}), make(chan struct{})
	lock := func(key string) map[string]worker.TaskConfig {
		return map[string]worker.TaskConfig{"t": {Lock: &worker.LockConfig{Key: key, TTL: 2 * time.Second}, AckEarly: key == "b"}}
	}
	use(registry(t, "t", "old", begun, wait), lock("a"))
	old := make(chan tasks.Outcome)
	go func() { old <- b.run(b.delivery("1", "t", nil)) }()
	<-begun
	use(registry(t, "t", "new", nil, nil), lock("b"))
	if out := b.run(b.delivery("2", "t", nil)); out.Kind != tasks.Succeeded || string(out.Result) != `"new"` {
		t.Errorf("after the change: %v %s", out.Kind, out.Result)
	}
	if !b.chain.AckEarly("t") || !b.chain.Registered("t") {
		t.Error("the new configuration is not in force")
	}
	if n := b.client.Exists(t.Context(), "a").Val(); n != 1 {
		t.Error("the run that goes on has lost its lock")
	}
	use(registry(t, "other", "x", nil, nil), nil)
	if out := b.run(b.delivery("3", "t", nil)); out.Kind != tasks.Failed || out.Reason != tasks.ReasonNotRegistered {
		t.Errorf("a task that was removed: %v %s", out.Kind, out.Reason)
	}
	if b.chain.Registered("t") || b.chain.AckEarly("t") {
		t.Error("the removed task is still known")
	}
	close(wait)
	if out := <-old; out.Kind != tasks.Succeeded || string(out.Result) != `"old"` {
		t.Errorf("the run that went on: %v %s %v", out.Kind, out.Result, out.Err)
	}
	if n := b.client.Exists(t.Context(), "a", "b").Val(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	bad := map[string]worker.TaskConfig{"other": {Lock: &worker.LockConfig{Key: "{{ .Nope"}}}
	if _, err := b.chain.Prepare(&tasks.Registry{}, bad); !errors.Is(err, worker.ErrConfig) {
		t.Errorf("a bad key: %v", err)
	}
	if !b.chain.Registered("other") {
		t.Error("what was refused is in force")
	}
}
