package lockredis

import (
	"testing"

	"github.com/solobeat/solobeat/internal/testkit"
)

func TestSlot(t *testing.T) {
	t.Parallel()
	// The check value of CRC16/XMODEM, as the Redis Cluster specification gives it.
	if got := slot("123456789"); got != 0x31C3 {
		t.Errorf("slot(123456789) = %#x, want 0x31c3", got)
	}
	for key, tag := range map[string]string{
		"a": "a", "{a}": "a", "x{a}y{b}": "a", "{}a": "{}a", "a{b": "a{b", "a}b": "a}b", "{{a}}": "{a", "a{}{b}": "a{}{b}",
	} {
		if got := hashTag(key); got != tag {
			t.Errorf("hashTag(%q) = %q, want %q", key, got, tag)
		}
	}
}

func FuzzCompanion(f *testing.F) {
	b, err := New(testkit.RedisClient(f, "127.0.0.1:1", 0), Options{KeyPrefix: "p:"})
	if err != nil {
		f.Fatal(err)
	}
	for _, key := range []string{"a", "{a}", "{{a}}", "{}a", "a}", "}a{", "{", "}", "x{a}y{b}", "{}{}", "solobeat:default:held:{a}"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" {
			return
		}
		companion := b.companion(key)
		if got, ok := b.lockOf(companion); !ok || got != key { // so no two keys share one
			t.Errorf("lockOf(%q) = %q, %v, want %q", companion, got, ok, key)
		}
		if got, want := slot(hashTag(companion)), slot(hashTag(key)); got != want {
			t.Errorf("%q is in slot %d, its companion %q in %d", key, want, companion, got)
		}
	})
}
