package webhook

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

const (
	// maxExcerpt is how much of an answer an error tells, in bytes.
	maxExcerpt = 512
	// maxRefusal is how much of an answer is read for it.
	maxRefusal = 64 << 10
	// refusalTimeout bounds how long it is waited for.
	refusalTimeout = 5 * time.Second
	// maxRetryAfter bounds what a receiver may ask for.
	maxRetryAfter = time.Hour
)

// Error is a request that failed. It comes as the cause of a tasks.Exception
// of type WebhookError.
type Error struct {
	// Target is method, scheme and host; path and query may hold secrets.
	Target string
	// Status is that of the answer, 0 if there was none.
	Status int
	// Answer are the first bytes of the answer, without control characters and
	// secrets.
	Answer string
	// NotSent: surely nothing of the request left this process.
	NotSent bool
	// RetryAfter is the wait that the receiver asked for, at most 1 h; 0: none.
	RetryAfter time.Duration
	// Err is what went wrong if there was no whole answer.
	Err error
}

// Error tells where the request went, the status and the first bytes of the
// answer, or why there is none.
func (e *Error) Error() string {
	text := e.Target
	if e.Status != 0 {
		text += ": " + strings.TrimSpace(strconv.Itoa(e.Status)+" "+http.StatusText(e.Status))
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	switch {
	case e.Answer != "":
		text += ": " + e.Answer
	case e.Status/100 == 3:
		text += ": redirects are not followed; write the new place into url"
	case e.NotSent:
		text += " (nothing was sent)"
	}
	return text
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Is makes a request that was not sent match tasks.ErrNotExecuted, and one for
// which the machine lacked something tasks.ErrShortage too.
func (e *Error) Is(target error) bool {
	switch target {
	case tasks.ErrNotExecuted:
		return e.NotSent
	case tasks.ErrShortage:
		return e.NotSent && shortage(e.Err)
	}
	return false
}

// shortage tells what the machine lacks for now: file descriptors, memory, local
// ports.
func shortage(err error) bool {
	for _, lack := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// exception is the error of a run that may be tried again.
func (p *plan) exception(e *Error) error {
	exc := &tasks.Exception{Type: "WebhookError", Args: []any{clean(p.mask(e.Error()), 4*maxExcerpt)}, Cause: e}
	if e.RetryAfter > 0 {
		return tasks.Retry(exc, e.RetryAfter, tasks.OwnRetries)
	}
	return exc
}

// refused is the error of an answer other than 2xx.
func (p *plan) refused(e *Error, resp *http.Response) error {
	e.Status = resp.StatusCode
	// The status says it all; nobody waits for its words.
	limit := time.AfterFunc(refusalTimeout, func() { _ = resp.Body.Close() })
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	limit.Stop()
	// Masked before it is cut: half a secret is one too.
	e.Answer = clean(p.mask(string(answer)), maxExcerpt)
	if !retryable(resp.StatusCode) {
		return tasks.Permanent(p.exception(e))
	}
	e.RetryAfter = retryAfter(resp.Header, time.Now())
	return p.exception(e)
}

// retryable tells the statuses that another time may change: the receiver is
// overloaded or down, or still works on a request of the same key (409 and 425,
// as draft-ietf-httpapi-idempotency-key-header has it).
func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// retryAfter reads seconds or a date; a date is compared with the receiver's own
// clock where the answer tells it.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// clean is a text by others for a log line: one line, no control characters,
// bounded.
func clean(s string, most int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff':
			return -1
		case r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069': // they turn the direction of what follows
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xC0 == 0x80 { // not inside of a character
		most--
	}
	return s[:most] + "…"
}
