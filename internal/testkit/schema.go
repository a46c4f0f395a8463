package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Schema is a compiled JSON Schema.
type Schema struct{ compiled *jsonschema.Schema }

// CompileSchema compiles the text of a schema, which must be sound by its own
// draft.
func CompileSchema(t testing.TB, text []byte) *Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("schema: %v", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatalf("schema: %v", err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("schema: %v", err)
	}
	return &Schema{compiled}
}

// CheckYAML says what an editor would say of a YAML text.
func (s *Schema) CheckYAML(text []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("no YAML: %w", err)
	}
	if len(doc.Content) == 0 {
		return s.compiled.Validate(nil)
	}
	return s.compiled.Validate(jsonValue(doc.Content[0]))
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$`)

// jsonValue is a YAML value as editors see it, by YAML 1.2: an instant is a text.
func jsonValue(n *yaml.Node) any {
	switch n.Kind {
	case yaml.AliasNode:
		return jsonValue(n.Alias)
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, jsonValue(item))
		}
		return list
	case yaml.MappingNode:
		object := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			object[n.Content[i].Value] = jsonValue(n.Content[i+1])
		}
		return object
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		if jsonNumber.MatchString(n.Value) {
			return json.Number(n.Value)
		}
		if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return json.Number(strconv.FormatInt(i, 10))
		}
		var f float64
		if n.Decode(&f) == nil {
			return f
		}
	}
	return n.Value
}
