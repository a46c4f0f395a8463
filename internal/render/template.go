package render

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Kind says what a template's text is for.
type Kind int

// The kinds of templates.
const (
	// Text inserts values as they are.
	Text Kind = iota + 1
	// Key escapes inserted values, so that different values never give one key.
	Key
	// Path escapes inserted values for the path of a URL, and refuses an empty
	// one: without it the path is another one.
	Path
	// Query escapes inserted values for the query of a URL, or a form.
	Query
)

// MaxText bounds the text of a template, in bytes.
const MaxText = 8192

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	name, text string
	kind       Kind
	tmpl       *template.Template
	paths      []string // of the data it uses, such as ".Tick.Local"
	plain      []piece  // of a key or text that is a row of text and parameters; else nil
}

// Parse parses the text; the name is for the caller. [ErrSyntax].
func Parse(name, text string, kind Kind) (*Template, error) {
	bad := func(format string, args ...any) error { return problemf(ErrSyntax, format, args...) }
	switch {
	case kind < Text || kind > Query:
		return nil, bad("unknown kind %d", kind)
	case len(text) > MaxText:
		return nil, bad("%d bytes, the limit is %d", len(text), MaxText)
	case kind == Key && strings.TrimSpace(text) == "":
		return nil, bad("the key is empty")
	}
	// The name of the inner template must not break text/template's messages.
	tmpl, err := template.New("template").Option("missingkey=error").Funcs(functions()).Parse(text)
	if err != nil {
		return nil, bad("%s", explain(plain(err)))
	}
	if len(tmpl.Templates()) > 1 {
		return nil, bad("define and block are not for templates of one text")
	}
	t := &Template{name: name, text: text, kind: kind, tmpl: tmpl}
	if tmpl.Tree == nil || tmpl.Root == nil { // nothing but blanks or comments
		return t, nil
	}
	if kind == Key || kind == Text {
		t.plain = plainRow(tmpl.Root) // before the walk adds to it
	}
	w := &walker{kind: kind}
	if err := w.root(tmpl.Root); err != nil {
		return nil, bad("%s", err)
	}
	slices.Sort(w.paths)
	t.paths = slices.Compact(w.paths)
	return t, nil
}

var undefinedRE = regexp.MustCompile(`function "([^"]*)" not defined`)

// explain adds the cure to the commonest mistake.
func explain(msg string) string {
	if m := undefinedRE.FindStringSubmatch(msg); m != nil {
		return "there is no function " + m[1] + "; known are " + strings.Join(listed, ", ")
	}
	return msg
}

// Name returns the name given to Parse.
func (t *Template) Name() string { return t.name }

// String returns the template's text.
func (t *Template) String() string { return t.text }

// Data is what templates see. What there is not at a place is left zero;
// [Template.CheckPure] finds its use before.
type Data struct {
	Tick *Tick
	// Job is the job's name.
	Job string
	// Params are the task's parameters, as [Params] makes them.
	Params map[string]any
	// Task is the task's name.
	Task string
}

// Tick is the instant at which a job is due.
type Tick struct {
	// Local is the tick in the job's zone.
	Local time.Time
	// Prev and Next are the ticks beside it, in the job's zone; zero if there
	// is none.
	Prev, Next time.Time
}

// execData is Data in the form that templates walk through. Nothing in it has a
// method, so there is nothing to call.
type execData struct {
	Tick   struct{ UTC, Local, Prev, Next *moment }
	Job    string
	Params map[string]any
	Task   struct{ Name string }
}

// moment is an instant whose inside templates cannot reach: time.Time has
// methods that depend on the machine's own zone.
type moment struct{ t time.Time }

func newMoment(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	return &moment{t}
}

func (d Data) exec() *execData {
	e := &execData{Job: d.Job, Params: d.Params}
	e.Task.Name = d.Task
	if d.Tick != nil {
		e.Tick.UTC, e.Tick.Local = newMoment(d.Tick.Local.UTC()), newMoment(d.Tick.Local)
		e.Tick.Prev, e.Tick.Next = newMoment(d.Tick.Prev), newMoment(d.Tick.Next)
	}
	return e
}

var (
	atRE      = regexp.MustCompile(`at <([^>]*)>`)
	noEntryRE = regexp.MustCompile(`map has no entry for key`)
)

// Render renders the template: [*MissingError], [ErrValue].
func (t *Template) Render(d Data) (string, error) {
	if t.plain != nil {
		if text, ok := renderPlain(t.plain, d.Params, t.kind); ok {
			return text, nil
		}
	}
	var b strings.Builder
	err := t.tmpl.Execute(&b, d.exec())
	if err == nil {
		if t.kind == Key && b.Len() == 0 {
			return "", &MissingError{Template: t.name, Part: "the whole key", Kind: t.kind}
		}
		return b.String(), nil
	}
	part := ""
	if m := atRE.FindStringSubmatch(err.Error()); m != nil {
		part = m[1]
	}
	var missing *MissingError
	switch {
	case errors.As(err, &missing):
		if missing.Part != "" {
			part = missing.Part
		}
		return "", &MissingError{Template: t.name, Part: part, Kind: t.kind}
	case noEntryRE.MatchString(err.Error()):
		return "", &MissingError{Template: t.name, Part: part, Kind: t.kind}
	default:
		return "", problemf(ErrValue, "%s", plain(err))
	}
}

// Uses reports whether the template uses the data under root, such as ".Tick" or
// ".Params.day". A recurring job's key that does not use ".Tick" is the same at
// every tick.
func (t *Template) Uses(root string) bool {
	return slices.ContainsFunc(t.paths, func(p string) bool { return p == "." || within(p, root) || within(root, p) })
}

// within reports whether path is root or lies below it.
func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+".")
}

// known are the data's paths; a trailing ".*" admits anything below.
var known = []string{".Tick.UTC", ".Tick.Local", ".Tick.Prev", ".Tick.Next", ".Job", ".Params", ".Params.*", ".Task.Name"}

// CheckPure refuses a template that uses anything but the given roots (".Tick",
// ".Job", ".Params", ".Task"): [ErrImpure]. Clocks, random values, attempts
// and ids are never among the data.
func (t *Template) CheckPure(roots ...string) error {
	for _, p := range t.paths {
		if !slices.ContainsFunc(known, func(k string) bool {
			return p == k || strings.HasSuffix(k, ".*") && strings.HasPrefix(p, strings.TrimSuffix(k, "*"))
		}) {
			if p == ".Tick" || p == ".Task" {
				return problemf(ErrImpure, "%s alone is no value; use %s", p, strings.Join(available(roots), ", "))
			}
			return problemf(ErrImpure, "there is no %s: a template is a function of job, tick and payload; use %s", p, strings.Join(available(roots), ", "))
		}
		if !slices.ContainsFunc(roots, func(r string) bool { return within(p, r) }) {
			return problemf(ErrImpure, "%s is not known here; use %s", p, strings.Join(available(roots), ", "))
		}
	}
	return nil
}

// available lists the paths below the roots, for messages.
func available(roots []string) []string {
	var list []string
	for _, k := range known {
		k = strings.Replace(k, ".*", ".<name>", 1)
		if k != ".Params" && slices.ContainsFunc(roots, func(r string) bool { return within(k, r) }) {
			list = append(list, k)
		}
	}
	return list
}

// listed are the functions of the package's documentation.
var listed = []string{"date", "hour", "minute", "rfc3339", "unix", "addDays", "in", "default", "lower", "json"}

// textOnly are the functions of text/template that a Text may use too.
var textOnly = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len"}
