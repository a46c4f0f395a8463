package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
)

// called is one request as the receiver got it.
type called struct{ task, tick, attempt, key, fence, path, body, authorization string }

// Jobs whose task is a webhook, on two replicas and on both engines: each tick
// is one call; a call that is refused for now is tried again under the same key;
// the secret stays out of the logs.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.bin = testkit.Binary(t)
	var mu sync.Mutex
	var calls []called
	seen := map[string]int{} // by task
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		mu.Lock()
		defer mu.Unlock()
		c := called{
			task: h.Get("Solobeat-Task"), tick: h.Get("Solobeat-Tick"), attempt: h.Get("Solobeat-Attempt"), key: h.Get("Idempotency-Key"), fence: h.Get("Solobeat-Fence"),
			path: r.URL.Path, body: string(body), authorization: h.Get("Authorization"),
		}
		calls = append(calls, c)
		if seen[c.task]++; seen[c.task] == 2 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "later, "+c.authorization, http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, `{"tick": %q}`, c.tick)
	}))
	t.Cleanup(receiver.Close)
	s.file("token.txt", "hunter2-token\n")
	s.file("schedule.yaml", `version: 1
jobs:
  one: {task: hooks.celery, every: 2s, kwargs: {tick: "{{ .Tick.UTC | rfc3339 }}"}, misfire: {deadline: 1h}}
  two: {task: hooks.asynq, engine: asynq, every: 2s, kwargs: {tick: "{{ .Tick.UTC | rfc3339 }}"}, misfire: {deadline: 1h}}
`)
	hook := `
    webhook:
      url: ` + receiver.URL + `/ticks/{{ .Params.tick }}
      headers: {Authorization: {file: token.txt, prefix: "Bearer "}}
    timeout: 20s
`
	conf := s.file("solobeat.yaml", "worker: {engines: [celery, asynq], concurrency: 4}\nschedule: {file: schedule.yaml}\ntasks:\n  hooks.celery:"+hook+"  hooks.asynq:"+hook)
	if code, out, errs := s.cli(t, nil, "validate", "--strict", conf); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	env := []string{"SOLOBEAT_CONFIG=" + conf}
	replicas := []*worker{s.workerAsync("a", env, "--with-scheduler"), s.workerAsync("b", env, "--with-scheduler")}
	testkit.Poll(t, 2*time.Minute, 50*time.Millisecond, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen["hooks.celery"] >= 6 && seen["hooks.asynq"] >= 6
	}, "six calls of each task")
	for _, w := range replicas {
		w.Signal(syscall.SIGTERM)
		if code := w.Wait(40 * time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if strings.Contains(w.Stdout()+w.Stderr(), "hunter2") {
			t.Errorf("the secret is in the log")
		}
	}
	mu.Lock()
	defer mu.Unlock()
	attempts, keys := map[string][]string{}, map[string]map[string]bool{}
	owner := map[string]string{} // of a key
	for _, c := range calls {
		run := c.task + " " + c.tick
		attempts[run] = append(attempts[run], c.attempt)
		if keys[run] == nil {
			keys[run] = map[string]bool{}
		}
		keys[run][c.key] = true
		if o := owner[c.key]; c.key == "" || o != "" && o != run {
			t.Errorf("%s has the key %q of %s", run, c.key, o)
		}
		owner[c.key] = run
		var body struct{ Kwargs struct{ Tick string } }
		if err := json.Unmarshal([]byte(c.body), &body); err != nil || body.Kwargs.Tick != c.tick || c.path != "/ticks/"+c.tick {
			t.Errorf("%s: path %s, body %s", run, c.path, c.body)
		}
		if c.fence == "" || c.authorization != "Bearer hunter2-token" {
			t.Errorf("%s: fence %q, Authorization %q", run, c.fence, c.authorization)
		}
	}
	retried := map[string]int{}
	for _, run := range slices.Sorted(maps.Keys(attempts)) {
		want := []string{"1"}
		if task, _, _ := strings.Cut(run, " "); len(attempts[run]) > 1 {
			want = []string{"1", "2"}
			retried[task]++
		}
		if diff := cmp.Diff(want, attempts[run]); diff != "" || len(keys[run]) != 1 {
			t.Errorf("%s: attempts %v under %d keys", run, attempts[run], len(keys[run]))
		}
	}
	if want := map[string]int{"hooks.celery": 1, "hooks.asynq": 1}; !maps.Equal(retried, want) {
		t.Errorf("tried again %v, want %v", retried, want)
	}
}
