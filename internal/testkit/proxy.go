package testkit

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy is a TCP proxy to a Redis (or any server) that behaves like a bad
// network: it loses replies, holds requests back, swallows everything, delays,
// refuses. A new one passes everything on.
//
// What it does to a request is decided for the chunk in which the request
// arrives, so requests that a client pipelines share one fate.
type Proxy struct {
	// Addr is "127.0.0.1:port", the address to give to the client.
	Addr string

	upstream string
	listener net.Listener
	closed   chan struct{}
	wg       sync.WaitGroup

	mu      sync.Mutex
	gate    chan struct{} // closed: bytes may pass
	swallow bool
	refuse  bool
	delay   time.Duration
	drops   []string // armed: lose the reply to a request that contains it
	holds   []*Held  // armed: keep back a request that contains its text
	losses  losses
	dropped int
	idle    idleLimit
	conns   map[*link]bool
}

// link is one client connection and its counterpart to the server.
type link struct {
	client, server net.Conn
	loseReply      bool      // guarded by Proxy.mu
	gone           bool      // guarded by Proxy.mu: open, and nothing passes any more
	used           time.Time // guarded by Proxy.mu: when bytes passed last
}

// Held is a request that a Proxy keeps back.
type Held struct {
	// Seen is closed when the request has arrived at the proxy.
	Seen <-chan struct{}

	text    string
	seen    chan struct{}
	release chan struct{}
	once    sync.Once
}

// Release lets the request go on to the server, as a network would that
// delivers late: also when the client has hung up since.
func (h *Held) Release() { h.once.Do(func() { close(h.release) }) }

// NewProxy starts a proxy to the server at upstream ("host:port"). It and its
// connections are closed when the test ends.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	open := make(chan struct{})
	close(open)
	p := &Proxy{
		Addr: l.Addr().String(), upstream: upstream, listener: l,
		closed: make(chan struct{}), gate: open, conns: map[*link]bool{},
	}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is the proxy's address as a redis:// URL with database db.
func (p *Proxy) URL(db int) string { return fmt.Sprintf("redis://%s/%d", p.Addr, db) }

// Client returns a client of database 0 through the proxy that is closed when
// the test ends. It does not retry.
func (p *Proxy) Client(t testing.TB) *redis.Client {
	t.Helper()
	return RedisClient(t, p.Addr, 0)
}

// Pass ends Hold, Swallow, Delay, Refuse and LoseReplies. What Hold kept back
// goes on; what Swallow took is lost.
func (p *Proxy) Pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow, p.refuse, p.delay, p.losses = false, false, 0, losses{}
	if p.heldLocked() {
		close(p.gate)
	}
}

// Hold keeps all bytes of both directions back until Pass: a partition after
// which TCP delivers what was on its way.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.heldLocked() {
		p.gate = make(chan struct{})
	}
}

// Swallow throws away all bytes of both directions until Pass, with the
// connections left open: requests do not arrive, replies are lost.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = true
}

// Refuse closes every connection, and each new one at once, until Pass.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.CloseAll()
}

// Delay holds each chunk of bytes, in either direction, for d until Pass.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// CloseAll closes all connections that are open now. New ones are served.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}

// DropNextReply loses one reply: the next request on any connection is passed
// on, and done by the server; its reply is thrown away and the connection
// closed. Two calls lose two replies.
func (p *Proxy) DropNextReply() { p.DropReplyTo("") }

// DropReplyTo is DropNextReply for the next request that contains text, such as
// "evalsha" or a key, so that a new connection's handshake does not spend it.
func (p *Proxy) DropReplyTo(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, text)
}

// Dropped is the number of replies lost through DropNextReply, DropReplyTo and
// LoseReplies.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// HoldRequest keeps back the next request that contains text, and what follows
// it on its connection, until it is released. Other connections are served.
func (p *Proxy) HoldRequest(text string) *Held {
	h := &Held{text: text, seen: make(chan struct{}), release: make(chan struct{})}
	h.Seen = h.seen
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

func (p *Proxy) heldLocked() bool {
	select {
	case <-p.gate:
		return false
	default:
		return true
	}
}

func (p *Proxy) close() {
	close(p.closed)
	_ = p.listener.Close()
	p.CloseAll()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &link{client: client, server: server, used: time.Now()}
	defer c.close()
	if !p.register(c) {
		return
	}
	defer p.forget(c)
	var both sync.WaitGroup
	both.Go(func() {
		p.pump(server, client, func(b []byte) []byte { return p.reply(c, b) })
		_ = client.Close()
	})
	both.Go(func() {
		var seen window
		p.pump(client, server, func(b []byte) []byte { return p.request(c, seen.next(b), b) })
		if p.isGone(c) { // nothing passes, so neither does the end
			<-p.closed
		}
		// The server reads to the end of what it got and closes; that ends the other pump.
		if tcp, ok := server.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	})
	both.Wait()
}

func (p *Proxy) register(c *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return false
	default:
	}
	if p.refuse {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) forget(c *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// pump copies from src to dst what fate leaves of each chunk.
func (p *Proxy) pump(src, dst net.Conn, fate func([]byte) []byte) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if b := fate(buf[:n]); len(b) > 0 {
				if _, err := dst.Write(b); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// request decides the fate of a chunk on its way to the server.
func (p *Proxy) request(c *link, seen *window, b []byte) []byte {
	p.mu.Lock()
	c.used = time.Now()
	for i, text := range p.drops {
		if !c.loseReply && seen.contains(text) {
			p.drops = append(p.drops[:i:i], p.drops[i+1:]...)
			c.loseReply = true
			break
		}
	}
	held := p.takeHoldLocked(seen)
	p.mu.Unlock()
	if held != nil {
		close(held.seen)
		select {
		case <-held.release:
		case <-p.closed:
			return nil
		}
	}
	return p.network(c, b)
}

func (p *Proxy) takeHoldLocked(seen *window) *Held {
	for i, h := range p.holds {
		if seen.contains(h.text) {
			p.holds = append(p.holds[:i:i], p.holds[i+1:]...)
			return h
		}
	}
	return nil
}

// reply decides the fate of a chunk on its way to the client.
func (p *Proxy) reply(c *link, b []byte) []byte {
	p.mu.Lock()
	c.used = time.Now()
	lost, keep := c.loseReply, 0
	if !lost && !c.gone {
		lost, keep = p.losses.draw(len(b))
	}
	if lost {
		c.loseReply = false
		p.dropped++
	}
	p.mu.Unlock()
	if lost {
		if keep > 0 {
			_, _ = c.client.Write(p.network(c, b[:keep]))
		}
		c.close()
		return nil
	}
	return p.network(c, b)
}

// network applies what holds for both directions and returns what to deliver.
func (p *Proxy) network(c *link, b []byte) []byte {
	p.mu.Lock()
	gate, delay := p.gate, p.delay
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.closed:
			return nil
		}
	}
	select {
	case <-gate:
	case <-p.closed:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swallow || c.gone {
		return nil
	}
	return b
}

func (c *link) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// window is a chunk with the end of what came before it on its connection.
type window struct{ before, chunk []byte }

// next moves on to the chunk b.
func (w *window) next(b []byte) *window {
	joined := slices.Concat(w.before, w.chunk)
	w.before = joined[max(len(joined)-maxText, 0):]
	w.chunk = bytes.Clone(b)
	return w
}

// contains says whether text ends in the chunk, also when it began before it.
func (w *window) contains(text string) bool {
	part := w.before[len(w.before)-min(len(w.before), max(len(text)-1, 0)):]
	return bytes.Contains(slices.Concat(part, w.chunk), []byte(text))
}

// maxText bounds how much of a text may lie in chunks before the last.
const maxText = 256
