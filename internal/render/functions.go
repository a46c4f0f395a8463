package render

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// safe is text that only the time functions make: it needs no escape.
type safe string

var functions = template.FuncMap{
	"date":    func(t time.Time) (safe, error) { return timeText(t, "2006-01-02") },
	"hour":    func(t time.Time) (safe, error) { return timeText(t, "2006-01-02T15-07:00") },
	"minute":  func(t time.Time) (safe, error) { return timeText(t, "2006-01-02T15:04-07:00") },
	"rfc3339": func(t time.Time) (safe, error) { return timeText(t, time.RFC3339) },
	"unix": func(t time.Time) (safe, error) {
		if t.IsZero() {
			return "", ErrMissing
		}
		return safe(strconv.FormatInt(t.Unix(), 10)), nil
	},
	"addDays": func(n int, t time.Time) time.Time { return t.AddDate(0, 0, n) },
	"in": func(zone string, t time.Time) (time.Time, error) {
		loc, err := time.LoadLocation(zone)
		if err != nil || zone == "" || zone == "Local" {
			return t, fmt.Errorf("unknown zone %q", zone)
		}
		return t.In(loc), nil
	},
	"default": func(def, v any) any {
		if v == nil || v == "" {
			return def
		}
		return v
	},
	"lower": func(v any) (string, error) {
		s, err := toText(v)
		return strings.ToLower(s), err
	},
	"json": func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	},
	"text_": toText,
	"key_":  keyText,
}

// allowedFunctions are ours, and those of text/template that compute from
// their arguments alone.
var allowedFunctions = map[string]bool{
	"date": true, "hour": true, "minute": true, "rfc3339": true, "unix": true, "addDays": true, "in": true, "default": true,
	"lower": true, "json": true,
	"and": true, "or": true, "not": true, "eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true,
	"index": true, "len": true, "print": true, "printf": true,
}

func timeText(t time.Time, layout string) (safe, error) {
	if t.IsZero() {
		return "", ErrMissing
	}
	return safe(t.Format(layout)), nil
}

// toText writes a value as a template shows it.
func toText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", ErrMissing
	case string:
		return v, nil
	case safe:
		return string(v), nil
	case json.Number:
		return v.String(), nil
	case time.Time:
		s, err := timeText(v, time.RFC3339)
		return string(s), err
	case bool, int, int64, float64:
		return fmt.Sprint(v), nil
	default:
		b, err := json.Marshal(v)
		return string(b), err
	}
}

func keyText(v any) (string, error) {
	switch v := v.(type) {
	case safe:
		return string(v), nil
	case time.Time:
		return toText(v)
	}
	s, err := toText(v)
	if err != nil {
		return "", err
	}
	if s == "" {
		return "", ErrMissing
	}
	return escape(s), nil
}

const upperHex = "0123456789ABCDEF"

// escape percent-escapes all but letters, digits and ._~-.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._~-", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}
