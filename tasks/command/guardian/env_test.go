package guardian_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/tasks/command/guardian"
)

func TestEnv(t *testing.T) {
	t.Parallel()
	base := []string{
		"PATH=/bin", "SOLOBEAT_REDIS_URL=redis://user:secret@h/0", "SOLOBEAT_REDIS_URL_FILE=/run/secret", "A=1=2",
		"SOLOBEAT_RUN_KEY=outer", "SOLOBEAT_POSTGRES_URL=postgres://u:secret@h/d",
	}
	got := guardian.Env(base, guardian.Settings, guardian.Run{TaskID: "id", Tick: "2026-01-02T03:00:00Z", Fence: "7"})
	want := []string{"PATH=/bin", "A=1=2", "SOLOBEAT_RUN_TASK_ID=id", "SOLOBEAT_RUN_TICK=2026-01-02T03:00:00Z", "SOLOBEAT_RUN_FENCE=7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = guardian.Env(base, nil, guardian.Run{Key: "k"})
	want = []string{base[0], base[1], base[2], base[3], base[5], "SOLOBEAT_RUN_KEY=k"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	tail := guardian.NewTail(5)
	for _, s := range []string{"ab", "", "cde"} {
		if n, err := tail.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := string(tail.Bytes()); got != "abcde" || tail.Truncated() {
		t.Errorf("%q %v", got, tail.Truncated())
	}
	all := "abcde"
	for _, s := range []string{"f", "ghijkl", "0123456789abcdef", "xyz", "1", "2"} {
		_, _ = tail.Write([]byte(s))
		all += s
		if got := string(tail.Bytes()); got != all[len(all)-5:] || !tail.Truncated() {
			t.Errorf("%q after %q", got, all)
		}
	}
}
