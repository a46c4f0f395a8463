package wire

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// body gives the serialized body: out of base64, then inflated.
func (e *envelope) body() ([]byte, *Error) {
	p := e.top[topBody]
	if !e.isString(p) {
		return nil, fail(ErrMalformed, "body", "missing or no string")
	}
	text := e.str(p)
	var data []byte
	switch enc := e.props[pBodyEncoding]; {
	case e.none(enc), e.str(enc) == "":
		data = []byte(text)
	case e.str(enc) == "base64":
		var err error
		if data, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fail(ErrMalformed, "body", "no base64: "+err.Error())
		}
	default:
		return nil, fail(ErrUnsupported, "properties.body_encoding", clip(e.str(enc)))
	}
	c := e.head[hCompression]
	if e.none(c) || e.str(c) == "" && e.isString(c) {
		return data, nil
	}
	data, err := decompress(data, e.str(c))
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, ErrUnsupported):
		return nil, fail(ErrUnsupported, "headers.compression", clip(e.text[c.from:c.to]))
	case errors.Is(err, ErrTooLarge):
		return nil, fail(ErrTooLarge, "body", "more than 64 MiB when inflated")
	}
	return nil, fail(ErrMalformed, "body", err.Error())
}

// decompress inflates data by the name of a kombu compression. What kombu
// calls gzip has the framing of zlib.
func decompress(data []byte, name string) ([]byte, error) {
	switch name {
	case "application/x-gzip", "gzip", "zlib":
	default:
		return nil, ErrUnsupported
	}
	return inflate(data, MaxInflated)
}

// inflate never produces more than one byte beyond limit.
func inflate(data []byte, limit int) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(out) > limit {
		return nil, ErrTooLarge
	}
	return out, nil
}

// decodeBody reads [args, kwargs, embed].
func (m *Message) decodeBody(body []byte) *Error {
	if !utf8.Valid(body) {
		return fail(ErrMalformed, "body", "not UTF-8")
	}
	s := scanner[[]byte]{b: body}
	switch s.peek() {
	case '[':
	case '{':
		if s.value() && s.end() {
			return fail(ErrUnsupported, "protocol", "the body is an object, as in protocol 1")
		}
		return fail(ErrMalformed, "body", s.errorAt())
	default:
		if s.value() && s.end() {
			return fail(ErrMalformed, "body", "no list")
		}
		return fail(ErrMalformed, "body", s.errorAt())
	}
	return m.scanBody(&s)
}

func (m *Message) scanBody(s *scanner[[]byte]) *Error {
	s.enter()
	n := 0
	for ; ; n++ {
		st := s.item(n == 0)
		if st == stepDone {
			break
		}
		if st == stepBad {
			return fail(ErrMalformed, "body", s.errorAt())
		}
		var err *Error
		switch n {
		case 0:
			err = m.scanArgs(s)
		case 1:
			err = m.scanKwargs(s)
			m.noteArgs(s)
		case 2:
			err = m.scanEmbed(s)
		default:
			if !s.value() {
				err = fail(ErrMalformed, "body", s.errorAt())
			}
		}
		if err != nil {
			return err
		}
	}
	if !s.end() {
		return fail(ErrMalformed, "body", s.errorAt())
	}
	if n != 3 {
		return fail(ErrMalformed, "body", "not [args, kwargs, embed]: it does not have three elements")
	}
	return nil
}

func (m *Message) noteArgs(s *scanner[[]byte]) {
	if s.typed {
		m.inArgs |= typedInArgs
	}
	if s.nonFinite {
		m.inArgs |= nonFiniteInArgs
	}
}

func (m *Message) scanArgs(s *scanner[[]byte]) *Error {
	switch s.peek() {
	case '[':
	case 'n': // null, as some clients send no arguments
		if s.value() {
			return nil
		}
		return fail(ErrMalformed, "body", s.errorAt())
	default:
		return fail(ErrMalformed, "args", "no list")
	}
	if !s.enter() {
		return fail(ErrMalformed, "body", s.errorAt())
	}
	for first := true; ; first = false {
		switch s.item(first) {
		case stepBad:
			return fail(ErrMalformed, "body", s.errorAt())
		case stepDone:
			return nil
		}
		val, ok := s.take()
		if !ok {
			return fail(ErrMalformed, "body", s.errorAt())
		}
		if m.Args == nil {
			m.Args = make([]json.RawMessage, 0, 4)
		}
		m.Args = append(m.Args, val.in(s.b))
	}
}

func (m *Message) scanKwargs(s *scanner[[]byte]) *Error {
	switch s.peek() {
	case '{':
	case 'n':
		if s.value() {
			return nil
		}
		return fail(ErrMalformed, "body", s.errorAt())
	default:
		return fail(ErrMalformed, "kwargs", "no object")
	}
	if !s.enter() {
		return fail(ErrMalformed, "body", s.errorAt())
	}
	for first := true; ; first = false {
		key, st := s.member(first)
		if st == stepDone {
			m.noteTypedKwargs()
			return nil
		}
		if st == stepBad {
			return fail(ErrMalformed, "body", s.errorAt())
		}
		val, ok := s.take()
		if !ok {
			return fail(ErrMalformed, "body", s.errorAt())
		}
		if m.Kwargs == nil {
			m.Kwargs = make(map[string]json.RawMessage)
		}
		m.Kwargs[string(unquoted(s.b, key))] = val.in(s.b)
	}
}

// noteTypedKwargs: the kwargs as a whole may be a typed value too, since kombu
// looks at every object of the body.
func (m *Message) noteTypedKwargs() {
	if len(m.Kwargs) != 2 {
		return
	}
	_, t := m.Kwargs["__type__"]
	_, v := m.Kwargs["__value__"]
	if t && v {
		m.inArgs |= typedInArgs
	}
}

func (m *Message) scanEmbed(s *scanner[[]byte]) *Error {
	switch s.peek() {
	case '{':
	case 'n':
		if s.value() {
			return nil
		}
		return fail(ErrMalformed, "body", s.errorAt())
	default:
		return fail(ErrMalformed, "embed", "no object")
	}
	if !s.enter() {
		return fail(ErrMalformed, "body", s.errorAt())
	}
	for first := true; ; first = false {
		key, st := s.member(first)
		if st == stepDone {
			return nil
		}
		if st == stepBad {
			return fail(ErrMalformed, "body", s.errorAt())
		}
		val, ok := s.take()
		if !ok {
			return fail(ErrMalformed, "body", s.errorAt())
		}
		raw := val.in(s.b)
		if isEmpty(raw) {
			raw = nil
		}
		switch string(unquoted(s.b, key)) {
		case "callbacks":
			m.Embed.Callbacks = raw
		case "errbacks":
			m.Embed.Errbacks = raw
		case "chain":
			m.Embed.Chain = raw
		case "chord":
			m.Embed.Chord = raw
		}
	}
}
