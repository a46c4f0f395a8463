package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The limits of a key, in bytes.
const (
	// MaxKeyText bounds [Key.Text].
	MaxKeyText = 512
	// MaxKeyNamespace bounds [Key.Namespace]; a task's name has at most 200.
	MaxKeyNamespace = 200
)

// keyRule is the version of the rule that makes a hash of a key. It is part of
// what is hashed: a changed rule must never make two different keys one.
const keyRule = 1

// Key names one record.
type Key struct {
	// Namespace keeps the keys of one task apart from those of all others: the
	// task's name, or "" for a program that is no task.
	Namespace string
	// Text is the readable key, with every inserted value escaped.
	Text string
}

// Validate checks the key: [ErrKeyMissing], [ErrKeyTooLong], [ErrKeyText].
func (k Key) Validate() error {
	switch {
	case k.Text == "":
		return fmt.Errorf("%w: the key of %q is empty", ErrKeyMissing, k.Namespace)
	case len(k.Text) > MaxKeyText:
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrKeyTooLong, len(k.Text), MaxKeyText)
	case len(k.Namespace) > MaxKeyNamespace:
		return fmt.Errorf("%w: namespace has %d bytes, the limit is %d", ErrKeyTooLong, len(k.Namespace), MaxKeyNamespace)
	case !utf8.ValidString(k.Text) || !utf8.ValidString(k.Namespace):
		return fmt.Errorf("%w: %q", ErrKeyText, k.Text)
	}
	return nil
}

// Hash is the SHA-256 of the key as a JSON array of typed parts: joined text
// would be ambiguous. The key must be valid.
func (k Key) Hash() [32]byte {
	b, err := json.Marshal([]any{keyRule, k.Namespace, k.Text})
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return sha256.Sum256(b)
}

// String returns namespace and text for people.
func (k Key) String() string {
	if k.Namespace == "" {
		return fmt.Sprintf("%q", k.Text)
	}
	return fmt.Sprintf("%q of %s", k.Text, k.Namespace)
}

// JobKey is the default key of a job's run: the job and the tick's civil label
// with its UTC offset.
func JobKey(task, job, label string) Key {
	return Key{Namespace: task, Text: "job:" + Escape(job) + ":" + label}
}

// TaskKey is the default key of a task that an app sent: its id, which stays
// the same over redeliveries and retries.
func TaskKey(task, id string) Key {
	if id == "" {
		return Key{Namespace: task}
	}
	return Key{Namespace: task, Text: "id:" + Escape(id)}
}

const upperHex = "0123456789ABCDEF"

// Escape percent-encodes every byte of s but letters, digits and ._~- so that
// what is inserted into a key cannot pass for one of its separators.
func Escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
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

// Fingerprint is the hex SHA-256 of the named fields of a payload: it must be
// the same for every use of one key. Numbers are compared by their text, object
// keys in any order. A field that the payload lacks is [ErrKeyMissing]: a
// misspelt name would else compare nothing for ever. No fields give "".
func Fingerprint(fields []string, params map[string]json.RawMessage) (string, error) {
	if len(fields) == 0 {
		return "", nil
	}
	parts := make([]any, 0, 1+2*len(fields))
	parts = append(parts, keyRule)
	for _, f := range fields {
		raw, ok := params[f]
		if !ok {
			return "", fmt.Errorf("%w: field %q of the fingerprint", ErrKeyMissing, f)
		}
		v, err := DecodeValue(raw)
		if err != nil {
			return "", fmt.Errorf("idempotency: fingerprint field %q: %w", f, err)
		}
		parts = append(parts, f, v)
	}
	b, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("idempotency: fingerprint: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// DecodeValue decodes one JSON value so that two different texts of a string or
// a number never become one: numbers keep their text (json.Number), and a string
// that has no exact form in UTF-8 is [ErrKeyText].
func DecodeValue(raw json.RawMessage) (any, error) {
	if !utf8.Valid(raw) || halfSurrogate(raw) {
		return nil, ErrKeyText
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
