package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// jsonValue turns a YAML value into what encoding/json makes of the same JSON
// value; numbers stay text (json.Number), so that no digit is lost.
func jsonValue(d *decoder, n *yaml.Node, path string) any {
	switch n.Kind {
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			list = append(list, jsonValue(d, item, fmt.Sprintf("%s[%d]", path, i)))
		}
		return list
	case yaml.MappingNode:
		object := map[string]any{}
		d.entries(n, path, func(k, v *yaml.Node, path string) { object[k.Value] = jsonValue(d, v, path) })
		return object
	default:
		return jsonScalar(d, n, path)
	}
}

func jsonScalar(d *decoder, n *yaml.Node, path string) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
	case "!!int", "!!float":
		return jsonNumber(d, n, path)
	case "!!str":
		return n.Value
	default:
		d.errorf(n, path, "quote it", "%s (%s) has no JSON form", n.Value, n.Tag)
		return nil
	}
}

func jsonNumber(d *decoder, n *yaml.Node, path string) any {
	if json.Valid([]byte(n.Value)) {
		return json.Number(n.Value)
	}
	if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil { // 0x1f, 1_000
		return json.Number(strconv.FormatInt(i, 10))
	}
	var f float64
	if err := n.Decode(&f); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	}
	d.errorf(n, path, "quote it", "%s has no JSON form", n.Value)
	return nil
}
