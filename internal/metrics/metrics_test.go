package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/worker"
)

// full is a process with all roles.
func full(t *testing.T) metrics.Config {
	t.Helper()
	return metrics.Config{
		Version: "v1", Namespace: "default", Jobs: []*scheduler.Job{job(t, "hourly", "report:lock")},
		Locks: []metrics.Lock{{Name: "payment:{{ .Params.id }}", TTL: time.Minute}},
		Tasks: []string{"report", "pay"}, Queues: []string{"celery", "slow"}, Concurrency: 4, Worker: true, Scheduler: true,
	}
}

// value is the value of the one series with these labels, -1 if there is none.
func value(t *testing.T, m *metrics.Metrics, family string, labels ...string) float64 {
	t.Helper()
	all, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := -1.0
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		for _, s := range f.GetMetric() {
			var have []string
			for _, l := range s.GetLabel() {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(have, l) }) {
				found = max(found, 0) + s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
			}
		}
	}
	return found
}

// increase() does not see a series that is born at one: what is rare is there
// from the start, at zero.
func TestRareCountersAreBornAtZero(t *testing.T) {
	t.Parallel()
	m := metrics.New(full(t))
	for _, want := range [][]string{
		{"solobeat_lock_outlived_total", "schedule=hourly", "lock=report:lock"},
		{"solobeat_lock_outlived_total", "schedule=none", "lock=payment:{{ .Params.id }}"},
		{"solobeat_lock_expired_while_held_total", "schedule=hourly", "lock=report:lock"},
		{"solobeat_lock_lost_total", "schedule=hourly", "lock=report:lock"},
		{"solobeat_fenced_total", "schedule=hourly", "lock=report:lock"},
		{"solobeat_record_decisions_total", "schedule=hourly", "decision=takeover"},
		{"solobeat_record_decisions_total", "schedule=hourly", "decision=mismatch"},
		{"solobeat_record_lost_total", "schedule=hourly"},
		{"solobeat_schedule_run_twice_total", "schedule=hourly"},
		{"solobeat_schedule_quarantined", "schedule=hourly"},
		{"solobeat_schedule_ticks_total", "schedule=hourly", "outcome=missed"},
		{"solobeat_stood_aside_total", "schedule=hourly", "at=tick"},
		{"solobeat_stood_aside_total", "schedule=hourly", "at=lock"},
		{"solobeat_stood_aside_total", "schedule=hourly", "at=record"},
		{"solobeat_task_processed_total", "task=pay", "queue=slow", "outcome=failed"},
		{"solobeat_task_processed_total", "task=_unknown", "queue=celery", "outcome=succeeded"},
		{"solobeat_task_retries_total", "task=report", "queue=celery"},
		{"solobeat_task_dead_total", "queue=slow"},
		{"solobeat_task_dead_unlisted_total", "queue=slow"},
		{"solobeat_taken_over_total"},
		{"solobeat_buried_total"},
		{"solobeat_late_commits_total"},
		{"solobeat_suspects_total"},
		{"solobeat_broker_reconnects_total"},
	} {
		if v := value(t, m, want[0], want[1:]...); v != 0 {
			t.Errorf("%v: %v, want 0 (-1: no series)", want, v)
		}
	}
	if n := len(series(t, m, "solobeat_lock_lost_total")); n != 2*len(lockguard.Reasons()) {
		t.Errorf("%d series of lost locks, want one per lock and reason", n)
	}
}

// A process exports nothing of a role that it has not, so that absent() and
// max() of the others mean what they say.
func TestRolesExportTheirOwn(t *testing.T) {
	t.Parallel()
	of := func(worker, sched bool) string {
		cfg := full(t)
		cfg.Worker, cfg.Scheduler = worker, sched
		rec := httptest.NewRecorder()
		metrics.New(cfg).Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		return rec.Body.String()
	}
	for _, family := range []string{"solobeat_worker_concurrency", "solobeat_task_processed_total", "solobeat_buried_total", "solobeat_tasks_in_progress"} {
		if !strings.Contains(of(true, false), family) || strings.Contains(of(false, true), family) {
			t.Errorf("%s: worker %v, scheduler %v", family, strings.Contains(of(true, false), family), strings.Contains(of(false, true), family))
		}
	}
	for _, family := range []string{"solobeat_schedule_ticks_total", "solobeat_schedule_info"} {
		if strings.Contains(of(true, false), family) || !strings.Contains(of(false, true), family) {
			t.Errorf("%s is not the scheduler's own", family)
		}
	}
	if strings.Contains(of(true, true), "heartbeat_timestamp") {
		t.Error("a heartbeat before the loop has completed")
	}
}

// play lets everything happen that can be observed.
func play(m *metrics.Metrics) {
	l := lockguard.Labels{Schedule: "hourly", Lock: "report:lock"}
	lo := m.LockObserver()
	lo.Acquired(l, "redis", time.Millisecond)
	lo.Busy(l, "redis")
	lo.AcquireError(l, "redis", errors.New("x"))
	lo.AcquireCancelled(l, "redis")
	for _, o := range []lockguard.RenewOutcome{lockguard.RenewOK, lockguard.RenewFailed, lockguard.RenewRejected} {
		lo.Renewed(l, "redis", o, time.Millisecond)
	}
	for _, r := range lockguard.Reasons() {
		lo.Lost(l, r)
	}
	lo.ExpiredWhileHeld(l)
	lo.Outlived(l)
	lo.Released(l, "redis", lockguard.Release("released"))
	lo.HeldStart(l, time.Unix(1700000000, 0))
	lo.HeldEnd(l, time.Second, 0.5, 0.25)
	lo.HeldStart(l, time.Unix(1700000000, 0))
	lo.Fence(l, 7)
	lo.Fenced(l)
	r := idempotency.Labels{Schedule: "hourly"}
	ro := m.RecordObserver()
	ro.Decision(r, idempotency.DecisionClaimed)
	ro.Operation("redis", idempotency.Operation("claim"), true, time.Millisecond)
	ro.Operation("redis", idempotency.Operation("claim"), false, time.Millisecond)
	ro.Lost(r)
	ro.Stale(r, idempotency.Operation("complete"))
	so := m.SchedulerObserver()
	so.Tick("hourly", scheduler.TickEnqueued, 1)
	so.Lag("hourly", -time.Second)
	so.Next("hourly", time.Unix(1700000000, 0))
	so.LastDue("hourly", time.Unix(1700000000, 0))
	so.Heartbeat(time.Unix(1700000000, 0))
	so.StandAside("hourly")
	so.Quarantined("hourly", errors.New("x"))
	so.StaleFor("hourly", time.Minute)
	wo := m.WorkerObserver()
	run := worker.Run{Task: &tasks.Task{Name: "pay", Queue: "slow", ETA: time.Unix(1, 0)}, Schedule: "hourly", Executed: true, Took: time.Second}
	wo.Started(run)
	wo.Finished(run, tasks.Outcome{Kind: tasks.Failed, Reason: "error"})
	wo.Started(run)
	wo.Finished(run, tasks.Outcome{Kind: tasks.Retried})
	wo.Started(run)
	wo.StoodAside("hourly", "lock")
	wo.Overdue(run, false)
	eo := m.EngineObserver()
	eo.Finished(celery.Finished{Task: "pay", Queue: "slow", Outcome: tasks.Succeeded, Ran: true})
	eo.Finished(celery.Finished{Task: "pay", Queue: "slow", Outcome: tasks.Failed, Reason: "NotRegistered"})
	eo.Finished(celery.Finished{Task: "pay", Queue: "slow", Outcome: tasks.Succeeded, Reason: "skipped", Ran: true})
	eo.DeadLettered("slow", "x")
	eo.DeadUnlisted("slow", "x")
	eo.DeadUnlisted("slow", "x")
	eo.TakenOver(3)
	eo.Buried()
	eo.LateCommit("pay", "x")
	eo.Parked("slow", "lock")
	eo.Suspect("x")
	eo.BrokerUp(true)
	eo.Reconnect()
	m.RanTwice("hourly")
	for _, evicted := range []int64{5, 9} {
		m.Watched(metrics.Store{Role: metrics.RoleLocks, Up: true, Policy: "noeviction", Evicted: evicted},
			metrics.Store{Role: metrics.RoleBroker, Up: true, Offset: -1500 * time.Millisecond})
	}
}

// Each event moves its series, and only by itself.
func TestEventsAreCounted(t *testing.T) {
	t.Parallel()
	m := metrics.New(full(t))
	play(m)
	for _, want := range []struct {
		n      float64
		family string
		labels []string
	}{
		{1, "solobeat_lock_acquire_total", []string{"result=acquired", "schedule=hourly", "backend=redis"}},
		{1, "solobeat_lock_acquire_total", []string{"result=busy"}},
		{1, "solobeat_lock_acquire_total", []string{"result=error"}},
		{1, "solobeat_lock_acquire_total", []string{"result=cancelled"}},
		{1, "solobeat_lock_wait_seconds", []string{"lock=report:lock"}},
		{1, "solobeat_lock_renewals_total", []string{"result=ok"}},
		{1, "solobeat_lock_renewals_total", []string{"result=rejected"}},
		{float64(len(lockguard.Reasons())), "solobeat_lock_lost_total", []string{"schedule=hourly"}},
		{1, "solobeat_lock_expired_while_held_total", []string{"schedule=hourly"}},
		{1, "solobeat_lock_outlived_total", []string{"schedule=hourly"}},
		{1, "solobeat_lock_holders", []string{"lock=report:lock"}},
		{1700000000, "solobeat_lock_hold_start_timestamp_seconds", []string{"lock=report:lock"}},
		{7, "solobeat_fence", []string{"lock=report:lock"}},
		{1, "solobeat_fenced_total", []string{"schedule=hourly"}},
		{1, "solobeat_lock_held_seconds", nil},
		{1, "solobeat_lock_ttl_ratio", nil},
		{1, "solobeat_lock_expect_ratio", nil},
		{1, "solobeat_record_decisions_total", []string{"decision=claimed"}},
		{1, "solobeat_record_operations_total", []string{"result=error"}},
		{1, "solobeat_record_lost_total", nil},
		{1, "solobeat_record_stale_total", nil},
		{1, "solobeat_schedule_ticks_total", []string{"outcome=enqueued"}},
		{0, "solobeat_schedule_ticks_total", []string{"outcome=missed"}},
		{1, "solobeat_schedule_lag_seconds", nil},
		{1700000000, "solobeat_scheduler_heartbeat_timestamp_seconds", nil},
		{1, "solobeat_stood_aside_total", []string{"at=tick"}},
		{1, "solobeat_stood_aside_total", []string{"at=lock"}},
		{0, "solobeat_stood_aside_total", []string{"at=record"}},
		{1, "solobeat_schedule_quarantined", nil},
		{60, "solobeat_schedule_stale_seconds", nil},
		{1, "solobeat_tasks_in_progress", []string{"queue=slow"}},
		{1, "solobeat_tasks_overdue", []string{"queue=slow"}},
		{3, "solobeat_task_queue_wait_seconds", nil},
		{2, "solobeat_task_runtime_seconds", nil},
		{1, "solobeat_task_failures_total", []string{"reason=error"}},
		{1, "solobeat_task_failures_total", []string{"reason=NotRegistered"}},
		{1, "solobeat_task_retries_total", []string{"task=pay"}},
		{1, "solobeat_task_processed_total", []string{"outcome=succeeded", "task=pay"}},
		{1, "solobeat_task_processed_total", []string{"outcome=skipped", "task=pay"}},
		{1, "solobeat_task_dead_total", []string{"queue=slow"}},
		{2, "solobeat_task_dead_unlisted_total", []string{"queue=slow"}},
		{1, "solobeat_task_parked_total", []string{"reason=lock"}},
		{3, "solobeat_taken_over_total", nil},
		{1, "solobeat_buried_total", nil},
		{1, "solobeat_late_commits_total", nil},
		{1, "solobeat_suspects_total", nil},
		{1, "solobeat_broker_up", []string{"role=broker"}},
		{1, "solobeat_broker_reconnects_total", nil},
		{1, "solobeat_broker_up", []string{"role=locks"}},
		{1, "solobeat_schedule_run_twice_total", []string{"schedule=hourly"}},
		{4, "solobeat_redis_evicted_keys_total", []string{"role=locks"}},
		{1, "solobeat_redis_maxmemory_policy_info", []string{"role=locks", "policy=noeviction"}},
		{-1.5, "solobeat_clock_offset_seconds", nil},
		{3600, "solobeat_schedule_max_gap_seconds", []string{"schedule=hourly"}},
		{3900, "solobeat_schedule_grace_seconds", []string{"schedule=hourly"}},
		{4, "solobeat_worker_concurrency", nil},
		{60, "solobeat_lock_ttl_seconds", []string{"lock=payment:{{ .Params.id }}"}},
	} {
		if got := value(t, m, want.family, want.labels...); got != want.n {
			t.Errorf("%s%v: %v, want %v", want.family, want.labels, got, want.n)
		}
	}
	lock := lockguard.Labels{Schedule: "hourly", Lock: "report:lock"}
	m.LockObserver().HeldStart(lock, time.Unix(1700000009, 0))
	m.LockObserver().HeldEnd(lock, time.Second, 1, 1)
	if v := value(t, m, "solobeat_lock_hold_start_timestamp_seconds", "lock=report:lock"); v != 1700000009 {
		t.Errorf("one of two holds has ended, the start of the newest is %v", v)
	}
	m.LockObserver().HeldEnd(lock, time.Second, 1, 1)
	if v := value(t, m, "solobeat_lock_hold_start_timestamp_seconds"); v != -1 {
		t.Errorf("the hold has ended, its start is still there: %v", v)
	}
	m.SchedulerObserver().Next("hourly", time.Time{})
	if v := value(t, m, "solobeat_schedule_next_run_timestamp_seconds"); v != -1 {
		t.Errorf("no tick is to come, and the next one is %v", v)
	}
}

// Names of metrics and labels follow the rules: Prometheus's linter, and no
// label that Prometheus sets itself or that grows with hosts.
func TestNamesFollowTheRules(t *testing.T) {
	t.Parallel()
	m := metrics.New(full(t))
	m.CollectDepths(func(context.Context) ([]metrics.QueueDepth, error) {
		return []metrics.QueueDepth{{Queue: "celery", State: "pending", N: 1}}, nil
	})
	play(m)
	all, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, f := range all {
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				if slices.Contains([]string{"job", "instance", "host", "hostname", "pod", "worker", "node", "task_id", "key"}, l.GetName()) {
					t.Errorf("%s has a label %s", f.GetName(), l.GetName())
				}
			}
		}
	}
}

// M05: names that anybody can send share one series.
func TestM05_ForeignNamesShareASeries(t *testing.T) {
	t.Parallel()
	m := metrics.New(full(t))
	obs := m.EngineObserver()
	for i := range 100 {
		obs.Finished(celery.Finished{Task: fmt.Sprintf("task-%d", i), Queue: fmt.Sprintf("queue-%d", i), Outcome: tasks.Succeeded, Ran: true})
	}
	if v := value(t, m, "solobeat_task_processed_total", "task=_unknown", "queue=_other", "outcome=succeeded"); v != 100 {
		t.Errorf("_unknown is %v, want 100", v)
	}
}

// Above the bound, jobs share _other, and nothing is lost from the sums.
func TestManyJobsShareOther(t *testing.T) {
	t.Parallel()
	cfg := metrics.Config{Namespace: "default", Worker: true, Scheduler: true}
	const n = metrics.MaxJobs + 300
	for i := range n {
		cfg.Jobs = append(cfg.Jobs, job(t, fmt.Sprintf("job-%04d", i), ""))
	}
	m := metrics.New(cfg)
	so, lo := m.SchedulerObserver(), m.LockObserver()
	for _, j := range cfg.Jobs {
		so.Tick(j.Name, scheduler.TickEnqueued, 1)
		so.Next(j.Name, time.Unix(1, 0))
		lo.Outlived(lockguard.Labels{Schedule: j.Name, Lock: "solobeat:default:lock:" + j.Name})
	}
	if got := value(t, m, "solobeat_schedule_ticks_total", "outcome=enqueued"); got != n {
		t.Errorf("ticks sum up to %v, want %d", got, n)
	}
	if got := value(t, m, "solobeat_schedule_ticks_total", "outcome=enqueued", "schedule=_other"); got != 300 {
		t.Errorf("_other has %v ticks, want 300", got)
	}
	if got := value(t, m, "solobeat_lock_outlived_total"); got != n {
		t.Errorf("outlived sums up to %v, want %d", got, n)
	}
	for family, most := range map[string]int{
		"solobeat_lock_outlived_total": metrics.MaxJobs + 1, "solobeat_schedule_next_run_timestamp_seconds": metrics.MaxJobs,
		"solobeat_schedule_info": metrics.MaxJobs + 1,
	} {
		if got := len(series(t, m, family)); got > most {
			t.Errorf("%s: %d series, want at most %d", family, got, most)
		}
	}
}

// A job without a queue goes to the worker's first one, and info says so.
func TestInfoNamesTheQueue(t *testing.T) {
	t.Parallel()
	cfg := full(t)
	cfg.Queues = []string{"reports", "celery"}
	want := []string{"queue=reports schedule=hourly task=report"}
	if got := series(t, metrics.New(cfg), "solobeat_schedule_info"); !cmp.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// M11: a scrape reads the depths at most every few seconds, and while they
// cannot be read there are none.
func TestM11_DepthsAreNeverFrozen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(metrics.Config{})
		var reads atomic.Int64
		var down atomic.Bool
		m.CollectDepths(func(ctx context.Context) ([]metrics.QueueDepth, error) {
			n := reads.Add(1)
			if down.Load() {
				<-ctx.Done() // hangs
				return nil, ctx.Err()
			}
			return []metrics.QueueDepth{{Queue: "celery", State: "pending", N: n}}, nil
		})
		depth := func() float64 { return value(t, m, "solobeat_queue_depth") }
		pass := func(d time.Duration) { <-time.After(d) }
		if a, b := depth(), depth(); a != 1 || b != 1 || reads.Load() != 1 {
			t.Errorf("depths %v %v with %d reads", a, b, reads.Load())
		}
		pass(4 * time.Second)
		if v := depth(); v != 2 {
			t.Errorf("depth %v after the cache's time", v)
		}
		down.Store(true)
		pass(4 * time.Second)
		began := time.Now()
		if v := depth(); v != -1 {
			t.Errorf("depth %v though the store is away", v)
		}
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("the scrape took %s", d)
		}
		down.Store(false)
		pass(4 * time.Second)
		if v := depth(); v != 4 {
			t.Errorf("depth %v when the store is back", v)
		}
	})
}
