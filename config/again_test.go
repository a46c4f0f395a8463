package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func noEnv(string) (string, bool) { return "", false }

// Each key has a field by which a change of it is found.
func TestChangedKeysKnowsEveryKey(t *testing.T) {
	t.Parallel()
	url := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(url, []byte("redis://other:6379/0"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{
		"namespace": "other", "redis.url": "redis://other:6379/0", "redis.results_url": "redis://localhost:6379/7", "redis.locks_url": "redis://other:6379/0",
		"redis.global_keyprefix": "p:", "redis.results_keyprefix": "p:", "worker.engines": "[asynq]", "worker.queues": "[other]",
		"worker.concurrency": "77", "worker.grace": "77s", "worker.poison_after": "77", "worker.name": "a@b", "asynq.servers": "7",
		"schedule.file": "other.yaml", "results.expires": "77s", "metrics.listen": "127.0.0.1:7", "log.level": "error", "log.format": "text",
	}
	base, _, err := Load("", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	for key := range (&configReader{d: newDecoder(""), c: &Config{}}).allLeaves() {
		value, ok := other[key]
		if !ok {
			if base, isFile := key[:max(len(key)-5, 0)], key[max(len(key)-5, 0):] == "_file"; !isFile || other[base] == "" {
				t.Errorf("%s: add a value of it to this test", key)
			}
			continue
		}
		c := *base
		r := &configReader{d: newDecoder(""), c: &c}
		next, _, _ := parseConfig(r.d, []byte(nested(key, value)), noEnv)
		if next == nil { // a file that is not there, say
			next = r.c
			if key != "schedule.file" {
				t.Errorf("%s: %s is refused", key, value)
			}
			next.Schedule.File = value
		}
		if got := changedKeys(base, next); !slices.Contains(got, key) {
			t.Errorf("%s: changed %q", key, got)
		}
	}
	if got := changedKeys(base, base); got != nil {
		t.Errorf("unchanged: %q", got)
	}
}

// nested writes a dotted key as YAML.
func nested(key, value string) string {
	for i := range key {
		if key[i] == '.' {
			return key[:i] + ": {" + key[i+1:] + ": " + value + "}\n"
		}
	}
	return key + ": " + value + "\n"
}

// The tasks of the new text are read under the settings in force: a default
// lock key of another namespace would let two replicas in.
func TestParseAgain(t *testing.T) {
	t.Parallel()
	const tasks = "tasks: {a: {lock: {ttl: 10s}}, b: {timeout: 5s}}\n"
	inForce, _, err := parseConfig(newDecoder("/etc/solobeat.yaml"), []byte("namespace: one\ntasks: {a: {timeout: 1s}}\n"), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	c, changed, _, err := ParseAgain("/etc/solobeat.yaml", []byte("namespace: two\nredis: {global_keyprefix: 'x:', url: 'redis://:hush@elsewhere:6379/0'}\n"+tasks), noEnv, inForce)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"namespace", "redis.global_keyprefix", "redis.locks_url", "redis.results_url", "redis.url"}, changed); diff != "" {
		t.Errorf("changed keys: %s", diff)
	}
	if c.Namespace != "one" || c.Redis.URL != DefaultRedisURL || len(c.Tasks) != 2 {
		t.Errorf("namespace %s, %s, %d tasks", c.Namespace, c.Redis.URL, len(c.Tasks))
	}
	if got, want := c.Tasks[0].Config.Lock.Key, "solobeat:one:lock:task:a"; got != want {
		t.Errorf("lock key %q, want %q", got, want)
	}
	if len(inForce.Tasks) != 1 {
		t.Error("the configuration in force was changed")
	}
	_, _, ps, err := ParseAgain("/etc/solobeat.yaml", []byte("namespac: two\ntasks: {a: {locks: {}}}\n"), noEnv, inForce)
	if err == nil || len(ps.Errors()) != 2 {
		t.Errorf("problems: %v", ps)
	}
}
