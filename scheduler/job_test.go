package scheduler

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/tasks"
)

func berlin(t *testing.T, cron string, change ...func(*Job)) *Job {
	t.Helper()
	zone := "Europe/Berlin"
	spec := SpecConfig{Cron: cron, Timezone: &zone}
	j := &Job{Name: "hourly-report", Task: "reports.hourly", Spec: spec, Schedule: mustSpec(t, spec)}
	for _, f := range change {
		f(j)
	}
	return j
}

// The two 02:00 hours of the autumn fold have ids and keys of their own, and
// everything comes from the tick.
func TestRequestOfTick(t *testing.T) {
	t.Parallel()
	j := berlin(t, "0 * * * *", func(j *Job) {
		j.Args = []any{json.Number("12345678901234567890"), "plain"}
		j.Kwargs = map[string]any{"day": "{{ .Tick.Local | date }}", "deep": map[string]any{"l": []any{"{{ .Job }}", 1, nil, true}}}
		j.Lock = &JobLock{TTL: time.Minute, Renew: 20 * time.Second}
		j.Record = &JobRecord{Key: "report:{{ .Tick.Local | hour }}", Retention: 48 * time.Hour}
		j.Timeout, j.Expires, j.Queue, j.Priority = 15*time.Minute, time.Hour, "reports", 3
	})
	ticks := Upcoming(j.Schedule, instant(t, "2026-10-25T00:00:00Z"), 2)
	var reqs []*tasks.Request
	for _, tick := range ticks {
		r, err := j.Request("", tick)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := j.Request("default", tick)
		if !cmp.Equal(r, again) {
			t.Errorf("rendered twice: %s", cmp.Diff(r, again))
		}
		reqs = append(reqs, r)
	}
	if got, _ := j.Request("other", ticks[0]); got.ID == reqs[0].ID || reqs[0].ID == reqs[1].ID {
		t.Errorf("ids %s %s %s", reqs[0].ID, reqs[1].ID, got.ID)
	}
	want := &tasks.Request{
		Name: "reports.hourly", ID: reqs[0].ID, Queue: "reports", Priority: 3,
		Args:    []json.RawMessage{json.RawMessage("12345678901234567890"), json.RawMessage(`"plain"`)},
		Kwargs:  map[string]json.RawMessage{"day": json.RawMessage(`"2026-10-25"`), "deep": json.RawMessage(`{"l":["hourly-report",1,null,true]}`)},
		Expires: instant(t, "2026-10-25T01:00:00Z"),
		Guard: &tasks.Guard{
			Job: "hourly-report", Tick: 1792886400000, Label: "2026-10-25T02:00:00+02:00",
			BeginBy: 1792886400000 + 3600_000, TimeoutMS: 900_000, Retries: &tasks.RetryPolicy{Max: 3, BaseMS: 10_000, MaxDelayMS: 600_000},
			Lock:   &tasks.LockGuard{Key: "solobeat:default:lock:hourly-report", Backend: "redis", TTLMS: 60_000, RenewMS: 20_000, ExpectMS: 60_000, OnBusy: tasks.OnBusySkip},
			Record: &tasks.RecordGuard{Key: "report:2026-10-25T02+02:00", Store: "redis", RetentionMS: 48 * 3600_000},
		},
	}
	if !cmp.Equal(reqs[0], want) {
		t.Error(cmp.Diff(want, reqs[0]))
	}
	if got := reqs[1].Guard.Record.Key; got != "report:2026-10-25T02+01:00" {
		t.Errorf("record key of the second hour: %s", got)
	}
	if got, want := reqs[0].ID, "46a88d97-7a3a-5bd4-9ae9-d06f5ef9aa97"; len(got) != len(want) || got[14] != '5' {
		t.Errorf("id %s is no uuid5", got)
	}
}

func TestRequestDefaults(t *testing.T) {
	t.Parallel()
	tick := berlin(t, "0 9 * * *").Schedule.Next(instant(t, "2026-01-01"))
	guard := func(change func(*Job)) *tasks.Guard {
		t.Helper()
		r, err := berlin(t, "0 9 * * *", change).Request("", tick)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Expires.IsZero() {
			t.Error("expires is set although the job does not ask for it")
		}
		return r.Guard
	}
	if g := guard(func(*Job) {}); g.Lock != nil || g.Record != nil {
		t.Errorf("guards of a job without: %+v", g)
	}
	g := guard(func(j *Job) { j.Lock, j.Record = &JobLock{}, &JobRecord{} })
	if g.Lock.TTLMS != 30_000 || g.Lock.ExpectMS != 300_000 || g.Lock.OnBusy != tasks.OnBusySkip {
		t.Errorf("lock %+v", g.Lock)
	}
	if g.Record.Key != "job:hourly-report:2026-01-01T09:00:00+01:00" || g.Record.RetentionMS != 7*24*3600_000 {
		t.Errorf("record %+v", g.Record)
	}
	if g.BeginBy != g.Tick+24*3600_000 {
		t.Errorf("begins by %d ms after the tick", g.BeginBy-g.Tick)
	}
	full := guard(func(j *Job) {
		j.Record, j.Lock = nil, &JobLock{
			MinHold: time.Minute, StallAfter: 2 * time.Minute, OnBusy: tasks.OnBusyWait, Wait: 3 * time.Second,
			OnLost: tasks.OnLostCancel, OnStoreDown: tasks.OnStoreDownRun,
		}
	}).Lock
	if full.MinHoldMS != 60_000 || full.StallAfterMS != 120_000 || full.WaitMS != 3000 || full.OnBusy != tasks.OnBusyWait ||
		full.OnLost != tasks.OnLostCancel || full.OnStoreDown != tasks.OnStoreDownRun {
		t.Errorf("guard %+v", full)
	}
	if g := guard(func(j *Job) { j.Lock, j.Timeout = &JobLock{}, time.Minute }); g.Lock.ExpectMS != 60_000 {
		t.Errorf("expect %d without ttl, timeout 1 m", g.Lock.ExpectMS)
	}
	if g := guard(func(j *Job) { j.Lock, j.Misfire.Policy = &JobLock{}, MisfireAll }); g.Lock.OnBusy != tasks.OnBusyRetry {
		t.Errorf("on_busy %s with misfire all", g.Lock.OnBusy)
	}
	if g := guard(func(j *Job) { j.Misfire.Deadline = time.Minute }); g.BeginBy != g.Tick+60_000 {
		t.Errorf("begins by %d ms after the tick", g.BeginBy-g.Tick)
	}
}

func TestRevision(t *testing.T) {
	t.Parallel()
	same := berlin(t, "0 9 * * 1").Revision()
	for name, j := range map[string]*Job{
		"other words":  berlin(t, "00 09 * * mon"),
		"other task":   berlin(t, "0 9 * * 1", func(j *Job) { j.Task, j.Queue, j.Timeout = "x", "y", 1 }),
		"other policy": berlin(t, "0 9 * * 1", policy(MisfireAll)),
	} {
		if j.Revision() != same {
			t.Errorf("%s: another revision", name)
		}
	}
	for name, j := range map[string]*Job{
		"other line": berlin(t, "1 9 * * 1"),
		"other zone": {Name: "hourly-report", Schedule: cronIn(t, "0 9 * * 1", "UTC")},
		"other dst":  {Name: "hourly-report", Schedule: mustSpec(t, SpecConfig{Cron: "0 9 * * 1", Timezone: new("Europe/Berlin"), DST: DST{Fold: FoldBoth}})},
		"disabled":   berlin(t, "0 9 * * 1", func(j *Job) { j.Disabled = true }),
	} {
		if j.Revision() == same {
			t.Errorf("%s: the same revision", name)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		field, word string
		change      func(*Job)
	}{
		{"name", "job name", func(j *Job) { j.Name = "Hourly Report" }},
		{"task", "task name", func(j *Job) { j.Task = "" }},
		{"priority", "10", func(j *Job) { j.Priority = 10 }},
		{"timeout", "negative", func(j *Job) { j.Timeout = -1 }},
		{"retries", "negative", func(j *Job) { j.Retries = &tasks.RetryPolicy{Max: -1} }},
		{"jitter", "distance", func(j *Job) { j.Jitter = time.Hour }},
		{"expires", "jitter", func(j *Job) { j.Jitter, j.Expires = time.Minute, time.Minute }},
		{"misfire.policy", "known", func(j *Job) { j.Misfire.Policy = "twice" }},
		{"misfire.deadline", "too short", func(j *Job) { j.Misfire.Deadline = time.Second }},
		{"misfire.deadline", "too long", func(j *Job) { j.Misfire.Deadline = 365 * 24 * time.Hour }},
		{"lock.on_busy", "misfire policy all", func(j *Job) { j.Misfire.Policy, j.Lock = MisfireAll, &JobLock{OnBusy: tasks.OnBusySkip} }},
		{"lock.wait", "nothing waits", func(j *Job) { j.Lock = &JobLock{Wait: time.Second} }},
		{"lock.wait", "slot of a worker", func(j *Job) { j.Lock = &JobLock{OnBusy: tasks.OnBusyWait, Wait: 2 * time.Hour} }},
		{"lock.on_lost", "not known", func(j *Job) { j.Lock = &JobLock{OnLost: "shrug"} }},
		{"lock.on_store_down", "not known", func(j *Job) { j.Lock = &JobLock{OnStoreDown: "shrug"} }},
		{"lock.on_store_down", "record", func(j *Job) { j.Lock, j.Record = &JobLock{OnStoreDown: tasks.OnStoreDownRun}, &JobRecord{} }},
		{"lock.min_hold", "negative", func(j *Job) { j.Lock = &JobLock{MinHold: -1} }},
		{"lock.stall_after", "go on", func(j *Job) { j.Lock = &JobLock{StallAfter: time.Minute, OnLost: tasks.OnLostObserve} }},
		{"lock.ttl", "too short", func(j *Job) { j.Lock = &JobLock{TTL: time.Millisecond} }},
		{"lock.renew", "two thirds", func(j *Job) { j.Lock = &JobLock{Renew: 25 * time.Second} }},
		{"lock.key", "rendered", func(j *Job) { j.Lock = &JobLock{Key: "{{ .Params.id }}"} }},
		{"lock.key", "guard", func(j *Job) { j.Lock = &JobLock{Key: strings.Repeat("k", 5000)} }},
		{"idempotency.key", "same for all ticks", func(j *Job) { j.Record = &JobRecord{Key: "report"} }},
		{"idempotency.key", "rendered", func(j *Job) { j.Record = &JobRecord{Key: "{{ .Tick.Lokal }}"} }},
		{"kwargs.day", "rendered", func(j *Job) { j.Kwargs = map[string]any{"day": "{{ .Tick.Local | dat }}"} }},
		{"kwargs.day", "rendered", func(j *Job) { j.Kwargs = map[string]any{"day": []any{"{{ .Now }}"}} }},
		{"args[1]", "rendered", func(j *Job) { j.Args = []any{1, "{{ .Tick.Local | in \"Nowhere/City\" }}"} }},
		{"cron", "missing", func(j *Job) { j.Schedule = nil }},
	} {
		err := berlin(t, "0 * * * *", c.change).Validate()
		found := false
		for _, e := range JobErrors(err) {
			found = found || e.Field == c.field && strings.Contains(e.Error(), c.word) && e.Cure != "" && e.Job != ""
		}
		if !found {
			t.Errorf("%s, %s: %v", c.field, c.word, err)
		}
	}
	err := berlin(t, "0 * * * *", func(j *Job) { j.Priority, j.Timeout, j.Lock = -1, -1, &JobLock{TTL: -1} }).Validate()
	if got := JobErrors(err); len(got) != 3 {
		t.Errorf("%d mistakes of 3 in one run: %v", len(got), err)
	}
	var je *JobError
	if !errors.As(err, &je) {
		t.Errorf("%v is no JobError", err)
	}
	if err := berlin(t, "0 * * * *").Validate(); err != nil {
		t.Error(err)
	}
	off := &Job{Name: "never", Task: "x", Disabled: true}
	if err := off.Validate(); err != nil {
		t.Errorf("a disabled job without ticks: %v", err)
	}
	two := berlin(t, "0 * * * *")
	if _, err := New(Config{Jobs: []*Job{two, two}, State: newMemState(), Publisher: &fakePublisher{}, ID: "x"}); err == nil {
		t.Error("a name was used twice")
	}
}

func TestJitterIsStable(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for _, name := range []string{"a", "b", "ab", "ba", "c"} {
		j := &Job{Name: name, Jitter: time.Hour}
		d := j.Delay()
		if d < 0 || d >= time.Hour || d != j.Delay() {
			t.Errorf("%s: %s", name, d)
		}
		seen[d] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d delays for 5 names", len(seen))
	}
	if d := (&Job{Name: "a"}).Delay(); d != 0 {
		t.Errorf("delay %s without jitter", d)
	}
}
