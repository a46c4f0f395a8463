package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command"
	"github.com/solobeat/solobeat/tasks/worker"
)

// Task is one entry of tasks:.
type Task struct {
	// Name is the task's name.
	Name string
	// Command is the ready-made handler, nil where the handler is a program's
	// own.
	Command *command.Config
	// Config is what the worker's chain takes.
	Config worker.TaskConfig
}

func (c *Config) readTasks(d *decoder, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	d.entries(n, "tasks", func(k, v *yaml.Node, path string) {
		if !tasks.ValidName(k.Value) {
			d.errorf(k, path, "letters, digits and _.:/- only", "%q is no task name", k.Value)
			return
		}
		r := &taskReader{d: d, c: c, path: path, node: k, task: Task{Name: k.Value}}
		r.read(v)
		c.Tasks = append(c.Tasks, r.task)
	})
}

type taskReader struct {
	d    *decoder
	c    *Config
	path string
	node *yaml.Node
	task Task
}

func (r *taskReader) read(v *yaml.Node) {
	cfg := &r.task.Config
	var (
		argv []string
		env  map[string]string
		dir  string
		ack  string
	)
	var argvNode *yaml.Node
	var lock, record *yaml.Node
	r.d.mapping(v, r.path, map[string]field{
		"command": func(k, v *yaml.Node, path string) {
			argvNode = v
			if v.Kind == yaml.ScalarNode {
				r.d.errorf(v, path, `for example ["./build-report", "--day", "{{ .Params.day }}"]`, "want a list of the program and its arguments, got %s", kindName(v))
				return
			}
			r.d.texts(&argv)(k, v, path)
		},
		"params":  r.d.texts(&cfg.Params),
		"env":     func(_, v *yaml.Node, path string) { env = r.env(v, path) },
		"dir":     r.d.text(&dir),
		"timeout": r.d.duration(&cfg.Timeout, time.Second),
		"retries": func(k, v *yaml.Node, path string) { cfg.Retries = readRetries(r.d, k, v, path) },
		"ack":     r.d.oneOf(&ack, "late", "early"),
		"lock":    func(_, v *yaml.Node, _ string) { lock = v },
		"idempotency": func(_, v *yaml.Node, _ string) {
			record = v
		},
	})
	cfg.AckEarly = ack == "early"
	if lock != nil && !off(lock) {
		r.lock(lock)
	}
	if record != nil && !off(record) {
		r.record(record)
	}
	switch {
	case argvNode != nil && !r.d.bad[argvNode]:
		r.command(argvNode, argv, env, dir)
	case argvNode == nil && (env != nil || dir != ""):
		r.d.errorf(r.node, r.path, "add command:, or remove them", "env and dir are about a command, and there is none")
	}
}

func (r *taskReader) env(v *yaml.Node, path string) map[string]string {
	env := map[string]string{}
	r.d.entries(v, path, func(k, v *yaml.Node, path string) {
		var s string
		r.d.text(&s)(k, v, path)
		env[k.Value] = s
	})
	return env
}

func (r *taskReader) command(n *yaml.Node, argv []string, env map[string]string, dir string) {
	if len(argv) == 0 {
		r.d.errorf(n, r.path+".command", "name the program", "the list is empty")
		return
	}
	cc := &command.Config{Argv: argv, Env: env, Dir: r.c.Dir, Params: r.task.Config.Params}
	if dir != "" {
		cc.Dir = r.c.path(dir)
	}
	if err := cc.Validate(); err != nil {
		r.d.errorf(n, r.path+".command", "", "%v", err)
		return
	}
	r.task.Command = cc
}

func (r *taskReader) lock(v *yaml.Node) {
	path := r.path + ".lock"
	l := &worker.LockConfig{Name: "solobeat:" + r.c.Namespace + ":lock:task:" + r.task.Name}
	at := map[string]*yaml.Node{}
	onBusy := ""
	fields := map[string]field{
		"key":        r.d.text(&l.Name),
		"backend":    r.d.oneOf(&l.Backend, "redis"),
		"ttl":        r.d.duration(&l.TTL, time.Second),
		"renew":      r.d.duration(&l.Renew, time.Millisecond),
		"expect":     r.d.duration(&l.Expect, time.Millisecond),
		"max_hold":   r.d.duration(&l.MaxHold, time.Second),
		"on_busy":    r.d.oneOf(&onBusy, string(tasks.OnBusySkip), string(tasks.OnBusyRetry)),
		"fence_base": fenceBase(r.d, &l.FenceBase),
	}
	for name, read := range fields {
		fields[name] = func(k, v *yaml.Node, path string) { at[name] = v; read(k, v, path) }
	}
	r.d.mapping(v, path, fields)
	l.OnBusy = tasks.OnBusy(onBusy)
	n := v
	if at["renew"] != nil {
		n = at["renew"]
	}
	checkRenew(r.d, n, path, l.TTL, l.Renew)
	n = at["key"]
	if n == nil {
		n = v
	}
	l.Key = r.template(n, path+".key", l.Name, render.Text)
	if l.Key != nil {
		r.task.Config.Lock = l
	}
}

func (r *taskReader) record(v *yaml.Node) {
	path := r.path + ".idempotency"
	rec := &worker.RecordConfig{}
	var key string
	keyNode := v
	readKey := r.d.text(&key)
	r.d.mapping(v, path, map[string]field{
		"key":         func(k, v *yaml.Node, path string) { keyNode = v; readKey(k, v, path) },
		"store":       r.d.oneOf(&rec.Store, "redis"),
		"retention":   r.d.duration(&rec.Retention, time.Second),
		"effect":      readEffect(r.d),
		"fingerprint": r.d.texts(&rec.Fingerprint),
	})
	if key != "" {
		if rec.Key = r.template(keyNode, path+".key", key, render.Key); rec.Key == nil {
			return
		}
		if !rec.Key.Uses(".Params") {
			r.d.errorf(keyNode, path+".key", "name the parameter that makes two effects different, for example {{ .Params.payment_id }}",
				"the key is the same for every task: only the first one would ever run")
			return
		}
	}
	r.task.Config.Record = rec
}

// template reads a key of a task: a function of its parameters and name.
func (r *taskReader) template(n *yaml.Node, path, text string, kind render.Kind) *render.Template {
	t, err := render.Parse(path, text, kind)
	if err == nil {
		err = t.CheckPure(".Params", ".Task.Name")
	}
	if err != nil {
		r.d.errorf(n, path, "in tasks: keys may use .Params and .Task", "%v", err)
		return nil
	}
	return t
}
