package tasks

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// plain is how a struct of nothing but numbers, texts and booleans is filled
// without encoding/json, which takes longer for that than all else that is done
// for a small task. It only takes what it is sure of, in which it sets the same
// as encoding/json; the rest, all errors included, is left to that. Nil takes
// nothing.
type plain struct {
	byName map[string]int // JSON name to the field's number
	types  []reflect.Kind // of the fields
}

// plainName are names that encoding/json takes from a tag as they are.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// plainFields returns nil for a struct that is not plain: one with other fields,
// with options or methods by which encoding/json treats a field in another way,
// or whose fields are not one argument each.
func plainFields(t reflect.Type) *plain {
	if decodesItself(t) {
		return nil
	}
	p := &plain{byName: map[string]int{}}
	folded := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		fold := strings.ToLower(name)
		if f.Anonymous || !f.IsExported() || f.Tag.Get("json") == "-" || strings.Contains(options, "string") ||
			!plainName.MatchString(name) || folded[fold] || !plainType(f.Type) {
			return nil
		}
		folded[fold] = true
		p.byName[name] = i
		p.types = append(p.types, f.Type.Kind())
	}
	return p
}

func plainType(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return !decodesItself(t)
	case reflect.String:
		return !decodesItself(t) && t != reflect.TypeFor[json.Number]()
	}
	return false
}

// decodesItself reports whether a type has a method that reads JSON.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func (p *plain) fits(t *Task) bool { return p != nil && len(t.Args) <= len(p.types) }

// fill sets the fields of v by the arguments of a task that fits; false if it
// met one that it is not sure of, and then v is of no use.
func (p *plain) fill(v reflect.Value, t *Task) bool {
	for i, a := range t.Args {
		if !setPlain(v.Field(i), p.types[i], a) {
			return false
		}
	}
	for name, a := range t.Kwargs {
		i, ok := p.byName[name]
		if !ok || i < len(t.Args) || !setPlain(v.Field(i), p.types[i], a) {
			return false
		}
	}
	return true
}

func setPlain(v reflect.Value, kind reflect.Kind, text json.RawMessage) bool {
	if string(text) == "null" {
		return true // which changes nothing
	}
	switch kind {
	case reflect.String:
		ok := isPlainText(text)
		if ok {
			v.SetString(string(text[1 : len(text)-1]))
		}
		return ok
	case reflect.Bool:
		v.SetBool(string(text) == "true")
		return string(text) == "true" || string(text) == "false"
	case reflect.Float32, reflect.Float64:
		if !isDigit(bytes.TrimPrefix(text, []byte("-"))) || !json.Valid(text) {
			return false
		}
		f, err := strconv.ParseFloat(string(text), v.Type().Bits())
		v.SetFloat(f)
		return err == nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if !isInteger(text) {
			return false
		}
		n, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil || v.OverflowUint(n) {
			return false
		}
		v.SetUint(n)
		return true
	default:
		if !isInteger(text) {
			return false
		}
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
		return true
	}
}

// isInteger reports whether text is a JSON number without fraction and exponent,
// of which Go's own readers of numbers take a few forms more.
func isInteger(text []byte) bool {
	digits := bytes.TrimPrefix(text, []byte("-"))
	for i := range digits {
		if !isDigit(digits[i:]) {
			return false
		}
	}
	return len(digits) == 1 || len(digits) > 1 && digits[0] != '0'
}

// isDigit reports whether text begins with a digit.
func isDigit(text []byte) bool { return len(text) > 0 && text[0]-'0' <= 9 }

// isPlainText reports whether text is a JSON string without escapes.
func isPlainText(text []byte) bool {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return false
	}
	in := text[1 : len(text)-1]
	for _, c := range in {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(in)
}
