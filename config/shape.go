package config

import (
	"encoding/json"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/lockguard"
)

// shape is a part of a JSON Schema. The readers of the keys tell theirs by
// themselves: a key that is read is in the schema, with what its reader takes.
type shape map[string]any

// The shapes of the readers in read.go and value.go.
func textShape() shape { return shape{"type": "string"} }
func wordShape() shape { return shape{"type": "string", "pattern": `\S`} }
func listShape() shape { return shape{"type": "array"} }
func textsShape(v *yaml.Node) shape {
	if v.Kind == yaml.SequenceNode {
		return shape{"type": "array", "items": textShape()}
	}
	return textShape()
}

func wordListShape(v *yaml.Node, words ...string) shape {
	if v.Kind == yaml.SequenceNode {
		return shape{"type": "array", "items": wordsShape(words), "minItems": 1, "uniqueItems": true}
	}
	return wordsShape(words)
}
func scalarShape() shape  { return shape{"type": []any{"string", "number", "boolean", "null"}} }
func booleanShape() shape { return shape{"type": "boolean"} }
func integerShape(low, high int) shape {
	return shape{"type": "integer", "minimum": low, "maximum": high}
}

func fenceBaseShape() shape {
	return shape{"type": "integer", "minimum": 0, "maximum": uint64(lockguard.MaxFenceBase)}
}
func wordsShape(words []string) shape { return shape{"enum": words} }
func offShape() shape                 { return shape{"enum": []any{"off", false}} }

// durationShape admits at least what [ParseDuration] reads. A negative one is
// told by its sign where none can be read.
func durationShape(low time.Duration) shape {
	sign := `\+?`
	if low <= 0 {
		sign = `[-+]?`
	}
	return shape{"type": "string", "pattern": `^` + sign + `((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h|d))+$`}
}

// describer collects what the readers tell.
type describer struct {
	told []shape
	// doc is what is said of the key at a path, "" for nothing.
	doc func(path string) string
}

// tell notes what a reader takes, if that is all that is wanted of it: then it
// has nothing to read.
func (d *decoder) tell(s shape) bool {
	if d.describer == nil {
		return false
	}
	d.describer.told = append(d.describer.told, s)
	return true
}

// describe has a reader tell what it takes: a scalar, a block, a list.
func (d *decoder) describe(read field, path string) shape {
	before := d.describer.told
	d.describer.told = nil
	for _, kind := range []yaml.Kind{yaml.ScalarNode, yaml.MappingNode, yaml.SequenceNode} {
		v := &yaml.Node{Kind: kind}
		if kind == yaml.ScalarNode {
			v.Tag = "!!str"
		}
		read(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "name"}, v, path)
	}
	s := anyOf(d.describer.told)
	d.describer.told = before
	return s
}

// anyOf is one of several shapes, each of which counts once.
func anyOf(forms []shape) shape {
	var distinct []any
	var seen []string
	for _, s := range forms {
		text, err := json.Marshal(s)
		if err != nil { // cannot be: shapes are texts, numbers and lists of them
			panic(err)
		}
		if !slices.Contains(seen, string(text)) {
			seen, distinct = append(seen, string(text)), append(distinct, s)
		}
	}
	switch len(distinct) {
	case 0:
		return shape{}
	case 1:
		s, _ := distinct[0].(shape)
		return s
	}
	return shape{"anyOf": distinct}
}

// objectShape is the shape of a block with known keys.
func (d *decoder) objectShape(path string, fields map[string]field) shape {
	properties := shape{}
	for name, read := range fields {
		sub := join(path, name)
		s := d.describe(read, sub)
		if doc := d.describer.doc(sub); doc != "" {
			s["description"] = doc
		}
		properties[name] = s
	}
	return shape{"type": "object", "properties": properties, "additionalProperties": false}
}

// later notes a value that is read when others have been, or has its reader
// tell what it takes.
func (d *decoder) later(into **yaml.Node, read func(v *yaml.Node)) field {
	return func(_, v *yaml.Node, _ string) {
		if d.describer != nil {
			read(v)
			return
		}
		*into = v
	}
}
