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
		"host:6379/0":                              "host:6379/0",
		"":                                         "",
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
		"/etc/redis:/u:hunter2@h:1/0?x=hunter2: no such file":  "/etc/redis:/****@h:1/0?x=****: no such file",
		"dir/u:hunter2@h:6379: no such file":                   "****@h:6379: no such file",
		`want text, got "u:hunter2@h:6379"`:                    `want text, got "****@h:6379"`,
		`"hunter2@h:6379"`:                                     `"****@h:6379"`,
		`"redis://user:hunter2hunter2"…`:                       `"redis://****"…`,
		`"redis://h?dial_timeout=hunter2"`:                     `"redis://h?dial_timeout=****"`,
		"h/0?password=hunter2":                                 "h/0?password=****",
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
