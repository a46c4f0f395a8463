package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options are what a caller may choose of a client; the rest is the same for
// every client of the process.
type Options struct {
	// URL is redis://[user:password@]host:port/db, rediss:// or unix://.
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
	opt, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, fmt.Errorf("redisconn: %s: %w", MaskURL(o.URL), maskErr(err, o.URL))
	}
	opt.ClientName = o.Name
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout = 3 * time.Second
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
	return redis.NewClient(opt), nil
}

// SameServer reports whether two URLs name the same host, port and
// transport, whatever their databases.
func SameServer(a, b string) bool {
	oa, errA := redis.ParseURL(a)
	ob, errB := redis.ParseURL(b)
	if errA != nil || errB != nil {
		return false
	}
	return oa.Network == ob.Network && oa.Addr == ob.Addr && (oa.TLSConfig == nil) == (ob.TLSConfig == nil)
}

// DB returns the database number of a URL, 0 if it has none.
func DB(rawURL string) int {
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return 0
	}
	return o.DB
}

var passwordRE = regexp.MustCompile(`(://[^/@]*:)[^@]*(@)`)

// MaskURL hides the password of a URL, also of one that does not parse.
func MaskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return passwordRE.ReplaceAllString(raw, "${1}****${2}")
	}
	q := u.Query()
	for _, k := range []string{"password", "auth", "token"} {
		if q.Has(k) {
			q.Set(k, "****")
			u.RawQuery = q.Encode()
		}
	}
	return passwordRE.ReplaceAllString(u.Redacted(), "${1}****${2}")
}

// maskErr drops the URL from errors that repeat it.
func maskErr(err error, raw string) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	if u, perr := url.Parse(raw); perr == nil && u.User != nil {
		if p, ok := u.User.Password(); ok && p != "" && regexp.MustCompile(regexp.QuoteMeta(p)).MatchString(err.Error()) {
			return errors.New("bad URL")
		}
	}
	return err
}

// Policy returns the server's maxmemory-policy. It reads INFO memory, which
// works where CONFIG is forbidden; "" means that the server does not say.
func Policy(ctx context.Context, c redis.UniversalClient) (string, error) {
	text, err := c.Info(ctx, "memory").Result()
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
