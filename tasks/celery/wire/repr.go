package wire

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of the repr texts, Celery's defaults.
const (
	reprLimit  = 1024 // bytes
	reprLevels = 3    // nesting
)

// ReprArgs gives positional arguments as Python's repr of a tuple would, cut
// at 1024 bytes and three levels. For display only.
func ReprArgs(args []json.RawMessage) string {
	var r repr
	r.b.WriteByte('(')
	for i, a := range args {
		if i > 0 {
			r.b.WriteString(", ")
		}
		r.value(a, 1)
	}
	if len(args) == 1 {
		r.b.WriteByte(',')
	}
	r.b.WriteByte(')')
	return r.text()
}

// ReprKwargs gives keyword arguments as Python's repr of a dict would, in the
// order of their names, cut like [ReprArgs]. For display only.
func ReprKwargs(kwargs map[string]json.RawMessage) string {
	var r repr
	r.b.WriteByte('{')
	for i, k := range slices.Sorted(maps.Keys(kwargs)) {
		if i > 0 {
			r.b.WriteString(", ")
		}
		r.str(k)
		r.b.WriteString(": ")
		r.value(kwargs[k], 1)
	}
	r.b.WriteByte('}')
	return r.text()
}

type repr struct{ b strings.Builder }

func (r *repr) text() string {
	s := r.b.String()
	if len(s) <= reprLimit {
		return s
	}
	cut := reprLimit - len("...")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// full reports that what follows will be cut anyway.
func (r *repr) full() bool { return r.b.Len() > reprLimit }

func (r *repr) value(raw []byte, level int) {
	s := scanner[[]byte]{b: raw}
	r.walk(&s, level)
}

// walk writes the value at which s stands. What is no JSON is written as it is.
func (r *repr) walk(s *scanner[[]byte], level int) {
	c := s.peek()
	if c == '{' || c == '[' {
		if level >= reprLevels || r.full() {
			s.value()
			r.b.WriteString(map[byte]string{'{': "{...}", '[': "[...]"}[c])
			return
		}
		r.container(s, c, level)
		return
	}
	p, ok := s.take()
	text := p.in(s.b)
	switch {
	case !ok:
		r.b.Write(s.b[p.from:])
		s.i = len(s.b)
	case c == '"':
		r.str(string(unquoted(s.b, p)))
	case c == 't':
		r.b.WriteString("True")
	case c == 'f':
		r.b.WriteString("False")
	case c == 'n':
		r.b.WriteString("None")
	case c == 'N':
		r.b.WriteString("nan")
	case strings.HasSuffix(string(text), "Infinity"):
		r.b.WriteString(strings.Replace(string(text), "Infinity", "inf", 1))
	default:
		r.b.Write(text)
	}
}

func (r *repr) container(s *scanner[[]byte], open byte, level int) {
	r.b.WriteByte(open)
	s.enter()
	for first := true; ; first = false {
		var st step
		var key span
		if open == '[' {
			st = s.item(first)
		} else {
			key, st = s.member(first)
		}
		if st != stepMore {
			break
		}
		if !first {
			r.b.WriteString(", ")
		}
		if open == '{' {
			r.str(string(unquoted(s.b, key)))
			r.b.WriteString(": ")
		}
		r.walk(s, level+1)
	}
	r.b.WriteByte(open + 2) // in ASCII the closing bracket is two further on
}

// str writes a string as Celery does: in single quotes, backslashes as they
// are. Unlike Celery it escapes control characters, since the text is logged.
func (r *repr) str(s string) {
	if len(s) > reprLimit {
		s = strings.ToValidUTF8(s[:reprLimit], "") + "..."
	}
	r.b.WriteByte('\'')
	for _, c := range s {
		switch {
		case c == '\'':
			r.b.WriteString(`\'`)
		case c == '\n':
			r.b.WriteString(`\n`)
		case c == '\r':
			r.b.WriteString(`\r`)
		case c == '\t':
			r.b.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			r.b.WriteString(`\x`)
			r.b.WriteByte(hexDigits[c>>4])
			r.b.WriteByte(hexDigits[c&15])
		default:
			r.b.WriteRune(c)
		}
	}
	r.b.WriteByte('\'')
}
