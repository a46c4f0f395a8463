package wire

import (
	"bytes"
	"unicode/utf8"
)

// UnackedSuffix is what follows the raw envelope in an entry of the unacked
// hash. exchange "" sends a restored message straight to the queue routingKey.
func UnackedSuffix(exchange, routingKey string) string {
	b := append(make([]byte, 0, len(exchange)+len(routingKey)+10), ", "...)
	b = appendString(b, exchange)
	b = append(b, ", "...)
	b = appendString(b, routingKey)
	return string(append(b, ']'))
}

// ParseUnacked takes an entry of the unacked hash apart. raw keeps the bytes
// of the envelope and is not looked into. On an error, which means that no
// worker can restore the entry, the parts are what could be recovered, raw at
// worst the whole value, so that it can be kept as a dead letter.
func ParseUnacked(value []byte) (raw []byte, exchange, routingKey string, err error) {
	s := scanner[[]byte]{b: value}
	if !utf8.Valid(value) || s.peek() != '[' || !s.enter() {
		return recoverUnacked(value, fail(ErrMalformed, "", "no list"))
	}
	var parts [3]span
	n := 0
	for ; ; n++ {
		st := s.item(n == 0)
		if st == stepDone {
			break
		}
		if st == stepBad {
			return recoverUnacked(value, fail(ErrMalformed, "", s.errorAt()))
		}
		p, ok := s.take()
		if !ok {
			return recoverUnacked(value, fail(ErrMalformed, "", s.errorAt()))
		}
		if n < len(parts) {
			parts[n] = p
		}
	}
	if n != len(parts) || !s.end() {
		return recoverUnacked(value, fail(ErrMalformed, "", "not [envelope, exchange, routing key]"))
	}
	exchange, ok1 := stringOrNull(value, parts[1])
	routingKey, ok2 := stringOrNull(value, parts[2])
	if !ok1 || !ok2 {
		return recoverUnacked(value, fail(ErrMalformed, "", "exchange or routing key is no string"))
	}
	return parts[0].in(value), exchange, routingKey, nil
}

func stringOrNull(b []byte, p span) (string, bool) {
	switch b[p.from] {
	case '"':
		return string(unquoted(b, p)), true
	case 'n':
		return "", true
	}
	return "", false
}

// recoverUnacked splits a value that was put together from text that is no
// JSON, by its end.
func recoverUnacked(value []byte, err *Error) ([]byte, string, string, error) {
	if len(value) == 0 || value[0] != '[' {
		return value, "", "", err
	}
	sep := []byte(`, "`)
	end := len(value)
	for range 2 { // the routing key, then the exchange
		if end = bytes.LastIndex(value[:end], sep); end < 1 {
			return value, "", "", err
		}
	}
	if !utf8.Valid(value[end:]) {
		return value, "", "", err
	}
	s := scanner[[]byte]{b: value, i: end + 2}
	ex, ok := s.str()
	if !ok || s.peek() != ',' {
		return value, "", "", err
	}
	s.i++
	if s.peek() != '"' {
		return value, "", "", err
	}
	rk, ok := s.str()
	if !ok || s.peek() != ']' {
		return value, "", "", err
	}
	s.i++
	if !s.end() {
		return value, "", "", err
	}
	return value[1:end], string(unquoted(value, ex)), string(unquoted(value, rk)), err
}
