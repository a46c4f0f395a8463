package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisServer is a redis-server of one test, on loopback, without persistence
// unless [AOF] is among its arguments.
type RedisServer struct {
	// Addr is "127.0.0.1:port"; it survives Restart.
	Addr string

	t    testing.TB
	args []string
	port int
	proc *Proc
}

// AOF are the arguments of a server that keeps its data over Stop, Shutdown and
// Restart: it writes each command to disk before it answers.
func AOF(t testing.TB) []string {
	t.Helper()
	return []string{"--dir", t.TempDir(), "--appendonly", "yes", "--appendfsync", "always"}
}

// Redis starts a private redis-server and returns when it answers. The
// arguments are added to its command line, for instance "--databases", "4".
// The server ends with the test.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed; run: make setup")
	}
	s := &RedisServer{t: t, args: args}
	var err error
	for range 5 { // another process may take the port first
		s.port = FreePort(t)
		s.Addr = loopback(s.port)
		if err = s.start(); err == nil {
			return s
		}
	}
	t.Fatalf("redis-server does not start: %v\n%s", err, s.proc.Stdout())
	return nil
}

// URL is the server's address as a redis:// URL with database db.
func (s *RedisServer) URL(db int) string { return fmt.Sprintf("redis://%s/%d", s.Addr, db) }

// Pid is the process id of the server.
func (s *RedisServer) Pid() int { return s.proc.Pid }

// Client returns a client of database 0 that is closed when the test ends. It
// does not retry, so that what a test counts is what it sent.
func (s *RedisServer) Client(t testing.TB) *redis.Client {
	t.Helper()
	return s.ClientDB(t, 0)
}

// ClientDB is Client for another database.
func (s *RedisServer) ClientDB(t testing.TB, db int) *redis.Client {
	t.Helper()
	return RedisClient(t, s.Addr, db)
}

// RedisClient returns a client of a Redis at addr, a proxy's for instance, that
// is closed when the test ends. It does not retry and obeys context deadlines.
func RedisClient(t testing.TB, addr string, db int) *redis.Client {
	t.Helper()
	c := newClient(addr, db)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Pause stops the server with SIGSTOP: connections stay open and nothing is
// answered. A paused server is ended like any other when the test ends.
func (s *RedisServer) Pause() { s.t.Helper(); s.proc.Pause() }

// Continue lets a paused server run on.
func (s *RedisServer) Continue() { s.t.Helper(); s.proc.Continue() }

// Stop kills the server with SIGKILL; connections are refused, and all its data
// are gone unless it has an [AOF].
func (s *RedisServer) Stop() { s.t.Helper(); s.proc.Kill() }

// Shutdown ends the server in order, by SIGTERM.
func (s *RedisServer) Shutdown() {
	s.t.Helper()
	s.proc.Signal(syscall.SIGTERM)
	s.proc.Wait(20 * time.Second)
}

// Restart starts the server again at the same address, empty unless it has an
// [AOF].
func (s *RedisServer) Restart() {
	s.t.Helper()
	if s.proc.Alive() {
		s.Stop()
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("redis-server does not start again: %v\n%s", err, s.proc.Stdout())
	}
}

func (s *RedisServer) start() error {
	s.t.Helper()
	argv := append([]string{
		"redis-server", "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1",
		"--dir", s.t.TempDir(), "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, s.args...)
	s.proc = Start(s.t, "redis-server", nil, argv...)
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := s.answers()
		if err == nil {
			return nil
		}
		if !s.proc.Alive() {
			return errors.New("it ended at once")
		}
		if time.Now().After(deadline) {
			s.proc.Signal(syscall.SIGKILL)
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
}

// answers compares the process id too: on a port that was lost to another test
// process, that one's server would answer.
func (s *RedisServer) answers() error {
	// A bare dial first: the client writes each refused one to standard error.
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return err
	}
	_ = conn.Close()
	c := newClient(s.Addr, 0)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		// A server that asks for a password, or still loads, is up.
		if strings.HasPrefix(err.Error(), "NOAUTH") {
			return nil
		}
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.proc.Pid)) {
		return fmt.Errorf("another server answers at %s", s.Addr)
	}
	return nil
}

func newClient(addr string, db int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, DB: db, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: 2 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
	})
}
