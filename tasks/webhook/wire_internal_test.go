package webhook

import (
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"testing"
)

// A request has begun when something was written after it got its connection:
// what earlier requests and the handshake wrote there tells nothing. Of a
// connection that is not ours nothing is known.
func TestBegun(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	go func() { _, _ = b.Read(make([]byte, 8)) }()
	counted := &countedConn{Conn: a}
	counted.written.Store(7) // of the request before
	for name, conn := range map[string]net.Conn{"plain": counted, "TLS": tls.Client(counted, &tls.Config{MinVersion: tls.VersionTLS12})} {
		var w wire
		if w.begun() {
			t.Errorf("%s: begun without a connection", name)
		}
		w.trace().GotConn(httptrace.GotConnInfo{Conn: conn})
		if w.begun() {
			t.Errorf("%s: begun, and nothing was written", name)
		}
		counted.written.Add(1)
		if !w.begun() {
			t.Errorf("%s: not begun, and something was written", name)
		}
	}
	var w wire
	w.trace().GotConn(httptrace.GotConnInfo{Conn: counted})
	if _, err := counted.Write([]byte("x")); err != nil || !w.begun() {
		t.Errorf("a write is not counted, %v", err)
	}
	w = wire{}
	w.trace().GotConn(httptrace.GotConnInfo{Conn: b})
	if !w.begun() {
		t.Error("an unknown connection is taken for one on which nothing was sent")
	}
}
