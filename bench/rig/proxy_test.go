package rig

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
)

// echo answers each line.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

// Requests that are sent without waiting share one delay; those that wait for
// the reply have it each, and count as a round trip each.
func TestProxyDelaysLikeAWire(t *testing.T) {
	t.Parallel()
	const added, requests, atOnce = 40 * time.Millisecond, 5, 30
	p, err := StartProxy(t.Context(), echo(t), added)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	replies := bufio.NewReader(conn)
	send := func() {
		if _, err := conn.Write([]byte("x\n")); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() {
		if _, err := replies.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for range requests {
		send()
		receive()
	}
	if took := time.Since(began); took < requests*added {
		t.Errorf("%d round trips took %s", requests, took)
	}
	if n := p.Trips(); n != requests {
		t.Errorf("%d round trips counted, want %d", n, requests)
	}
	began = time.Now()
	for range atOnce {
		send()
		<-time.After(3 * time.Millisecond) // chunks of their own
	}
	for range atOnce {
		receive()
	}
	if took := time.Since(began); took < added || took > atOnce*added*2/5 {
		t.Errorf("%d requests at once took %s, one delay is %s", atOnce, took, added)
	}
}
