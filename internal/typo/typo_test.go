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

// OneEdit is Distance == 1, for all words of up to four of three letters.
func TestOneEdit(t *testing.T) {
	t.Parallel()
	words := []string{""}
	for begin := 0; len(words[len(words)-1]) < 4; {
		end := len(words)
		for _, w := range words[begin:end] {
			words = append(words, w+"a", w+"b", w+"c")
		}
		begin = end
	}
	for _, a := range words {
		for _, b := range words {
			if got, want := OneEdit(a, b), Distance(a, b) == 1; got != want {
				t.Errorf("OneEdit(%q, %q) = %v, want %v", a, b, got, want)
			}
		}
	}
}
