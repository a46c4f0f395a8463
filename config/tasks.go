package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command"
	"github.com/solobeat/solobeat/tasks/webhook"
	"github.com/solobeat/solobeat/tasks/worker"
)

// Task is one entry of tasks:.
type Task struct {
	// Name is the task's name.
	Name string
	// Command or Webhook is the ready-made handler; both are nil where the handler
	// is a program's own.
	Command *command.Config
	Webhook *webhook.Config
	// Config is what the worker's chain takes.
	Config worker.TaskConfig

	// file, line and col are where the lock's key stands.
	file      string
	line, col int
}

func (r *configReader) readTasks(n *yaml.Node) {
	if isNull(n) {
		return
	}
	r.d.entries(n, "tasks", func(k, v *yaml.Node, path string) {
		t := &taskReader{places: newPlaces(r.d, path, k), c: r.c, env: r.env, task: Task{Name: k.Value}}
		if !tasks.ValidName(k.Value) {
			r.d.errorf(k, path, "write letters, digits and _.:/- only, such as reports.hourly", "%s is no task name", shown(k.Value))
		}
		if isNull(v) || r.d.bad[v] {
			return // an entry with nothing below it changes nothing
		}
		t.read(v)
		r.c.Tasks = append(r.c.Tasks, t.task)
	})
}

type taskReader struct {
	places
	c    *Config
	env  Lookup
	task Task
}

// entry is what is read of a task before its parts are put together.
type entry struct {
	argv         []string
	env          map[string]string
	dir, ack     string
	lock, record *yaml.Node
	webhook      *yaml.Node
}

func (r *taskReader) read(v *yaml.Node) {
	cfg, d := &r.task.Config, r.d
	var e entry
	r.block(v, "", r.path, map[string]field{
		"command":     func(k, v *yaml.Node, path string) { r.readArgv(&e, k, v, path) },
		"webhook":     d.later(&e.webhook, r.webhook),
		"params":      r.names(&cfg.Params),
		"env":         func(_, v *yaml.Node, path string) { e.env = r.readEnv(v, path) },
		"dir":         d.word(&e.dir),
		"timeout":     d.duration(&cfg.Timeout, time.Second),
		"retries":     func(k, v *yaml.Node, path string) { cfg.Retries = readRetries(&r.places, k, v, path, nil) },
		"ack":         oneOf(d, &e.ack, "late", "early"),
		"lock":        d.later(&e.lock, func(v *yaml.Node) { r.lock(v, false) }),
		"idempotency": d.later(&e.record, r.record),
	})
	cfg.AckEarly = e.ack == "early"
	if e.lock != nil {
		r.lock(e.lock, e.record != nil)
	}
	if e.record != nil {
		r.record(e.record)
	}
	if e.webhook != nil {
		r.webhook(e.webhook)
	}
	switch {
	case r.own["command"] != nil && e.webhook != nil:
		r.errorf([]string{"webhook", "command"}, "keep one of the two", "the task has a command as well")
	case r.own["command"] != nil && !r.settled("command"):
		r.command(e)
	case r.own["command"] == nil && r.own["env"] != nil:
		r.errorf([]string{"env"}, "add command:, or remove it", "env is about a command, and there is none")
	case r.own["command"] == nil && r.own["dir"] != nil:
		r.errorf([]string{"dir"}, "add command:, or remove it", "dir is about a command, and there is none")
	}
}

// wantBlock refuses off: an entry without the block leaves a job's guard as it
// is, and so would off.
func (r *taskReader) wantBlock(v *yaml.Node, key string) bool {
	if off(v) {
		r.errorf([]string{key}, "remove it here, and write "+key+": off in the job", "an entry of tasks: cannot take away a job's guard")
		return false
	}
	return r.d.wantMapping(v, r.path+"."+key)
}

func (r *taskReader) readArgv(e *entry, k, v *yaml.Node, path string) {
	if r.d.tell(shape{"type": "array", "items": textShape(), "minItems": 1}) {
		return
	}
	if v.Kind != yaml.SequenceNode {
		r.d.errorf(v, path, `write a list of the program and its arguments, such as ["./build-report", "--day", "{{ .Params.day }}"]`,
			"want a list, got %s", kindName(v))
		return
	}
	r.d.texts(&e.argv)(k, v, path)
}

// names reads a list of parameters' names.
func (r *taskReader) names(into *[]string) field {
	return func(k, v *yaml.Node, path string) {
		var list []string
		r.d.texts(&list)(k, v, path)
		items := v.Content
		if v.Kind == yaml.ScalarNode {
			items = []*yaml.Node{v}
		}
		for i, name := range list {
			switch {
			case r.d.bad[items[i]]:
			case strings.TrimSpace(name) == "":
				r.d.errorf(items[i], fmt.Sprintf("%s[%d]", path, i), "write the parameter's name", "the name is empty")
			case slices.Contains(list[:i], name):
				r.d.errorf(items[i], fmt.Sprintf("%s[%d]", path, i), "remove one", "the name %s stands here twice", shown(name))
			}
		}
		*into = list
	}
}

func (r *taskReader) readEnv(v *yaml.Node, path string) map[string]string {
	env := map[string]string{}
	r.d.entries(v, path, func(k, v *yaml.Node, path string) {
		r.own["env."+k.Value] = v
		var s string
		r.d.text(&s)(k, v, path)
		env[k.Value] = s
	})
	return env
}

func (r *taskReader) command(e entry) {
	node := r.own["command"]
	for i, n := range node.Content {
		if r.d.bad[n] {
			r.told[fmt.Sprintf("command[%d]", i)] = true
			r.told["command"] = r.told["command"] || i == 0 // its program cannot be judged
		}
		r.own[fmt.Sprintf("command[%d]", i)] = n
	}
	cc := &command.Config{Argv: e.argv, Env: e.env, Dir: r.c.Dir, Params: r.task.Config.Params}
	if e.dir != "" {
		cc.Dir = r.c.path(e.dir)
	}
	if strings.Contains(e.dir, "{{") {
		r.errorf([]string{"dir"}, "write it out", "the working directory cannot be a template")
	}
	for _, fe := range command.FieldErrors(cc.Validate()) {
		r.fieldError(fe.Field, fe)
	}
	r.task.Command = cc
}

// fieldError takes over what a ready-made handler says of its configuration.
func (r *taskReader) fieldError(key string, fe *command.FieldError) {
	msg, cure := fe.Msg, fe.Cure
	if fe.Err != nil {
		msg, cure = templateText(fe.Err, cure)
	}
	r.errorf([]string{key}, cure, "%s", msg)
}

func (r *taskReader) lock(v *yaml.Node, record bool) {
	if !r.wantBlock(v, "lock") {
		return
	}
	l := &worker.LockConfig{Key: r.c.Redis.GlobalKeyPrefix + "solobeat:" + r.c.Namespace + ":lock:task:" + r.task.Name}
	keys := lockKeys{
		key: &l.Key, backend: &l.Backend, ttl: &l.TTL, renew: &l.Renew, expect: &l.Expect, maxHold: &l.MaxHold,
		minHold: &l.MinHold, stallAfter: &l.StallAfter, wait: &l.Wait,
		onBusy: &l.OnBusy, onLost: &l.OnLost, onStoreDown: &l.OnStoreDown, fenceBase: &l.FenceBase,
	}
	r.block(v, "lock.", r.path+".lock", keys.fields(r.d, r.d.word(&l.Key)))
	checkLock(&r.places, keys, r.task.Config.Timeout, record)
	if r.settled("lock.key") {
		return
	}
	at := r.at("lock.key")
	r.task.file, r.task.line, r.task.col = r.d.file, at.Line, at.Column
	if msg := keyProblem(l.Key, r.c.queueSet(), r.c.Redis.GlobalKeyPrefix); msg != "" {
		r.errorf([]string{"lock.key"}, otherKey, "%s", msg)
		return
	}
	if r.template("lock.key", l.Key, render.Text) != nil {
		r.task.Config.Lock = l
	}
}

func (r *taskReader) record(v *yaml.Node) {
	if !r.wantBlock(v, "idempotency") {
		return
	}
	rec := &worker.RecordConfig{}
	r.block(v, "idempotency.", r.path+".idempotency", map[string]field{
		"key":         r.d.word(&rec.Key),
		"store":       oneOf(r.d, &rec.Store, "redis"),
		"retention":   r.d.duration(&rec.Retention, time.Second),
		"effect":      readEffect(r.d),
		"fingerprint": r.names(&rec.Fingerprint),
	})
	if rec.Key != "" {
		if t := r.template("idempotency.key", rec.Key, render.Key); t != nil && !t.Uses(".Params") {
			r.errorf([]string{"idempotency.key"}, "name the parameter that makes two effects different, for example {{ .Params.payment_id }}",
				"the key is the same for every task: only the first one would ever run")
		}
	}
	r.task.Config.Record = rec
}

// template checks a key of a task: a function of its parameters and name.
func (r *taskReader) template(key, text string, kind render.Kind) *render.Template {
	t, err := render.Parse(r.path+"."+key, text, kind)
	if err == nil {
		err = t.CheckPure(".Params", ".Task")
	}
	if err == nil {
		return t
	}
	msg, cure := templateText(err, `write for example "payment:{{ .Params.payment_id }}"`)
	if strings.Contains(msg, ".Tick") {
		cure += "; give the tick as a kwarg of the job"
	}
	r.errorf([]string{key}, cure, "%s", msg)
	return nil
}
