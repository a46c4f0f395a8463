package metrics_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/scheduler"
)

func scraped(m *metrics.Metrics) string {
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return rec.Body.String()
}

// A job that is gone leaves no series; what still comes of its runs is _other's,
// and a lock that is held goes when it is released. A job that comes has its
// zeros at once.
func TestSeriesOfJobsThatGoAndCome(t *testing.T) {
	t.Parallel()
	m := metrics.New(full(t))
	m.CollectJobs(func(_ context.Context, names []string) (all []scheduler.JobState, _ error) {
		for _, n := range names {
			all = append(all, scheduler.JobState{Job: n, Since: time.Now()})
		}
		return all, nil
	})
	sched, locks := m.SchedulerObserver(), m.LockObserver()
	held := lockguard.Labels{Schedule: "hourly", Lock: "report:lock"}
	sched.Next("hourly", time.Now())
	locks.HeldStart(held, time.Now())
	locks.Busy(held, "redis")
	if !strings.Contains(scraped(m), `solobeat_schedule_created_timestamp_seconds{schedule="hourly"}`) {
		t.Fatal("the job has no series")
	}
	m.SetJobs([]*scheduler.Job{job(t, "daily", "daily:lock")})
	text := scraped(m)
	if strings.Contains(text, `schedule="hourly"`) {
		t.Errorf("series of the job that is gone: %s", text[strings.Index(text, `schedule="hourly"`)-80:][:160])
	}
	if value(t, m, "solobeat_lock_holders", "lock=report:lock") != 1 {
		t.Error("the lock that is held is not shown")
	}
	for _, want := range [][]string{
		{"solobeat_schedule_ticks_total", "schedule=daily", "outcome=missed"},
		{"solobeat_lock_lost_total", "schedule=daily", "lock=daily:lock"},
		{"solobeat_schedule_quarantined", "schedule=daily"},
	} {
		if v := value(t, m, want[0], want[1:]...); v != 0 {
			t.Errorf("%v: %v, want 0", want, v)
		}
	}
	locks.HeldEnd(held, time.Second, 0.1, 0.1)
	locks.Released(held, "redis", lockguard.Released)
	locks.Busy(held, "redis")
	if v := value(t, m, "solobeat_lock_acquire_total", "lock=_other", "schedule=_other", "result=busy"); v != 1 {
		t.Errorf("_other was busy %v times", v)
	}
	sched.Tick("hourly", scheduler.TickEnqueued, 1)
	text = scraped(m)
	if strings.Contains(text, `"hourly"`) || strings.Contains(text, `"report:lock"`) {
		t.Error("series of the job, or of its lock, are left")
	}
	m.SetJobs([]*scheduler.Job{job(t, "daily", "daily:lock"), job(t, "hourly", "report:lock")})
	if v := value(t, m, "solobeat_lock_lost_total", "schedule=hourly", "lock=report:lock"); v != 0 {
		t.Errorf("a job that is back: %v", v)
	}
	sched.Tick("hourly", scheduler.TickEnqueued, 1)
	if v := value(t, m, "solobeat_schedule_ticks_total", "schedule=hourly", "outcome=enqueued"); v != 1 {
		t.Errorf("ticks of a job that is back: %v", v)
	}
	if v := value(t, m, "solobeat_lock_holders", "lock=report:lock"); v != 0 {
		t.Errorf("holders of a lock that is back: %v", v)
	}
	locks.Released(held, "redis", lockguard.Released)
	locks.Acquired(held, "redis", time.Second)
	if v := value(t, m, "solobeat_lock_release_total", "lock=report:lock", "result=released"); v != 1 {
		t.Errorf("releases of a lock that is back: %v", v)
	}
	if v := value(t, m, "solobeat_lock_acquire_total", "lock=report:lock", "schedule=hourly", "result=acquired"); v != 1 {
		t.Errorf("acquires of a lock that is back: %v", v)
	}
}

// Tasks likewise; a job's info names its task whether this worker has it or not.
func TestSeriesOfTasksThatGoAndCome(t *testing.T) {
	t.Parallel()
	m := metrics.New(full(t))
	before := value(t, m, "solobeat_schedule_info")
	locks, gone := m.LockObserver(), lockguard.Labels{Lock: "payment:{{ .Params.id }}"}
	locks.Released(gone, "redis", lockguard.Released)
	m.SetTasks([]string{"pay", "new"}, []metrics.Lock{{Name: "new:lock", TTL: time.Second}})
	text := scraped(m)
	for _, gone := range []string{`processed_total{engine="celery",outcome="succeeded",queue="celery",task="report"}`, `lock="payment:{{ .Params.id }}"`} {
		if strings.Contains(text, gone) {
			t.Errorf("%s is left", gone)
		}
	}
	for _, want := range [][]string{
		{"solobeat_task_processed_total", "task=new", "queue=slow", "outcome=failed"},
		{"solobeat_lock_lost_total", "schedule=none", "lock=new:lock"},
		{"solobeat_lock_lost_total", "schedule=hourly", "lock=report:lock"},
	} {
		if v := value(t, m, want[0], want[1:]...); v != 0 {
			t.Errorf("%v: %v, want 0", want, v)
		}
	}
	locks.Released(gone, "redis", lockguard.Released)
	if v := value(t, m, "solobeat_lock_release_total", "lock=_other", "result=released"); v != 1 {
		t.Errorf("_other was released %v times", v)
	}
	if after := value(t, m, "solobeat_schedule_info"); before != 1 || after != 1 {
		t.Errorf("info of the job: %v, then %v", before, after)
	}
}

func TestLoadedAndNotLoaded(t *testing.T) {
	t.Parallel()
	m := metrics.New(full(t))
	if strings.Contains(scraped(m), "solobeat_config_") {
		t.Error("a process without files has series of them")
	}
	at := time.Unix(1700000000, 0)
	m.Loaded("aaa", at)
	m.NotLoaded()
	if ok := value(t, m, "solobeat_config_last_reload_successful"); ok != 0 {
		t.Errorf("successful %v", ok)
	}
	m.Loaded("bbb", at.Add(time.Minute))
	if ok, since := value(t, m, "solobeat_config_last_reload_successful"), value(t, m, "solobeat_config_last_reload_success_timestamp_seconds"); ok != 1 || since != 1700000060 {
		t.Errorf("successful %v since %v", ok, since)
	}
	if a, b := value(t, m, "solobeat_config_info", "hash=aaa"), value(t, m, "solobeat_config_info", "hash=bbb"); a != -1 || b != 1 {
		t.Errorf("hashes: %v, %v", a, b)
	}
}
