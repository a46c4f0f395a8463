package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/webhook"
)

func newHandler(t *testing.T, cfg webhook.Config) tasks.Handler {
	t.Helper()
	h, err := webhook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func plain(text string) webhook.Value  { return webhook.Value{Text: text} }
func secret(text string) webhook.Value { return webhook.Value{Text: text, Secret: true} }

func newTask(args, kwargs string) *tasks.Task {
	task := &tasks.Task{ID: "the-id", Name: "reports.hourly", Attempt: 1}
	if args != "" {
		_ = json.Unmarshal([]byte(args), &task.Args)
	}
	if kwargs != "" {
		_ = json.Unmarshal([]byte(kwargs), &task.Kwargs)
	}
	return task
}

// seen is a request as the receiver got it.
type seen struct {
	Method, URI, Body string
	Header            http.Header
}

// receiver answers as answer does, and keeps what it got.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  []seen
	runs atomic.Int64 // requests that arrived, also those that were never answered
	// opened are the connections.
	opened atomic.Int64
}

func newReceiver(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.runs.Add(1)
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, seen{Method: req.Method, URI: req.RequestURI, Body: string(body), Header: req.Header})
		r.mu.Unlock()
		if answer != nil {
			answer(w, req)
		}
	}))
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.opened.Add(1)
		}
	}
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) only(t *testing.T) seen {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != 1 {
		t.Fatalf("%d requests, want one", len(r.got))
	}
	return r.got[0]
}

// What is sent by default: the arguments as they came, and who asks.
func TestDefaultRequest(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	task := newTask(`[9007199254740993, 1.0]`, `{"a": {"b": "<é>"}}`)
	task.Attempt = 2
	task.Guard = &tasks.Guard{Job: "hourly", Tick: 1767322800000}
	task.Headers = map[string]json.RawMessage{
		"traceparent": json.RawMessage(`"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`), "baggage": json.RawMessage(`"a=b"`),
		"tracestate": json.RawMessage(`"a\r\nX-Evil: 1"`),
	}
	ctx := tasks.ContextWithKey(tasks.ContextWithFence(t.Context(), 1<<63), "bericht ä:2026-01-02T03+00:00")
	if _, err := newHandler(t, webhook.Config{URL: plain(r.URL + "/hook")}).Handle(ctx, task); err != nil {
		t.Fatal(err)
	}
	want := seen{
		Method: "POST", URI: "/hook", Body: `{"args":[9007199254740993,1.0],"kwargs":{"a":{"b":"<é>"}}}`,
		Header: http.Header{
			"Content-Type": {"application/json"}, "Content-Length": {"59"}, "User-Agent": {"solobeat"},
			"Idempotency-Key": {"bericht%20%C3%A4:2026-01-02T03+00:00"}, "Solobeat-Fence": {"9223372036854775808"},
			"Solobeat-Task": {"reports.hourly"}, "Solobeat-Task-Id": {"the-id"}, "Solobeat-Attempt": {"2"}, "Solobeat-Tick": {"2026-01-02T03:00:00Z"},
			"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		},
	}
	if diff := cmp.Diff(want, r.only(t)); diff != "" {
		t.Error(diff)
	}
}

// Values are escaped where they are inserted, and every part of the request may
// be the file's own.
func TestTemplates(t *testing.T) {
	t.Parallel()
	nasty := `{"v": "a/b?c=d&e #f%2F\"<ü>", "n": 9007199254740993, "empty": ""}`
	for _, c := range []struct {
		name string
		cfg  webhook.Config
		path string // behind the receiver's address
		want seen
	}{
		{
			name: "path and query", path: "/x/{{ .Params.v }}/y%2Fz?q={{ .Params.v }}&e={{ .Params.empty }}&n={{ .Params.n }}",
			want: seen{
				Method: "POST",
				URI:    "/x/a%2Fb%3Fc%3Dd%26e%20%23f%252F%22%3C%C3%BC%3E/y%2Fz?q=a%2Fb%3Fc%3Dd%26e%20%23f%252F%22%3C%C3%BC%3E&e=&n=9007199254740993", Body: "the arguments",
			},
		},
		{name: "no path", path: "?n={{ .Params.n }}", want: seen{Method: "POST", URI: "/?n=9007199254740993", Body: "the arguments"}},
		{
			name: "JSON of keys and values", cfg: webhook.Config{Method: "PUT", Body: map[string]any{"v": "{{ .Params.v }}", "list": []any{json.Number("1"), nil, true}}},
			want: seen{Method: "PUT", URI: "/", Body: `{"list":[1,null,true],"v":"a/b?c=d&e #f%2F\"<ü>"}`},
		},
		{
			name: "text", cfg: webhook.Config{Body: "v is {{ .Params.v }}"},
			want: seen{Method: "POST", URI: "/", Body: `v is a/b?c=d&e #f%2F"<ü>`},
		},
		{
			name: "a form", cfg: webhook.Config{Body: "v={{ .Params.v }}", Headers: map[string]webhook.Value{"content-type": plain("application/x-www-form-urlencoded")}},
			want: seen{Method: "POST", URI: "/", Body: `v=a%2Fb%3Fc%3Dd%26e%20%23f%252F%22%3C%C3%BC%3E`},
		},
		{name: "an empty text", cfg: webhook.Config{Body: ""}, want: seen{Method: "POST", URI: "/"}},
		{name: "GET has no body", cfg: webhook.Config{Method: "GET"}, want: seen{Method: "GET", URI: "/"}},
		{name: "DELETE has no body", cfg: webhook.Config{Method: "DELETE"}, path: "/{{ .Params.n }}", want: seen{Method: "DELETE", URI: "/9007199254740993"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, nil)
			c.cfg.URL = plain(r.URL + c.path)
			if _, err := newHandler(t, c.cfg).Handle(t.Context(), newTask("", nasty)); err != nil {
				t.Fatal(err)
			}
			got := r.only(t)
			got.Header = nil
			if strings.HasPrefix(got.Body, `{"args":[]`) {
				got.Body = "the arguments"
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The file's own headers win where they may; user and password become one.
func TestHeaders(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	u, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, webhook.Config{
		URL: plain("http://user:hunter2@" + u.Host + "/"), Params: []string{"day"},
		Headers: map[string]webhook.Value{
			"x-day": plain("{{ .Params.day }} in {{ .Task.Name }}"), "Idempotency-Key": plain("pay:{{ .Params.day }}"), "X-Token": secret("{{ kept }}"), "user-agent": plain("shop"),
		},
	})
	if _, err := h.Handle(t.Context(), newTask(`["2026-11-29"]`, "")); err != nil {
		t.Fatal(err)
	}
	header := r.only(t).Header
	for name, want := range map[string]string{
		"X-Day": "2026-11-29 in reports.hourly", "Idempotency-Key": "pay:2026-11-29", "X-Token": "{{ kept }}", "User-Agent": "shop",
		"Authorization": "Basic dXNlcjpodW50ZXIy",
	} {
		if got := header[name]; !cmp.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// Arguments that would change what is asked for are refused for good, before
// anything is sent.
func TestBadArguments(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	for name, c := range map[string]struct {
		path, header, kwargs, says string
	}{
		"missing":               {path: "/{{ .Params.day }}", kwargs: `{}`, says: "day"},
		"an empty segment":      {path: "/users/{{ .Params.v }}", kwargs: `{"v": ""}`, says: "missing or empty"},
		"the folder above":      {path: "/users/{{ .Params.v }}/x", kwargs: `{"v": ".."}`, says: "no segment"},
		"half the folder above": {path: "/users/.{{ .Params.v }}/x", kwargs: `{"v": "."}`, says: "no segment"},
		"a list":                {path: "/{{ .Params.v }}", kwargs: `{"v": [1]}`, says: "list"},
		"a line in a header":    {header: "{{ .Params.v }}", kwargs: `{"v": "a\r\nX-Evil: 1"}`, says: "control character"},
		"a NUL in a header":     {header: "{{ .Params.v }}", kwargs: `{"v": "a\u0000"}`, says: "control character"},
	} {
		cfg := webhook.Config{URL: plain(r.URL + c.path)}
		if c.header != "" {
			cfg.Headers = map[string]webhook.Value{"X-Value": plain(c.header)}
		}
		_, err := newHandler(t, cfg).Handle(t.Context(), newTask("", c.kwargs))
		if _, ok := errors.AsType[*tasks.PermanentError](err); !ok || !errors.Is(err, tasks.ErrBadArguments) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := r.runs.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		status             int
		answer, want, kind string
	}{
		"JSON":               {answer: " {\"id\": 9007199254740993, \"s\": \"<\"}\n", want: `{"id": 9007199254740993, "s": "<"}`},
		"JSON of any type":   {answer: `[1]`, kind: "text/plain", want: `[1]`},
		"201":                {status: 201, answer: `7`, want: `7`},
		"nothing":            {status: 204, want: ``},
		"blanks":             {answer: " \r\n", want: ``},
		"text":               {answer: "done <ä>\n", want: `"done <ä>"`},
		"garbage":            {answer: "\x00\xff{\"a\":", want: `"\u0000` + "\ufffd" + `{\"a\":"`},
		"JSON that is none":  {answer: "\"\xff\"", want: `"\"` + "\ufffd" + `\""`},
		"a huge JSON is cut": {answer: `"` + big + `"`, want: `"\"` + big[1:] + `"`},
		"a huge number":      {answer: strings.Repeat("1", 1<<20+5), want: `"` + strings.Repeat("1", 1<<20) + `"`},
		"a huge text is cut": {answer: big + "xyz", want: `"` + big + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				if c.status != 0 {
					w.WriteHeader(c.status)
				}
				_, _ = io.WriteString(w, c.answer)
			})
			got, err := newHandler(t, webhook.Config{URL: plain(r.URL)}).Handle(t.Context(), newTask("", ""))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Error(diff[:min(len(diff), 2000)])
			}
		})
	}
}

// Which answers are tried again, when, and what an error tells.
func TestRefusals(t *testing.T) {
	t.Parallel()
	date := func(h http.Header, after time.Duration) {
		sent := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC) // their clock is not ours
		h.Set("Date", sent.Format(http.TimeFormat))
		h.Set("Retry-After", sent.Add(after).Format(http.TimeFormat))
	}
	for _, c := range []struct {
		status    int
		after     string
		date      time.Duration
		permanent bool
		want      time.Duration
	}{
		{status: 301, permanent: true},
		{status: 307, permanent: true},
		{status: 400, permanent: true},
		{status: 401, permanent: true},
		{status: 404, permanent: true, after: "5"},
		{status: 410, permanent: true},
		{status: 422, permanent: true},
		{status: 408},
		{status: 409},
		{status: 425},
		{status: 429},
		{status: 500},
		{status: 501},
		{status: 502},
		{status: 503},
		{status: 504},
		{status: 599},
		{status: 429, after: "7", want: 7 * time.Second},
		{status: 503, after: "86400", want: time.Hour},
		{status: 503, after: "99999999999999999999"},
		{status: 503, after: "-1"},
		{status: 503, after: "soon"},
		{status: 503, after: "0"},
		{status: 503, date: 90 * time.Second, want: 90 * time.Second},
		{status: 503, date: -90 * time.Second},
		{status: 503, date: 48 * time.Hour, want: time.Hour},
	} {
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			if c.date != 0 {
				date(w.Header(), c.date)
			} else if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, "no \x1b[31mpaper\r\n\u202eleft")
		})
		result, err := newHandler(t, webhook.Config{URL: plain(r.URL + "/hook?token=hunter2")}).Handle(t.Context(), newTask("", ""))
		e, ok := errors.AsType[*webhook.Error](err)
		if !ok || result != nil {
			t.Fatalf("%d: result %s, error %v", c.status, result, err)
		}
		if _, permanent := errors.AsType[*tasks.PermanentError](err); permanent != c.permanent {
			t.Errorf("%d: permanent is %v", c.status, permanent)
		}
		want := webhook.Error{Target: "POST " + r.URL, Status: c.status, Answer: "no [31mpaper left", RetryAfter: c.want}
		if *e != want {
			t.Errorf("got %#v, want %#v", *e, want)
		}
		if errors.Is(err, tasks.ErrNotExecuted) {
			t.Errorf("%d: says that nothing was sent", c.status)
		}
		var retry *tasks.RetryError
		if asked := errors.As(err, &retry); asked != (c.want > 0) || asked && (retry.After != c.want || retry.Max != tasks.OwnRetries) {
			t.Errorf("%d, Retry-After %q: %#v", c.status, c.after, retry)
		}
		exc, _ := errors.AsType[*tasks.Exception](err)
		if exc == nil || exc.Type != "WebhookError" || !strings.HasPrefix(fmt.Sprint(exc.Args[0]), fmt.Sprintf("POST %s: %d", r.URL, c.status)) || strings.Contains(exc.Error(), "hunter2") {
			t.Errorf("%d: exception %v", c.status, exc)
		}
		if n := r.runs.Load(); n != 1 {
			t.Errorf("%d: %d requests", c.status, n)
		}
	}
}

// A receiver that repeats what it was sent does not bring secrets into results
// of failed runs, nor do errors of the network.
func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "%s%s not allowed, %s, %s", strings.Repeat("x", 495), req.RequestURI, req.Header.Get("Authorization"), req.Header.Get("X-Key"))
	})
	dead := httptest.NewServer(nil)
	dead.Close()
	for _, address := range []string{r.URL, dead.URL} {
		cfg := webhook.Config{
			URL:     secret(address + "/services/hunter2a?k=hunter2b"),
			Headers: map[string]webhook.Value{"Authorization": secret("Bearer hunter2c"), "X-Key": secret("hunter2d")},
		}
		_, err := newHandler(t, cfg).Handle(t.Context(), newTask("", ""))
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "hunt") {
			t.Errorf("error %v", err)
		}
		if text := fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg); strings.Contains(text, "hunter2") {
			t.Errorf("a secret in %s", text)
		}
	}
}

// A receiver may repeat a part of what it was sent, and decoded: credentials of
// a URL as their header has them, a token without the rest of the URL.
func TestPartsOfSecretsAreMasked(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, req.Header.Get("Authorization"), " ", req.URL.Query().Get("token"), " ", req.URL.Query().Get("other"), " ", path.Base(req.URL.Path))
	})
	address := strings.TrimPrefix(r.URL, "http://")
	for _, u := range []webhook.Value{
		plain("http://somebody:hunter2@" + address + "/"),
		secret("http://somebody:hunter2@" + address + "/services/hunter2%20and%20more?token=hunter2%21&other=hunter2longer"),
	} {
		_, err := newHandler(t, webhook.Config{URL: u}).Handle(t.Context(), newTask("", ""))
		if err == nil {
			t.Fatal("no error")
		}
		for _, part := range []string{"hunter2", "somebody", "c29tZWJvZHk6aHVudGVyMg==", "longer", "and more"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%q in %v", part, err)
			}
		}
	}
}

// raw is a receiver that does with a connection what an HTTP server does not.
func raw(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return "http://" + l.Addr().String()
}

// read reads one request.
func read(c net.Conn) bool {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	return err == nil
}

// What goes wrong below HTTP is a failed run that is in doubt as soon as
// anything was sent, and one that surely did nothing before.
func TestNetworkErrors(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	tlsServer := httptest.NewUnstartedServer(nil)
	tlsServer.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	plainServer := newReceiver(t, nil)
	answer := func(text string) string {
		return raw(t, func(c net.Conn) {
			if read(c) {
				_, _ = io.WriteString(c, text)
			}
		})
	}
	for _, c := range []struct {
		name, url, says string
		notSent         bool
	}{
		{"nobody listens", "http://" + closed.Addr().String(), "refused", true},
		{"no such name", "http://no-such-host.invalid", "no-such-host", true},
		{"an unknown certificate", tlsServer.URL, "certificate", true},
		{"no TLS there", strings.Replace(plainServer.URL, "http:", "https:", 1), "tls", true},
		{"closed in the handshake", strings.Replace(raw(t, func(net.Conn) {}), "http:", "https:", 1), "", true},
		{"killed in mid-request", raw(t, func(c net.Conn) { _ = read(c); _ = c.(*net.TCPConn).SetLinger(0) }), "", false},
		{"closed without an answer", raw(t, func(c net.Conn) { _ = read(c) }), "EOF", false},
		{"half closed", raw(t, func(c net.Conn) { _ = read(c); _ = c.(*net.TCPConn).CloseWrite(); _, _ = io.Copy(io.Discard, c) }), "EOF", false},
		{"garbage", answer("\x00\x01\x02 hello\r\n\r\n"), "malformed", false},
		{"another protocol", answer("220 mail.example ESMTP\r\n"), "malformed", false},
		{"a cut header", answer("HTTP/1.1 200 OK\r\nContent-Le"), "malformed", false},
		{"a cut body", answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\": 1"), "broke off", false},
		{"a cut chunk", answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"i"), "broke off", false},
		{"endless headers", raw(t, func(c net.Conn) {
			_ = read(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for line := []byte("X-More: " + strings.Repeat("x", 4000) + "\r\n"); ; {
				if _, err := c.Write(line); err != nil {
					return
				}
			}
		}), "headers", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := newHandler(t, webhook.Config{URL: plain(c.url)}).Handle(ctx, newTask("", ""))
			exc, ok := errors.AsType[*tasks.Exception](err)
			if !ok || exc.Type != "WebhookError" || !strings.Contains(err.Error(), c.says) || ctx.Err() != nil {
				t.Fatalf("error %v", err)
			}
			if _, permanent := errors.AsType[*tasks.PermanentError](err); permanent {
				t.Errorf("permanent: %v", err)
			}
			if errors.Is(err, tasks.ErrNotExecuted) != c.notSent {
				t.Errorf("not sent is %v, want %v: %v", !c.notSent, c.notSent, err)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `"`+r.Proto+`"`) }))
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	h := newHandler(t, webhook.Config{URL: plain(s.URL), RootCAs: pool})
	for range 2 {
		if got, err := h.Handle(t.Context(), newTask("", "")); err != nil || string(got) != `"HTTP/1.1"` {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// Connections are used again, and none is left at the end (see TestMain).
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	h := newHandler(t, webhook.Config{URL: plain(r.URL)})
	for range 20 {
		if _, err := h.Handle(t.Context(), newTask("", "")); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.opened.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// breaking answers the first request on a connection, and closes it when the
// second one is there: Go's transport repeats such a request on its own if it
// has an Idempotency-Key, or is a GET, and then the receiver has it twice.
func breaking(t *testing.T) (address string, requests *atomic.Int64) {
	requests = &atomic.Int64{}
	return raw(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for i := range 2 {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			requests.Add(1)
			if i == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	}), requests
}

// One attempt is one request: none is repeated unseen on a broken connection.
func TestNoRequestIsRepeatedUnseen(t *testing.T) {
	t.Parallel()
	for _, cfg := range []webhook.Config{
		{},
		{Body: ""},
		{Method: "GET"},
		{Method: "DELETE"},
		{Headers: map[string]webhook.Value{"Idempotency-Key": plain("k")}},
		{Method: "PUT", Headers: map[string]webhook.Value{"x-idempotency-key": plain("k")}, Body: ""},
	} {
		address, requests := breaking(t)
		cfg.URL = plain(address)
		h := newHandler(t, cfg)
		if _, err := h.Handle(t.Context(), newTask("", "")); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Handle(t.Context(), newTask("", "")); err == nil || errors.Is(err, tasks.ErrNotExecuted) {
			t.Errorf("%s: error %v", cfg.Method, err)
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%s, %v: %d requests for two runs", cfg.Method, cfg.Headers, n)
		}
	}
	// The naive client does repeat it.
	address, requests := breaking(t)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, bytes.NewReader([]byte("{}")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		if resp, err := tr.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	if n := requests.Load(); n < 3 {
		t.Errorf("the plain client sent %d requests: this test proves nothing", n)
	}
}

// A run that is stopped leaves at once, wherever it waits, and tells why.
func TestStopped(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(c net.Conn){
		"in the answer's header": func(c net.Conn) {},
		"in its body":            func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") },
	} {
		for _, cause := range []error{tasks.ErrTimeout, tasks.ErrShutdown, lockguard.ErrLost} {
			t.Run(name+" by "+cause.Error(), func(t *testing.T) {
				t.Parallel()
				arrived, end := make(chan struct{}), make(chan struct{})
				address := raw(t, func(c net.Conn) {
					_ = read(c)
					hang(c)
					close(arrived)
					<-end
				})
				defer close(end)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan error, 1)
				go func() {
					_, err := newHandler(t, webhook.Config{URL: plain(address)}).Handle(ctx, newTask("", ""))
					done <- err
				}()
				<-arrived
				began := time.Now()
				cancel(cause)
				err := <-done
				if !errors.Is(err, cause) || !errors.Is(err, context.Canceled) || errors.Is(err, tasks.ErrNotExecuted) {
					t.Errorf("error %v", err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("took %v", took)
				}
			})
		}
	}
}

// A refusal whose words never come is told by its status.
func TestRefusalWithoutWords(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	address := raw(t, func(c net.Conn) {
		_ = read(c)
		_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\nbu")
		<-end
	})
	defer close(end)
	_, err := newHandler(t, webhook.Config{URL: plain(address)}).Handle(t.Context(), newTask("", ""))
	if e, ok := errors.AsType[*webhook.Error](err); !ok || e.Status != 503 || e.Answer != "bu" {
		t.Errorf("error %v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	with := func(name, value string) map[string]webhook.Value { return map[string]webhook.Value{name: plain(value)} }
	for _, c := range []struct {
		cfg         webhook.Config
		field, says string
	}{
		{webhook.Config{}, "url", "does not begin with http"},
		{webhook.Config{URL: plain("ftp://host/")}, "url", "does not begin with http"},
		{webhook.Config{URL: plain("http://")}, "url", "no host"},
		{webhook.Config{URL: plain("http://:80/")}, "url", "no host"},
		{webhook.Config{URL: plain("http://host:x/")}, "url", "no host"},
		{webhook.Config{URL: plain("http://host:99999/")}, "url", "port"},
		{webhook.Config{URL: plain("http://{{ .Params.host }}/")}, "url", "host cannot be a template"},
		{webhook.Config{URL: plain("http://h.{{ .Params.host }}/")}, "url", "host cannot be a template"},
		{webhook.Config{URL: plain("http://u:{{ .Params.p }}@host/")}, "url", "host cannot be a template"},
		{webhook.Config{URL: plain("{{ .Params.url }}")}, "url", "does not begin with http"},
		{webhook.Config{URL: plain("http://host/#a")}, "url", "#"},
		{webhook.Config{URL: plain("http://host/a b")}, "url", "blank"},
		{webhook.Config{URL: plain("http://host/?a=b c")}, "url", "blank"},
		{webhook.Config{URL: plain("http://host/%zz")}, "url", "parsed"},
		{webhook.Config{URL: plain("http://host/a/../b")}, "url", "no segment"},
		{webhook.Config{URL: plain("http://host/{{ .Params.x")}, "url", "bad template"},
		{webhook.Config{URL: plain("http://host/?{{ .Tick.UTC }}")}, "url", ".Tick"},
		{webhook.Config{URL: secret("hunter2")}, "url", "does not begin with http"},
		{webhook.Config{URL: secret("http://host:hunter2/")}, "url", "no host"},
		{webhook.Config{URL: plain("http://host:/x")}, "url", "no port"},
		{webhook.Config{URL: secret("http://host/hunter2 ")}, "url", "blank"},
		{webhook.Config{URL: plain("http://host"), Method: "get"}, "method", "no method"},
		{webhook.Config{URL: plain("http://host"), Method: "GET", Body: "x"}, "body", "has no body"},
		{webhook.Config{URL: plain("http://host"), Method: "DELETE", Body: []any{}}, "body", "has no body"},
		{webhook.Config{URL: plain("http://host"), Body: map[string]any{"a": "{{ .Params.x"}}, "body", "bad template"},
		{webhook.Config{URL: plain("http://host"), Body: "{{ .Job }}"}, "body", ".Job"},
		{webhook.Config{URL: plain("http://host"), Headers: with("Content-Type", "application/json"), Body: `{"a": "{{ .Params.a }}"}`}, "body", "keys of its own"},
		{webhook.Config{URL: plain("http://host"), Headers: with("content-type", "application/x+json; charset=utf-8"), Body: `{"a": "{{ .Params.a }}"}`}, "body", "keys of its own"},
		{webhook.Config{URL: plain("http://host"), Headers: with("Content-Type", "text/xml"), Body: `<a>{{ .Params.a }}</a>`}, "body", "elements of its own"},
		{webhook.Config{URL: plain("http://host"), Headers: with("a b", "c")}, "headers.a b", "no name of a header"},
		{webhook.Config{URL: plain("http://host"), Headers: with("", "c")}, "headers.", "no name of a header"},
		{webhook.Config{URL: plain("http://host"), Headers: with("solobeat-fence", "1")}, "headers.solobeat-fence", "set by Solobeat"},
		{webhook.Config{URL: plain("http://host"), Headers: with("Host", "a")}, "headers.Host", "taken from the url"},
		{webhook.Config{URL: plain("http://host"), Headers: with("content-length", "1")}, "headers.content-length", "connection"},
		{webhook.Config{URL: plain("http://host"), Headers: with("X-A", "a\nb")}, "headers.X-A", "control character"},
		{webhook.Config{URL: plain("http://host"), Headers: with("X-A", "{{ .Tick.UTC }}")}, "headers.X-A", ".Tick"},
		{webhook.Config{URL: plain("http://host"), Headers: map[string]webhook.Value{"X-A": secret("hunter2\n")}}, "headers.X-A", "control character"},
	} {
		err := c.cfg.Validate()
		fields := webhook.FieldErrors(err)
		if !errors.Is(err, webhook.ErrConfig) || len(fields) != 1 || fields[0].Field != c.field || !strings.Contains(fields[0].Msg, c.says) || fields[0].Cure == "" {
			t.Errorf("%v %v: %v", c.cfg.URL, c.cfg.Headers, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a secret: %v", err)
		}
		if _, err := webhook.New(c.cfg); err == nil {
			t.Errorf("%v %v is taken", c.cfg.URL, c.cfg.Headers)
		}
	}
	all := webhook.Config{Method: "X", Body: "{{", Headers: with("Host", "a")}
	if n := len(webhook.FieldErrors(all.Validate())); n != 4 {
		t.Errorf("%d mistakes, want all four: %v", n, all.Validate())
	}
}
