package rig

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Proxy is a TCP proxy that delivers every byte a fixed time after it came, as
// a longer wire would: what is behind a delayed byte is not delayed twice. It
// counts the round trips of all connections.
type Proxy struct {
	Addr string

	upstream string
	oneWay   time.Duration
	listener net.Listener
	trips    atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool // nil: closed
	wg    sync.WaitGroup
}

// StartProxy starts a proxy to upstream whose round trip is longer by added.
func StartProxy(ctx context.Context, upstream string, added time.Duration) (*Proxy, error) {
	l, err := listen()
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: l.Addr().String(), upstream: upstream, oneWay: added / 2, listener: l, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	context.AfterFunc(ctx, p.Stop)
	return p, nil
}

// URL is its address as a redis:// URL of database 0.
func (p *Proxy) URL() string { return "redis://" + p.Addr + "/0" }

// Trips is the number of round trips so far: how often, on any connection, a
// request followed a reply.
func (p *Proxy) Trips() int64 { return p.trips.Load() }

// Stop closes the proxy and its connections.
func (p *Proxy) Stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		var replied atomic.Bool
		replied.Store(true)
		p.pump(client, server, func() {
			if replied.Swap(false) {
				p.trips.Add(1)
			}
		})
		p.pump(server, client, func() { replied.Store(true) })
	}
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.conns == nil {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return p.conns != nil
}

// chunk is what was read at one time, and when it is to be delivered.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pump carries one direction. saw is called for each chunk when it comes.
func (p *Proxy) pump(src, dst net.Conn, saw func()) {
	wire := make(chan chunk, 4096)
	p.wg.Go(func() {
		defer close(wire)
		for {
			buf := make([]byte, 64<<10)
			n, err := src.Read(buf)
			if n > 0 {
				saw()
				wire <- chunk{buf[:n], time.Now().Add(p.oneWay)}
			}
			if err != nil {
				return
			}
		}
	})
	p.wg.Go(func() {
		// Go's timers are late by up to a millisecond, the kernel's by 50 µs unless
		// it is told otherwise. The thread ends with the goroutine.
		runtime.LockOSThread()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		dead := false
		for c := range wire {
			if dead {
				continue
			}
			if p.oneWay > 0 {
				sleepUntil(c.due)
			}
			if _, err := dst.Write(c.bytes); err != nil {
				dead = true
				_ = src.Close()
			}
		}
		_ = dst.Close()
	})
}

func sleepUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		ts := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&ts, nil) // interrupted: what is left is slept next
	}
}
