package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// maxDepth bounds how deep lists and maps of a tree may lie in each other.
const maxDepth = 64

// Tree is a value of lists, maps and scalars whose strings are templates: the
// args or kwargs of a job. Keys of maps are no templates, and scalars that are
// no strings stay what they are.
type Tree struct {
	value     any // with *Template in place of strings that are templates
	templates []*Template
}

// ParseTree parses v as it comes from a YAML or JSON decoder: map[string]any,
// []any, string, bool, nil and numbers. The name is that of the whole value; its
// templates are named by their paths, which errors begin with: "kwargs.day".
// [ErrSyntax], [ErrValue].
func ParseTree(name string, v any) (*Tree, error) {
	t := &Tree{}
	var err error
	t.value, err = t.parse(name, v, 0)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Tree) parse(path string, v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, at(path, problemf(ErrValue, "deeper than %d lists and maps", maxDepth))
	}
	switch v := v.(type) {
	case string:
		if !strings.Contains(v, "{{") {
			return v, nil
		}
		tmpl, err := Parse(path, v, Text)
		if err != nil {
			return nil, at(path, err)
		}
		t.templates = append(t.templates, tmpl)
		return tmpl, nil
	case map[string]any:
		m := make(map[string]any, len(v))
		var errs []error
		for _, k := range slices.Sorted(maps.Keys(v)) {
			var err error
			m[k], err = t.parse(path+"."+k, v[k], depth+1)
			errs = append(errs, err)
		}
		return m, errors.Join(errs...)
	case []any:
		list := make([]any, len(v))
		var errs []error
		for i := range v {
			var err error
			list[i], err = t.parse(fmt.Sprintf("%s[%d]", path, i), v[i], depth+1)
			errs = append(errs, err)
		}
		return list, errors.Join(errs...)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, at(path, problemf(ErrValue, "%v is no JSON value", v))
		}
		return v, nil
	case nil, bool, json.Number, int, int64, uint64:
		return v, nil
	default:
		return nil, at(path, problemf(ErrValue, "a %T is no JSON value; put it in quotes", v))
	}
}

// at puts the path of a value before its error.
func at(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Render returns a copy of the tree with its templates rendered.
func (t *Tree) Render(d Data) (any, error) { return fill(t.value, d) }

// JSON renders the tree as JSON text.
func (t *Tree) JSON(d Data) (json.RawMessage, error) {
	v, err := t.Render(d)
	if err != nil {
		return nil, err
	}
	return encode(v)
}

func fill(v any, d Data) (any, error) {
	switch v := v.(type) {
	case *Template:
		s, err := v.Render(d)
		return s, at(v.name, err)
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, x := range v {
			var err error
			if m[k], err = fill(x, d); err != nil {
				return nil, err
			}
		}
		return m, nil
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			var err error
			if list[i], err = fill(x, d); err != nil {
				return nil, err
			}
		}
		return list, nil
	default:
		return v, nil
	}
}

// CheckPure is [Template.CheckPure] of all templates in the tree.
func (t *Tree) CheckPure(roots ...string) error {
	errs := make([]error, len(t.templates))
	for i, tmpl := range t.templates {
		errs[i] = at(tmpl.name, tmpl.CheckPure(roots...))
	}
	return errors.Join(errs...)
}

// Uses reports whether any template in the tree uses the data under root.
func (t *Tree) Uses(root string) bool {
	return slices.ContainsFunc(t.templates, func(tmpl *Template) bool { return tmpl.Uses(root) })
}
