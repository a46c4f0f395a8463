package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/solobeat/solobeat/internal/render"
)

const urlCure = "write https://host and a path; templates such as {{ .Params.day }} may stand in path and query"

// target is where requests go.
type target struct {
	// base is scheme and host, user and password included.
	base        string
	path, query *text
	hasQuery    bool
	// shown is scheme and host, all that messages tell of it.
	shown string
	user  *url.Userinfo
}

// compileURL parses the URL in three parts. Only path and query may have
// templates: with another host a task's sender would get the secrets.
func (p *plan) compileURL(v Value) (*target, *FieldError) {
	bad := func(format string, args ...any) *FieldError { return badField("url", urlCure, format, args...) }
	raw := v.Text
	scheme, rest, ok := strings.Cut(raw, "://")
	if scheme = strings.ToLower(scheme); !ok || scheme != "http" && scheme != "https" {
		return nil, bad("the URL does not begin with http:// or https://")
	}
	if v.Secret {
		p.secret(raw)
	}
	host, path, query, hasQuery, fragment := splitURL(rest, !v.Secret)
	switch {
	case strings.Contains(host, "{{") && !v.Secret:
		return nil, bad("the host cannot be a template: whoever sends a task would choose where it goes")
	case fragment:
		return nil, bad("a # is for browsers and is never sent")
	}
	t := &target{base: scheme + "://" + host, hasQuery: hasQuery}
	u, err := url.Parse(t.base)
	if err != nil || u.Hostname() == "" {
		return nil, bad("the URL names no host")
	}
	if strings.HasSuffix(u.Host, ":") { // of $HOST:$PORT, with one that is not set
		return nil, bad("the URL has a colon behind the host and no port")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, bad("the port of the URL is none")
		}
	}
	t.shown = scheme + "://" + u.Host
	if t.user = u.User; t.user != nil {
		p.secret(t.user.Username())
		password, _ := t.user.Password()
		p.secret(password)
		p.secret(basic(t.user.Username(), password)) // as a receiver sees them
	}
	if v.Secret {
		t.path, t.query = &text{literal: path}, &text{literal: query}
		if err := checkLiteral(raw); err != nil {
			return nil, bad("%v", err)
		}
		p.secretParts(path, query)
		return t, nil
	}
	var ferr *FieldError
	if t.path, ferr = p.parse("url", path, render.Path); ferr != nil {
		return nil, ferr
	}
	if t.query, ferr = p.parse("url", query, render.Query); ferr != nil {
		return nil, ferr
	}
	if err := errors.Join(checkLiteral(withoutActions(raw)), checkSegments(withoutActions(path))); err != nil {
		return nil, bad("%v", err)
	}
	return t, nil
}

// secretPart is how long a segment of a secret path is at least to be a secret
// by itself: the others are words such as "services".
const secretPart = 12

// secretParts notes path and query of a secret URL, whole and in the parts that
// a receiver may repeat by themselves, as they are and decoded.
func (p *plan) secretParts(path, query string) {
	p.secret(strings.TrimPrefix(path, "/"))
	p.secret(query)
	for segment := range strings.SplitSeq(path, "/") {
		if len(segment) < secretPart {
			continue
		}
		p.secret(segment)
		if plain, err := url.PathUnescape(segment); err == nil {
			p.secret(plain)
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		_, value, _ := strings.Cut(pair, "=")
		p.secret(value)
		if plain, err := url.QueryUnescape(value); err == nil {
			p.secret(plain)
		}
	}
}

// basic are the credentials of a URL in an Authorization header.
func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// splitURL cuts what stands behind the scheme. Inside of actions nothing is cut.
func splitURL(s string, templates bool) (host, path, query string, hasQuery, fragment bool) {
	pathAt, queryAt := -1, -1
	for i := 0; i < len(s); i++ {
		if templates && strings.HasPrefix(s[i:], "{{") {
			end := strings.Index(s[i:], "}}")
			if end < 0 {
				break
			}
			i += end + 1
			continue
		}
		switch c := s[i]; {
		case c == '#':
			fragment = true
		case c == '/' && pathAt < 0 && queryAt < 0:
			pathAt = i
		case c == '?' && queryAt < 0:
			queryAt = i
		}
	}
	if queryAt >= 0 {
		s, query, hasQuery = s[:queryAt], s[queryAt+1:], true
	}
	if pathAt >= 0 {
		s, path = s[:pathAt], s[pathAt:]
	}
	return s, path, query, hasQuery, fragment
}

// withoutActions is a template's text with a letter in place of each action.
func withoutActions(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "{{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('x')
		_, s, _ = strings.Cut(rest, "}}")
	}
}

// checkLiteral refuses what cannot stand in the first line of a request.
func checkLiteral(raw string) error {
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("a blank or a control character in the URL; write %20 for a blank")
	}
	if _, err := url.Parse(raw); err != nil {
		return errors.New("the URL cannot be parsed: percent-escape what is no letter, digit or one of -._~")
	}
	return nil
}

// render is the URL of one task's request.
func (t *target) render(data render.Data) (*url.URL, error) {
	path, err := t.path.render(data)
	if err != nil {
		return nil, err
	}
	query, err := t.query.render(data)
	if err != nil {
		return nil, err
	}
	if err := checkSegments(path); err != nil {
		return nil, err
	}
	u, err := url.Parse(t.base + path)
	if err != nil {
		return nil, errors.New("the rendered URL cannot be parsed")
	}
	u.User = nil // sent as a header
	u.RawQuery, u.ForceQuery = query, t.hasQuery && query == ""
	return u, nil
}

// checkSegments refuses dots that a receiver would take for "this folder" or
// "the one above": a value must not lead to another path.
func checkSegments(path string) error {
	for segment := range strings.SplitSeq(path, "/") {
		if plain, err := url.PathUnescape(segment); err == nil && (plain == "." || plain == "..") {
			return fmt.Errorf("%q is no segment of a path: it would lead to another one", plain)
		}
	}
	return nil
}
