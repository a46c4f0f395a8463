package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
)

// oneJob is a schedule with one job and these lines in it.
func oneJob(lines ...string) []byte {
	return []byte("version: 1\njobs:\n  report:\n    task: reports.hourly\n    " + strings.Join(lines, "\n    ") + "\n")
}

const hourly = `cron: "0 * * * *"`

// loads parses a schedule that has no error.
func loads(t *testing.T, text []byte) []*scheduler.Job {
	t.Helper()
	jobs, _, err := ParseSchedule("schedule.yaml", text)
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return jobs
}

// refused wants exactly one error, and its words in it.
func refused(t *testing.T, text []byte, line int, words ...string) {
	t.Helper()
	_, ps, err := ParseSchedule("schedule.yaml", text)
	if err == nil || len(ps.Errors()) != 1 {
		t.Errorf("%s\nwant one error, got %v", text, err)
		return
	}
	p := ps.Errors()[0]
	for _, w := range words {
		if !strings.Contains(p.String(), w) {
			t.Errorf("%s: %q is missing", p, w)
		}
	}
	if p.Line != line || p.Cure == "" || !strings.HasPrefix(p.String(), fmt.Sprintf("schedule.yaml:%d:%d: ", line, p.Col)) {
		t.Errorf("%s: want line %d", p, line)
	}
}

// warned wants a schedule that loads with one warning.
func warned(t *testing.T, text []byte, words ...string) {
	t.Helper()
	_, ps, err := ParseSchedule("schedule.yaml", text)
	if err != nil || len(ps) != 1 || !ps[0].Warning {
		t.Errorf("%s\nwant one warning, got %v %v", text, ps, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(ps[0].String(), w) {
			t.Errorf("%s: %q is missing", ps[0], w)
		}
	}
}

// sensu/sensu-docs#2255: an unquoted star is a YAML alias, and the parser's own
// words for it help nobody.
func TestF01_UnquotedStar(t *testing.T) {
	t.Parallel()
	refused(t, oneJob("cron: * * * * *"), 5, "5:11: ", "jobs.report.cron", `quote it: cron: "* * * * *"`)
	refused(t, oneJob("cron: */5 * * * *"), 5, "5:11: ", `quote it: cron: "*/5 * * * *"`)
	refused(t, oneJob("cron: */5 * * * * # often"), 5, `quote it: cron: "*/5 * * * *"`)
	refused(t, oneJob("cron: *hourly"), 5, `quote it: cron: "*hourly"`)
	for _, spec := range []string{"0 * * * *", `"0 * * * *"`, "0 */2 * * *", `"*/5 * * * *"`} {
		loads(t, oneJob("cron: "+spec))
	}
	var node yaml.Node // the control: what the parser says by itself
	if err := yaml.Unmarshal(oneJob("cron: * * * * *"), &node); err == nil || strings.Contains(err.Error(), "quote") {
		t.Errorf("the parser's own error is %v", err)
	}
}

// A star does not hide the file's other mistakes, however many there are.
func TestF01_StarsDoNotHideTheRest(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("version: 1\njobs:\n")
	const n = 300
	for i := range n {
		fmt.Fprintf(&b, "  j%d:\n    task: t\n    cron: */5 * * * *\n    timeout: 5\n", i)
	}
	_, ps, _ := ParseSchedule("s", []byte(b.String()))
	stars, bare := 0, 0
	for _, p := range ps {
		switch {
		case strings.Contains(p.Message, "star"):
			stars++
		case strings.Contains(p.Cure, "write the unit"):
			bare++
		}
	}
	if stars != n || bare != n || len(ps) != 2*n {
		t.Errorf("%d stars, %d durations of %d problems", stars, bare, len(ps))
	}
}

func TestF02_LockNumbers(t *testing.T) {
	t.Parallel()
	refused(t, oneJob(hourly, "lock: {ttl: 0s}"), 6, "jobs.report.lock.ttl", "at least 1s")
	refused(t, oneJob(hourly, "lock: {ttl: 15s, renew: 60s}"), 6, "jobs.report.lock.renew", "above two thirds of ttl 15s", "at most 10s")
	warned(t, oneJob(hourly, "lock: {ttl: 45s, renew: 30s}"), "above a third of ttl 45s", "15s lets two renewals fail")
	for _, lock := range []string{"{ttl: 60s, renew: 20s}", "{ttl: 1s}", "{}", "{renew: 10s}"} {
		if _, ps, err := ParseSchedule("s", oneJob(hourly, "lock: "+lock)); err != nil || len(ps) > 0 {
			t.Errorf("%s: %v", lock, ps)
		}
	}
	for _, entry := range []string{"{ttl: 0s}", "{ttl: 15s, renew: 60s}", "{renew: 25s}"} {
		if _, _, err := parseConfig(newDecoder("s"), []byte("tasks: {a: {lock: "+entry+"}}"), nil); err == nil {
			t.Errorf("tasks: lock: %s is loaded", entry)
		}
	}
}

// mozilla/telemetry-analysis-service#417: a setting that could not be read
// became a TTL of 0, and every replica fired.
func TestS08_NoLockWithoutTTL(t *testing.T) {
	t.Parallel()
	for _, ttl := range []string{"0", `""`, "0s", "", "~", `"0"`, "-1s", "0.0", "1ns", "no"} {
		refused(t, oneJob(hourly, "lock:", "  ttl: "+ttl), 7, "jobs.report.lock.ttl")
		_, ps, err := parseConfig(newDecoder("s"), []byte("tasks:\n  a:\n    lock:\n      ttl: "+ttl+"\n"), nil)
		if err == nil || len(ps) != 1 || ps[0].Path != "tasks.a.lock.ttl" {
			t.Errorf("tasks: ttl: %s: %v", ttl, ps)
		}
	}
	refused(t, oneJob(hourly, "lock: {tll: 30s}"), 6, "did you mean ttl?") // nor does a renamed one become 0
	if l := loads(t, oneJob(hourly))[0].Lock; l == nil {
		t.Error("a job without lock: has no lock")
	}
}

func TestF06_Timezone(t *testing.T) {
	t.Parallel()
	for zone, words := range map[string]string{
		"Asian/Shanghai": "did you mean Asia/Shanghai?",
		"local":          "replicas may differ", "Local": "replicas may differ",
		`""`: "leave it out for UTC", "": "leave it out for UTC",
		"UTC+8": "Asia/Shanghai", "EST": "America/New_York",
	} {
		refused(t, oneJob(hourly, "timezone: "+zone), 6, "jobs.report.timezone", words)
	}
	warned(t, oneJob(hourly, "timezone: EST5EDT"), "an old name", "America/New_York")
	if got := loads(t, oneJob(hourly))[0].Schedule.Location(); got != time.UTC {
		t.Errorf("without a zone: %v", got)
	}
}

func TestF08_StrayWords(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"disable", "never", `"=> '15 * * * *'"`, `"15 * * * * # each hour"`, `"off"`, "15 * * * *;"} {
		refused(t, oneJob("cron: "+spec), 5, "jobs.report.cron", "enabled: false")
	}
	want := loads(t, oneJob(`cron: "15 * * * *"`))[0].Schedule.String()
	for _, spec := range []string{"\"15\t*\t*\t*\t*\"", `"15  *  *  *  *"`, `"  15 * * * *  "`, "15 * * * *   # each hour"} {
		if got := loads(t, oneJob("cron: "+spec))[0].Schedule.String(); got != want {
			t.Errorf("%q: got %s, want %s", spec, got, want)
		}
	}
}

func TestF09_ForeignShapes(t *testing.T) {
	t.Parallel()
	text := "version: 1\njobs:\n  nightly.cleanup_job.rb: {task: t, cron: \"30 04 * * *\"}\n  1.first-of-all: {task: t, cron: '*/1 * * * *'}\n  true: {task: t, every: 1d}\n"
	jobs := loads(t, []byte(text))
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
		if err := j.Validate(); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"nightly.cleanup_job.rb", "1.first-of-all", "true"}, names); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"A", "a b", `"a:b"`, ".a", "-a", `"a\u2028b"`, `"a{b}"`, `""`, strings.Repeat("x", 101), `"sch\u00f6n"`} {
		refused(t, []byte("version: 1\njobs:\n  "+name+": {task: t, every: 5m}\n"), 3, "no job name", "small letters")
	}
}

// kubernetes/kubernetes#86647: a deadline below the loop's own delays loses a
// tick now and then.
func TestF14_DeadlineTooShort(t *testing.T) {
	t.Parallel()
	for _, d := range []string{"0s", "1s", "9s", "9999ms"} {
		refused(t, oneJob(hourly, "misfire: {deadline: "+d+"}"), 6, "jobs.report.misfire.deadline", "too short", "at least 10s")
	}
	refused(t, oneJob(hourly, "jitter: 30s", "misfire: {deadline: 20s}"), 7, "jobs.report.misfire.deadline", "at least 40s")
	refused(t, []byte("version: 1\ndefaults: {jitter: 30s, misfire: {deadline: 20s}}\njobs:\n  a: {task: t, every: 5m}\n  b: {task: t, every: 5m}\n"), 2, "defaults.misfire.deadline", "at least 40s")
	for _, d := range []string{"10s", "1h", "30d"} {
		loads(t, oneJob(hourly, "misfire: {deadline: "+d+"}"))
	}
}

func TestF15_Durations(t *testing.T) {
	t.Parallel()
	for _, ttl := range []string{"30", `"30"`, "0.5", `"0.5"`, "1e3", "0x1e"} {
		refused(t, oneJob(hourly, "lock: {ttl: "+ttl+"}"), 6, "jobs.report.lock.ttl", "no duration", "write ")
	}
	for text, want := range map[string]time.Duration{"1h30m": 90 * time.Minute, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "1.5s": 1500 * time.Millisecond, `"2m"`: 2 * time.Minute} {
		if got := loads(t, oneJob(hourly, "lock: {ttl: "+text+"}"))[0].Lock.TTL; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "2d": 48 * time.Hour, "0.5d": 12 * time.Hour, "1d12h": 36 * time.Hour, "100ms": 100 * time.Millisecond,
		"36500d": maxDuration, "876000h": maxDuration, "-5s": -5 * time.Second, "0s": 0, "0d": 0, "1h0.5m": time.Hour + 30*time.Second,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "0", "5", "+5", "-0", "1.5", "d", "5x", "1d5", "1d1d", "1d-5h", "1d+5h", "1w", "30 s", "36501d", "36500d1s", "999999999d",
		"99999999h", "9223372036s1h", "1e5s", "s", "∞", "5S", "0x5s", "1d ", "nan", "inf",
	} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	for text, cure := range map[string]string{
		"30": "write the unit, for example 30s", "5 minutes": "write 5m", "10 min": "write 10m", "1 week": "write 7d", "2 Days": "write 2d",
		"30 s": "write 30s", "1 hour": "write 1h", "3hrs": "write 3h", "10sec": "write 10s", "99999999h": "write for example", "PT5M": "write for example", "0": "write for example",
	} {
		if got := DurationCure(text); !strings.HasPrefix(got, cure) {
			t.Errorf("%s: cure %q, want %q", text, got, cure)
		}
	}
}

func TestD14_ImpossibleDate(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"0 0 31 4 *", "0 0 30 2 *"} {
		refused(t, oneJob(`cron: "`+spec+`"`), 5, "jobs.report.cron", "never fires", "enabled: false")
		jobs := loads(t, oneJob(`cron: "`+spec+`"`, "enabled: false"))
		if j := jobs[0]; !j.Disabled || j.Schedule == nil || !j.Schedule.Next(time.Now()).IsZero() {
			t.Errorf("%s: %+v", spec, j)
		}
	}
	refused(t, oneJob(`cron: "0 0 99 4 *"`, "enabled: false"), 5, "jobs.report.cron", "out of range") // off is no excuse
}

func TestD17_Steps(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"*/0 * * * *", "15/0 * * * *", "0-0/-005 * * * *"} {
		refused(t, oneJob(`cron: "`+spec+`"`), 5, "jobs.report.cron", "step")
	}
	for spec, fires := range map[string]string{"*/60 * * * *": "minute 0 only", "*/40 * * * *": "0 and 40", "0 */25 * * *": "hour 0 only", "0 0 */32 * *": "day of month 1 only"} {
		warned(t, oneJob(`cron: "`+spec+`"`), fires)
	}
}

func TestD22_ShortPeriods(t *testing.T) {
	t.Parallel()
	for _, every := range []string{"500ms", "0s", "-1m", "1.5s", "30", `"30"`, "", "5 minutes"} {
		refused(t, oneJob("every: "+every), 5, "jobs.report.every")
	}
	refused(t, oneJob(`cron: "@every 5m"`), 5, "every: 5m")
	loads(t, oneJob("every: 1s"))
}

// soumen0818/C-Pay#33: a key with a clock or a random in it never matches; and
// one that is the same each time matches always.
func TestI04_KeysArePure(t *testing.T) {
	t.Parallel()
	for key, words := range map[string]string{
		"{{ now }}": "no function now", "{{ uuid }}": "no function uuid", "report:{{ .Attempt }}:{{ .Tick.Local | hour }}": "no .Attempt", "{{ .Tick.Now | hour }}": "no .Tick.Now",
		"{{ .Params.day }}:{{ .Tick.Local | hour }}": ".Params.day is not known here", "{{ .Task.Name }}:{{ .Tick.Local | hour }}": ".Task.Name is not known here",
		"report": "same for all ticks", "{{ .Job }}": "same for all ticks", "{{ .Tick.Local | hour": "unclosed",
		`{{ env \"HOME\" }}`: "no function env", "{{ .ID }}": "no .ID", "": "empty",
	} {
		refused(t, oneJob(hourly, `idempotency: {key: "`+key+`"}`), 6, "jobs.report.idempotency.key", words)
	}
	for key, words := range map[string]string{
		"{{ now }}": "no function now", "{{ uuid }}": "no function uuid", "{{ .Task.ID }}:{{ .Params.id }}": "no .Task.ID", "charge": "same for every task", "{{ .Task.Name }}": "same for every task",
		"{{ .Tick.Local | hour }}": "kwarg of the job", "{{ .Params.a }}{{ .Params.b }}": "separator",
	} {
		_, ps, err := parseConfig(newDecoder("s"), []byte("tasks:\n  a:\n    idempotency: {key: \""+key+"\"}\n"), nil)
		if err == nil || len(ps) != 1 || ps[0].Path != "tasks.a.idempotency.key" || ps[0].Line != 3 || !strings.Contains(ps[0].String(), words) {
			t.Errorf("%s: %v, want %q", key, ps, words)
		}
	}
	for _, field := range []string{`kwargs: {a: "{{ now }}"}`, `kwargs: {a: [{b: "{{ .Params.x }}"}]}`, `args: ["{{ uuid }}"]`, `lock: {key: "a:{{ now }}"}`} {
		refused(t, oneJob(hourly, field), 6, "bad template")
	}
	loads(t, oneJob(hourly, `idempotency: {key: "{{ .Job }}:{{ .Tick.Local | hour }}"}`))
}

// dshearer/jobber#20: only the first mistake was shown.
func TestX08_AllErrorsInOneRun(t *testing.T) {
	t.Parallel()
	text := `version: 1
jobs:
  a: {task: t, cron: "0 25 * * *"}
  b: {task: t, every: 5m, timezone: Asian/Shanghai}
  c: {task: t, every: 5m, lock_tll: 30s}
  d: {task: t, every: 5m, lock: {ttl: 30}}
  e: {every: 5m}
  fine: {task: t, every: 5m}
`
	jobs, ps, err := ParseSchedule("dir/schedule.yaml", []byte(text))
	if jobs != nil || len(ps) != 5 {
		t.Fatalf("%d jobs, problems %v", len(jobs), ps)
	}
	var got Problems
	if !errors.As(err, &got) {
		t.Fatalf("the error is %T", err)
	}
	told := strings.Split(err.Error(), "\n")
	for i, path := range []string{"jobs.a.cron", "jobs.b.timezone", "jobs.c.lock_tll", "jobs.d.lock.ttl", "jobs.e.task"} {
		if want := fmt.Sprintf("dir/schedule.yaml:%d:", i+3); !strings.HasPrefix(told[i], want) || !strings.Contains(told[i], ": "+path+": ") {
			t.Errorf("%s: want it to begin with %s and to name %s", told[i], want, path)
		}
	}
}

// A job begins with defaults:; blocks are laid over each other key by key, and
// all else replaces.
func TestDefaultsOfJobs(t *testing.T) {
	t.Parallel()
	text := `version: 1
defaults:
  timezone: Europe/Berlin
  queue: low
  days: and
  dst: {gap: skip}
  priority: 5
  retries: {max: 7, base: 1s}
  lock: {ttl: 60s, on_busy: retry}
  idempotency: {retention: 48h}
  misfire: {policy: skip, deadline: 1h}
  labels: {team: a, tier: "1"}
jobs:
  inherits: {task: t, cron: "0 0 1 * 1"}
  lays-over:
    task: t
    cron: "0 0 * * *"
    timezone: UTC
    priority: 0
    retries: {base: 2s}
    lock: {expect: 1m}
    dst: {fold: both}
    misfire: {policy: once}
    labels: {tier: "2"}
  replaces: {task: t, every: 5m, retries: 1, lock: off, idempotency: off, misfire: all}
`
	jobs := loads(t, []byte(text))
	a, b, c := jobs[0], jobs[1], jobs[2]
	if a.Schedule.Location().String() != "Europe/Berlin" || b.Schedule.Location() != time.UTC {
		t.Errorf("zones %v %v", a.Schedule.Location(), b.Schedule.Location())
	}
	for _, d := range []string{
		cmp.Diff(&scheduler.JobLock{TTL: time.Minute, OnBusy: tasks.OnBusyRetry}, a.Lock),
		cmp.Diff(&scheduler.JobLock{TTL: time.Minute, OnBusy: tasks.OnBusyRetry, Expect: time.Minute}, b.Lock),
		cmp.Diff((*scheduler.JobLock)(nil), c.Lock), cmp.Diff((*scheduler.JobRecord)(nil), c.Record),
		cmp.Diff(&scheduler.JobRecord{Retention: 48 * time.Hour}, a.Record),
		cmp.Diff(&tasks.RetryPolicy{Max: 7, BaseMS: 1000, MaxDelayMS: 600_000}, a.Retries),
		cmp.Diff(&tasks.RetryPolicy{Max: 7, BaseMS: 2000, MaxDelayMS: 600_000}, b.Retries),
		cmp.Diff(&tasks.RetryPolicy{Max: 1, BaseMS: 10_000, MaxDelayMS: 600_000}, c.Retries),
		cmp.Diff(scheduler.Misfire{Policy: scheduler.MisfireSkip, Deadline: time.Hour}, a.Misfire),
		cmp.Diff(scheduler.Misfire{Policy: scheduler.MisfireOnce, Deadline: time.Hour}, b.Misfire),
		cmp.Diff(scheduler.Misfire{Policy: scheduler.MisfireAll}, c.Misfire),
		cmp.Diff(scheduler.DST{Gap: scheduler.GapSkip}, a.Spec.DST), cmp.Diff(scheduler.DST{Gap: scheduler.GapSkip, Fold: scheduler.FoldBoth}, b.Spec.DST),
		cmp.Diff(map[string]string{"team": "a", "tier": "1"}, a.Labels), cmp.Diff(map[string]string{"team": "a", "tier": "2"}, b.Labels),
		cmp.Diff([]any{"low", 5, 0}, []any{b.Queue, a.Priority, b.Priority}),
		cmp.Diff([]any{"and", "", scheduler.DST{}}, []any{a.Spec.Days, c.Spec.Days, c.Spec.DST}), // an inherited rule for cron alone is no mistake of `every`
	} {
		if d != "" {
			t.Error(d)
		}
	}
}

// off in defaults: is undone by a block in the job.
func TestOffInDefaults(t *testing.T) {
	t.Parallel()
	jobs := loads(t, []byte("version: 1\ndefaults: {lock: off, idempotency: off}\njobs:\n  a: {task: t, every: 5m}\n  b: {task: t, every: 5m, lock: {ttl: 5s}, idempotency: {}}\n"))
	if a, b := jobs[0], jobs[1]; a.Lock != nil || a.Record != nil || b.Lock == nil || b.Lock.TTL != 5*time.Second || b.Record == nil {
		t.Errorf("%+v %+v", a, b)
	}
}

// With misfire all ticks that are caught up must not skip each other.
func TestMisfireAllAndOnBusy(t *testing.T) {
	t.Parallel()
	if got := loads(t, oneJob(hourly, "misfire: all"))[0].Lock.OnBusy; got != tasks.OnBusyRetry {
		t.Errorf("on_busy is %q", got)
	}
	loads(t, oneJob(hourly, "misfire: {policy: all}", "lock: {on_busy: retry}"))
	loads(t, oneJob(hourly, "misfire: all", "lock: off"))
	loads(t, oneJob(hourly, "misfire: once", "lock: {on_busy: skip}"))
	refused(t, oneJob(hourly, "misfire: all", "lock: {on_busy: skip}"), 7, "jobs.report.lock.on_busy", "on_busy: retry")
	refused(t, oneJob(hourly, "lock: {on_busy: skip}", "misfire: {policy: all}"), 6, "jobs.report.lock.on_busy")
	refused(t, []byte("version: 1\ndefaults: {misfire: all, lock: {on_busy: skip}}\njobs:\n  a: {task: t, every: 5m}\n  b: {task: t, every: 5m}\n"), 2, "defaults.lock.on_busy")
	refused(t, []byte("version: 1\ndefaults: {misfire: all}\njobs:\n  a: {task: t, every: 5m}\n  b: {task: t, every: 5m, lock: {on_busy: skip}}\n"), 5, "jobs.b.lock.on_busy", "defaults, line 2")
}

// The alert's default threshold reaches the message.
func TestExpectDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  time.Duration
	}{
		{nil, 5 * time.Minute},
		{[]string{"timeout: 15m"}, 15 * time.Minute},
		{[]string{"timeout: 15m", "lock: {ttl: 60s}"}, time.Minute},
		{[]string{"timeout: 15m", "lock: {ttl: 60s, expect: 10m}"}, 10 * time.Minute},
	} {
		j := loads(t, oneJob(append([]string{hourly}, c.lines...)...))[0]
		req, err := j.Request("default", j.Schedule.Next(time.Now()))
		if err != nil || req.Guard.Lock.ExpectMS != c.want.Milliseconds() {
			t.Errorf("%v: %+v %v, want %v", c.lines, req.Guard.Lock, err, c.want)
		}
	}
}

// Arguments keep their digits and kinds.
func TestArgumentsAreExact(t *testing.T) {
	t.Parallel()
	j := loads(t, oneJob(hourly,
		`args: [12345678901234567890, 2.50, -0.0, 1e30, 0x1f, 1_000, .5, true, False, null, ~, "0123", ü]`,
		`kwargs: {a: {b: [1, {c: "{{ .Tick.Local | date }}"}]}, "1": 2}`))[0]
	got, err := json.Marshal([]any{j.Args, j.Kwargs})
	want := `[[12345678901234567890,2.50,-0.0,1e30,31,1000,0.5,true,false,null,null,"0123","ü"],{"1":2,"a":{"b":[1,{"c":"{{ .Tick.Local | date }}"}]}}]`
	if err != nil || string(got) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
}
