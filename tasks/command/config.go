package command

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/command/guardian"
	"github.com/solobeat/solobeat/tasks/internal/ready"
)

// ErrConfig is what is wrong with a [Config].
var ErrConfig = errors.New("command")

// FieldError is one mistake in a [Config]. It matches [ErrConfig].
type FieldError = ready.FieldError

// FieldErrors returns the mistakes in an error of [Config.Validate].
func FieldErrors(err error) []*FieldError { return ready.FieldErrors(err) }

// Config declares a program as a task's handler.
type Config struct {
	// Argv is the program and its arguments; at least one. All but the
	// program's name may be templates over .Params and .Task.Name, but not
	// inside a script text (sh -c and the like).
	Argv []string
	// Params names the positional arguments for the templates; named ones have
	// their names.
	Params []string
	// Env is added to the program's environment, and wins over the worker's.
	// The values may be templates as in Argv.
	Env map[string]string
	// Dir is the working directory; "" is the worker's.
	Dir string
	// Logger gets what the program writes to standard error, a line each; nil
	// keeps only the last lines, for the error of a failed run.
	Logger *slog.Logger
}

// Validate returns all that is wrong with the configuration, joined: a
// [*FieldError] each; nil if nothing is.
func (c *Config) Validate() error {
	_, err := compile(c)
	return err
}

// program is a Config whose templates have been parsed.
type program struct {
	argv []*text
	env  []variable
	// templates: there is at least one, so the task's parameters are needed.
	templates bool
}

type variable struct {
	name  string
	value *text
}

// text is an argument or a value: a template, or words without one.
type text struct {
	literal  string
	template *render.Template
}

func (t *text) render(data render.Data) (string, error) {
	if t.template == nil {
		return t.literal, nil
	}
	return t.template.Render(data)
}

func compile(c *Config) (*program, error) {
	p := &program{}
	var errs ready.Mistakes
	errs.Add(checkArgv(c.Argv))
	add := func(where, value string) *text {
		t, err := parse(where, value)
		if err != nil {
			errs.Add(err)
			return nil
		}
		p.templates = p.templates || t.template != nil
		return t
	}
	for i, arg := range c.Argv {
		p.argv = append(p.argv, add(fmt.Sprintf("command[%d]", i), arg))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		errs.Add(checkName(name))
		p.env = append(p.env, variable{name: name, value: add("env."+name, c.Env[name])})
	}
	if templated(c.Dir) {
		errs.Add(&FieldError{Field: "dir", Msg: fmt.Sprintf("%q: the working directory cannot be a template", c.Dir), Cure: "write it out"})
	}
	return p, errs.Err(ErrConfig)
}

func checkArgv(argv []string) *FieldError {
	bad := func(field, cure, format string, args ...any) *FieldError {
		return &FieldError{Field: field, Msg: fmt.Sprintf(format, args...), Cure: cure}
	}
	if len(argv) == 0 || argv[0] == "" {
		return bad("command", "write the program and its arguments as a list", "no program is named")
	}
	if templated(argv[0]) {
		return bad("command[0]", "write its name out", "the program %q cannot be a template: whoever sends a task would choose what is run", argv[0])
	}
	if i := scriptTemplate(argv); i >= 0 {
		return bad(fmt.Sprintf("command[%d]", i), "put the value into env and read it from there, or pass it as an argument behind the script",
			"%q is a template where a script text is read: its value would be run as code", argv[i])
	}
	return nil
}

func checkName(name string) *FieldError {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return &FieldError{Field: "env." + name, Msg: fmt.Sprintf("%q is no name of a variable", name), Cure: "write letters, digits and underscores"}
	case strings.HasPrefix(name, "SOLOBEAT_RUN_"):
		return &FieldError{Field: "env." + name, Msg: name + " is set by Solobeat for each run", Cure: "choose another name"}
	default:
		return nil
	}
}

func parse(where, value string) (*text, *FieldError) {
	if strings.IndexByte(value, 0) >= 0 {
		return nil, &FieldError{Field: where, Msg: "a NUL byte cannot be given to a program", Cure: "remove it"}
	}
	if !templated(value) {
		return &text{literal: value}, nil
	}
	t, err := render.Parse(where, value, render.Text)
	if err == nil {
		err = t.CheckPure(".Params", ".Task")
	}
	if err != nil {
		return nil, &FieldError{
			Field: where, Err: err, Msg: "bad template: " + strings.TrimPrefix(err.Error(), "render: "),
			Cure: "in commands .Params.<name> and .Task.Name are known",
		}
	}
	return &text{template: t}, nil
}

// render fills in a task's arguments: the whole argv, and the environment's
// additions.
func (p *program) render(task *tasks.Task, names []string) (argv, env []string, err error) {
	data := render.Data{Task: task.Name}
	if p.templates {
		if data.Params, err = render.Params(names, task.Args, task.Kwargs); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range p.argv {
		arg, err := t.render(data)
		if err != nil {
			return nil, nil, err
		}
		argv = append(argv, arg)
	}
	for _, v := range p.env {
		value, err := v.value.render(data)
		if err != nil {
			return nil, nil, err
		}
		env = append(env, v.name+"="+value)
	}
	return argv, env, nil
}

// environment is the program's environment: what the worker has without
// Solobeat's settings, the entry's own, and what the run is.
func environment(base, own []string, run guardian.Run) []string {
	names := make(map[string]bool, len(own))
	for _, kv := range own {
		name, _, _ := strings.Cut(kv, "=")
		names[name] = true
	}
	strip := func(name string) bool { return guardian.Settings(name) || names[name] }
	return append(guardian.Env(base, strip, run), own...)
}
