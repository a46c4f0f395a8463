package rig

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a private redis-server on loopback, without persistence.
type Redis struct {
	*Proc

	Addr string
	// Client is one without retries, for the benchmark's own commands.
	Client *redis.Client
}

// StartRedis starts a server and returns when it answers. It ends with ctx, or
// by Stop.
func StartRedis(ctx context.Context, dir string) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("rig: redis-server is not installed; run: make setup: %w", err)
	}
	var last error
	for range 5 { // another process may take the port first
		addr, err := FreeAddr()
		if err != nil {
			return nil, err
		}
		s, err := startRedis(ctx, dir, path, addr)
		if err == nil {
			return s, nil
		}
		last = err
	}
	return nil, last
}

func startRedis(ctx context.Context, dir, path, addr string) (*Redis, error) {
	_, port, _ := net.SplitHostPort(addr)
	p, err := Start(ctx, dir, "redis-server", nil, path, "--port", port, "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	if err != nil {
		return nil, err
	}
	s := &Redis{Proc: p, Addr: addr, Client: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DisableIdentity: true, ReadTimeout: time.Minute, DialerRetries: 1})}
	err = Until(ctx, 20*time.Second, 5*time.Millisecond, func() (bool, error) {
		if err := p.Failure(); err != nil {
			return false, err
		}
		conn, err := net.DialTimeout("tcp", addr, time.Second) // the client would write each refusal to standard error
		if err != nil {
			return false, nil
		}
		_ = conn.Close()
		info, err := s.Client.Info(ctx, "server").Result()
		return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", p.Pid)), nil
	})
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("rig: redis-server at %s: %w", addr, err)
	}
	return s, nil
}

// URL is its address as a redis:// URL of database 0.
func (s *Redis) URL() string { return "redis://" + s.Addr + "/0" }

// Stop ends the server at once; all its data are gone.
func (s *Redis) Stop() {
	_ = s.Client.Close()
	s.Kill()
}

// Used is the CPU time of the server so far by INFO, in microseconds exact.
func (s *Redis) Used(ctx context.Context) (time.Duration, error) {
	info, err := s.info(ctx, "cpu")
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, key := range []string{"used_cpu_user", "used_cpu_sys"} {
		sec, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			return 0, fmt.Errorf("rig: INFO cpu: %s: %w", key, err)
		}
		sum += time.Duration(sec * float64(time.Second))
	}
	return sum, nil
}

// Calls are the commands that the server has run so far, by name, those inside
// of scripts included. INFO is left out: who asks would count himself.
func (s *Redis) Calls(ctx context.Context) (map[string]int64, error) {
	info, err := s.info(ctx, "commandstats")
	if err != nil {
		return nil, err
	}
	calls := map[string]int64{}
	for key, val := range info {
		name, ok := strings.CutPrefix(key, "cmdstat_")
		if !ok || name == "info" {
			continue
		}
		n, _, _ := strings.Cut(strings.TrimPrefix(val, "calls="), ",")
		if calls[name], err = strconv.ParseInt(n, 10, 64); err != nil {
			return nil, fmt.Errorf("rig: INFO commandstats: %s: %w", key, err)
		}
	}
	return calls, nil
}

func (s *Redis) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.Client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if key, val, ok := strings.Cut(line, ":"); ok {
			info[key] = val
		}
	}
	return info, nil
}

// Until calls check every interval until it says true, and fails when limit
// passes first, ctx ends, or check fails.
func Until(ctx context.Context, limit, interval time.Duration, check func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("rig: not within %s", limit))
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		ok, err := check()
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
