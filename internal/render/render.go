package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
	"time"
)

// ErrMissing is a part that is absent or empty. It is never a reason to skip
// the key: a constant key would make strangers share one result.
var ErrMissing = errors.New("render: part is missing")

// ErrImpure is a template that is no function of its data alone.
var ErrImpure = errors.New("render: not allowed in a template")

// Kind says how inserted values are written.
type Kind int

const (
	// Text writes values as they are.
	Text Kind = iota + 1
	// Key percent-escapes inserted values and refuses empty ones.
	Key
)

// Tick is the tick as a template sees it.
type Tick struct {
	// UTC and Local are the tick in UTC and in the job's zone.
	UTC, Local time.Time
	// Prev and Next are the ticks before and after, in the job's zone.
	Prev, Next time.Time
}

// Task is what a template may know of the task.
type Task struct {
	Name string
}

// Data is what a template sees. Fields that a kind of template does not have
// are left empty, and [Template.CheckPure] refuses their use beforehand.
type Data struct {
	Tick   Tick
	Job    string
	Params map[string]json.RawMessage
	Task   Task
}

// Template is a parsed template, safe for concurrent use.
type Template struct {
	text string
	tmpl *template.Template
	uses map[string]bool
}

// Parse reads a template; name is for messages.
func Parse(name, text string, kind Kind) (*Template, error) {
	tmpl, err := template.New(name).Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "+name+":"))
	}
	if len(tmpl.Templates()) > 1 {
		return nil, fmt.Errorf("%w: define", ErrImpure)
	}
	t := &Template{text: text, tmpl: tmpl, uses: map[string]bool{}}
	if tmpl.Tree == nil || tmpl.Root == nil {
		return t, nil
	}
	w := walker{uses: t.uses, writer: "text_"}
	if kind == Key {
		w.writer = "key_"
	}
	if err := w.list(tmpl.Root); err != nil {
		return nil, err
	}
	return t, nil
}

// String returns the template's source.
func (t *Template) String() string { return t.text }

// Uses reports whether the template reads a root such as ".Tick", or a field
// such as ".Params.payment_id".
func (t *Template) Uses(path string) bool { return t.uses[path] }

// CheckPure refuses every root but the allowed ones, such as ".Params".
func (t *Template) CheckPure(allowed ...string) error {
	for path := range t.uses {
		root := "." + strings.SplitN(path[1:], ".", 2)[0]
		ok := false
		for _, a := range allowed {
			ok = ok || a == root
		}
		if !ok {
			return fmt.Errorf("%w: %s is not known here", ErrImpure, path)
		}
	}
	return nil
}

// Render executes the template. An absent part is [ErrMissing].
func (t *Template) Render(d Data) (string, error) {
	params, err := values(d.Params)
	if err != nil {
		return "", err
	}
	root := map[string]any{
		"Tick": map[string]any{"UTC": d.Tick.UTC, "Local": d.Tick.Local, "Prev": d.Tick.Prev, "Next": d.Tick.Next},
		"Job":  d.Job, "Params": params, "Task": map[string]any{"Name": d.Task.Name},
	}
	var b strings.Builder
	if err := t.tmpl.Execute(&b, root); err != nil {
		return "", renderError(err)
	}
	return b.String(), nil
}

// renderError keeps what a user needs of text/template's message.
func renderError(err error) error {
	msg := err.Error()
	if _, key, ok := strings.Cut(msg, "map has no entry for key "); ok {
		return fmt.Errorf("%w: %s", ErrMissing, key)
	}
	if errors.Is(err, ErrMissing) {
		if _, at, ok := strings.Cut(msg, "at <"); ok {
			if part, _, ok := strings.Cut(at, ">"); ok {
				return fmt.Errorf("%w: {{ %s }} is empty", ErrMissing, part)
			}
		}
		return err
	}
	var ee template.ExecError
	if errors.As(err, &ee) {
		return fmt.Errorf("render: %w", ee.Err)
	}
	return fmt.Errorf("render: %w", err)
}

// values decodes parameters; numbers keep their text.
func values(raw map[string]json.RawMessage) (map[string]any, error) {
	out := make(map[string]any, len(raw))
	for k, text := range raw {
		dec := json.NewDecoder(strings.NewReader(string(text)))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("render: parameter %s: %w", k, err)
		}
		out[k] = v
	}
	return out, nil
}

// knownFields are the fields of the roots that have some.
var knownFields = map[string][]string{"Tick": {"UTC", "Local", "Prev", "Next"}, "Task": {"Name"}}

// walker checks a tree and appends the writer to each action, as html/template
// appends its escapers.
type walker struct {
	uses   map[string]bool
	writer string
}

func (w *walker) list(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := w.node(n); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) node(n parse.Node) error {
	switch n := n.(type) {
	case *parse.TextNode, *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		if err := w.pipe(n.Pipe); err != nil {
			return err
		}
		write := parse.NewIdentifier(w.writer).SetPos(n.Pos)
		n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{write}})
		return nil
	case *parse.IfNode:
		return errors.Join(w.pipe(n.Pipe), w.list(n.List), w.list(n.ElseList))
	default:
		return fmt.Errorf("%w: %s (only {{ value }} and if are)", ErrImpure, firstWord(n.String()))
	}
}

func firstWord(s string) string {
	f := strings.Fields(strings.Trim(s, "{} -"))
	if len(f) == 0 {
		return s
	}
	return f[0]
}

func (w *walker) pipe(p *parse.PipeNode) error {
	if len(p.Decl) > 0 {
		return fmt.Errorf("%w: variable %s", ErrImpure, p.Decl[0])
	}
	for _, c := range p.Cmds {
		for _, a := range c.Args {
			if err := w.arg(a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walker) arg(a parse.Node) error {
	switch a := a.(type) {
	case *parse.FieldNode:
		return w.field(a.Ident)
	case *parse.PipeNode:
		return w.pipe(a)
	case *parse.IdentifierNode:
		if !allowedFunctions[a.Ident] {
			return fmt.Errorf("%w: function %s", ErrImpure, a.Ident)
		}
		return nil
	case *parse.StringNode, *parse.NumberNode, *parse.BoolNode:
		return nil
	default:
		return fmt.Errorf("%w: %s", ErrImpure, a)
	}
}

func (w *walker) field(ident []string) error {
	w.uses["."+ident[0]] = true
	w.uses["."+strings.Join(ident, ".")] = true
	known, ok := knownFields[ident[0]]
	switch {
	case !ok && ident[0] != "Job" && ident[0] != "Params":
		return fmt.Errorf("%w: .%s is not known (.Tick and .Job in jobs, .Params and .Task in tasks are)", ErrImpure, strings.Join(ident, "."))
	case !ok:
		return nil
	case len(ident) != 2 || !contains(known, ident[1]):
		return fmt.Errorf("%w: .%s is not known (.%s.%s are)", ErrImpure, strings.Join(ident, "."), ident[0], strings.Join(known, ", ."+ident[0]+"."))
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
