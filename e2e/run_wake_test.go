package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// A task that waits for the lock of `solobeat run` goes on as soon as the program
// has ended, as it does where a worker releases the lock: not by its timer,
// which is 8 s by then.
func TestRunWakesWhatWaitsForItsLock(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	w := s.worker("w", nil)
	end := filepath.Join(s.dir, "end")
	p := testkit.StartCmd(t, "run", command(s.dir, s.env(), testkit.Binary(t), "run", "--lock", "shared", "--",
		"sh", "-c", "echo up; while [ ! -e '"+end+"' ]; do sleep 0.05; done"))
	p.WaitOutput(20*time.Second, "up")
	id := s.enqueue("tests.when", guarded(tasks.Guard{Job: "job", Lock: &tasks.LockGuard{Key: "shared", TTLMS: 30_000, OnBusy: tasks.OnBusyRetry}}))
	testkit.Poll(t, 40*time.Second, 10*time.Millisecond, func() bool {
		return strings.Count(w.Stderr(), `"msg":"task parked"`) >= 4
	}, "the message is parked for the fourth time")
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(10 * time.Second); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.Stderr())
	}
	ended := time.Now()
	s.wantState(id, wire.StateSuccess, 30*time.Second)
	if took := time.Since(ended); took > 2*time.Second {
		t.Errorf("ran %v after the release: it waited for its timer", took)
	}
}
