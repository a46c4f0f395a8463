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
		"unix://user:hunter2@/run/redis.sock?db=1": "unix://****@/run/redis.sock?db=1",
		"redis://:hunter2":                         "redis://****",
		"redis://:a/hunter2@host":                  "redis://****",
		"redis://:a#hunter2@host":                  "redis://****",
		"redis://:hunter2@host:port":               "redis://****",
		"redis://:a hunter2@host":                  "redis://****",
		"user:hunter2@host":                        "****",
	} {
		if got := MaskURL(raw); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
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
