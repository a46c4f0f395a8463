package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Register adds a typed handler. In is a struct (or a pointer to one): named
// arguments fill it by JSON name, positional ones by field order; a name that
// In does not have, or more positional arguments than fields, is
// [ErrBadArguments], and so is the same field given twice. In may also be
// *Task, to see the task itself. Out is encoded as JSON.
func Register[In, Out any](r *Registry, name string, fn func(context.Context, In) (Out, error)) error {
	decode, err := decoder[In]()
	if err != nil {
		return fmt.Errorf("%w (task %q)", err, name)
	}
	return r.Add(name, HandlerFunc(func(ctx context.Context, t *Task) (json.RawMessage, error) {
		in, err := decode(t)
		if err != nil {
			return nil, BadArguments(fmt.Errorf("%s: %w", name, err))
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		b, err := marshal(out)
		if err != nil {
			return nil, Permanent(fmt.Errorf("tasks: result of %s cannot be JSON: %w", name, err))
		}
		return b, nil
	}))
}

// marshal encodes without HTML escapes, so that text comes back unchanged.
func marshal(v any) (json.RawMessage, error) {
	if v == nil { // most tasks have no result
		return json.RawMessage("null"), nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

func decoder[In any]() (func(*Task) (In, error), error) {
	typ := reflect.TypeFor[In]()
	if typ == reflect.TypeFor[*Task]() {
		return func(t *Task) (In, error) {
			in, _ := any(t).(In)
			return in, nil
		}, nil
	}
	structType := typ
	if typ.Kind() == reflect.Pointer {
		structType = typ.Elem()
	}
	if structType.Kind() != reflect.Struct {
		return nil, fmt.Errorf("tasks: input must be a struct, a pointer to one, or *tasks.Task, not %s", typ)
	}
	names, plain := fieldNames(structType), plainFields(structType)
	return func(t *Task) (In, error) {
		var in In
		if plain.fits(t) {
			v := reflect.ValueOf(&in).Elem()
			if typ != structType {
				v.Set(reflect.New(structType))
				v = v.Elem()
			}
			if plain.fill(v, t) {
				return in, nil
			}
			in = *new(In)
		}
		text, err := object(t, names)
		if err != nil {
			return in, err
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return in, err
		}
		if _, err := dec.Token(); err != io.EOF {
			return in, fmt.Errorf("text after the arguments")
		}
		return in, nil
	}, nil
}

// fieldNames returns the JSON names of the fields in their order; fields of
// embedded structs stand where the struct stands.
func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			names = append(names, fieldNames(f.Type)...)
		case !f.IsExported() || f.Tag.Get("json") == "-":
		case tag != "":
			names = append(names, tag)
		default:
			names = append(names, f.Name)
		}
	}
	return names
}

// object joins positional and named arguments into one JSON object.
func object(t *Task, names []string) ([]byte, error) {
	if len(t.Args) > len(names) {
		return nil, fmt.Errorf("%d positional arguments, at most %d fit", len(t.Args), len(names))
	}
	all := make(map[string]json.RawMessage, len(t.Args)+len(t.Kwargs))
	for i, a := range t.Args {
		all[names[i]] = a
	}
	for k, v := range t.Kwargs {
		if _, twice := all[k]; twice {
			return nil, fmt.Errorf("argument %q is given twice", k)
		}
		all[k] = v
	}
	return json.Marshal(all)
}
