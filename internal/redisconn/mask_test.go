package redisconn

import (
	"strings"
	"testing"
)

// A URL in a message shows where a client goes, and nothing that opens it.
func TestMaskURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://host:6379/0":                      "redis://host:6379/0",
		"redis://:hunter2@host:6379/0":             "redis://****@host:6379/0",
		"rediss://user:hunter2@host":               "rediss://****@host",
		"redis://:hun@ter2@host/1":                 "redis://****@host/1",
		"redis://host/0?password=hunter2":          "redis://host/0?password=****",
		"redis://host/0?dial_timeout=hunter2&db=1": "redis://host/0?dial_timeout=****&db=****",
		"unix://user:hunter2@/run/redis.sock?db=1": "unix://****@/run/redis.sock?db=****",
		"redis://:hunter2":                         "redis://****",
		"redis://user:s3%zzcret@host:x/0":          "redis://****",
		"redis://:a/hunter2@host":                  "redis://****@host",
		"redis://:a#hunter2@host":                  "redis://****@host",
		"redis://:hunter2@host:port":               "redis://****",
		"redis://:a hunter2@host hunter2":          "redis://****",
		"user:hunter2@host":                        "****",
		"user:hunter2":                             "****",
		"hunter2 and more":                         "****",
		"hunter2":                                  "****",
		"hunter.2":                                 "****",
		"user:12345":                               "****",
		"host:6379/0":                              "****",
		"localhost:6379":                           "localhost:6379",
		"127.0.0.1:6379/0":                         "127.0.0.1:6379/0",
		"redis.example.com:6379":                   "redis.example.com:6379",
		"":                                         "",
		"redis:user:hunter2@10.0.0.5:6379":         "****",
		"redis://user:hunter2:127.0.0.1:1":         "redis://****",
		"redis://h:1/hunter2":                      "redis://h:1/****",
		"redis://h:1/0/hunter2":                    "redis://h:1/****",
		"redis://h:1/0#hunter2":                    "redis://h:1/0#****",
		"redis://h:1/0?hunter2":                    "redis://h:1/0?****",
		"redis://h:1/0?db=2&hunter2":               "redis://h:1/0?db=****&****",
		"redis://h:1?hunter2=1":                    "redis://h:1?****",
		"redis://h:1/0?db=1#hunter2":               "redis://h:1/0?db=****",
	} {
		if got := MaskURL(raw); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

// In the midst of other words too, also of a URL that was made a path of, was
// cut, or has lost its scheme; what is masked stays as it is.
func TestMaskText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"redis://u:hunter2@h:1/0" is no queue`:                `"redis://****@h:1/0" is no queue`,
		"/etc/redis:/u:hunter2@h:1/0?db=hunter2: no such file": "/etc/redis:/****@h:1/0?db=****: no such file",
		"dir/u:hunter2@h:6379: no such file":                   "****@h:6379: no such file",
		`want text, got "u:hunter2@h:6379"`:                    `want text, got "****@h:6379"`,
		`"hunter2@h:6379"`:                                     `"****@h:6379"`,
		`"redis://user:hunter2hunter2"…`:                       `"redis://****"…`,
		`"redis://h?dial_timeout=hunter2"`:                     `"redis://h?dial_timeout=****"`,
		"redis://h:1/0 of x: OOM no, on @user_script:5.":       "redis://h:1/0 of x: OOM no, on @user_script:5.",
		"h/0?password=hunter2":                                 "h/0?password=****",
		"redis://h/0?password=hunter2: it has":                 "redis://h/0?password=****: it has",
		"(redis://h:1/0), 'redis://h:1', redis://h/hunter2.":   "(redis://h:1/0), 'redis://h:1', redis://h/****.",
		"solobeat@host-1: no answer":                           "solobeat@host-1: no answer",
		"unknown key \"a\" (did you mean b?)":                  "unknown key \"a\" (did you mean b?)",
		"write the instant, such as 2026-11-29T17:00:00+01:00": "write the instant, such as 2026-11-29T17:00:00+01:00",
		"jobs: want a list: none":                              "jobs: want a list: none",
		"write host:port, such as 127.0.0.1:9464, or off":      "write host:port, such as 127.0.0.1:9464, or off",
	} {
		got := MaskText(text)
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		if again := MaskText(got); again != got {
			t.Errorf("%s: masked twice: %s", got, again)
		}
	}
}

// What a URL may hold is still taken.
func TestGoodURLs(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"redis://host", "redis://[::1]:6379/0", "redis://[fe80::1%25eth0]:1", "unix:///run/redis.sock?db=1", "rediss://u:p@host:1/15",
		"redis://h?pool_size=10000&pipeline_pool_size=-1&max_retries=-1&read_timeout=-1&protocol=3&conn_max_lifetime=1h&dial_timeout=5",
	} {
		c, err := Open(Options{URL: raw})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		_ = c.Close()
	}
}

// Errors say what is wrong with a URL without repeating its secret.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	for raw, words := range map[string]string{
		"http://:hunter2@host":                     "redis://, rediss:// or unix://",
		"redis://:hunter2":                         "no port",
		"redis://:hunter2@host:x":                  "no port",
		"redis://:a#hunter2@host":                  "no port",
		"redis://:hun ter2@host hunter2":           "percent-escaped",
		"redis://:hunter2@host/x":                  "database number",
		"redis://:hunter2@host?ssl_cert_reqs=none": "unknown option (ssl_cert_reqs)",
		"redis://:hunter2@host?read_timeout=x":     "options",
		"unix://:hunter2@":                         "socket",
		"":                                         "redis://, rediss:// or unix://",
		"redis://:hunter2@host/-1":                 "out of range",
		"redis://:hunter2@host/99999999999":        "out of range",
		"redis://:hunter2@host?db=-1":              "out of range",
		"redis://:hunter2@host:65536":              "1 to 65535",
		"redis://:hunter2@host:0":                  "1 to 65535",
		"redis://:hunter2@host,host2/0":            "several hosts",
		"redis://:hunter2@host:1,host2:2/0":        "several hosts",
		"redis:user:hunter2@10.0.0.5:6379":         "redis://, rediss:// or unix://",
		"redis:10.0.0.5:6379/0":                    "redis://, rediss:// or unix://",
		"redis:":                                   "redis://, rediss:// or unix://",
		`redis:\\user:hunter2@h`:                   "redis://, rediss:// or unix://",
		"redis:hunter2@h?client_name=://":          "redis://, rediss:// or unix://",
		"redis://user:hunter2:127.0.0.1:1":         "is the at sign behind a password missing",
		"redis://host?hunter2=1":                   "an unknown option",
		"redis://host?db=hunter2":                  "its option db",
		"redis://host?db=99999999999999999999":     "its option db",
		"redis://host?pool_size=-1":                "pool_size is not from 1 to 10000",
		"redis://host?pool_size=100000000000":      "pool_size is not from 1 to 10000",
		"redis://host?min_idle_conns=100000000000": "min_idle_conns is not",
		"redis://host?max_idle_conns=-2":           "max_idle_conns is not",
		"redis://host?max_active_conns=99999":      "max_active_conns is not",
		"redis://host?max_concurrent_dials=-1":     "max_concurrent_dials is not",
		"redis://host?pipeline_pool_size=-2":       "pipeline_pool_size is not",
		"redis://host?protocol=7":                  "protocol is not from 2 to 3",
		"redis://host?max_retries=1000":            "max_retries is not",
		"redis://host?max_retry_backoff=2h":        "max_retry_backoff is too long",
		"redis://host?read_timeout=9999999999":     "read_timeout is too long",
	} {
		c, err := Open(Options{URL: raw})
		if err == nil {
			_ = c.Close()
			t.Errorf("%s: opened", raw)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, words) || strings.Contains(msg, "hunter2") {
			t.Errorf("%s: %s", raw, msg)
		}
	}
}
