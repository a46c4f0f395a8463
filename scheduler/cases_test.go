package scheduler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
)

// The tests here are field reports turned into small inputs; each is named by
// its row in docs/cases.md.

// kubernetes/kubernetes#121594: a daily job ran twice and met a restore.
func TestD01_DailyOnceInTheFold(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2023-10-28T12:00Z"), instant(t, "2023-10-30T12:00Z")
	got := utcLabels(cronIn(t, "0 2 * * *", "Europe/Berlin"), from, to)
	if want := "2023-10-29T00:00Z 2023-10-30T01:00Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := len(strings.Fields(naive(t, "0 2 * * *", "Europe/Berlin", from, to))); n != 3 {
		t.Errorf("the naive control has %d runs, want 3: one too many", n)
	}
}

// kelektiv/node-cron#563: 02:00 does not exist, and the day was left out.
func TestD02_MissingHour(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2012-03-11T05:00Z"), instant(t, "2012-03-12T04:00Z")
	ny := "America/New_York"
	s := cronIn(t, "0 2 * * *", ny)
	if got, want := labels(s, from, to), "03-11T03:00-04:00!"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := utcLabels(s, from, to), "2012-03-11T07:00Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := naive(t, "0 2 * * *", ny, from, to); got != "" {
		t.Errorf("the naive control runs at %s, want not at all", got)
	}
	skip := mustSpec(t, SpecConfig{Cron: "0 2 * * *", Timezone: &ny, DST: DST{Gap: GapSkip}})
	if got := labels(skip, from, to); got != "" {
		t.Errorf("gap: skip runs at %s", got)
	}
}

// celery/django-celery-beat#134, celery/celery#9653: an hour late all day.
func TestD03_DayOfTheChange(t *testing.T) {
	t.Parallel()
	s := cronIn(t, "4 16 * * *", "America/New_York")
	tick := s.Next(instant(t, "2025-03-08T21:04Z"))
	if want := instant(t, "2025-03-09T20:04Z"); !tick.At.Equal(want) || tick.Shifted {
		t.Errorf("got %+v, want %v", tick, want)
	}
}

// celery/celery#10107: the second 01:00 was silent.
func TestD04_HourlyInTheFold(t *testing.T) {
	t.Parallel()
	s := cronIn(t, "0 * * * *", "US/Pacific")
	got := utcLabels(s, instant(t, "2026-11-01T07:30Z"), instant(t, "2026-11-01T09:30Z"))
	if want := "2026-11-01T08:00Z 2026-11-01T09:00Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// celery/celery#1604: ran at 11:00 and at 12:00 on the day after the change.
func TestD06_DayAfterTheChange(t *testing.T) {
	t.Parallel()
	s := cronIn(t, "0 12 * * 1", "Europe/Amsterdam")
	got := utcLabels(s, instant(t, "2013-10-27T00:00Z"), instant(t, "2013-10-29T23:00Z"))
	if want := "2013-10-28T11:00Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A missing midnight must not move a monthly job (robfig/cron's issue 157).
func TestD09_MissingMidnight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, after, want string }{
		{"0 9 10 * *", "2018-10-17T09:00Z", "2018-11-10T11:00Z"},
		{"0 9 22 * *", "2018-02-14T12:00Z", "2018-02-22T12:00Z"},
	} {
		tick := cronIn(t, c.spec, "America/Sao_Paulo").Next(instant(t, c.after))
		if !tick.At.Equal(instant(t, c.want)) {
			t.Errorf("%s: got %v, want %s", c.spec, tick.At, c.want)
		}
	}
}

// floraison/fugit#6: 366 or 364 runs a year.
func TestD10_OnceADayAllYear(t *testing.T) {
	t.Parallel()
	ny, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2018, 1, 1, 0, 0, 0, 0, ny).Add(-1)
	to := time.Date(2019, 1, 1, 0, 0, 0, 0, ny).Add(-1)
	for _, c := range []struct {
		spec  string
		naive int
	}{{"1 1 * * *", 366}, {"1 2 * * *", 364}} {
		s := cronIn(t, c.spec, "America/New_York")
		ticks, more := ticksBetween(s, from, to, 1000)
		if len(ticks) != 365 || more || s.Count(from, to) != 365 {
			t.Errorf("%s: %d ticks, count %d", c.spec, len(ticks), s.Count(from, to))
		}
		if n := len(strings.Fields(naive(t, c.spec, "America/New_York", from, to))); n != c.naive {
			t.Errorf("%s: the naive control has %d, want %d", c.spec, n, c.naive)
		}
	}
}

// 7 for Sunday was refused, or dropped without a word.
func TestD13_SevenIsSunday(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-06-01T00:00Z"), instant(t, "2026-06-08T00:00Z") // Monday to Sunday
	for _, c := range []struct{ dow, want string }{
		{"7", "Sun"},
		{"0", "Sun"},
		{"5-7", "Fri Sat Sun"},
		{"fri-sun", "Fri Sat Sun"},
		{"Friday-Sunday", "Fri Sat Sun"},
		{"sun-tue", "Mon Tue Sun"},
		{"7-2", "Mon Tue Sun"},
		{"0-7", "Mon Tue Wed Thu Fri Sat Sun"},
		{"1-7/2", "Mon Wed Fri Sun"},
		{"5-7/2", "Fri Sun"},
		{"7-7", "Sun"},
		{"sat,7", "Sat Sun"},
		{"SAT-SUN", "Sat Sun"},
		{"7/3", "Wed Sat Sun"},
		{"mon", "Mon"},
	} {
		var days []string
		for _, tick := range Upcoming(mustSpec(t, SpecConfig{Cron: "0 9 * * " + c.dow}), from, 100) {
			if !tick.At.After(to) {
				days = append(days, tick.At.Format("Mon"))
			}
		}
		if got := strings.Join(days, " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.dow, got, c.want)
		}
	}
	wantSpecError(t, SpecConfig{Cron: "0 9 * * fri-mon"}, ErrBadSpec, "runs backwards", "write 5-6,0-1")
	wantSpecError(t, SpecConfig{Cron: "0 9 * * 5-0"}, ErrBadSpec, "runs backwards")
	wantSpecError(t, SpecConfig{Cron: "0 9 * * 8"}, ErrBadSpec, "out of range", "0 and 7 are Sunday")
}

// An impossible date gave the zero time, and with it a hot loop.
func TestD14_ImpossibleDate(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"0 0 31 4 *", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 feb */2"} {
		s, _, err := ParseSpec(SpecConfig{Cron: spec})
		if !errors.Is(err, ErrNeverFires) {
			t.Errorf("%s: error %v, want ErrNeverFires", spec, err)
		}
		if err != nil && !strings.Contains(err.Error(), "enabled: false") {
			t.Errorf("%s: %q does not name the cure", spec, err)
		}
		// A job that is switched off may have it, and then it must be harmless.
		if s == nil {
			t.Errorf("%s: no schedule beside the error", spec)
			continue
		}
		now := instant(t, "2026-06-01")
		if tick := s.Next(now); !tick.IsZero() {
			t.Errorf("%s: Next = %v", spec, tick)
		}
		if tick := s.Prev(now); !tick.IsZero() {
			t.Errorf("%s: Prev = %v", spec, tick)
		}
		if n := s.Count(time.Unix(0, 0), now); n != 0 {
			t.Errorf("%s: Count = %d", spec, n)
		}
	}
	// What exists in some year is no impossible date.
	s := mustSpec(t, SpecConfig{Cron: "0 0 29 2 *"})
	if tick := s.Next(instant(t, "2096-03-01")); !tick.At.Equal(instant(t, "2104-02-29")) {
		t.Errorf("29 February after 2096: %v", tick.At)
	}
	s = mustSpec(t, SpecConfig{Cron: "0 0 29 2 1", Days: "and"})
	if tick := s.Next(instant(t, "2072-03-01")); !tick.At.Equal(time.Date(2112, 2, 29, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("29 February on a Monday after 2072: %v (%s)", tick.At, tick.At.Weekday())
	}
	if _, _, err := ParseSpec(SpecConfig{Cron: "0 0 31 4 1"}); err != nil {
		t.Errorf("31 April or a Monday: %v", err)
	}
}

// robfig/cron#554, #470: a zone prefix panics its parser.
func TestD16_ZonePrefix(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"TZ=0", "TZ=", "CRON_TZ=America/Los_Angeles", "TZ=TZ=TZ=", "TZ= * * * * *",
		"CRON_TZ=Europe/Berlin 0 2 * * *", "cron_tz=UTC", " TZ=UTC 0 0 * * *", "TZ=UTC\t0 0 * * *",
	} {
		wantSpecError(t, SpecConfig{Cron: spec}, ErrBadSpec, "zone inside the spec", "timezone: ")
	}
	wantSpecError(t, SpecConfig{Cron: "CRON_TZ=Europe/Paris 0 2 * * *"}, ErrBadSpec, "`timezone: Europe/Paris`")
	defer func() {
		if recover() == nil {
			t.Error("the naive control did not panic")
		}
	}()
	_, err := cron.ParseStandard("TZ=0")
	t.Errorf("the naive control returned %v", err)
}

// Steps of zero, below zero, or past the end of their field.
func TestD17_Steps(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"*/0 * * * *", "15/0 * * * *", "0-0/-005 * * * *", "*/-5 * * * *", "*-5 * * * *", "*/ * * * *", "1/2/3 * * * *", "*/99999999999999999999 * * * *"} {
		wantSpecError(t, SpecConfig{Cron: spec}, ErrBadSpec, "minute field")
	}
	for _, c := range []struct{ spec, words string }{
		{"*/60 * * * *", "at minute 0 only"},
		{"*/40 * * * *", "at minute 0 and 40"},
		{"0 */25 * * *", "at hour 0 only"},
		{"0 0 */32 * *", "at day of month 1 only"},
		{"0 0 1 */13 *", "at month 1 only"},
		{"*/7 * * * *", "at minute 0, 7, 14, 21, 28, 35, 42, 49 and 56"},
		{"50/30 * * * *", "at minute 50 only"},
		{"10-20/15 * * * *", "at minute 10 only"},
		{"*/100 * * * *", "at minute 0 only"},
	} {
		wantWarning(t, SpecConfig{Cron: c.spec}, "step", c.words)
	}
	for _, spec := range []string{"*/1 * * * *", "*/5 * * * *", "*/30 * * * *", "0 */6 * * *", "5/15 * * * *", "0 0 */2 * *"} {
		wantClean(t, SpecConfig{Cron: spec})
	}
	got := labels(mustSpec(t, SpecConfig{Cron: "*/40 * * * *"}), instant(t, "2026-06-01T00:00Z"), instant(t, "2026-06-01T02:00Z"))
	if want := "06-01T00:40+00:00 06-01T01:00+00:00 06-01T01:40+00:00 06-01T02:00+00:00"; got != want {
		t.Errorf("*/40: got %s, want %s", got, want)
	}
}

// A sub-second or zero period became 1 s without a word.
func TestD22_Period(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ every, words string }{
		{"500ms", "below one second"},
		{"0s", "not above zero"},
		{"-1m", "not above zero"},
		{"1.5s", "fraction"},
		{"1s1ns", "fraction"},
		{"300", "write 300s"},
		{"1.5", "no unit"},
		{"hourly", "no duration"},
		{"1d-5h", "no duration"},
		{"-1d", "no duration"},
		{"99999999d", "no duration"},
	} {
		wantSpecError(t, SpecConfig{Every: c.every}, ErrBadSpec, c.words)
	}
	for _, period := range []string{"500ms", "0s", "-1m", "1.5s"} {
		wantSpecError(t, SpecConfig{Cron: "@every " + period}, ErrBadSpec, "`every: "+period+"`")
	}
	for every, want := range map[string]string{
		"1s": "every 1s in UTC", "90s": "every 90s in UTC", "1h30m": "every 5400s in UTC",
		"1d": "every 86400s in UTC", "1d12h": "every 129600s in UTC", "0.5h": "every 1800s in UTC",
	} {
		if got := mustSpec(t, SpecConfig{Every: every}).String(); got != want {
			t.Errorf("%s: got %s, want %s", every, got, want)
		}
	}
}

// temporalio/temporal#8205: each policy for gap and fold, by job.
func TestD26_PolicyPerJob(t *testing.T) {
	t.Parallel()
	london := "Europe/London"
	spring := [2]time.Time{instant(t, "2026-03-28T12:00Z"), instant(t, "2026-03-29T12:00Z")}
	autumn := [2]time.Time{instant(t, "2026-10-24T12:00Z"), instant(t, "2026-10-25T12:00Z")}
	for _, c := range []struct {
		dst            DST
		spring, autumn string
	}{
		{DST{}, "03-29T02:00+01:00!", "10-25T01:30+01:00"},
		{DST{Mode: "auto"}, "03-29T02:00+01:00!", "10-25T01:30+01:00"},
		{DST{Gap: GapRunAfter, Fold: FoldFirst}, "03-29T02:00+01:00!", "10-25T01:30+01:00"},
		{DST{Gap: GapRunAfter, Fold: FoldLast}, "03-29T02:00+01:00!", "10-25T01:30+00:00"},
		{DST{Gap: GapRunAfter, Fold: FoldBoth}, "03-29T02:00+01:00!", "10-25T01:30+01:00 10-25T01:30+00:00"},
		{DST{Gap: GapSkip, Fold: FoldFirst}, "", "10-25T01:30+01:00"},
		{DST{Gap: GapSkip, Fold: FoldLast}, "", "10-25T01:30+00:00"},
		{DST{Gap: GapSkip, Fold: FoldBoth}, "", "10-25T01:30+01:00 10-25T01:30+00:00"},
		{DST{Gap: GapSkip}, "", "10-25T01:30+01:00"},
		{DST{Fold: FoldBoth}, "03-29T02:00+01:00!", "10-25T01:30+01:00 10-25T01:30+00:00"},
	} {
		s := mustSpec(t, SpecConfig{Cron: "30 1 * * *", Timezone: &london, DST: c.dst})
		if got := labels(s, spring[0], spring[1]); got != c.spring {
			t.Errorf("%+v in spring: got %q, want %q", c.dst, got, c.spring)
		}
		if got := labels(s, autumn[0], autumn[1]); got != c.autumn {
			t.Errorf("%+v in autumn: got %q, want %q", c.dst, got, c.autumn)
		}
	}
	for _, c := range []struct {
		dst   DST
		words []string
	}{
		{DST{Mode: "never"}, []string{`dst: "never"`, "auto"}},
		{DST{Gap: "run_before"}, []string{`dst.gap: "run_before"`, "run_after"}},
		{DST{Fold: "none"}, []string{`dst.fold: "none"`, "both"}},
		{DST{Mode: "auto", Fold: FoldBoth}, []string{"beside"}},
	} {
		wantSpecError(t, SpecConfig{Cron: "30 1 * * *", DST: c.dst}, ErrBadSpec, c.words...)
	}
}

// hiddeco/cronjobber#18: a zone whose clocks move by half an hour.
func TestD27_HalfHourFold(t *testing.T) {
	t.Parallel()
	s := cronIn(t, "45 1 * * *", "Australia/Lord_Howe")
	from, to := instant(t, "2026-04-04T12:00Z"), instant(t, "2026-04-05T12:00Z")
	if got, want := utcLabels(s, from, to), "2026-04-04T14:45Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := len(strings.Fields(naive(t, "45 1 * * *", "Australia/Lord_Howe", from, to))); n != 2 {
		t.Errorf("the naive control has %d runs, want 2", n)
	}
}

// Wrong zone names.
func TestF06_ZoneNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, words string }{
		{"Asian/Shanghai", "did you mean Asia/Shanghai?"},
		{"Shanghai", "did you mean Asia/Shanghai?"},
		{"Europe/Shanghai", "did you mean Asia/Shanghai?"},
		{"europe/berlin", "did you mean Europe/Berlin?"},
		{"America/New York", "did you mean America/New_York?"},
		{"America/NewYork", "did you mean America/New_York?"},
		{"utc", "did you mean UTC?"},
		{"local", "replicas may differ"},
		{"Local", "replicas may differ"},
		{"localtime", "replicas may differ"},
		{"", "is empty; leave it out for UTC"},
		{" ", "is empty"},
		{"UTC+8", "Asia/Shanghai, or Etc/GMT-8"},
		{"GMT-5", "America/New_York, or Etc/GMT+5"},
		{"+05:30", "Asia/Kolkata"},
		{"+01:00", "Etc/GMT-1"},
		{"EST", "America/New_York"},
		{"CET", "Europe/Berlin"},
		{"PST", "America/Los_Angeles"},
		{"posix/Europe/Berlin", "did you mean Europe/Berlin?"},
		{"right/UTC", "did you mean UTC?"},
		{"posixrules", "no time zone"},
		{"Factory", "no time zone"},
		{"../etc/passwd", "no time zone"},
		{"/usr/share/zoneinfo/UTC", "no time zone"},
		{"Nowhere/Atlantis", "such as Europe/Berlin"},
		{strings.Repeat("x", 1000), "such as Europe/Berlin"},
		{"Europe/Berlin\x00", "no time zone"},
	} {
		wantSpecError(t, SpecConfig{Cron: "0 0 * * *", Timezone: &c.zone}, ErrUnknownZone, "timezone: ", c.words)
	}
	for _, c := range []struct{ zone, words string }{
		{"EST5EDT", "write America/New_York"},
		{"US/Pacific", "write America/Los_Angeles"},
		{"Asia/Calcutta", "write Asia/Kolkata"},
		{"GMT", "write UTC"},
	} {
		wantWarning(t, SpecConfig{Cron: "0 0 * * *", Timezone: &c.zone}, "zone-alias", c.words)
	}
	sign := "Etc/GMT+8"
	wantWarning(t, SpecConfig{Cron: "0 0 * * *", Timezone: &sign}, "zone-sign", "8 hours behind UTC")
	for _, zone := range []string{"UTC", "Etc/UTC", "Europe/Amsterdam", "Asia/Kolkata", "America/Argentina/Buenos_Aires", "America/Port-au-Prince"} {
		wantClean(t, SpecConfig{Cron: "0 0 * * *", Timezone: &zone})
	}
	if got := mustSpec(t, SpecConfig{Cron: "0 0 * * *"}).Location(); got != time.UTC {
		t.Errorf("no zone given: %v, want UTC", got)
	}
}

// Words and stray signs in the place of a schedule.
func TestF08_StrayWords(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"disable", "never", "=> '15 * * * *'", "15 * * * * # each hour", "'15 * * * *'", "off", "15 * * * *;", "15\u00a0* * * *"} {
		wantSpecError(t, SpecConfig{Cron: spec}, ErrBadSpec, "enabled: false")
	}
	for _, spec := range []string{"15\t*\t*\t*\t*", "15  *  *  *  *", "  15 * * * *  ", "15 * * * *\n"} {
		if got, want := mustSpec(t, SpecConfig{Cron: spec}).String(), "cron 15 * * * * in UTC, days and, gap skip, fold both"; got != want {
			t.Errorf("%q: got %s, want %s", spec, got, want)
		}
	}
}

// The shapes of specs in a schedule file of chatwoot/chatwoot.
func TestF09_Shapes(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"30 04 * * *", "*/1 * * * *", "0 12 * * *", "30 22 * * *", "22 02 * * *", "00 0 * * *", "0 */12 * * *", "*/5 * * * *"} {
		wantClean(t, SpecConfig{Cron: spec})
	}
	if a, b := mustSpec(t, SpecConfig{Cron: "30 04 * * *"}), mustSpec(t, SpecConfig{Cron: "30 4 * * *"}); a.String() != b.String() {
		t.Errorf("%s and %s differ", a, b)
	}
}

// riverqueue/river#791: a period counted from the start of a process never
// ends in processes that live shorter. From the epoch it is the same for all.
func TestPeriodIsAnchored(t *testing.T) {
	t.Parallel()
	s := mustSpec(t, SpecConfig{Every: "20s"})
	for _, start := range []string{"2026-06-01T00:00:01Z", "2026-06-01T00:00:07Z", "2026-06-01T00:00:19Z"} {
		if got := s.Next(instant(t, start)); !got.At.Equal(instant(t, "2026-06-01T00:00:20Z")) {
			t.Errorf("after %s: %v", start, got.At)
		}
	}
	week := mustSpec(t, SpecConfig{Every: "7d"})
	if got := week.Next(instant(t, "1970-01-02")); !got.At.Equal(instant(t, "1970-01-08")) {
		t.Errorf("7d: %v", got.At)
	}
	if got := week.Prev(instant(t, "1969-12-31")); !got.At.Equal(instant(t, "1969-12-25")) {
		t.Errorf("7d before the epoch: %v", got.At)
	}
}
