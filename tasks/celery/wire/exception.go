package wire

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/solobeat/solobeat/tasks"
)

// Exception is a failure as Celery stores it. A client raises the exception
// Type of Module if that module is loaded and has such an exception class;
// otherwise it makes a class of that name.
type Exception struct {
	Type   string            // class name, a Python identifier
	Module string            // "" stands for null: always a class made for the purpose
	Args   []json.RawMessage // what the exception is raised with
}

// Modules of exceptions that every Celery client has loaded.
const (
	moduleCelery   = "celery.exceptions"
	moduleBilliard = "billiard.exceptions"
	moduleKombu    = "kombu.exceptions"
	moduleBuiltins = "builtins"
)

// NewException makes an exception of our own. It names no module, so that the
// name can never meet something in a Python module that is no exception, which
// a client takes for an attack. Characters that no Python name may have are
// replaced by "_". An arg that is no JSON is replaced by its text.
func NewException(name string, args ...any) Exception {
	return exception("", identifier(name), args...)
}

// NotRegistered says that no handler is registered for the task.
func NotRegistered(task string) Exception {
	return exception(moduleCelery, "NotRegistered", task)
}

// ContentDisallowed says that the body was in a serialization that is not
// accepted.
func ContentDisallowed(text string) Exception {
	return exception(moduleKombu, "ContentDisallowed", text)
}

// WorkerLost says that the worker died with the task.
func WorkerLost(text string) Exception {
	return exception(moduleBilliard, "WorkerLostError", text)
}

// TaskRevoked goes with the state REVOKED; reason is "expired", "revoked",
// "terminated" or one of ours.
func TaskRevoked(reason string) Exception {
	return exception(moduleCelery, "TaskRevokedError", reason)
}

// MaxRetriesExceeded says that the last retry failed without an error of its
// own.
func MaxRetriesExceeded(text string) Exception {
	return exception(moduleCelery, "MaxRetriesExceededError", text)
}

func exception(module, name string, args ...any) Exception {
	e := Exception{Type: name, Module: module, Args: make([]json.RawMessage, 0, len(args))}
	for _, a := range args {
		if s, ok := a.(string); ok {
			e.Args = append(e.Args, appendString(nil, s))
			continue
		}
		raw, err := json.Marshal(a)
		if err != nil {
			raw = appendString(nil, err.Error())
		}
		e.Args = append(e.Args, raw)
	}
	return e
}

// ExceptionOf gives the exception by which err appears to a client, its text
// the only arg. The name is that of the first type in err's chain that has one
// (plain errors of the packages errors and fmt have none): PaymentDeclined
// for a *PaymentDeclined wrapped by fmt.Errorf. A deadline of a context is a
// TimeoutError, an error of Decode is named by its kind, and what has no name
// is a RuntimeError.
func ExceptionOf(err error) Exception {
	if err == nil {
		return exception(moduleBuiltins, "RuntimeError")
	}
	var we *Error
	if errors.As(err, &we) {
		return ofKind(we)
	}
	switch name := typeName(err, 0); name {
	case "":
		return exception(moduleBuiltins, "RuntimeError", err.Error())
	case "TimeoutError":
		return exception(moduleBuiltins, name, err.Error())
	default:
		return NewException(name, err.Error())
	}
}

// ExceptionOfRun is [ExceptionOf] for what a run ended with: an exception that
// says how it wants to be seen is that one, and what only steers the engine is
// no class of its own for a client.
func ExceptionOfRun(err error) Exception {
	var exc *tasks.Exception
	if errors.As(err, &exc) && exc.Type != "" {
		x := NewException(exc.Type, exc.Args...)
		x.Module = exc.Module
		return x
	}
	var permanent *tasks.PermanentError
	var retry *tasks.RetryError
	switch {
	case errors.As(err, &permanent) && permanent.Cause != nil:
		return ExceptionOf(permanent.Cause)
	case errors.As(err, &retry) && retry.Cause != nil:
		return ExceptionOf(retry.Cause)
	case errors.As(err, &retry):
		return MaxRetriesExceeded(err.Error())
	}
	return ExceptionOf(err)
}

func ofKind(e *Error) Exception {
	text := strings.TrimPrefix(e.Error(), "wire: ")
	switch {
	case errors.Is(e, ErrContentDisallowed):
		return ContentDisallowed(e.Reason)
	case errors.Is(e, ErrUnsupported):
		return NewException("Unsupported", text)
	case errors.Is(e, ErrTooLarge):
		return NewException("TooLarge", text)
	}
	return NewException("MalformedMessage", text)
}

// typeName walks the chain of err for a type with a name.
func typeName(err error, depth int) string {
	if err == nil || depth > 100 {
		return ""
	}
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeOf(context.DeadlineExceeded) {
		return "TimeoutError"
	}
	if pkg := t.PkgPath(); t.Name() != "" && pkg != "errors" && pkg != "fmt" {
		name, _, _ := strings.Cut(t.Name(), "[") // type arguments are no part of a Python name
		return name
	}
	switch u := any(err).(type) {
	case interface{ Unwrap() error }:
		return typeName(u.Unwrap(), depth+1)
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			if name := typeName(e, depth+1); name != "" {
				return name
			}
		}
	}
	return ""
}

// identifier makes a Python identifier out of name.
func identifier(name string) string {
	id := strings.Map(func(c rune) rune {
		if c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			return c
		}
		return '_'
	}, name)
	if id == "" || '0' <= id[0] && id[0] <= '9' {
		id = "_" + id
	}
	return id
}

// Text is the message of the exception for people: its args, strings without
// quotes, separated by commas.
func (e Exception) Text() string {
	parts := make([]string, len(e.Args))
	for i, a := range e.Args {
		var s string
		if json.Unmarshal(a, &s) == nil {
			parts[i] = s
		} else {
			parts[i] = string(a)
		}
	}
	return strings.Join(parts, ", ")
}

func (w *writer) exception(e *Exception) {
	w.lit(`{"exc_type": `)
	w.str(e.Type)
	w.lit(`, "exc_message": [`)
	for i, a := range e.Args {
		if i > 0 {
			w.lit(", ")
		}
		w.raw(a, "exception argument")
	}
	w.lit(`], "exc_module": `)
	w.strOrNull(e.Module)
	w.lit("}")
}
