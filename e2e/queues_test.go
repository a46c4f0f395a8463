package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
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

// Two replicas on one machine that want one name get two, and the history
// tells by them what each of the two has done.
func TestHistoryNamesReplicas(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	env := []string{"SOLOBEAT_SCHEDULE_FILE=" + s.file("schedule.yaml", "version: 1\njobs:\n  often: {task: tests.effect, every: 1s, kwargs: {id: \"{{ .Tick.UTC | rfc3339 }}\"}}\n")}
	s.worker("twin", env, "--with-scheduler")
	s.worker("twin", env, "--with-scheduler")
	testkit.Eventually(t, time.Minute, func() error {
		seen := map[string]bool{}
		for _, e := range s.history("often") {
			seen[e.Outcome+" by "+e.By] = true
		}
		for _, want := range []string{"fired by twin@e2e", "fired by twin-2@e2e", "succeeded by twin@e2e", "succeeded by twin-2@e2e"} {
			if !seen[want] {
				return fmt.Errorf("no tick %s in %v", want, seen)
			}
		}
		return nil
	})
}
