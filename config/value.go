package config

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var jsonNumberRE = regexp.MustCompile(`^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$`)

// values turns YAML values into what encoding/json makes of the same JSON
// values; numbers stay text (json.Number), so that no digit is lost.
type values struct {
	d *decoder
	// str is called for each text, may be nil.
	str func(n *yaml.Node, path string)
}

func (r values) read(n *yaml.Node, path string) any {
	switch {
	case r.d.bad[n]:
		return nil
	case n.Kind == yaml.SequenceNode && r.d.tell(listShape()), n.Kind == yaml.MappingNode && r.d.tell(shape{"type": "object"}),
		n.Kind == yaml.ScalarNode && r.d.tell(scalarShape()):
		return nil
	case n.Kind == yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			list = append(list, r.read(item, fmt.Sprintf("%s[%d]", path, i)))
		}
		return list
	case n.Kind == yaml.MappingNode:
		object := make(map[string]any, len(n.Content)/2)
		r.d.entries(n, path, func(k, v *yaml.Node, path string) { object[k.Value] = r.read(v, path) })
		return object
	default:
		return r.scalar(n, path)
	}
}

func (r values) scalar(n *yaml.Node, path string) any {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		return r.number(n, path)
	case "!!str":
		if r.str != nil {
			r.str(n, path)
		}
		return n.Value
	case "!!timestamp":
		r.d.errorf(n, path, "quote it", "%s is a time in YAML, and has no JSON form", n.Value)
	default:
		r.d.errorf(n, path, "remove the tag", "%s has no JSON form", kindName(n))
	}
	return nil
}

func (r values) number(n *yaml.Node, path string) any {
	if jsonNumberRE.MatchString(n.Value) {
		return json.Number(n.Value)
	}
	digits := strings.TrimLeft(n.Value, "+-")
	if len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		r.d.errorf(n, path, "quote it if it is a text, or remove the zero", "%s begins with a zero: YAML would read it as octal", n.Value)
		return nil
	}
	if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil { // 0x1f, 1_000
		return json.Number(strconv.FormatInt(i, 10))
	}
	var f float64
	if err := n.Decode(&f); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	}
	r.d.errorf(n, path, "quote it", "%s has no JSON form", n.Value)
	return nil
}
