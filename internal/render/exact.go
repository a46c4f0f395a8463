package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const upperHex = "0123456789ABCDEF"

// Escape percent-encodes every byte of s but letters, digits and ._~- so that
// what is inserted into a key cannot pass for one of its separators.
func Escape(s string) string {
	plain := 0
	for plain < len(s) && unreserved(s[plain]) {
		plain++
	}
	if plain == len(s) {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:plain])
	for i := plain; i < len(s); i++ {
		c := s[i]
		if unreserved(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '~' || c == '-'
}

// Value decodes one JSON value so that two different texts of a string or a
// number never become one: numbers keep their text (json.Number), and a string
// that has no exact form in UTF-8 is an error.
func Value(raw json.RawMessage) (any, error) {
	if !utf8.Valid(raw) || halfSurrogate(raw) {
		return nil, errors.New("a string is no valid Unicode")
	}
	if v, ok := short(raw); ok {
		return v, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("no JSON value: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// short reads what most values are, a number or a string without an escape,
// since a decoder costs more than all else about a key.
func short(raw json.RawMessage) (any, bool) {
	if len(raw) == 0 || !json.Valid(raw) {
		return nil, false
	}
	last := len(raw) - 1
	switch c := raw[0]; {
	case c == '"' && raw[last] == '"' && bytes.IndexByte(raw, '\\') < 0:
		return string(raw[1:last]), true
	case (c == '-' || '0' <= c && c <= '9') && '0' <= raw[last] && raw[last] <= '9':
		return json.Number(raw), true
	}
	return nil, false
}

// halfSurrogate reports whether a JSON text escapes half of a surrogate pair:
// each would decode to the same U+FFFD.
func halfSurrogate(raw []byte) bool {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++ // whatever is escaped is no start of another escape
		switch first := escaped(raw, i); {
		case !utf16.IsSurrogate(first):
		case i+5 < len(raw) && raw[i+5] == '\\' && utf16.DecodeRune(first, escaped(raw, i+6)) != utf8.RuneError:
			i += 10
		default:
			return true
		}
	}
	return false
}

// escaped is the code of "uXXXX" at raw[i:], 0 if there is none.
func escaped(raw []byte, i int) rune {
	if i+5 > len(raw) || raw[i] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(raw[i+1:i+5]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
