package wire

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// Decode reads a task message of protocol 2 as a list element of kombu's Redis
// transport holds it. It refuses what a stock worker would stumble over, and
// what it cannot read; the error is then an [*Error]. A message that decodes
// may still ask for something that is not built: see [Message.Unsupported].
//
// Bodies are JSON, plain or base64, plain or compressed with zlib (at most
// [MaxInflated] bytes inflated).
func Decode(raw []byte) (*Message, error) {
	m := new(Message)
	if err := DecodeText(m, string(raw)); err != nil {
		return nil, err
	}
	return m, nil
}

// DecodeText is [Decode] for raw text, of which the message keeps parts. It
// reads into m, which must be zero; on an error it is of no use.
func DecodeText(m *Message, raw string) error {
	var e envelope
	err := e.scan(raw)
	m.ID, m.Task = e.str(e.head[hID]), e.str(e.head[hTask])
	if err == nil {
		err = e.decode(m)
	}
	if err == nil {
		return nil
	}
	if err.ID == "" && err.Task == "" {
		err.ID, err.Task = m.ID, m.Task
	}
	return err
}

func (e *envelope) decode(m *Message) *Error {
	if err := e.shape(); err != nil {
		return err
	}
	e.properties(m)
	if err := e.contentType(); err != nil {
		return err
	}
	if m.Task == "" {
		return e.withoutTask()
	}
	if m.ID == "" {
		return fail(ErrMalformed, "headers.id", "missing, empty or no string")
	}
	if err := e.headers(m); err != nil {
		return err
	}
	body, err := e.body()
	if err != nil {
		return err
	}
	return m.decodeBody(body)
}

func (e *envelope) properties(m *Message) {
	m.CorrelationID = e.str(e.props[pCorrelationID])
	m.ReplyTo = e.str(e.props[pReplyTo])
	m.Priority = e.priority(e.props[pPriority])
	m.DeliveryTag = e.str(e.props[pDeliveryTag])
	m.Exchange = e.str(e.info[dExchange])
	m.RoutingKey = e.str(e.info[dRoutingKey])
	m.Redelivered = e.isTrue(e.head[hRedelivered]) || e.isTrue(e.info[dRedelivered])
}

// contentType lets JSON pass. kombu would hand the raw text of the types that
// it trusts to the task layer, which cannot use it.
func (e *envelope) contentType() *Error {
	switch ct := e.str(e.top[topContentType]); ct {
	case "application/json":
	default:
		return fail(ErrContentDisallowed, "content-type", "Refusing to deserialize content of type "+clip(ct))
	}
	if enc := e.top[topContentEncoding]; !e.none(enc) {
		switch name := strings.ToLower(e.str(enc)); name {
		case "utf-8", "utf8", "us-ascii", "ascii", "binary":
		default:
			return fail(ErrUnsupported, "content-encoding", clip(name))
		}
	}
	return nil
}

// withoutTask tells protocol 1 from what is no task at all.
func (e *envelope) withoutTask() *Error {
	none := fail(ErrMalformed, "headers.task", "no task name in the headers, and the body is no task either")
	body, err := e.body()
	if err != nil {
		return none
	}
	var v1 struct {
		Task, ID *string
	}
	if json.Unmarshal(Finite(body), &v1) != nil || v1.Task == nil || *v1.Task == "" {
		return none
	}
	err = fail(ErrUnsupported, "protocol", "a task of protocol 1")
	err.Task = *v1.Task
	if v1.ID != nil {
		err.ID = *v1.ID
	}
	return err
}

func (e *envelope) headers(m *Message) *Error {
	m.Lang = e.str(e.head[hLang])
	m.Shadow = e.str(e.head[hShadow])
	m.RootID = e.str(e.head[hRootID])
	m.ParentID = e.str(e.head[hParentID])
	m.Group = e.str(e.head[hGroup])
	m.ArgsRepr = e.str(e.head[hArgsRepr])
	m.KwargsRepr = e.str(e.head[hKwargsRepr])
	m.Origin = e.str(e.head[hOrigin])
	m.StampedHeaders = e.nonEmpty(e.head[hStampedHeaders])
	m.Stamps = e.nonEmpty(e.head[hStamps])
	m.Timelimit = e.timelimit(e.head[hTimelimit])
	m.Headers = e.other

	var err *Error
	if m.ETA, m.ETANaive, err = e.time(e.head[hETA], "headers.eta"); err != nil {
		return err
	}
	if m.Expires, m.ExpiresNaive, err = e.time(e.head[hExpires], "headers.expires"); err != nil {
		return err
	}
	if m.Retries, err = e.count(e.head[hRetries], "headers.retries"); err != nil {
		return err
	}
	if m.ReplacedTaskNesting, err = e.count(e.head[hReplacedTaskNesting], "headers.replaced_task_nesting"); err != nil {
		return err
	}
	if p := e.head[hGroupIndex]; !e.none(p) {
		n, err := e.count(p, "headers.group_index")
		if err != nil {
			return err
		}
		m.GroupIndex = &n
	}
	switch p := e.head[hIgnoreResult]; {
	case e.none(p):
	case e.isTrue(p):
		m.IgnoreResult = True
	case e.text[p.from] == 'f':
		m.IgnoreResult = False
	default:
		return fail(ErrMalformed, "headers.ignore_result", "neither true, false nor null")
	}
	return nil
}

func (e *envelope) isTrue(p span) bool { return !p.absent() && e.text[p.from] == 't' }

// nonEmpty gives a raw value, nil where it is absent, null or empty.
func (e *envelope) nonEmpty(p span) json.RawMessage {
	if e.none(p) || isEmpty(e.text[p.from:p.to]) {
		return nil
	}
	return e.value(p)
}

// isEmpty reports whether a raw value is null, [], {} or "".
func isEmpty[T jsonText](raw T) bool {
	switch raw[0] {
	case 'n':
		return true
	case '"':
		return len(raw) == len(`""`)
	case '[', '{':
		s := scanner[T]{b: raw, i: 1}
		c := s.peek()
		return c == ']' || c == '}'
	}
	return false
}

// timelimit gives the pair, nil where both of its halves are null.
func (e *envelope) timelimit(p span) json.RawMessage {
	if text := e.text[p.from:p.to]; text == "[null, null]" || text == "[null,null]" {
		return nil
	}
	raw := e.nonEmpty(p)
	if raw == nil {
		return nil
	}
	var pair []json.RawMessage
	if json.Unmarshal(Finite(raw), &pair) == nil {
		for _, half := range pair {
			if string(half) != "null" {
				return raw
			}
		}
		return nil
	}
	return raw
}

// time reads an instant; null, "" and absence mean none.
func (e *envelope) time(p span, field string) (time.Time, bool, *Error) {
	if e.none(p) {
		return time.Time{}, false, nil
	}
	if !e.isString(p) {
		return time.Time{}, false, fail(ErrMalformed, field, "no string")
	}
	text := e.str(p)
	if text == "" {
		return time.Time{}, false, nil
	}
	t, naive, err := parseTime(text)
	if err != nil {
		return time.Time{}, false, fail(ErrMalformed, field, "no ISO 8601 time: "+clip(text))
	}
	return t, naive, nil
}

// count reads an integer of at least 0; null and absence mean 0.
func (e *envelope) count(p span, field string) (int, *Error) {
	if e.none(p) {
		return 0, nil
	}
	n, err := strconv.Atoi(e.text[p.from:p.to])
	if err != nil || n < 0 {
		return 0, fail(ErrMalformed, field, "no whole number of at least 0: "+clip(e.text[p.from:p.to]))
	}
	return n, nil
}

// priority reads a number as kombu does: what is none counts as 0, what is
// outside 0..9 as the nearest.
func (e *envelope) priority(p span) int {
	if e.none(p) {
		return 0
	}
	text := e.text[p.from:p.to]
	if e.isString(p) {
		text = strings.TrimSpace(e.str(p))
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0
		}
		return clampPriority(n)
	}
	if e.isTrue(p) {
		return 1
	}
	f, err := strconv.ParseFloat(text, 64)
	if math.IsNaN(f) || err != nil && f == 0 {
		return 0
	}
	return clampPriority(int(min(max(f, 0), 9)))
}

func clampPriority(n int) int { return min(max(n, 0), 9) }

// clip keeps foreign text short in messages.
func clip(s string) string {
	const limit = 80
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return strconv.Quote(s)
}
