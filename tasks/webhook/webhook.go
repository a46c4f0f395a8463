package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/internal/ready"
)

const (
	// maxResult is how much of an answer is the result, in bytes.
	maxResult = 1 << 20
	// connectTimeout bounds dialling and the TLS handshake, each: whoever does not
	// answer to them for so long is not there.
	connectTimeout = 10 * time.Second
	// idleTimeout is how long a connection is kept: less than the 5 s after which
	// common servers close theirs, perhaps just when it is used again.
	idleTimeout = 4 * time.Second
	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 64 << 10
	// maxIdle bounds the connections that are kept.
	maxIdle = 32
)

type handler struct {
	plan      *plan
	params    []string
	transport *http.Transport
}

// New returns the handler of a webhook. Its connections are kept for some
// seconds, and closed by themselves.
func New(cfg Config) (tasks.Handler, error) {
	p, err := compile(&cfg)
	if err != nil {
		return nil, err
	}
	return &handler{plan: p, params: cfg.Params, transport: transport(cfg)}, nil
}

// transport speaks HTTP/1.1 only: there one connection carries one request, so
// that what was written to it tells whether the request was sent.
func transport(cfg Config) *http.Transport {
	var only http.Protocols
	only.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: connectTimeout}
	return &http.Transport{
		Proxy:     http.ProxyFromEnvironment,
		Protocols: &only,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: c}, nil
		},
		TLSClientConfig:     &tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: connectTimeout, IdleConnTimeout: idleTimeout,
		MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle,
		MaxResponseHeaderBytes: maxHeaderBytes, DisableCompression: true,
	}
}

// Handle makes one request for one task.
func (h *handler) Handle(ctx context.Context, t *tasks.Task) (json.RawMessage, error) {
	var sent wire
	req, err := h.request(httptrace.WithClientTrace(ctx, sent.trace()), t)
	if err != nil {
		return nil, tasks.BadArguments(err)
	}
	e := &Error{Target: h.plan.method + " " + h.plan.url.shown}
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		e.NotSent, e.Err = !sent.begun(), ready.Stopped(ctx, err)
		return nil, h.plan.exception(e)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return nil, h.plan.refused(e, resp)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResult+1))
	if err != nil { // who breaks off has perhaps failed in the middle
		e.Status, e.Err = resp.StatusCode, ready.Stopped(ctx, errors.Join(errBrokenOff, err))
		return nil, h.plan.exception(e)
	}
	return result(answer), nil
}

var errBrokenOff = errors.New("the answer broke off")

// request builds the request of one task.
func (h *handler) request(ctx context.Context, t *tasks.Task) (*http.Request, error) {
	data := render.Data{Task: t.Name}
	if h.plan.templates {
		var err error
		if data.Params, err = render.Params(h.params, t.Args, t.Kwargs); err != nil {
			return nil, err
		}
	}
	u, err := h.plan.url.render(data)
	if err != nil {
		return nil, err
	}
	content, media, err := h.plan.body.render(data, func() ([]byte, error) { return ready.Input(t) })
	if err != nil {
		return nil, err
	}
	req := (&http.Request{Method: h.plan.method, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	if err := h.plan.setHeaders(ctx, req.Header, t, data, media); err != nil {
		return nil, err
	}
	setBody(req, content, h.plan.body.none)
	return req, nil
}

// setBody gives the transport what it may send again only as long as nothing of
// it was written. It would repeat a GET on its own; a body of unknown length that
// it cannot get twice, and that turns out to be empty, keeps it from that.
func setBody(req *http.Request, content []byte, none bool) {
	switch {
	case none:
		req.Body = io.NopCloser(strings.NewReader(""))
	case len(content) == 0:
		req.Body = http.NoBody
	default:
		req.ContentLength = int64(len(content))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
		req.Body, _ = req.GetBody()
	}
}

// result is an answer as JSON: as it is, or as a JSON text.
func result(answer []byte) json.RawMessage {
	trimmed := bytes.TrimSpace(answer)
	switch {
	case len(trimmed) == 0:
		return nil
	case len(answer) <= maxResult && utf8.Valid(trimmed) && json.Valid(trimmed):
		return trimmed
	}
	return ready.Text(strings.ToValidUTF8(string(trimmed[:min(len(trimmed), maxResult)]), "\ufffd"))
}

// wire follows one request down to its connection.
type wire struct {
	conn   atomic.Pointer[countedConn]
	before atomic.Int64
	// unknown: the connection is none of ours.
	unknown atomic.Bool
}

func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c := counted(info.Conn)
		if c == nil {
			w.unknown.Store(true)
			return
		}
		w.before.Store(c.written.Load())
		w.conn.Store(c)
	}}
}

// begun reports whether anything of the request may have left this process.
func (w *wire) begun() bool {
	c := w.conn.Load()
	return w.unknown.Load() || c != nil && c.written.Load() > w.before.Load()
}

// counted finds the connection below TLS.
func counted(c net.Conn) *countedConn {
	for {
		switch conn := c.(type) {
		case *countedConn:
			return conn
		case *tls.Conn:
			c = conn.NetConn()
		default:
			return nil
		}
	}
}

// countedConn counts what was written to it, or may have been.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p))) // first, so that nobody reads too small a number
	return c.Conn.Write(p)
}
