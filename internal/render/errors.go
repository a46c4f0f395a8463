package render

import (
	"errors"
	"fmt"
	"strings"
)

// What is wrong with a template or its data; test with errors.Is. The errors'
// texts do not repeat the template's name: whoever has given it knows better
// where the template stands.
var (
	// ErrSyntax: the text is no template, or uses what templates may not use.
	ErrSyntax = errors.New("render: bad template")
	// ErrImpure: the template asks for something that is no function of job,
	// tick and payload, or that is not to be had at its place.
	ErrImpure = errors.New("render: not a function of job, tick and payload")
	// ErrMissing: a value that the template needs is missing. Package
	// idempotency knows it as ErrKeyMissing.
	ErrMissing = errors.New("key part is missing")
	// ErrValue: a value cannot be shown where the template wants it.
	ErrValue = errors.New("render: value does not fit")
)

// MissingError names the part of a template that has no value. It matches
// [ErrMissing]. It is never a reason to leave the part out: with a constant in
// its place, strangers would share one key.
type MissingError struct {
	// Template is the name that was given to Parse.
	Template string
	// Part is the missing part as the template writes it: ".Params.day".
	Part string
	Kind Kind
}

// Error names the part.
func (e *MissingError) Error() string {
	if e.Kind == Key || e.Kind == Path {
		return fmt.Sprintf("render: %s is missing or empty; give it a value, or a name for the empty one with default", e.Part)
	}
	return fmt.Sprintf("render: %s is missing; give it a value, or use default", e.Part)
}

// Is makes the error match its sentinel.
func (e *MissingError) Is(target error) bool { return target == ErrMissing }

// problem is one of the sentinels with the words that say more.
type problem struct {
	is  error
	msg string
}

func (p *problem) Error() string        { return "render: " + p.msg }
func (p *problem) Is(target error) bool { return target == p.is }

func problemf(is error, format string, args ...any) error {
	return &problem{is: is, msg: fmt.Sprintf(format, args...)}
}

// plain takes text/template's own prefix off an error's text.
func plain(err error) string {
	return strings.TrimPrefix(err.Error(), "template: template:")
}
