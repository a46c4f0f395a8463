package wire

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

// errJSON is returned for a raw value that is no JSON.
var errJSON = errors.New("no valid JSON")

const hexDigits = "0123456789abcdef"

// appendString appends s as Python's json.dumps writes it: everything outside
// printable ASCII as \uXXXX, surrogate pairs above the basic plane.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		from := i
		for i < len(s) && ' ' <= s[i] && s[i] < 0x7f && s[i] != '"' && s[i] != '\\' {
			i++
		}
		if b = append(b, s[from:i]...); i == len(s) {
			break
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			b = appendRune(b, r)
			i += n
			continue
		}
		b = appendASCII(b, c)
		i++
	}
	return append(b, '"')
}

func appendASCII(b []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(b, '\\', c)
	case ' ' <= c && c < 0x7f:
		return append(b, c)
	case c == '\n':
		return append(b, '\\', 'n')
	case c == '\r':
		return append(b, '\\', 'r')
	case c == '\t':
		return append(b, '\\', 't')
	case c == '\b':
		return append(b, '\\', 'b')
	case c == '\f':
		return append(b, '\\', 'f')
	}
	return appendUnit(b, rune(c))
}

func appendRune(b []byte, r rune) []byte {
	if r >= 0x10000 {
		r -= 0x10000
		b = appendUnit(b, 0xd800+r>>10)
		return appendUnit(b, 0xdc00+r&0x3ff)
	}
	return appendUnit(b, r)
}

func appendUnit(b []byte, u rune) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

// appendRaw appends a JSON value in Python's style: ", " and ": " between
// items, ASCII only, numbers as they are. Python counts chord parts by their
// text and compares nothing else, so the style is kept everywhere.
func appendRaw(b []byte, raw []byte) ([]byte, error) {
	if !utf8.Valid(raw) {
		return nil, errJSON
	}
	s := scanner[[]byte]{b: raw}
	if !s.value() || !s.end() || s.nonFinite {
		return nil, errJSON
	}
	for i := 0; i < len(raw); {
		switch c := raw[i]; c {
		case ' ', '\n', '\t', '\r':
			i++
		case ',', ':':
			b = append(b, c, ' ')
			i++
		case '"':
			s := scanner[[]byte]{b: raw, i: i}
			p, _ := s.str() // valid, as checked above
			b = appendQuoted(b, p.in(raw))
			i = p.to
		default:
			b = append(b, c)
			i++
		}
	}
	return b, nil
}

// appendQuoted appends a string that stands as JSON text already. Escapes are
// rewritten one by one, so that a lone surrogate survives.
func appendQuoted(b, quoted []byte) []byte {
	b = append(b, '"')
	for in := quoted[1 : len(quoted)-1]; len(in) > 0; {
		switch c := in[0]; {
		case c == '\\':
			n := escapeLen(in)
			b = appendEscape(b, in[:n])
			in = in[n:]
		case c < utf8.RuneSelf:
			b = appendASCII(b, c)
			in = in[1:]
		default:
			r, n := utf8.DecodeRune(in)
			b = appendRune(b, r)
			in = in[n:]
		}
	}
	return append(b, '"')
}

func appendEscape(b, esc []byte) []byte {
	switch esc[1] {
	case 'u':
		u := rune(0)
		for _, c := range esc[2:6] {
			u = u<<4 | rune(hexValue(c))
		}
		if u < utf8.RuneSelf {
			return appendASCII(b, byte(u))
		}
		return appendUnit(b, u)
	case '/':
		return append(b, '/')
	}
	return append(b, esc...)
}

// appendFloat appends f so that Python reads a float: 742.0, never 742.
func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "0.0"...)
	}
	from := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	for _, c := range b[from:] {
		if c == '.' {
			return b
		}
	}
	return append(b, '.', '0')
}

// Finite gives raw with NaN, Infinity and -Infinity, which Python writes and
// JSON does not know, replaced by null, so that encoding/json can read it. It
// gives raw itself where there are none, or where raw is no JSON even so.
func Finite(raw json.RawMessage) json.RawMessage {
	s := scanner[[]byte]{b: raw}
	if !s.value() || !s.nonFinite {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			s := scanner[[]byte]{b: raw, i: i}
			p, _ := s.str()
			out = append(out, raw[i:p.to]...)
			i = p.to
		case c == 'N':
			out = append(out, "null"...)
			i += len("NaN")
		case c == 'I':
			if n := len(out); n > 0 && out[n-1] == '-' {
				out = out[:n-1]
			}
			out = append(out, "null"...)
			i += len("Infinity")
		default:
			out = append(out, c)
			i++
		}
	}
	return out
}
