package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// writer appends JSON in Python's style and remembers the first error.
type writer struct {
	b   []byte
	err error
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writer) lit(s string) { w.b = append(w.b, s...) }

func (w *writer) str(s string) { w.b = appendString(w.b, s) }

func (w *writer) int(n int) { w.b = strconv.AppendInt(w.b, int64(n), 10) }

func (w *writer) float(f float64) { w.b = appendFloat(w.b, f) }

func (w *writer) strOrNull(s string) {
	if s == "" {
		w.lit("null")
		return
	}
	w.str(s)
}

// time writes an instant, null for the zero one.
func (w *writer) time(t time.Time) {
	if t.IsZero() {
		w.lit("null")
		return
	}
	w.b = append(w.b, '"')
	w.b = appendTime(w.b, t)
	w.b = append(w.b, '"')
}

// raw writes a JSON value; what names it in an error.
func (w *writer) raw(v json.RawMessage, what string) {
	b, err := appendRaw(w.b, v)
	if err != nil {
		w.fail(fmt.Errorf("%s: %w", what, err))
		return
	}
	w.b = b
}

// rawOrNull writes a JSON value, null for nil.
func (w *writer) rawOrNull(v json.RawMessage, what string) {
	if v == nil {
		w.lit("null")
		return
	}
	w.raw(v, what)
}
