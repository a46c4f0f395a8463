package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// `queues` shows what live workers serve, also where the reader's own
// configuration does not name it, and `enqueue --wait` says when nobody does.
func TestQueuesShowsWhoServes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.worker("other", []string{"SOLOBEAT_WORKER_QUEUES=guarded"})
	code, out, errs := s.cli(t, nil, "queues", "-o", "json")
	var got struct {
		Queues []struct {
			Queue   string
			Workers []string
		}
	}
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	served := map[string][]string{}
	for _, q := range got.Queues {
		served[q.Queue] = q.Workers
	}
	if len(served) != 2 || len(served["celery"]) != 0 || !slices.Equal(served["guarded"], []string{"other@e2e"}) {
		t.Errorf("queues %v", served)
	}
	for queue, want := range map[string]bool{"celery": true, "guarded": false} {
		_, _, errs := s.cli(t, nil, "enqueue", "tests.add", "--args", "[1, 2]", "--queue", queue, "--wait", "--timeout", "2s")
		if strings.Contains(errs, "no Solobeat worker serves") != want {
			t.Errorf("queue %s: a word that nobody serves it is %v in %q", queue, !want, errs)
		}
	}
}
