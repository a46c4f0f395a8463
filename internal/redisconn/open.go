package redisconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options are what a caller may choose of a client; the rest is the same for
// every client of the process.
type Options struct {
	// URL is redis://[user:password@]host:port/db, rediss:// or unix://path.
	URL string
	// Name shows in CLIENT LIST; "" leaves it unset.
	Name string
	// PoolSize bounds the connections; 0 takes go-redis's default.
	PoolSize int
	// Retries is how often go-redis repeats a command by itself after a
	// network error. 0 means never: a repeated script may have run
	// (redis/go-redis#2985), so whoever calls it must know that.
	Retries int
}

// Open makes a client. It does not connect yet. Every command is bounded by
// its context (ContextTimeoutEnabled, off by default in go-redis), dial and
// pool waits by a few seconds.
func Open(o Options) (*redis.Client, error) {
	opt, err := parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("redisconn: %s: %w", MaskURL(o.URL), err)
	}
	opt.ClientName = o.Name
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout = 3 * time.Second
	opt.DialerRetries = 1 // whoever calls tries again, and says so
	opt.PoolTimeout = 4 * time.Second
	opt.ReadTimeout = 10 * time.Second
	opt.WriteTimeout = 5 * time.Second
	opt.MaxRetries = -1
	if o.Retries > 0 {
		opt.MaxRetries = o.Retries
	}
	if o.PoolSize > 0 {
		opt.PoolSize = o.PoolSize
	}
	if opt.Protocol == 0 {
		// What RESP3 adds, pushes, nobody here asks for; and go-redis looks for
		// one before it reads any reply.
		opt.Protocol = 2
	}
	return redis.NewClient(opt), nil
}

// parse reads a URL. What go-redis takes and no server can have, what would
// silently mean another server than the one that was written, and what its pool
// panics at, is refused too.
func parse(raw string) (*redis.Options, error) {
	opt, err := redis.ParseURL(raw)
	if err != nil {
		return nil, badURL(raw, err)
	}
	if u, err := url.Parse(raw); err != nil || u.Opaque != "" || !strings.Contains(raw, "://") {
		return nil, errors.New("it does not begin with redis://, rediss:// or unix://") // redis:host is localhost to go-redis
	}
	if err := checkAddress(opt); err != nil {
		return nil, err
	}
	return opt, checkOptions(opt)
}

const (
	maxConns   = 10_000
	maxBuffer  = 64 << 20 // bytes, of one connection
	maxBackoff = time.Minute
)

// checkOptions bounds the numbers behind the question mark. 0 stands for an
// option that is not there; -1 switches a timeout, retries or the pool of
// pipelines off.
func checkOptions(opt *redis.Options) error {
	for _, o := range []struct {
		name      string
		n         int
		low, high int
	}{
		{"pool_size", opt.PoolSize, 1, maxConns},
		{"min_idle_conns", opt.MinIdleConns, 1, maxConns},
		{"max_idle_conns", opt.MaxIdleConns, 1, maxConns},
		{"max_active_conns", opt.MaxActiveConns, 1, maxConns},
		{"max_concurrent_dials", opt.MaxConcurrentDials, 1, maxConns},
		{"pipeline_pool_size", opt.PipelinePoolSize, -1, maxConns},
		{"pipeline_read_buffer_size", opt.PipelineReadBufferSize, 1, maxBuffer},
		{"pipeline_write_buffer_size", opt.PipelineWriteBufferSize, 1, maxBuffer},
		{"max_retries", opt.MaxRetries, -1, 100},
		{"protocol", opt.Protocol, 2, 3},
	} {
		if o.n != 0 && (o.n < o.low || o.n > o.high) {
			return fmt.Errorf("its option %s is not from %d to %d", o.name, o.low, o.high)
		}
	}
	for _, o := range []struct {
		name string
		d    time.Duration
		high time.Duration
	}{
		{"min_retry_backoff", opt.MinRetryBackoff, maxBackoff},
		{"max_retry_backoff", opt.MaxRetryBackoff, maxBackoff},
		{"dial_timeout", opt.DialTimeout, math.MaxInt64},
		{"read_timeout", opt.ReadTimeout, math.MaxInt64},
		{"write_timeout", opt.WriteTimeout, math.MaxInt64},
		{"pool_timeout", opt.PoolTimeout, math.MaxInt64},
		{"conn_max_idle_time", opt.ConnMaxIdleTime, math.MaxInt64},
		{"conn_max_lifetime", opt.ConnMaxLifetime, math.MaxInt64},
		{"conn_max_lifetime_jitter", opt.ConnMaxLifetimeJitter, math.MaxInt64},
	} {
		if o.d < -1 || o.d > o.high { // so many seconds that they wrapped around
			return fmt.Errorf("its option %s is too long", o.name)
		}
	}
	return nil
}

// checkAddress refuses what no server can have, and would fail only when it is
// connected to.
func checkAddress(opt *redis.Options) error {
	if opt.DB < 0 || opt.DB > math.MaxInt32 {
		return errors.New("its database number is out of range: Redis counts from 0, to 15 unless set up for more")
	}
	if opt.Network != "tcp" {
		return nil
	}
	host, port, err := net.SplitHostPort(opt.Addr)
	if err != nil {
		return errors.New("what stands before the path is no host and port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("its port is not from 1 to 65535")
	}
	if strings.Contains(host, ",") {
		return errors.New("it names several hosts: one server is used")
	}
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		return errors.New("its host has a colon: is the at sign behind a password missing?")
	}
	return nil
}

// SameAddress reports whether two clients go to the same host, port and
// transport, whatever their databases: addresses are compared as they were
// written, and loopback by meaning.
func SameAddress(a, b *redis.Options) bool {
	return a.Network == b.Network && hostPort(a.Addr) == hostPort(b.Addr) && (a.TLSConfig == nil) == (b.TLSConfig == nil)
}

func hostPort(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// badURL says what is wrong with a URL in words that hold nothing of it.
func badURL(raw string, err error) error {
	u, parseErr := url.Parse(raw)
	switch {
	case parseErr != nil && strings.Contains(parseErr.Error(), "invalid port"):
		return errors.New("what stands behind the host is no port")
	case parseErr != nil && strings.Contains(parseErr.Error(), "character"):
		return errors.New("it holds a blank, or a sign that must be percent-escaped")
	case parseErr != nil || strings.Contains(raw, "@") && u.User == nil:
		return errors.New("it is no URL")
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return errors.New("it does not begin with redis://, rediss:// or unix://")
	case errors.As(err, new(*strconv.NumError)) && strings.Contains(err.Error(), "database number"):
		return errors.New("its option db is no database number")
	case strings.Contains(err.Error(), "database number"), strings.Contains(err.Error(), "URL path"):
		return errors.New("its path is no database number")
	case strings.Contains(err.Error(), "socket path"):
		return errors.New("it names no socket")
	}
	if name, ok := strings.CutPrefix(err.Error(), "redis: unexpected option: "); ok {
		if optionNames[name] {
			return fmt.Errorf("it has an unknown option (%s)", name)
		}
		return errors.New("it has an unknown option")
	}
	return errors.New("one of its options cannot be read")
}

// Policy returns the server's maxmemory-policy. It reads INFO memory, which
// works where CONFIG is forbidden; "" means that the server does not say. An
// error is a server that was not reached, or is not ready: its policy may be
// any.
func Policy(ctx context.Context, c redis.UniversalClient) (string, error) {
	text, err := c.Info(ctx, "memory").Result()
	if Answered(err) && !Transient(err) { // INFO is refused, or unknown
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("redisconn: maxmemory-policy: %w", err)
	}
	m := policyRE.FindStringSubmatch(text)
	if m == nil {
		return "", nil
	}
	return m[1], nil
}

var policyRE = regexp.MustCompile(`(?m)^maxmemory_policy:(\S+)`)

// Quiet sends go-redis's own log lines to log at debug level: every failure
// that they tell of also reaches its caller as an error. It is about the whole
// process; commands call it once.
func Quiet(log *slog.Logger) { redis.SetLogger(quiet{log}) }

type quiet struct{ log *slog.Logger }

// Printf implements go-redis's logger.
func (q quiet) Printf(ctx context.Context, format string, args ...any) {
	q.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}
