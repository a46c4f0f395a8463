package webhook

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/tasks/internal/ready"
)

// ErrConfig is what is wrong with a [Config].
var ErrConfig = errors.New("webhook")

// FieldError is one mistake in a [Config]. It matches [ErrConfig].
type FieldError = ready.FieldError

// FieldErrors returns the mistakes in an error of [Config.Validate].
func FieldErrors(err error) []*FieldError { return ready.FieldErrors(err) }

// Value is a text of the configuration: one that may be a template over .Params
// and .Task.Name, or a secret, which is taken as it is and shown nowhere.
type Value struct {
	Text   string
	Secret bool
}

// String hides a secret.
func (v Value) String() string {
	if v.Secret {
		return hidden
	}
	return v.Text
}

// GoString hides a secret.
func (v Value) GoString() string { return fmt.Sprintf("%q", v.String()) }

const hidden = "****"

// Config declares an HTTP request as a task's handler.
type Config struct {
	// URL is where the request goes, http or https. Its path and query may have
	// templates, which insert percent-escaped values.
	URL Value
	// Method is GET, POST (the default), PUT, PATCH or DELETE.
	Method string
	// Headers are added to the request, and win over Idempotency-Key,
	// Content-Type and User-Agent; those of Solobeat and of the connection cannot
	// be set.
	Headers map[string]Value
	// Body is what is sent: a text, which may be a template; lists and maps
	// whose texts may be templates, sent as JSON; nil for the task's args and
	// kwargs as JSON. GET and DELETE have none.
	Body any
	// Params names the positional arguments for the templates; named ones have
	// their names.
	Params []string
	// RootCAs are those whom an https receiver is trusted by; nil means the
	// machine's.
	RootCAs *x509.CertPool
}

// methods are those that a request may have, the default first.
var methods = [...]string{http.MethodPost, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete}

// Methods returns the methods that a request may have, the default first.
func Methods() []string { return slices.Clone(methods[:]) }

// Validate returns all that is wrong with the configuration, joined: a
// [*FieldError] each; nil if nothing is.
func (c *Config) Validate() error {
	_, err := compile(c)
	return err
}

// plan is a Config whose templates have been parsed.
type plan struct {
	method  string
	url     *target
	headers []header
	body    *body
	// secrets are texts that no message may show.
	secrets []string
	// templates: there is at least one, so the task's parameters are needed.
	templates bool
}

type header struct {
	name  string
	value *text
}

// text is a template, or words without one.
type text struct {
	literal  string
	template *render.Template
}

func (t *text) render(data render.Data) (string, error) {
	if t.template == nil {
		return t.literal, nil
	}
	return t.template.Render(data)
}

func badField(field, cure, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Msg: fmt.Sprintf(format, args...), Cure: cure}
}

func compile(c *Config) (*plan, error) {
	p := &plan{method: c.Method}
	var errs ready.Mistakes
	if p.method == "" {
		p.method = methods[0]
	}
	if !slices.Contains(methods[:], p.method) {
		errs.Add(badField("method", "write one of "+strings.Join(methods[:], ", "), "%q is no method of a webhook", p.method))
	}
	var err *FieldError
	p.url, err = p.compileURL(c.URL)
	errs.Add(err)
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if err := checkHeader(name); err != nil {
			errs.Add(err)
			continue
		}
		value, err := p.compileHeader(name, c.Headers[name])
		errs.Add(err)
		p.headers = append(p.headers, header{name: headerName(name), value: value})
	}
	p.body, err = p.compileBody(c)
	errs.Add(err)
	slices.SortStableFunc(p.secrets, func(a, b string) int { return len(b) - len(a) })
	return p, errs.Err(ErrConfig)
}

// parse makes a text of the configuration; literal texts are taken as they are.
func (p *plan) parse(field, value string, kind render.Kind) (*text, *FieldError) {
	if !strings.Contains(value, "{{") {
		return &text{literal: value}, nil
	}
	t, err := render.Parse(field, value, kind)
	if err == nil {
		err = t.CheckPure(".Params", ".Task")
	}
	if err != nil {
		return nil, badTemplate(field, err)
	}
	p.templates = true
	return &text{template: t}, nil
}

func badTemplate(field string, err error) *FieldError {
	return &FieldError{
		Field: field, Err: err, Msg: "bad template: " + strings.ReplaceAll(err.Error(), "render: ", ""),
		Cure: "in webhooks .Params.<name> and .Task.Name are known",
	}
}

// secret notes what no message may show. Short texts are left alone: to hide
// each "1" would make nonsense of a message, and protect nothing.
func (p *plan) secret(s string) {
	if s = strings.TrimSpace(s); len(s) >= 4 {
		p.secrets = append(p.secrets, s)
	}
}

// mask hides the secrets in a text that others have written, the longest first:
// one may be a part of another.
func (p *plan) mask(s string) string {
	for _, secret := range p.secrets {
		s = strings.ReplaceAll(s, secret, hidden)
	}
	return s
}

// body is what a request carries.
type body struct {
	// none: the method has no body.
	none bool
	text *text
	tree *render.Tree
}

func (p *plan) compileBody(c *Config) (*body, *FieldError) {
	none := p.method == http.MethodGet || p.method == http.MethodDelete
	switch b := c.Body.(type) {
	case nil:
		return &body{none: none}, nil
	case string:
		if none {
			return nil, noBody(p.method)
		}
		return p.textBody(b, c.Headers)
	default:
		if none {
			return nil, noBody(p.method)
		}
		tree, err := render.ParseTree("body", b)
		if err == nil {
			err = tree.CheckPure(".Params", ".Task")
		}
		if err != nil {
			return nil, badTemplate("body", err)
		}
		p.templates = p.templates || tree.Uses(".Params")
		return &body{tree: tree}, nil
	}
}

func noBody(method string) *FieldError {
	return badField("body", "remove it, or write method: POST", "a %s has no body", method)
}

// textBody refuses a template where a value could pass for more than a value:
// in JSON a quote in it would add keys of its own.
func (p *plan) textBody(s string, headers map[string]Value) (*body, *FieldError) {
	kind := render.Text
	if strings.Contains(s, "{{") {
		switch media := mediaType(headers); {
		case strings.HasSuffix(media, "json"):
			return nil, badField("body", "write the body as keys and values, which become JSON, or leave it out for args and kwargs",
				"a template in a JSON text: a value could add keys of its own")
		case strings.HasSuffix(media, "xml"), strings.HasSuffix(media, "html"):
			return nil, badField("body", "send JSON or a form instead", "a template in a text of type %s: a value could add elements of its own", media)
		case media == "application/x-www-form-urlencoded":
			kind = render.Query
		}
	}
	t, err := p.parse("body", s, kind)
	return &body{text: t}, err
}

func mediaType(headers map[string]Value) string {
	for name, value := range headers {
		if http.CanonicalHeaderKey(name) == "Content-Type" {
			media, _, err := mime.ParseMediaType(value.Text)
			if err != nil {
				return strings.ToLower(strings.TrimSpace(value.Text))
			}
			return media
		}
	}
	return ""
}

// render is the body of one task's request; nil for none, with its type.
func (b *body) render(data render.Data, in func() ([]byte, error)) (content []byte, media string, err error) {
	const jsonType = "application/json"
	switch {
	case b.none:
		return nil, "", nil
	case b.text != nil:
		s, err := b.text.render(data)
		return []byte(s), "text/plain; charset=utf-8", err
	case b.tree != nil:
		content, err = b.tree.JSON(data)
		return content, jsonType, err
	default:
		content, err = in()
		return content, jsonType, err
	}
}
