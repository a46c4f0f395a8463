package rig

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that the kernel hands to outgoing
// connections, so that none of those grabs one between the look and the use.
const (
	firstPort = 20100
	lastPort  = 25500
)

// FreeAddr is a loopback address that nothing listens on now. Another process
// may still take it before its user does.
func FreeAddr() (string, error) {
	l, err := listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func listen() (net.Listener, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, errors.New("rig: no free port found in 1000 tries")
}
