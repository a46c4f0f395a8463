package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestExactlyOneKind(t *testing.T) {
	t.Parallel()
	wantSpecError(t, SpecConfig{}, ErrBadSpec, "exactly one of cron, every and at")
	wantSpecError(t, SpecConfig{Cron: "0 * * * *", Every: "5m"}, ErrBadSpec, "has cron and every")
	wantSpecError(t, SpecConfig{Cron: "0 * * * *", Every: "5m", At: "2026-12-01T03:00:00"}, ErrBadSpec, "has cron and every and at")
}

func TestFieldErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec   string
		offset int
		words  []string
	}{
		{"", 0, nil},
		{"   ", 0, []string{"is empty"}},
		{"* * *", 0, []string{"has 3 fields", "five are needed"}},
		{"0 0 12 * * *", 0, []string{"6 fields", "leave out the seconds"}},
		{"0 12 * * * 2026", 0, []string{"leave out the year"}},
		{"0 0 12 * * * 2026", 0, []string{"7 fields"}},
		{"60 * * * *", 0, []string{`"60" in the minute field`, "0-59"}},
		{"0 24 * * *", 2, []string{`"24" in the hour field`, "0-23"}},
		{"0 0 0 * *", 4, []string{`"0" in the day of month field`, "1-31"}},
		{"0 0 1 13 *", 6, []string{`"13" in the month field`, "1-12"}},
		{"0,,5 * * * *", 2, []string{"empty item in the minute field"}},
		{",0 * * * *", 0, []string{"empty item"}},
		{"0, * * * *", 2, []string{"empty item"}},
		{", * * * *", 0, []string{"empty item"}},
		{"30-10 * * * *", 0, []string{"runs backwards", "write 30-59,0-10"}},
		{"0 22-2 * * *", 2, []string{"runs backwards", "write 22-23,0-2"}},
		{"0 22-2/2 * * *", 2, []string{"runs backwards"}},
		{"-5 * * * *", 0, []string{"negative value"}},
		{"+5 * * * *", 0, []string{"sign"}},
		{"5- * * * *", 0, []string{"missing end"}},
		{"1-2-3 * * * *", 0, []string{"minute field"}},
		{"1.5 * * * *", 0, []string{"no number"}},
		{"** * * * *", 0, []string{"minute field"}},
		{"*5 * * * *", 0, []string{"write * or */n"}},
		{"five * * * *", 0, []string{"no number"}},
		{"0 0 * mon *", 6, []string{"mon belongs to the day of week field"}},
		{"0 0 * * jan", 8, []string{"jan belongs to the month field"}},
		{"0 0 * * tues", 8, []string{"did you mean tue?"}},
		{"0 0 * sept *", 6, []string{"did you mean sep?"}},
		{"0 0 * * foo", 8, []string{"0 and 7 are Sunday", "such as mon"}},
		{"0 0 L * *", 4, []string{"last day of a month", "28-31"}},
		{"0 0 15W * *", 4, []string{"nearest weekday"}},
		{"0 0 LW * *", 4, []string{"not supported"}},
		{"0 0 * * 5L", 8, []string{"the last", "days: and"}},
		{"0 0 * * 1#2", 8, []string{"n-th weekday", "days 8-14", "days: and"}},
		{"0 0 ? * 1", 4, []string{"Quartz", "write *"}},
		{"H * * * *", 0, []string{"hashed", "jitter"}},
		{"H(0-29)/10 * * * *", 0, []string{"hashed"}},
		{"0~30 * * * *", 0, []string{"random", "jitter"}},
		{"@Daily", 0, []string{"write @daily"}},
		{"@HOURLY", 0, []string{"write @hourly"}},
		{"@every 5m", 0, []string{"`every: 5m`"}},
		{"@every", 0, []string{"`every: "}},
		{"@reboot", 0, []string{"no meaning"}},
		{"@at 2026-01-01", 0, []string{"`at: "}},
		{"@fortnightly", 0, []string{"not known", "@weekly"}},
		{"@", 0, []string{"not known"}},
		{"@daily 5", 0, []string{"after @daily"}},
		{"0 0 * * *\x00", 0, []string{"stray character"}},
		{"0 0 * *\n*", 0, []string{"stray character"}},
		{"٣ * * * *", 0, []string{"stray character"}},
		{strings.Repeat("1,", 600) + "1 * * * *", 0, []string{"1209 characters"}},
	} {
		if c.spec == "" {
			continue
		}
		t.Run(fmt.Sprintf("%.40q", c.spec), func(t *testing.T) {
			t.Parallel()
			wantSpecError(t, SpecConfig{Cron: c.spec}, ErrBadSpec, c.words...)
			_, _, err := ParseSpec(SpecConfig{Cron: c.spec})
			if all := SpecErrors(err); len(all) == 0 || all[0].Offset != c.offset || all[0].Value != c.spec || all[0].Field != "cron" || all[0].Cure == "" {
				t.Errorf("got %#v, want offset %d and a cure", all, c.offset)
			}
		})
	}
}

// All mistakes of a job are told in one run.
func TestAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	zone := "Asian/Shanghai"
	_, _, err := ParseSpec(SpecConfig{
		Cron: "61 25,26 * foo *", Timezone: &zone, Days: "xor", DST: DST{Gap: "x", Fold: "y"},
	})
	var fields []string
	for _, e := range SpecErrors(err) {
		fields = append(fields, fmt.Sprintf("%s@%d", e.Field, e.Offset))
	}
	want := "timezone@0 dst.gap@0 dst.fold@0 days@0 cron@0 cron@3 cron@6 cron@11"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("got  %s\nwant %s\n%v", got, want, err)
	}
	if !errors.Is(err, ErrBadSpec) || !errors.Is(err, ErrUnknownZone) || errors.Is(err, ErrNeverFires) {
		t.Errorf("kinds of %v", err)
	}
}

func TestMacros(t *testing.T) {
	t.Parallel()
	for macro, spec := range map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
		"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *", " @daily\t": "0 0 * * *",
	} {
		wantClean(t, SpecConfig{Cron: macro})
		if a, b := mustSpec(t, SpecConfig{Cron: macro}), mustSpec(t, SpecConfig{Cron: spec}); a.String() != b.String() {
			t.Errorf("%s: got %s, want %s", macro, a, b)
		}
	}
}

func TestDays(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-01-01T00:00Z").Add(-1), instant(t, "2026-01-11T00:00Z")
	for _, c := range []struct{ spec, days, want string }{
		{"0 0 1,5 * 1", "", "1 5"}, // 2026-01-05 is a Monday
		{"0 0 1,5 * 1", "or", "1 5"},
		{"0 0 1,5 * 1", "and", "5"},
		{"0 0 */2 * 1", "", "5"},
		{"0 0 */2 * 1", "and", "5"},
		{"0 0 */2 * 1", "or", "1 3 5 7 9 11"},
		{"0 0 1,2 * */6", "", ""}, // Sunday or Saturday, and the 1st or 2nd
		{"0 0 2,3 * */6", "", "3"},
		{"0 0 * * 1", "or", "5"},
		{"0 0 */1 * 1", "or", "5"},
		{"0 0 5 * *", "or", "5"},
		{"0 0 5 * *", "and", "5"},
		{"0 0 1-31 * 1", "", "1 2 3 4 5 6 7 8 9 10 11"},
		{"0 0 1,* * 1", "", "1 2 3 4 5 6 7 8 9 10 11"},
		{"0 0 *,1 * 1", "", "5"},
	} {
		s := mustSpec(t, SpecConfig{Cron: c.spec, Days: c.days})
		var days []string
		ticks, _ := ticksBetween(s, from, to, 100)
		for _, tick := range ticks {
			days = append(days, fmt.Sprint(tick.At.Day()))
		}
		if got := strings.Join(days, " "); got != c.want {
			t.Errorf("%s, days %q: got %s, want %s", c.spec, c.days, got, c.want)
		}
	}
	wantWarning(t, SpecConfig{Cron: "0 0 1 * 1"}, "days", "days: or", "days: and")
	wantWarning(t, SpecConfig{Cron: "0 0 */2 * 1"}, "days", "both match", "days: and")
	for _, days := range []string{"or", "and"} {
		wantClean(t, SpecConfig{Cron: "0 0 1 * 1", Days: days})
	}
	wantClean(t, SpecConfig{Cron: "0 0 * * 1"})
	wantSpecError(t, SpecConfig{Cron: "0 0 1 * 1", Days: "xor"}, ErrBadSpec, "days:", "`or`", "`and`")
	wantSpecError(t, SpecConfig{Every: "5m", Days: "and"}, ErrBadSpec, "cron only")
}

func TestLint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, code, words string }{
		{"* 0 * * *", "every-minute", "60 times in each matching hour"},
		{"* */6 * * *", "every-minute", "write 0 */6"},
		{"0 0-23 * * *", "all-hours", "write * for both"},
		{"0 0 31 * *", "month-end", "February, April, June, September and November"},
		{"0 0 30 * *", "month-end", "in February,"},
		{"0 0 29 2 *", "month-end", "outside leap years"},
	} {
		wantWarning(t, SpecConfig{Cron: c.spec}, c.code, c.words)
	}
	wantClean(t, SpecConfig{Cron: "0 0 31 1,3 *"})
	wantClean(t, SpecConfig{Cron: "* * * * *"})
	wantClean(t, SpecConfig{Cron: "0 0 28-31 * *"})
	zone := "Europe/Berlin"
	wantWarning(t, SpecConfig{Every: "1h", Timezone: &zone, DST: DST{Gap: GapSkip}}, "dst", "no effect")
}

func TestAt(t *testing.T) {
	t.Parallel()
	berlin := "Europe/Berlin"
	for _, c := range []struct {
		at   string
		dst  DST
		want string
	}{
		{"2026-12-01T03:00:00", DST{}, "2026-12-01T03:00:00+01:00"},
		{"2026-12-01 03:00:00", DST{}, "2026-12-01T03:00:00+01:00"},
		{"2026-12-01 03:00", DST{}, "2026-12-01T03:00:00+01:00"},
		{"2026-12-01T03:00:00Z", DST{}, "2026-12-01T04:00:00+01:00"},
		{"2026-12-01T03:00:07-05:00", DST{}, "2026-12-01T09:00:07+01:00"},
		{"2026-12-01T03:00+01:00", DST{}, "2026-12-01T03:00:00+01:00"},
		{"2026-03-29T02:30:00", DST{}, "2026-03-29T03:00:00+02:00 shifted"},
		{"2026-10-25T02:30:00", DST{}, "2026-10-25T02:30:00+02:00"},
		{"2026-10-25T02:30:00", DST{Fold: FoldLast}, "2026-10-25T02:30:00+01:00"},
		{"2026-10-25T02:30:00+01:00", DST{Fold: FoldBoth}, "2026-10-25T02:30:00+01:00"},
	} {
		s := mustSpec(t, SpecConfig{At: c.at, Timezone: &berlin, DST: c.dst})
		tick := s.Next(time.Time{})
		got := tick.Label
		if tick.Shifted {
			got += " shifted"
		}
		if got != c.want {
			t.Errorf("%s %+v: got %s, want %s", c.at, c.dst, got, c.want)
		}
		if again := s.Next(tick.At); !again.IsZero() {
			t.Errorf("%s: a second tick %v", c.at, again)
		}
		if s.Next(tick.At.Add(-1)).At != tick.At || s.Prev(tick.At).At != tick.At || !s.Prev(tick.At.Add(-1)).IsZero() {
			t.Errorf("%s: the edges of its tick are wrong", c.at)
		}
		if s.Count(tick.At.Add(-1), tick.At) != 1 || s.Count(tick.At, tick.At.Add(time.Hour)) != 0 || s.Count(time.Time{}, tick.At.Add(-1)) != 0 {
			t.Errorf("%s: Count is wrong", c.at)
		}
	}
	for at, words := range map[string]string{
		"tomorrow": "no instant", "2026-13-01T00:00:00": "no instant", "2026-02-30T00:00:00": "no instant",
		"2026-12-01": "no time of day", "2026-12-01T03:00:00.5": "fraction", "1969-12-31T23:00:00Z": "out of range",
		"03:00": "no instant", "2026-12-01T24:00:00": "no instant",
	} {
		wantSpecError(t, SpecConfig{At: at}, ErrBadSpec, "at: ", words)
	}
	wantSpecError(t, SpecConfig{At: "2026-10-25T02:30:00", Timezone: &berlin, DST: DST{Fold: FoldBoth}}, ErrBadSpec, "twice")
	s, _, err := ParseSpec(SpecConfig{At: "2026-03-29T02:30:00", Timezone: &berlin, DST: DST{Gap: GapSkip}})
	if !errors.Is(err, ErrNeverFires) || s == nil || !s.Next(time.Time{}).IsZero() || !s.Prev(instant(t, "2030-01-01")).IsZero() {
		t.Errorf("at in a skipped gap: %v, %v", s, err)
	}
}

func TestCanonicalString(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  SpecConfig
		want string
	}{
		{SpecConfig{Cron: " 00,30\t*/8 * JAN-mar 7,mon"}, "cron 0,30 0,8,16 * 1-3 0,1 in UTC, days and, gap skip, fold both"},
		{SpecConfig{Cron: "0 2 1 * 1"}, "cron 0 2 1 * 1 in UTC, days or, gap run_after, fold first"},
		{SpecConfig{Every: "2m"}, "every 120s in UTC"},
		{SpecConfig{At: "2026-12-01T03:00:00+01:00"}, "at 2026-12-01T02:00:00+00:00 in UTC"},
	} {
		if got := mustSpec(t, c.cfg).String(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestEveryListedZoneLoads(t *testing.T) {
	t.Parallel()
	n := 0
	for line := range strings.Lines(zoneNames) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		n++
		zone, now, old := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		found := lookupZone(zone)
		if found.err != nil {
			t.Errorf("%s: %v", zone, found.err)
		}
		if _, alias, ok := listedZone(now); old && (!ok || alias) {
			t.Errorf("%s: its new name %s is not in the list", zone, now)
		}
	}
	if n < 500 {
		t.Errorf("%d zones", n)
	}
}

// Package time ends the years after a zone's last listed transition after 365
// days, so that 31 December of a leap year lies outside its own segment.
func TestSegmentHoldsItsInstant(t *testing.T) {
	t.Parallel()
	for _, zone := range allZones() {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, year := range []int{1904, 1972, 2024, 2040, 2099, 2400} {
			at := time.Date(year, 12, 30, 0, 0, 0, 0, time.UTC).Unix()
			for range 4 * 24 {
				if s := segmentAt(loc, at); !s.contains(at) || s.offset != offsetAt(loc, at) || offsetAt(loc, max(s.start, minInstant)) != s.offset || offsetAt(loc, min(s.end-1, maxInstant)) != s.offset {
					t.Fatalf("%s at %v: %+v", zone, time.Unix(at, 0).UTC(), s)
				}
				at += 3600
			}
		}
	}
	ny, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	eve := time.Date(2040, 12, 31, 12, 0, 0, 0, time.UTC)
	if _, end := eve.In(ny).ZoneBounds(); end.After(eve) {
		t.Log("package time has mended its bounds")
	}
	s := cronIn(t, "0 3 * * *", "America/New_York")
	from, to := instant(t, "2040-12-25"), instant(t, "2041-01-05")
	forward, _ := ticksBetween(s, from, to, 20)
	backward, _ := latestTicks(s, from, to, 20)
	if n := s.Count(from, to); n != 11 || len(forward) != 11 || !slices.Equal(forward, backward) {
		t.Errorf("ticks over the end of a leap year: %d, %v, %v, want 11", n, forward, backward)
	}
	yearly := cronIn(t, "0 3 30 12 *", "America/New_York")
	if got := yearly.Prev(instant(t, "2041-06-01")); !got.At.Equal(instant(t, "2040-12-30T08:00Z")) {
		t.Errorf("back over the end of a leap year: %v", got.At)
	}
}

// Count agrees with a walk over Next on long spans.
func TestCountEqualsWalkOverNext(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "Africa/Casablanca", "Pacific/Apia", "Australia/Lord_Howe"}
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 80 {
		w := specDraw{r: r}.spec()
		zone := zones[i%len(zones)]
		s, _, err := ParseSpec(w.config(zone))
		if s == nil {
			t.Fatalf("%s: %v", w.text, err)
		}
		from := time.Unix(r.Int64N(2_000_000_000), 0)
		to := from.Add(time.Duration(r.IntN(400*24)) * time.Hour)
		ticks, more := ticksBetween(s, from, to, 3000)
		if more {
			to = ticks[len(ticks)-1].At
		}
		if got := s.Count(from, to); got != len(ticks) {
			t.Errorf("%s from %v to %v: Count %d, walk %d", s, from, to, got, len(ticks))
		}
		latest, _ := latestTicks(s, from, to, 3000)
		if len(latest) != len(ticks) || len(ticks) > 0 && latest[0] != ticks[0] {
			t.Errorf("%s from %v to %v: Latest has %d, Between %d", s, from, to, len(latest), len(ticks))
		}
	}
	quarters := cronIn(t, "*/15 * * * *", "Europe/Berlin")
	within(t, 50*time.Millisecond, "counting 57 years", func() {
		if n := quarters.Count(time.Unix(0, 0), time.Unix(1_800_000_000, 0)); n != 2_000_000 {
			t.Errorf("57 years of quarters: %d", n)
		}
	})
}

func TestSpans(t *testing.T) {
	t.Parallel()
	s := mustSpec(t, SpecConfig{Every: "1m"})
	from := instant(t, "2026-06-01T00:00Z")
	ticks, more := ticksBetween(s, from, from.Add(10*time.Minute), 4)
	if len(ticks) != 4 || !more || !ticks[0].At.Equal(from.Add(time.Minute)) {
		t.Errorf("Between: %v, %v", ticks, more)
	}
	if ticks, more = ticksBetween(s, from, from.Add(4*time.Minute), 4); len(ticks) != 4 || more {
		t.Errorf("Between with nothing left: %v, %v", ticks, more)
	}
	ticks, more = latestTicks(s, from, from.Add(10*time.Minute), 4)
	if len(ticks) != 4 || !more || !ticks[3].At.Equal(from.Add(10*time.Minute)) || !ticks[0].At.Equal(from.Add(7*time.Minute)) {
		t.Errorf("Latest: %v, %v", ticks, more)
	}
	if up := Upcoming(s, from, 2); len(up) != 2 || !up[0].At.Equal(from) {
		t.Errorf("Upcoming: %v", up)
	}
	for _, c := range []struct {
		cfg  SpecConfig
		want time.Duration
	}{
		{SpecConfig{Every: "5s"}, time.Minute},
		{SpecConfig{Cron: "0 * * * *"}, time.Hour},
		{SpecConfig{Cron: "0 0 1 * *"}, 24 * time.Hour},
		{SpecConfig{At: "2026-06-01T00:00:00Z"}, 24 * time.Hour},
	} {
		if got := DefaultDeadline(mustSpec(t, c.cfg), from); got != c.want {
			t.Errorf("DefaultDeadline of %+v = %v, want %v", c.cfg, got, c.want)
		}
	}
}

// Instants at the ends of time give an answer, or none, and never hang.
func TestFarInstants(t *testing.T) {
	t.Parallel()
	berlin := "Europe/Berlin"
	for _, cfg := range []SpecConfig{
		{Cron: "* * * * *", Timezone: &berlin},
		{Cron: "0 0 29 2 1", Days: "and", Timezone: &berlin},
		{Cron: "0 0 31 12 *", DST: DST{Gap: GapRunAfter, Fold: FoldLast}, Timezone: &berlin},
		{Every: "7s"},
		{Every: "36500d"},
		{At: "2026-06-01T00:00:00Z"},
	} {
		s := mustSpec(t, cfg)
		for _, at := range []time.Time{
			{},
			time.Unix(-1<<62, 0), time.Unix(1<<62, 0), time.Unix(minInstant, 0), time.Unix(maxInstant, 0),
			time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0),
		} {
			var next, prev Occurrence
			within(t, 50*time.Millisecond, s.String(), func() { next, prev = s.Next(at), s.Prev(at) })
			if !next.IsZero() && !next.At.After(at) {
				t.Errorf("%s: Next(%v) = %v", s, at, next.At)
			}
			if !prev.IsZero() && prev.At.After(at) {
				t.Errorf("%s: Prev(%v) = %v", s, at, prev.At)
			}
			if y := next.Local.Year(); y < 1 || y > 9999 {
				t.Errorf("%s: a label in year %d", s, y)
			}
			if at.Unix() > maxInstant/10 {
				continue // exact, and so not free over thousands of years
			}
			if n := s.Count(time.Unix(0, 0), at); n < 0 || n > 0 && at.Unix() <= 0 {
				t.Errorf("%s up to %v: Count %d", s, at, n)
			}
		}
	}
}
