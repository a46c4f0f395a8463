package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// edit replaces one member of an object: set gets the old value, nil if there
// is none, and gives the new one, nil to delete it.
type edit struct {
	key string
	set func(old []byte) ([]byte, error)
}

func setTo(key string, val []byte) edit {
	return edit{key, func([]byte) ([]byte, error) { return val, nil }}
}

func deleteKey(key string) edit { return setTo(key, nil) }

// within edits the members of an object member.
func within(key string, edits ...edit) edit {
	return edit{key, func(old []byte) ([]byte, error) {
		if old == nil {
			return nil, fail(ErrNotEnvelope, key, "missing")
		}
		return editObject(old, edits)
	}}
}

type member struct{ key, val span }

// editObject applies edits to an object. All other members keep their place
// and their bytes; new ones come last. Where an edited key occurs twice, only
// the last one, which is what readers see, is kept.
func editObject(obj []byte, edits []edit) ([]byte, error) {
	s := scanner[[]byte]{b: obj}
	members, ok := s.members()
	if !ok {
		return nil, fail(ErrNotEnvelope, "", s.errorAt())
	}
	last := make([]int, len(edits))
	for n := range edits {
		last[n] = -1
	}
	which := make([]int, len(members))
	for i, m := range members {
		key := string(unquoted(obj, m.key))
		which[i] = slices.IndexFunc(edits, func(e edit) bool { return e.key == key })
		if which[i] >= 0 {
			last[which[i]] = i
		}
	}
	out := append(make([]byte, 0, len(obj)+64), '{')
	for i, m := range members {
		n := which[i]
		if n < 0 {
			out = append(comma(out), obj[m.key.from:m.val.to]...)
			continue
		}
		if last[n] != i {
			continue
		}
		val, err := edits[n].set(m.val.in(obj))
		if err != nil {
			return nil, err
		}
		if val != nil {
			out = appendMember(out, edits[n].key, val)
		}
	}
	for n, e := range edits {
		if last[n] >= 0 {
			continue
		}
		val, err := e.set(nil)
		if err != nil {
			return nil, err
		}
		if val != nil {
			out = appendMember(out, e.key, val)
		}
	}
	return append(out, '}'), nil
}

func comma(out []byte) []byte {
	if len(out) == 1 {
		return out
	}
	return append(out, ", "...)
}

func appendMember(out []byte, key string, val []byte) []byte {
	out = appendString(comma(out), key)
	out = append(out, ": "...)
	return append(out, val...)
}

// members gives the places of an object's members.
func (s *scanner[T]) members() ([]member, bool) {
	if s.peek() != '{' || !s.enter() {
		return nil, false
	}
	all := make([]member, 0, 24)
	for first := true; ; first = false {
		key, st := s.member(first)
		if st != stepMore {
			return all, st == stepDone
		}
		val, ok := s.take()
		if !ok {
			return nil, false
		}
		all = append(all, member{key, val})
	}
}

// checked refuses raw bytes that are no envelope.
func checked(raw []byte) (*envelope, error) {
	e := new(envelope)
	err := e.scan(string(raw))
	if err == nil {
		err = e.shape()
	}
	if err != nil {
		err.ID, err.Task = e.str(e.head[hID]), e.str(e.head[hTask])
		return nil, err
	}
	return e, nil
}

// headerEdits turns headers into edits in the order of their names.
func headerEdits(headers map[string]json.RawMessage) ([]edit, error) {
	edits := make([]edit, 0, len(headers)+8)
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		if v := headers[k]; v == nil || string(v) == "null" {
			edits = append(edits, deleteKey(k))
			continue
		}
		val, err := appendRaw(nil, headers[k])
		if err != nil {
			return nil, fmt.Errorf("wire: header %q: %w", k, err)
		}
		edits = append(edits, setTo(k, val))
	}
	return edits, nil
}

// SetHeaders sets headers of a raw envelope; a nil or null value deletes one.
// Everything else keeps its text and order. The error is an [*Error] if raw is
// no envelope.
func SetHeaders(raw []byte, headers map[string]json.RawMessage) ([]byte, error) {
	if _, err := checked(raw); err != nil {
		return nil, err
	}
	edits, err := headerEdits(headers)
	if err != nil {
		return nil, err
	}
	return editObject(raw, []edit{within("headers", edits...)})
}

// Redeliver marks a raw envelope as delivered before, in both places where
// kombu does, and sets [HeaderDeliveries] to deliveries, or deletes it if that
// is 0. Everything else keeps its text and order, the delivery tag included.
func Redeliver(raw []byte, deliveries int) ([]byte, error) {
	if _, err := checked(raw); err != nil {
		return nil, err
	}
	yes := []byte("true")
	count := deleteKey(HeaderDeliveries)
	if deliveries > 0 {
		count = setTo(HeaderDeliveries, strconv.AppendInt(nil, int64(deliveries), 10))
	}
	return editObject(raw, []edit{
		within("headers", setTo("redelivered", yes), count),
		within("properties", within("delivery_info", setTo("redelivered", yes))),
	})
}

// Retry makes the message of the next attempt out of the raw envelope of this
// one, as Celery does: same id, group and body, a new delivery tag, not
// redelivered, its own id as parent_id (and root_id) where there was none.
// retries is what the header is to hold, eta (zero: at once) the instant of
// the run. headers are set on top, a nil or null value deletes one; all other
// headers and properties are kept.
func Retry(raw []byte, retries int, eta time.Time, headers map[string]json.RawMessage) ([]byte, error) {
	e, err := checked(raw)
	if err != nil {
		return nil, err
	}
	id := e.str(e.head[hID])
	if id == "" {
		return nil, &Error{Kind: ErrMalformed, Field: "headers.id", Reason: "missing, empty or no string", Task: e.str(e.head[hTask])}
	}
	edits, err := headerEdits(headers)
	if err != nil {
		return nil, err
	}
	w := writer{}
	w.time(eta)
	own := appendString(nil, id)
	edits = append(edits,
		setTo("retries", strconv.AppendInt(nil, int64(retries), 10)),
		setTo("eta", w.b),
		fillWith("root_id", own),
		fillWith("parent_id", own),
		deleteKey("redelivered"))
	return editObject(raw, []edit{
		within("headers", edits...),
		within("properties",
			setTo("delivery_tag", appendString(nil, NewID())),
			within("delivery_info", deleteKey("redelivered"))),
	})
}

// Renew makes the message of a raw envelope as it was before it was ever
// delivered: not redelivered, without a count of deliveries, under a new
// delivery tag. headers are set on top, a nil or null value deletes one; all
// else, id and guard included, keeps its text and order. The error is an
// [*Error] if raw is no envelope.
func Renew(raw []byte, headers map[string]json.RawMessage) ([]byte, error) {
	if _, err := checked(raw); err != nil {
		return nil, err
	}
	edits, err := headerEdits(headers)
	if err != nil {
		return nil, err
	}
	edits = append(edits, deleteKey("redelivered"), deleteKey(HeaderDeliveries))
	return editObject(raw, []edit{
		within("headers", edits...),
		within("properties",
			setTo("delivery_tag", appendString(nil, NewID())),
			within("delivery_info", deleteKey("redelivered"))),
	})
}

// fillWith sets a member that is missing or null.
func fillWith(key string, val []byte) edit {
	return edit{key, func(old []byte) ([]byte, error) {
		if old == nil || string(old) == "null" {
			return val, nil
		}
		return old, nil
	}}
}
