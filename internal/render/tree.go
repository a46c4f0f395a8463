package render

import (
	"encoding/json"
	"fmt"
)

// Tree is a JSON value in which every string is a template.
type Tree struct {
	value any // *Template, []Tree, map[string]Tree, or a JSON scalar
}

// ParseTree reads a value as encoding/json gives it (numbers best as
// json.Number). Map keys are no templates.
func ParseTree(name string, v any) (Tree, error) {
	switch v := v.(type) {
	case string:
		t, err := Parse(name, v, Text)
		if err != nil {
			return Tree{}, fmt.Errorf("%s: %w", name, err)
		}
		return Tree{t}, nil
	case []any:
		list := make([]Tree, len(v))
		for i, item := range v {
			var err error
			if list[i], err = ParseTree(fmt.Sprintf("%s[%d]", name, i), item); err != nil {
				return Tree{}, err
			}
		}
		return Tree{list}, nil
	case map[string]any:
		object := make(map[string]Tree, len(v))
		for k, item := range v {
			var err error
			if object[k], err = ParseTree(name+"."+k, item); err != nil {
				return Tree{}, err
			}
		}
		return Tree{object}, nil
	default:
		return Tree{v}, nil
	}
}

// CheckPure is [Template.CheckPure] for every template of the tree.
func (t Tree) CheckPure(allowed ...string) error {
	switch v := t.value.(type) {
	case *Template:
		return v.CheckPure(allowed...)
	case []Tree:
		for _, item := range v {
			if err := item.CheckPure(allowed...); err != nil {
				return err
			}
		}
	case map[string]Tree:
		for k, item := range v {
			if err := item.CheckPure(allowed...); err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
		}
	}
	return nil
}

// Render returns the value as JSON; templates become strings.
func (t Tree) Render(d Data) (json.RawMessage, error) {
	v, err := t.render(d)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func (t Tree) render(d Data) (any, error) {
	switch v := t.value.(type) {
	case *Template:
		return v.Render(d)
	case []Tree:
		list := make([]any, len(v))
		for i, item := range v {
			var err error
			if list[i], err = item.render(d); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]Tree:
		object := make(map[string]any, len(v))
		for k, item := range v {
			var err error
			if object[k], err = item.render(d); err != nil {
				return nil, err
			}
		}
		return object, nil
	default:
		return v, nil
	}
}
