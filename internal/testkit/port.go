package testkit

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports are taken from below the range that the kernel hands to outgoing
// connections, so that none of those grabs one between the look and the use.
const (
	firstPort = 20000
	lastPort  = 32000
)

// standardPorts are where people run the real things; a test uses none of them.
var standardPorts = map[int]bool{
	20000: true, // DNP
	25565: true, // Minecraft
	26379: true, // Redis Sentinel
	27017: true, // MongoDB
	28015: true, // RethinkDB
}

// FreePort returns a loopback TCP port that nothing listens on now, and that is
// no service's standard port. Another process may still take it before its
// user does, so whoever starts a server on it tries again with another one.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// FreeAddr is FreePort as "127.0.0.1:port".
func FreeAddr(t testing.TB) string {
	t.Helper()
	return loopback(FreePort(t))
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func freePort() (int, error) {
	l, err := listen()
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// handedOut keeps two tests of one test binary from being given one port.
var handedOut sync.Map

// listen listens on a port that was not handed out before.
func listen() (net.Listener, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, used := handedOut.LoadOrStore(port, true); used || standardPorts[port] {
			continue
		}
		l, err := net.Listen("tcp", loopback(port))
		if err == nil {
			return l, nil
		}
	}
	return nil, errors.New("testkit: no free port found in 1000 tries")
}
