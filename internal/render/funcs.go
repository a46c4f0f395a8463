package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// The names of functions that only the walker writes into a template; no author
// can: they are no identifiers that a text may call.
const (
	textFunc  = "_text"
	keyFunc   = "_key"
	pathFunc  = "_path"
	queryFunc = "_query"
	optFunc   = "_opt"
)

// lastFunc ends each action of a template of a kind.
func lastFunc(kind Kind) string {
	switch kind {
	case Key:
		return keyFunc
	case Path:
		return pathFunc
	case Query:
		return queryFunc
	default:
		return textFunc
	}
}

// stamp is what a time function prints: a fixed form that a key need not escape.
type stamp string

func functions() template.FuncMap {
	return template.FuncMap{
		"date":    printer("2006-01-02"),
		"hour":    printer("2006-01-02T15-07:00"),
		"minute":  printer("2006-01-02T15:04-07:00"),
		"rfc3339": printer(time.RFC3339),
		"unix":    unix,
		"addDays": addDays,
		"in":      in,
		"default": orDefault,
		"lower":   lower,
		"json":    jsonText,
		textFunc:  toText,
		keyFunc:   toKey,
		pathFunc:  toPath,
		queryFunc: toQuery,
		optFunc:   look,
	}
}

func instant(v any) (time.Time, error) {
	switch v := v.(type) {
	case *moment:
		if v == nil {
			return time.Time{}, &MissingError{}
		}
		if y := v.t.Year(); y < 0 || y > 9999 {
			return time.Time{}, fmt.Errorf("year %d has no fixed form", y)
		}
		return v.t, nil
	case nil:
		return time.Time{}, &MissingError{}
	default:
		return time.Time{}, errors.New("only .Tick.UTC, .Tick.Local, .Tick.Prev and .Tick.Next are instants")
	}
}

func printer(layout string) func(any) (stamp, error) {
	return func(v any) (stamp, error) {
		t, err := instant(v)
		if err != nil {
			return "", err
		}
		return stamp(t.Format(layout)), nil
	}
}

func unix(v any) (string, error) {
	t, err := instant(v)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(t.Unix(), 10), nil
}

// maxDays bounds addDays to a century each way.
const maxDays = 36_600

func addDays(days, v any) (*moment, error) {
	text, err := textOf(days)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -maxDays || n > maxDays {
		return nil, fmt.Errorf("addDays takes a whole number of days up to %d", maxDays)
	}
	t, err := instant(v)
	if err != nil {
		return nil, err
	}
	return &moment{t.AddDate(0, 0, n)}, nil
}

func in(name string, v any) (*moment, error) {
	t, err := instant(v)
	if err != nil {
		return nil, err
	}
	loc, err := zone(name)
	if err != nil {
		return nil, err
	}
	return &moment{t.In(loc)}, nil
}

// orDefault gives plain text, so that a key escapes it whatever it came from.
func orDefault(fallback, v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return fallback, nil
	case string:
		if v == "" {
			return fallback, nil
		}
	case *moment:
		if v == nil {
			return fallback, nil
		}
	case stamp:
		return string(v), nil
	}
	return v, nil
}

func lower(v any) (string, error) {
	s, err := textOf(v)
	return strings.ToLower(s), err
}

// jsonText is compact JSON with sorted object keys and exact numbers.
func jsonText(v any) (string, error) {
	switch x := v.(type) {
	case *moment:
		s, err := textOf(x)
		if err != nil {
			return "", err
		}
		v = s
	case *execData:
		return "", errors.New("json takes a value, not all the data")
	}
	b, err := encode(v)
	return string(b), err
}

func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, errors.New("no JSON value")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// textOf is a single value as text.
func textOf(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", &MissingError{}
	case string:
		return v, nil
	case stamp:
		return string(v), nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case *moment:
		t, err := instant(v)
		if err != nil {
			return "", err
		}
		return t.Format(time.RFC3339), nil
	case []any, map[string]any:
		return "", errors.New("a list or an object is no text; use json")
	default:
		return "", errors.New("this value has no text")
	}
}

// named fills in which part of the template is missing.
func named(part string, err error) error {
	var m *MissingError
	if errors.As(err, &m) && m.Part == "" {
		return &MissingError{Part: part}
	}
	return err
}

// toText ends each action of a Text.
func toText(part string, v any) (string, error) {
	s, err := textOf(v)
	return s, named(part, err)
}

// toKey ends each action of a Key.
func toKey(part string, v any) (string, error) {
	switch m := v.(type) {
	case stamp:
		return string(m), nil
	case *moment:
		s, err := textOf(m)
		return s, named(part, err)
	}
	s, err := textOf(v)
	if err != nil {
		return "", named(part, err)
	}
	if s == "" {
		return "", &MissingError{Part: part}
	}
	return Escape(s), nil
}

// toPath ends each action of a Path.
func toPath(part string, v any) (string, error) {
	s, err := textOf(v)
	if err == nil && s == "" {
		err = &MissingError{}
	}
	return Escape(s), named(part, err)
}

// toQuery ends each action of a Query.
func toQuery(part string, v any) (string, error) {
	s, err := textOf(v)
	return Escape(s), named(part, err)
}

// look is a parameter, or nil if it is missing.
func look(params map[string]any, path ...string) any {
	var v any = params
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}
