package scheduler

import (
	"strings"
	"text/template"
	"time"
)

type kind int

const (
	argument kind = iota
	lockKey
	recordKey
)

func hasTemplate(text string) bool { return strings.Contains(text, "{{") }

type tickOf struct{ UTC, Local, Prev, Next time.Time }
type jobOf struct {
	Name, Task, Queue, Owner string
	Labels                   map[string]string
}
type tickData struct {
	Tick tickOf
	Job  jobOf
}

func newTickData(j *Job, tick Occurrence) *tickData {
	prev, next := neighbours(j, tick)
	return &tickData{Tick: tickOf{UTC: tick.At, Local: tick.Local, Prev: prev, Next: next},
		Job: jobOf{Name: j.Name, Task: j.Task, Queue: j.Queue}}
}

type tmplT = template.Template
type templateShim struct {
	field string
	t     *tmplT
}

func parseTemplate(field, text string, k kind) (*templateShim, error) {
	t, err := template.New(field).Option("missingkey=error").Funcs(template.FuncMap{
		"hour": func(t time.Time) string { return t.Format("2006-01-02T15-07:00") },
		"date": func(t time.Time) string { return t.Format("2006-01-02") },
	}).Parse(text)
	if err != nil {
		return nil, &fieldError{field: field, err: err}
	}
	return &templateShim{field, t}, nil
}

func (t *templateShim) render(d *tickData) (string, error) {
	var b strings.Builder
	if err := t.t.Execute(&b, d); err != nil {
		return "", &fieldError{field: t.field, err: err}
	}
	return b.String(), nil
}
