package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/solobeat/solobeat/internal/redisconn"
)

// Problem is one thing that is wrong with a file, or looks wrong.
type Problem struct {
	// File, Line and Col say where, both counted from 1; Line is 0 for what no
	// line is to blame for, such as an environment variable. File then names the
	// variable.
	File string `json:"file"`
	Line int    `json:"line"`
	Col  int    `json:"col"`
	// Path is the key's path, for example "jobs.hourly-report.lock.ttl".
	Path string `json:"path,omitempty"`
	// Message says what is wrong, Cure what to write instead.
	Message string `json:"message"`
	Cure    string `json:"cure,omitempty"`
	// Warning marks what is legal but probably not meant.
	Warning bool `json:"warning"`
}

// String returns file:line:col: path: message (cure).
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Cure != "" {
		b.WriteString(" (" + p.Cure + ")")
	}
	return b.String()
}

// Problems are all that was found in one run, in the order of the file.
type Problems []Problem

// maxLines bounds what is printed: one mistake in a generated file is in each
// of its jobs.
const maxLines = 50

// Error lists the errors, one a line, as [Problems.Lines] does; warnings are
// left out.
func (ps Problems) Error() string { return strings.Join(ps.Errors().Lines(), "\n") }

// Lines are the problems as text, in order. Of more than 50 the first 50 are
// shown, errors before warnings, and a last line tells how many are left out.
func (ps Problems) Lines() []string {
	shown, left := ps, 0
	if len(ps) > maxLines {
		shown = slices.Concat(ps.Errors(), ps.Warnings())[:maxLines]
		left = len(ps) - maxLines
	}
	lines := make([]string, 0, len(shown)+1)
	for _, p := range shown {
		lines = append(lines, p.String())
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", left))
	}
	return lines
}

// Errors returns those that keep the file from being loaded.
func (ps Problems) Errors() Problems { return ps.filter(false) }

// Warnings returns the rest.
func (ps Problems) Warnings() Problems { return ps.filter(true) }

func (ps Problems) filter(warning bool) Problems {
	var out Problems
	for _, p := range ps {
		if p.Warning == warning {
			out = append(out, p)
		}
	}
	return out
}

// err returns the problems as an error, or nil if there are only warnings.
func (ps Problems) err() error {
	if len(ps.Errors()) == 0 {
		return nil
	}
	return ps
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

// masked is the problem without passwords. Values are repeated in messages so
// that people recognise them, and any value may be a URL that was put in the
// wrong place.
func (p Problem) masked() Problem {
	p.File, p.Path, p.Message = redisconn.MaskText(p.File), redisconn.MaskText(p.Path), redisconn.MaskText(p.Message)
	if p.Cure != urlCure {
		p.Cure = redisconn.MaskText(p.Cure)
	}
	return p
}
