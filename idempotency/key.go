package idempotency

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/solobeat/solobeat/internal/render"
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
		return fmt.Errorf("idempotency: %w: the key of %q is empty", ErrKeyMissing, k.Namespace)
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
	return Key{Namespace: task, Text: "job:" + render.Escape(job) + ":" + label}
}

// TaskKey is the default key of a task that an app sent: its id, which stays
// the same over redeliveries and retries.
func TaskKey(task, id string) Key {
	if id == "" {
		return Key{Namespace: task}
	}
	return Key{Namespace: task, Text: "id:" + render.Escape(id)}
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
			return "", fmt.Errorf("idempotency: %w: field %q of the fingerprint", ErrKeyMissing, f)
		}
		v, err := render.Value(raw)
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
