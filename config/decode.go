package config

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a file, so that a wrong path does not fill the memory.
const maxFileBytes = 16 << 20

// decoder walks a YAML tree strictly: what a key's reader does not ask for is
// an error. It collects every problem instead of stopping at the first.
type decoder struct {
	file     string
	problems Problems
	// bad marks nodes that already have an error, so that a check on their
	// value does not report them twice.
	bad map[*yaml.Node]bool
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, bad: map[*yaml.Node]bool{}}
}

func (d *decoder) errorf(n *yaml.Node, path, cure, format string, args ...any) {
	if n != nil {
		d.bad[n] = true
	}
	d.add(n, path, cure, fmt.Sprintf(format, args...), false)
}

func (d *decoder) warnf(n *yaml.Node, path, cure, format string, args ...any) {
	d.add(n, path, cure, fmt.Sprintf(format, args...), true)
}

func (d *decoder) add(n *yaml.Node, path, cure, msg string, warning bool) {
	p := Problem{File: d.file, Path: path, Message: msg, Cure: cure, Warning: warning}
	if n != nil {
		p.Line, p.Col = n.Line, n.Column
	}
	d.problems = append(d.problems, p)
}

// parse reads the one document of a file; nil means that it has none.
func (d *decoder) parse(text []byte) *yaml.Node {
	if len(text) > maxFileBytes {
		d.errorf(nil, "", "split it", "the file has %d bytes, at most %d are read", len(text), maxFileBytes)
		return nil
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			d.syntaxError(err, text)
		}
		return nil
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		d.errorf(nil, "", "one document a file", "a second YAML document begins")
		return nil
	}
	root := doc.Content[0]
	d.noAliases(root, "", 0)
	return root
}

// noAliases refuses anchors' uses: a file that is read by people and merged
// in reviews says what it means in place, and an alias can grow without end.
func (d *decoder) noAliases(n *yaml.Node, path string, depth int) {
	if depth > 50 {
		d.errorf(n, path, "", "nested more than 50 deep")
		return
	}
	if n.Kind == yaml.AliasNode {
		d.errorf(n, path, "quote the text if it begins with a star", "*%s is a YAML alias, which is not supported", n.Value)
		return
	}
	for _, c := range n.Content {
		d.noAliases(c, path, depth+1)
	}
}

var (
	yamlLineRE = regexp.MustCompile(`line (\d+)`)
	starRE     = regexp.MustCompile(`^\s*(?:-\s+)?["']?([\w-]+)["']?\s*:\s*(\*.*?)\s*$`)
)

// syntaxError places a parser's message. A cron field that begins with an
// unquoted star is the commonest cause (sensu/sensu-docs#2255), and the
// parser's own words for it help nobody.
func (d *decoder) syntaxError(err error, text []byte) {
	line := 1
	if m := yamlLineRE.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	lines := strings.Split(string(text), "\n")
	for _, at := range []int{line, line - 1, line + 1} {
		if at < 1 || at > len(lines) {
			continue
		}
		if m := starRE.FindStringSubmatch(lines[at-1]); m != nil {
			n := &yaml.Node{Line: at, Column: strings.Index(lines[at-1], m[2]) + 1}
			d.errorf(n, "", fmt.Sprintf("quote it: %s: \"%s\"", m[1], m[2]), "an unquoted star begins a YAML alias")
			return
		}
	}
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	msg = strings.TrimPrefix(msg, fmt.Sprintf("line %d: ", line))
	d.errorf(&yaml.Node{Line: line, Column: 1}, "", "", "this is no YAML: %s", msg)
}

// field reads one key of a mapping.
type field func(key, value *yaml.Node, path string)

// mapping reads an object whose keys are known. Unknown and repeated keys are
// errors.
func (d *decoder) mapping(n *yaml.Node, path string, fields map[string]field) bool {
	if !d.wantMapping(n, path) {
		return false
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		sub := join(path, k.Value)
		if d.repeated(seen, k, sub) {
			continue
		}
		read, known := fields[k.Value]
		if !known {
			d.unknownKey(k, path, fields)
			continue
		}
		if d.bad[v] {
			continue
		}
		read(k, v, sub)
	}
	return true
}

// entries reads an object whose keys are names.
func (d *decoder) entries(n *yaml.Node, path string, read field) {
	if !d.wantMapping(n, path) {
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if !d.repeated(seen, k, join(path, k.Value)) {
			read(k, v, join(path, k.Value))
		}
	}
}

func (d *decoder) repeated(seen map[string]*yaml.Node, k *yaml.Node, path string) bool {
	if k.Kind != yaml.ScalarNode {
		d.errorf(k, path, "", "a key must be plain text")
		return true
	}
	if first, twice := seen[k.Value]; twice {
		d.errorf(k, path, "remove one", "the key stands here a second time, first on line %d", first.Line)
		return true
	}
	seen[k.Value] = k
	return false
}

func (d *decoder) wantMapping(n *yaml.Node, path string) bool {
	if n.Kind == yaml.MappingNode {
		return true
	}
	d.errorf(n, path, "", "want keys and values, got %s", kindName(n))
	return false
}

func (d *decoder) unknownKey(k *yaml.Node, path string, fields map[string]field) {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	cure := "known here: " + strings.Join(names, ", ")
	if near := nearest(k.Value, names); near != "" {
		cure = fmt.Sprintf("did you mean %s?", near)
	}
	d.errorf(k, join(path, k.Value), cure, "unknown key %q", k.Value)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	case n.Tag == "!!bool":
		return "true or false"
	case n.Tag == "!!int", n.Tag == "!!float":
		return "the number " + n.Value
	default:
		return fmt.Sprintf("the text %q", n.Value)
	}
}

// text reads a string; numbers and booleans must be quoted, since YAML would
// change them (0644, on, 1_000).
func (d *decoder) text(into *string) field {
	return func(_, v *yaml.Node, path string) {
		if v.Kind != yaml.ScalarNode || v.Tag != "!!str" {
			d.errorf(v, path, "quote it", "want text, got %s", kindName(v))
			return
		}
		*into = v.Value
	}
}

// texts reads a list of strings; one string alone is a list of one.
func (d *decoder) texts(into *[]string) field {
	return func(k, v *yaml.Node, path string) {
		items := v.Content
		if v.Kind == yaml.ScalarNode {
			items = []*yaml.Node{v}
		} else if v.Kind != yaml.SequenceNode {
			d.errorf(v, path, "", "want a list, got %s", kindName(v))
			return
		}
		for i, item := range items {
			var s string
			d.text(&s)(k, item, fmt.Sprintf("%s[%d]", path, i))
			*into = append(*into, s)
		}
	}
}

// integer reads a whole number within bounds.
func (d *decoder) integer(into *int, low, high int) field {
	return func(_, v *yaml.Node, path string) {
		n, err := strconv.Atoi(v.Value)
		if v.Kind != yaml.ScalarNode || v.Tag != "!!int" || err != nil {
			d.errorf(v, path, "", "want a whole number, got %s", kindName(v))
			return
		}
		if n < low || n > high {
			d.errorf(v, path, "", "%d is not within %d and %d", n, low, high)
			return
		}
		*into = n
	}
}

func (d *decoder) boolean(into *bool) field {
	return func(_, v *yaml.Node, path string) {
		b, err := strconv.ParseBool(v.Value)
		if v.Kind != yaml.ScalarNode || v.Tag != "!!bool" || err != nil {
			d.errorf(v, path, "", "want true or false, got %s", kindName(v))
			return
		}
		*into = b
	}
}

// oneOf reads one of a few words.
func (d *decoder) oneOf(into *string, words ...string) field {
	return func(k, v *yaml.Node, path string) {
		var s string
		d.text(&s)(k, v, path)
		if d.bad[v] {
			return
		}
		if !slices.Contains(words, s) {
			cure := "one of " + strings.Join(words, ", ")
			if near := nearest(s, words); near != "" {
				cure = fmt.Sprintf("did you mean %s?", near)
			}
			d.errorf(v, path, cure, "%q is not known here", s)
			return
		}
		*into = s
	}
}

// duration reads Go's durations and days: 90s, 1h30m, 2d, 1d12h. A number
// without unit is refused: whether it means seconds is what people get wrong.
func (d *decoder) duration(into *time.Duration, low time.Duration) field {
	return func(_, v *yaml.Node, path string) {
		if v.Kind != yaml.ScalarNode || v.Tag == "!!null" || v.Tag == "!!bool" {
			d.errorf(v, path, `for example 30s, 10m, 1h30m or 2d`, "want a duration, got %s", kindName(v))
			return
		}
		dur, err := ParseDuration(v.Value)
		if err != nil {
			d.errorf(v, path, durationCure(v.Value), "%v", err)
			return
		}
		if dur < low {
			d.errorf(v, path, fmt.Sprintf("at least %s", low), "%s is too short", v.Value)
			return
		}
		*into = dur
	}
}

func durationCure(text string) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Sprintf("write the unit, for example %ss", text)
	}
	return "for example 30s, 10m, 1h30m or 2d"
}

var dayRE = regexp.MustCompile(`^(\d+(?:\.\d+)?)d(.*)$`)

// ParseDuration reads Go's duration syntax with a leading number of days
// ("2d", "1d12h"; a day is 24 h). A bare number is an error, also 0.
func ParseDuration(text string) (time.Duration, error) {
	rest, days := text, 0.0
	if m := dayRE.FindStringSubmatch(text); m != nil {
		days, _ = strconv.ParseFloat(m[1], 64)
		rest = m[2]
	}
	var d time.Duration
	if rest != "" || days == 0 && text != "0d" {
		var err error
		if d, err = time.ParseDuration(rest); err != nil || rest == "0" {
			return 0, fmt.Errorf("%q is no duration", text)
		}
	}
	if days > 36500 {
		return 0, fmt.Errorf("%q is longer than 100 years", text)
	}
	return d + time.Duration(days*24*float64(time.Hour)), nil
}
