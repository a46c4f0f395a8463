package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Values has every key, and no password.
func TestValuesHaveAllKeysAndNoSecrets(t *testing.T) {
	t.Parallel()
	cfg, _, err := Load("", lookup(map[string]string{
		"SOLOBEAT_REDIS_URL": "redis://me:hunter2@h:1/0", "SOLOBEAT_REDIS_LOCKS_URL": "redis://h:1/0?client_name=hunter2", "SOLOBEAT_REDIS_RESULTS_URL": "redis://:hunter2@h:2",
	}))
	if err != nil {
		t.Fatal(err)
	}
	values := cfg.Values()
	var want []string
	for key := range (&configReader{d: &decoder{}, c: cfg}).allLeaves() {
		if !strings.HasSuffix(key, "_url_file") && key != "redis.url_file" {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(values))); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
	for key, v := range values {
		if s, ok := v.(string); ok && strings.Contains(s, "hunter2") {
			t.Errorf("%s: %s", key, s)
		}
	}
}
