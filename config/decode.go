package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/redisconn"
)

// decoder walks a YAML tree strictly: what a key's reader does not ask for is
// an error. It collects every problem instead of stopping at the first.
type decoder struct {
	file     string
	problems Problems
	// bad marks nodes that already have an error, so that a check on their
	// value does not report them twice.
	bad map[*yaml.Node]bool
	// env holds the variables' names of nodes that come from the environment.
	env map[*yaml.Node]string
	// known is told the keys of each block; may be nil.
	known func(path string, keys []string)
	// describer is set where the readers shall tell what they take, and read
	// nothing; see shape.go.
	describer *describer
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, bad: map[*yaml.Node]bool{}, env: map[*yaml.Node]string{}}
}

// top is the place of what the file as a whole is to blame for.
func top() *yaml.Node { return &yaml.Node{Line: 1, Column: 1} }

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
		if name, ok := d.env[n]; ok {
			p.File = "environment variable " + name
		}
	}
	d.problems = append(d.problems, p.masked())
}

// field reads one key of a mapping.
type field func(key, value *yaml.Node, path string)

// mapping reads an object whose keys are known. Unknown and repeated keys are
// errors.
func (d *decoder) mapping(n *yaml.Node, path string, fields map[string]field) bool {
	return d.block(n, path, fields, nil)
}

// block is mapping, and notes the nodes of the known keys, whether or not they
// can be read.
func (d *decoder) block(n *yaml.Node, path string, fields map[string]field, note func(name string, v *yaml.Node)) bool {
	if d.known != nil {
		d.known(path, names(fields))
	}
	if d.describer != nil && d.tell(d.objectShape(path, fields)) {
		return false
	}
	if !d.wantMapping(n, path) {
		return false
	}
	d.entries(n, path, func(k, v *yaml.Node, sub string) {
		read, known := fields[k.Value]
		switch {
		case !known && !d.bad[v]:
			d.unknownKey(k, path, names(fields))
			return
		case !known:
			return
		case note != nil:
			note(k.Value, v)
		}
		if !d.bad[v] {
			read(k, v, sub)
		}
	})
	return true
}

// entries reads an object whose keys are names.
func (d *decoder) entries(n *yaml.Node, path string, read field) {
	if d.describer != nil && d.tell(shape{"type": "object", "additionalProperties": d.describe(read, join(path, "name"))}) {
		return
	}
	if d.bad[n] || !d.wantMapping(n, path) {
		return
	}
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		sub := join(path, k.Value)
		if k.Kind != yaml.ScalarNode {
			if !d.bad[k] {
				d.errorf(k, path, "write a plain text before the colon", "a key must be plain text")
			}
			continue
		}
		if first, twice := seen[k.Value]; twice {
			d.errorf(k, sub, "keep one of the two, with the entries of both", "the key stands here a second time, first on line %d", first)
			continue
		}
		seen[k.Value] = k.Line
		read(k, v, sub)
	}
}

func (d *decoder) wantMapping(n *yaml.Node, path string) bool {
	if n.Kind == yaml.MappingNode {
		return true
	}
	if !d.bad[n] {
		d.errorf(n, path, "write its keys below it, indented, or remove it", "want keys and values, got %s", kindName(n))
	}
	return false
}

func names(fields map[string]field) []string {
	list := make([]string, 0, len(fields))
	for name := range fields {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (d *decoder) unknownKey(k *yaml.Node, path string, known []string) {
	cure := elsewhere(path, k.Value, known)
	if cure == "" {
		cure = didYouMean(k.Value, known)
	}
	d.errorf(k, join(path, k.Value), cure, "unknown key %s", shown(k.Value))
}

func join(path, key string) string {
	switch {
	case path == "":
		return key
	case key == "":
		return path
	}
	return path + "." + key
}

// valueOf returns the value of a key, or nil.
func valueOf(m *yaml.Node, key string) *yaml.Node {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindName says what a node is, for messages.
func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys and values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return "nothing"
	case "!!bool":
		return n.Value
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!timestamp":
		return "the time " + n.Value
	case "!!str":
		return "the text " + shown(n.Value)
	default:
		return fmt.Sprintf("the text %s with the tag %s", shown(n.Value), tag)
	}
}

// shown quotes a text for a message, shortened. It is masked first: a URL that
// was cut is harder to tell.
func shown(text string) string {
	const most = 60
	text = redisconn.MaskText(text)
	if r := []rune(text); len(r) > most {
		return fmt.Sprintf("%q…", string(r[:most]))
	}
	return fmt.Sprintf("%q", text)
}

// errNoFile is of a path that names something else than a file.
var errNoFile = errors.New("it is no regular file: pipes (such as <(…) of a shell), devices and folders are not read")

// ReadFile reads a configuration file, at most [maxFileBytes] and one byte of
// it. Only a regular file, or a link to one, is read: opening a pipe to which
// nobody writes would last for ever, whatever signal comes.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoFile
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}
