package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/internal/ready"
)

// The headers that each request carries, where the run has them.
const (
	// HeaderKey is the key of the run's record, or the task id: the same for all
	// attempts (draft-ietf-httpapi-idempotency-key-header).
	HeaderKey = "Idempotency-Key"
	// HeaderFence is the run's fence: a receiver refuses one that is smaller than
	// the largest that it has seen.
	HeaderFence = "Solobeat-Fence"
	// HeaderTask is the task's name, HeaderTaskID its id.
	HeaderTask   = "Solobeat-Task"
	HeaderTaskID = "Solobeat-Task-Id"
	// HeaderTick is the tick of the job, RFC 3339 in UTC.
	HeaderTick = "Solobeat-Tick"
	// HeaderAttempt counts the task's runs from 1.
	HeaderAttempt = "Solobeat-Attempt"
)

func checkHeader(name string) *FieldError {
	field := "headers." + name
	if !token(name) {
		return badField(field, "write letters, digits and dashes", "%q is no name of a header", name)
	}
	switch canonical := http.CanonicalHeaderKey(name); {
	case strings.HasPrefix(canonical, "Solobeat-"):
		return badField(field, "choose another name", "%s is set by Solobeat for each run", canonical)
	case canonical == "Host":
		return badField(field, "write the name into the url", "Host is taken from the url")
	case ofConnection(canonical):
		return badField(field, "remove it", "%s belongs to the connection", canonical)
	}
	return nil
}

func ofConnection(canonical string) bool {
	switch canonical {
	case "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect",
		"Proxy-Authorization", "Proxy-Connection", "Accept-Encoding":
		return true
	}
	return false
}

// token tells a name of RFC 9110, section 5.6.2.
func token(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// headerName is the name under which a header is kept. Go's transport repeats a
// request by itself on a broken connection if it finds an Idempotency-Key or
// X-Idempotency-Key in its usual spelling, and so would call twice in one
// attempt, unseen; names do not depend on case.
func headerName(name string) string {
	canonical := http.CanonicalHeaderKey(name)
	if strings.HasSuffix(canonical, "Idempotency-Key") {
		return strings.ToLower(canonical)
	}
	return canonical
}

func (p *plan) compileHeader(name string, v Value) (*text, *FieldError) {
	field := "headers." + name
	if v.Secret {
		p.secret(v.Text)
		_, credentials, _ := strings.Cut(v.Text, " ") // behind Bearer or Basic
		p.secret(credentials)
		if err := checkHeaderValue(v.Text); err != nil {
			return nil, badField(field, "leave the value alone in the file or variable", "%v", err)
		}
		return &text{literal: v.Text}, nil
	}
	t, err := p.parse(field, v.Text, render.Text)
	if err == nil && checkHeaderValue(withoutActions(v.Text)) != nil {
		return nil, badField(field, "remove it", "%v", errControl)
	}
	return t, err
}

var errControl = errors.New("a header cannot hold a control character, such as the end of a line")

func checkHeaderValue(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return errControl
	}
	return nil
}

// setHeaders fills a request's headers.
func (p *plan) setHeaders(ctx context.Context, h http.Header, t *tasks.Task, data render.Data, media string) error {
	set := func(name, value string) {
		if value != "" {
			h[headerName(name)] = []string{value}
		}
	}
	set("User-Agent", "solobeat")
	set("Content-Type", media)
	set(HeaderKey, visible(key(ctx, t)))
	for _, name := range []string{"Traceparent", "Tracestate"} {
		set(name, trace(t, strings.ToLower(name)))
	}
	for _, own := range p.headers {
		value, err := own.value.render(data)
		if err == nil {
			err = checkHeaderValue(value)
		}
		if err != nil {
			return fmt.Errorf("header %s: %w", http.CanonicalHeaderKey(own.name), err)
		}
		h[own.name] = []string{value}
	}
	if user := p.url.user; user != nil && h.Get("Authorization") == "" {
		password, _ := user.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(user.Username(), password)
	}
	set(HeaderTask, visible(t.Name))
	set(HeaderTaskID, visible(t.ID))
	if t.Attempt > 0 {
		set(HeaderAttempt, strconv.Itoa(t.Attempt))
	}
	set(HeaderTick, ready.Tick(t))
	if fence, ok := tasks.Fence(ctx); ok {
		set(HeaderFence, strconv.FormatUint(fence, 10))
	}
	return nil
}

func key(ctx context.Context, t *tasks.Task) string {
	if k, ok := tasks.Key(ctx); ok {
		return k
	}
	return t.ID
}

// visible percent-escapes what cannot stand in a header on all ways: blanks and
// what is no ASCII.
func visible(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// trace is a trace header of the message, "" if it is none.
func trace(t *tasks.Task, name string) string {
	var s string
	if json.Unmarshal(t.Headers[name], &s) != nil || len(s) > 1024 || checkHeaderValue(s) != nil {
		return ""
	}
	return s
}
