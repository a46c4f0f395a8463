package worker

import (
	"github.com/solobeat/solobeat/tasks"
)

// TaskSet is what a worker knows of tasks: their handlers and their
// configuration, checked. [Worker.Prepare] makes it; it does not change.
type TaskSet struct {
	registry *tasks.Registry
	tasks    map[string]TaskConfig
	keys     map[string]keys // by task name
}

// Prepare checks another registry and configuration of tasks as [New] does, and
// changes nothing; [ErrConfig] for all that is wrong with it, joined.
func (w *Worker) Prepare(registry *tasks.Registry, configs map[string]TaskConfig) (*TaskSet, error) {
	cfg := w.cfg
	cfg.Registry, cfg.Tasks = registry, configs
	keys, err := cfg.compile()
	if err != nil {
		return nil, err
	}
	return &TaskSet{registry: registry, tasks: configs, keys: keys}, nil
}

// Replace puts a set in force for what is delivered from now on. A run that has
// begun keeps the handler and the guards with which it began. Safe for
// concurrent use.
func (w *Worker) Replace(set *TaskSet) { w.set.Store(set) }

// Registered tells whether the worker has a handler for a task now.
func (w *Worker) Registered(task string) bool {
	_, ok := w.set.Load().registry.Lookup(task)
	return ok
}

// AckEarly tells whether a task's messages are acknowledged before their run,
// as it is configured now.
func (w *Worker) AckEarly(task string) bool { return w.set.Load().tasks[task].AckEarly }
