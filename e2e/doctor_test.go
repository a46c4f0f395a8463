package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/internal/testkit"
)

// A Python worker takes from a queue of guarded jobs, whose guards it does not
// know: doctor asks it, and says so. One that is stopped does not hold it up.
func TestDoctorNamesPythonWorkers(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		s := newStack(t)
		env := []string{"SOLOBEAT_SCHEDULE_FILE=" + s.file("schedule.yaml", "version: 1\njobs:\n  nightly: {task: pay, every: 24h, queue: nightly}\n")}
		if _, out, errs := s.cli(t, env, "doctor"); !strings.Contains(out, "ok    python          no other worker takes from nightly") {
			t.Errorf("without one:\n%s%s", out, errs)
		}
		w := s.pyWorker(version, nil, "-Q", "nightly")
		testkit.Eventually(t, patience, func() error {
			code, out, errs := s.cli(t, env, "doctor")
			if code != 1 || !strings.Contains(out, "fail  python          the queue nightly has guarded tasks, and a worker that does not know the guards takes from it: py@e2e (keep queues") {
				return fmt.Errorf("exit %d:\n%s%s", code, out, errs)
			}
			return nil
		})
		w.Pause()
		if _, out, _ := s.cli(t, env, "doctor"); !strings.Contains(out, "warn  python          1 of Celery's workers did not say") {
			t.Errorf("a stopped one:\n%s", out)
		}
		w.Continue()
		if left := s.broker.Keys(t.Context(), "*reply*").Val(); len(left) > 0 {
			t.Errorf("it left %q", left)
		}
	})
}
