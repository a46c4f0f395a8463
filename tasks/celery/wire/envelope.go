package wire

import (
	"encoding/json"
	"unicode/utf8"
)

// Indices of the known fields in the span tables of an envelope.
const (
	topBody = iota
	topContentEncoding
	topContentType
	topHeaders
	topProperties
	topCount
)

const (
	hLang = iota
	hTask
	hID
	hShadow
	hETA
	hExpires
	hGroup
	hGroupIndex
	hRetries
	hTimelimit
	hRootID
	hParentID
	hArgsRepr
	hKwargsRepr
	hOrigin
	hIgnoreResult
	hReplacedTaskNesting
	hStampedHeaders
	hStamps
	hCompression
	hRedelivered
	hCount
)

const (
	pCorrelationID = iota
	pReplyTo
	pPriority
	pBodyEncoding
	pDeliveryTag
	pDeliveryInfo
	pCount
)

const (
	dExchange = iota
	dRoutingKey
	dRedelivered
	dCount
)

func topField(key string) int {
	switch key {
	case "body":
		return topBody
	case "content-encoding":
		return topContentEncoding
	case "content-type":
		return topContentType
	case "headers":
		return topHeaders
	case "properties":
		return topProperties
	}
	return -1
}

func headerField(key string) int {
	switch key {
	case "lang":
		return hLang
	case "task":
		return hTask
	case "id":
		return hID
	case "shadow":
		return hShadow
	case "eta":
		return hETA
	case "expires":
		return hExpires
	case "group":
		return hGroup
	case "group_index":
		return hGroupIndex
	case "retries":
		return hRetries
	case "timelimit":
		return hTimelimit
	case "root_id":
		return hRootID
	case "parent_id":
		return hParentID
	case "argsrepr":
		return hArgsRepr
	case "kwargsrepr":
		return hKwargsRepr
	case "origin":
		return hOrigin
	case "ignore_result":
		return hIgnoreResult
	case "replaced_task_nesting":
		return hReplacedTaskNesting
	case "stamped_headers":
		return hStampedHeaders
	case "stamps":
		return hStamps
	case "compression":
		return hCompression
	case "redelivered":
		return hRedelivered
	}
	return -1
}

func propertyField(key string) int {
	switch key {
	case "correlation_id":
		return pCorrelationID
	case "reply_to":
		return pReplyTo
	case "priority":
		return pPriority
	case "body_encoding":
		return pBodyEncoding
	case "delivery_tag":
		return pDeliveryTag
	case "delivery_info":
		return pDeliveryInfo
	}
	return -1
}

func deliveryField(key string) int {
	switch key {
	case "exchange":
		return dExchange
	case "routing_key":
		return dRoutingKey
	case "redelivered":
		return dRedelivered
	}
	return -1
}

// envelope is where everything lies in the raw bytes. As in every JSON reader,
// of a key that occurs twice the last one counts.
type envelope struct {
	text  string // strings of the message are cut from it
	plain bool   // no string in it has an escape
	top   [topCount]span
	head  [hCount]span
	props [pCount]span
	info  [dCount]span
	other map[string]json.RawMessage // unknown headers

	headIsObject, propsIsObject, infoIsObject bool
}

// scan reads a raw envelope once. On an error the envelope holds what was found
// up to there.
func (e *envelope) scan(raw string) *Error {
	s := scanner[string]{b: raw}
	if e.plain = isPlain(raw); e.plain {
		s.plain = raw
	} else if !utf8.ValidString(raw) {
		return fail(ErrNotEnvelope, "", "the bytes are not UTF-8")
	}
	e.text = raw
	if s.peek() != '{' {
		return fail(ErrNotEnvelope, "", "no JSON object")
	}
	if !e.scanTop(&s) || !s.end() {
		return fail(ErrNotEnvelope, "", s.errorAt())
	}
	return nil
}

func (e *envelope) scanTop(s *scanner[string]) bool {
	if !s.enter() {
		return false
	}
	for first := true; ; first = false {
		key, st := s.member(first)
		if st != stepMore {
			return st == stepDone
		}
		field := topField(e.unquoted(key))
		from := s.i
		var ok bool
		switch field {
		case topHeaders:
			ok = e.scanHeaders(s)
		case topProperties:
			ok = e.scanProperties(s)
		default:
			ok = s.value()
		}
		if field >= 0 && ok {
			e.top[field] = span{from, s.i}
		}
		if !ok {
			return false
		}
	}
}

func (e *envelope) scanHeaders(s *scanner[string]) bool {
	e.head, e.other = [hCount]span{}, nil
	if e.headIsObject = s.peek() == '{'; !e.headIsObject {
		return s.value()
	}
	if !s.enter() {
		return false
	}
	for first := true; ; first = false {
		key, st := s.member(first)
		if st != stepMore {
			return st == stepDone
		}
		val, ok := s.take()
		if !ok {
			return false
		}
		if field := headerField(e.unquoted(key)); field >= 0 {
			e.head[field] = val
			continue
		}
		if e.other == nil {
			e.other = make(map[string]json.RawMessage, 4)
		}
		e.other[e.str(key)] = e.value(val)
	}
}

func (e *envelope) scanProperties(s *scanner[string]) bool {
	e.props, e.info, e.infoIsObject = [pCount]span{}, [dCount]span{}, false
	if e.propsIsObject = s.peek() == '{'; !e.propsIsObject {
		return s.value()
	}
	if !s.enter() {
		return false
	}
	for first := true; ; first = false {
		key, st := s.member(first)
		if st != stepMore {
			return st == stepDone
		}
		field := propertyField(e.unquoted(key))
		from := s.i
		var ok bool
		if field == pDeliveryInfo {
			ok = e.scanDelivery(s)
		} else {
			ok = s.value()
		}
		if !ok {
			return false
		}
		if field >= 0 {
			e.props[field] = span{from, s.i}
		}
	}
}

func (e *envelope) scanDelivery(s *scanner[string]) bool {
	e.info = [dCount]span{}
	if e.infoIsObject = s.peek() == '{'; !e.infoIsObject {
		return s.value()
	}
	if !s.enter() {
		return false
	}
	for first := true; ; first = false {
		key, st := s.member(first)
		if st != stepMore {
			return st == stepDone
		}
		val, ok := s.take()
		if !ok {
			return false
		}
		if field := deliveryField(e.unquoted(key)); field >= 0 {
			e.info[field] = val
		}
	}
}

// shape checks what every Celery worker reads without asking: a worker that
// meets an envelope without it stops, or reconnects for ever.
func (e *envelope) shape() *Error {
	switch {
	case !e.headIsObject:
		return fail(ErrNotEnvelope, "headers", "missing or no object")
	case !e.propsIsObject:
		return fail(ErrNotEnvelope, "properties", "missing or no object")
	case !e.isString(e.props[pDeliveryTag]):
		return fail(ErrNotEnvelope, "properties.delivery_tag", "missing or no string")
	case !e.infoIsObject:
		return fail(ErrNotEnvelope, "properties.delivery_info", "missing or no object")
	case !e.isString(e.info[dExchange]) && !e.isNull(e.info[dExchange]):
		return fail(ErrNotEnvelope, "properties.delivery_info.exchange", "missing or no string")
	case !e.isString(e.info[dRoutingKey]) && !e.isNull(e.info[dRoutingKey]):
		return fail(ErrNotEnvelope, "properties.delivery_info.routing_key", "missing or no string")
	case !e.isString(e.top[topContentType]):
		return fail(ErrNotEnvelope, "content-type", "missing or no string")
	}
	return nil
}

// absent reports whether the field is missing.
func (p span) absent() bool { return p.from == p.to }

func (e *envelope) isString(p span) bool { return !p.absent() && e.text[p.from] == '"' }

func (e *envelope) isNull(p span) bool { return !p.absent() && e.text[p.from] == 'n' }

// none reports whether the field is missing or null.
func (e *envelope) none(p span) bool { return p.absent() || e.text[p.from] == 'n' }

// str gives the text of a string, "" for everything else.
func (e *envelope) str(p span) string {
	if !e.isString(p) {
		return ""
	}
	return e.unquoted(p)
}

// unquoted gives the text of what is a string.
func (e *envelope) unquoted(p span) string {
	if e.plain {
		return e.text[p.from+1 : p.to-1]
	}
	return unquoted(e.text, p)
}

// value gives the text of a value of any kind, as it is.
func (e *envelope) value(p span) json.RawMessage { return json.RawMessage(e.text[p.from:p.to]) }
