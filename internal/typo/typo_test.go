package typo

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"worker", "scheduler", "enqueue", "list", "lock", "wait"}
	for text, want := range map[string]string{
		"wroker": "worker", "workr": "worker", "schedluer": "scheduler", "enque": "enqueue", "lits": "list", "lokc": "lock",
		"x": "", "frobnicate": "", "": "", "waiting": "", "En-Queue": "enqueue",
		strings.Repeat("worker", 20): "",
	} {
		if got := Nearest(text, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", text, got, want)
		}
	}
}
