package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDepth is the deepest nesting accepted, the same as encoding/json's: the
// scanner recurses, and bytes from a queue must not exhaust the stack.
const maxDepth = 10000

// span is a half-open range of bytes; the zero span stands for "absent".
type span struct{ from, to int }

func (p span) in(b []byte) []byte { return b[p.from:p.to:p.to] }

// jsonText is what a scanner reads. Envelopes come as strings, of which a message
// keeps parts, bodies as bytes; to turn the one into the other is to copy it.
type jsonText interface{ []byte | string }

// scanner walks JSON text once, checking it as encoding/json would, without
// building values. It also takes the tokens NaN, Infinity and -Infinity, which
// Python writes. The text must be valid UTF-8.
type scanner[T jsonText] struct {
	b         T
	i         int
	depth     int
	nonFinite bool // NaN or an infinity was met
	typed     bool // an object of exactly the keys __type__ and __value__ was met
	// plain is the same text where all of it is plain, else empty: a string then
	// ends at the next quote.
	plain string
}

// isPlain reports whether s is printable ASCII without a backslash. It looks at
// eight bytes at a time.
func isPlain(s string) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	i := 0
	for ; i+8 <= len(s); i += 8 {
		b := s[i : i+8]
		w := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		slash := w ^ '\\'*ones // a byte is zero where a backslash is
		// The high bit of a byte is set where it is no ASCII, below the space, or zero.
		if (w|(w-' '*ones)|(slash-ones)&^slash)&highs != 0 {
			return false
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '\\' {
			return false
		}
	}
	return true
}

func (s *scanner[T]) errorAt() string {
	if s.i >= len(s.b) {
		return fmt.Sprintf("the JSON ends early, at byte %d", len(s.b))
	}
	return fmt.Sprintf("invalid JSON at byte %d", s.i)
}

func (s *scanner[T]) space() {
	for s.i < len(s.b) && s.b[s.i] <= ' ' {
		switch s.b[s.i] {
		case ' ', '\n', '\t', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek skips white space and gives the next byte, 0 at the end.
func (s *scanner[T]) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// end reports whether only white space is left.
func (s *scanner[T]) end() bool {
	s.space()
	return s.i == len(s.b)
}

func (s *scanner[T]) enter() bool {
	s.i++
	s.depth++
	return s.depth <= maxDepth
}

func (s *scanner[T]) leave() {
	s.i++
	s.depth--
}

// value skips one value of any kind.
func (s *scanner[T]) value() bool {
	switch c := s.peek(); c {
	case '{':
		return s.object()
	case '[':
		return s.array()
	case '"':
		_, ok := s.str()
		return ok
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	case 'N':
		return s.nonFiniteWord("NaN")
	case 'I':
		return s.nonFiniteWord("Infinity")
	default:
		return s.number()
	}
}

// take skips one value and gives its place.
func (s *scanner[T]) take() (span, bool) {
	s.space()
	from := s.i
	ok := s.value()
	return span{from, s.i}, ok
}

func (s *scanner[T]) word(w string) bool {
	if len(s.b)-s.i < len(w) {
		return false
	}
	for i := range len(w) {
		if s.b[s.i+i] != w[i] {
			return false
		}
	}
	s.i += len(w)
	return true
}

func (s *scanner[T]) nonFiniteWord(w string) bool {
	ok := s.word(w)
	s.nonFinite = s.nonFinite || ok
	return ok
}

func (s *scanner[T]) digits() bool {
	from := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i > from
}

func (s *scanner[T]) number() bool {
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
		if s.i < len(s.b) && s.b[s.i] == 'I' {
			return s.nonFiniteWord("Infinity")
		}
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return false
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return false
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		return s.digits()
	}
	return true
}

// str skips a string and gives its place, quotes included.
func (s *scanner[T]) str() (span, bool) {
	from := s.i
	if s.plain != "" {
		n := strings.IndexByte(s.plain[from+1:], '"')
		if n < 0 {
			s.i = len(s.b)
			return span{}, false
		}
		s.i = from + n + 2
		return span{from, s.i}, true
	}
	for i := from + 1; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return span{from, s.i}, true
		case c == '\\':
			n := escapeLen(s.b[i:])
			if n == 0 {
				s.i = i
				return span{}, false
			}
			i += n - 1
		case c < ' ':
			s.i = i
			return span{}, false
		}
	}
	s.i = len(s.b)
	return span{}, false
}

// escapeLen gives the length of the escape sequence at the start of b, 0 if it
// is none.
func escapeLen[T jsonText](b T) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for i := 2; i < 6; i++ {
			if hexValue(b[i]) < 0 {
				return 0
			}
		}
		return 6
	}
	return 0
}

func hexValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// step is what member and item found.
type step uint8

const (
	stepBad  step = iota // a syntax error
	stepMore             // the scanner stands before a value
	stepDone             // the closing bracket was consumed
)

// item moves to the next element of an array whose opening bracket has been
// entered.
func (s *scanner[T]) item(first bool) step {
	switch c := s.peek(); {
	case c == ']':
		s.leave()
		return stepDone
	case first:
		return stepMore
	case c != ',':
		return stepBad
	}
	s.i++
	if s.peek() == ']' {
		return stepBad
	}
	return stepMore
}

// member moves to the value of the next member of an object whose opening
// bracket has been entered, and gives the place of its key, quotes included.
func (s *scanner[T]) member(first bool) (span, step) {
	c := s.peek()
	switch {
	case c == '}':
		s.leave()
		return span{}, stepDone
	case !first:
		if c != ',' {
			return span{}, stepBad
		}
		s.i++
		c = s.peek()
	}
	if c != '"' {
		return span{}, stepBad
	}
	key, ok := s.str()
	if !ok || s.peek() != ':' {
		return span{}, stepBad
	}
	s.i++
	s.space()
	return key, stepMore
}

func (s *scanner[T]) array() bool {
	if !s.enter() {
		return false
	}
	for first := true; ; first = false {
		switch s.item(first) {
		case stepBad:
			return false
		case stepDone:
			return true
		}
		if !s.value() {
			return false
		}
	}
}

func (s *scanner[T]) object() bool {
	if !s.enter() {
		return false
	}
	var isType, isValue, other bool
	for first := true; ; first = false {
		key, st := s.member(first)
		switch st {
		case stepBad:
			return false
		case stepDone:
			s.typed = s.typed || isType && isValue && !other
			return true
		}
		switch string(unquoted(s.b, key)) {
		case "__type__":
			isType = true
		case "__value__":
			isValue = true
		default:
			other = true
		}
		if !s.value() {
			return false
		}
	}
}

// unquoted gives the text of the string at p; it shares memory with b unless
// the string has escapes.
func unquoted[T jsonText](b T, p span) T {
	for i := p.from + 1; i < p.to-1; i++ {
		if b[i] == '\\' {
			return T(unescape([]byte(b[p.from:p.to])))
		}
	}
	return b[p.from+1 : p.to-1]
}

// unescape decodes a JSON string that the scanner has accepted.
func unescape(quoted []byte) string {
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return "" // cannot be: the scanner is stricter
	}
	return s
}
