package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a file, or looks wrong.
type Problem struct {
	// File, Line and Col say where; Line is 0 for what no line is to blame
	// for, such as an environment variable.
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

// Error lists the errors, one a line; warnings are left out.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps.Errors() {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
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

// nearest returns the candidate that differs from word by at most two edits
// (three for long words), or "".
func nearest(word string, candidates []string) string {
	best, bestDist := "", min(3, 1+len(word)/4)+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(word), strings.ToLower(c)); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

func editDistance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		cur := make([]int, len(b)+1)
		cur[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			cur[j+1] = min(prev[j]+change, prev[j+1]+1, cur[j]+1)
		}
		prev = cur
	}
	return prev[len(b)]
}
