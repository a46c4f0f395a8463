package metrics_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/scheduler"
)

// series lists the label values of a family, as name="value" texts.
func series(t *testing.T, m *metrics.Metrics, family string) []string {
	t.Helper()
	all, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out = append(out, strings.Join(labels, " "))
		}
	}
	slices.Sort(out)
	return out
}

func job(t *testing.T, name, lockKey string) *scheduler.Job {
	t.Helper()
	spec := scheduler.SpecConfig{Cron: "0 * * * *"}
	s, _, err := scheduler.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return &scheduler.Job{Name: name, Task: "report", Spec: spec, Schedule: s, Lock: &scheduler.JobLock{Key: lockKey}}
}

// A lock is counted under the name of the series that was born at zero,
// whatever its key renders to: else an alert looks at a series that never
// moves, and each tick makes another one.
func TestLocksAreCountedWhereTheirZeroIs(t *testing.T) {
	t.Parallel()
	jobs := []*scheduler.Job{
		job(t, "default-key", ""), job(t, "own-key", "report:lock"), job(t, "rendered-key", "report:{{ .Tick.Local | hour }}"),
	}
	m := metrics.New(metrics.Config{Jobs: jobs, Namespace: "default", Worker: true})
	before := series(t, m, "solobeat_lock_outlived_total")
	if len(before) != len(jobs) {
		t.Fatalf("born at zero: %q", before)
	}
	obs := m.LockObserver()
	for _, j := range jobs {
		for _, tick := range scheduler.Upcoming(j.Schedule, time.Now(), 5) {
			r, err := j.Request("", tick)
			if err != nil {
				t.Fatal(err)
			}
			l := r.Guard.Lock
			obs.Outlived(lockguard.Labels{Schedule: r.Guard.Job, Lock: cmp.Or(l.Name, l.Key)})
		}
	}
	if after := series(t, m, "solobeat_lock_outlived_total"); !slices.Equal(before, after) {
		t.Errorf("series before %q, after %q", before, after)
	}
}

// Names that are learnt while others are counted: a worker without the schedule
// file meets jobs in several runs at once.
func TestNamesAreLearntFromManyRuns(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Config{Jobs: []*scheduler.Job{job(t, "known", "")}, Namespace: "default", Worker: true})
	locks, records := m.LockObserver(), m.RecordObserver()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				name := fmt.Sprintf("job-%d", (i*500+j)%3000)
				records.Decision(idempotency.Labels{Schedule: name}, idempotency.DecisionClaimed)
				records.Decision(idempotency.Labels{Schedule: "known"}, idempotency.DecisionClaimed)
				locks.Busy(lockguard.Labels{Schedule: name, Lock: name}, "redis")
			}
		})
	}
	wg.Wait()
	claimed := slices.DeleteFunc(series(t, m, "solobeat_record_decisions_total"), func(s string) bool { return !strings.Contains(s, "decision=claimed") })
	if n := len(claimed); n > metrics.MaxJobs+1 || !slices.Contains(claimed, "decision=claimed schedule=_other") || !slices.Contains(claimed, "decision=claimed schedule=known") {
		t.Errorf("%d series", n)
	}
}

// A message's guard may name any lock: beyond the bound they share a series, and
// none of them is kept.
func TestNamesOfMessagesDoNotFillTheMemory(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Config{Worker: true})
	o := m.LockObserver()
	for i := range 3 * metrics.MaxJobs {
		o.Busy(lockguard.Labels{Lock: fmt.Sprintf("order:%d", i)}, "redis")
		o.Busy(lockguard.Labels{Lock: "order:0", Schedule: fmt.Sprintf("job%d", i)}, "redis")
	}
	if n := m.KeptSeries(); n == 0 || n > 2*metrics.MaxJobs {
		t.Errorf("%d series are kept", n)
	}
	if v := value(t, m, "solobeat_lock_acquire_total", "lock=_other", "schedule=none", "result=busy"); v != 2*metrics.MaxJobs {
		t.Errorf("_other was busy %v times, want %d", v, 2*metrics.MaxJobs)
	}
}
