package scheduler

import (
	"slices"
	"testing"
	"time"
)

// The table of what each scheduler does where the clocks change, with
// robfig/cron's own search as the naive control: where it is wrong it must be
// seen to be wrong.
func TestZoneTable(t *testing.T) {
	t.Parallel()
	const same = "same"
	for _, c := range []struct {
		name, spec, zone, from, to string
		want                       string
		robfig                     string // what the naive search gives
	}{
		{
			"gap, fixed time", "30 2 * * *", "America/New_York", "2026-03-07T12:00Z", "2026-03-09T12:00Z",
			"03-08T03:00-04:00! 03-09T02:30-04:00", "03-09T02:30-04:00",
		},
		{
			"gap, fixed time, Berlin", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", "2026-03-30T12:00Z",
			"03-29T03:00+02:00! 03-30T02:30+02:00", "03-30T02:30+02:00",
		},
		{
			"fold, fixed time", "30 1 * * *", "America/New_York", "2026-10-31T12:00Z", "2026-11-02T12:00Z",
			"11-01T01:30-04:00 11-02T01:30-05:00", "11-01T01:30-04:00 11-01T01:30-05:00 11-02T01:30-05:00",
		},
		{
			"fold, fixed time, Berlin", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", "2026-10-26T12:00Z",
			"10-25T02:30+02:00 10-26T02:30+01:00", "10-25T02:30+02:00 10-25T02:30+01:00 10-26T02:30+01:00",
		},
		{
			"gap, each quarter", "*/15 * * * *", "America/New_York", "2026-03-08T06:29Z", "2026-03-08T07:15Z",
			"03-08T01:30-05:00 03-08T01:45-05:00 03-08T03:00-04:00 03-08T03:15-04:00", same,
		},
		{
			"fold, each quarter", "*/15 * * * *", "America/New_York", "2026-11-01T05:29Z", "2026-11-01T07:00Z",
			"11-01T01:30-04:00 11-01T01:45-04:00 11-01T01:00-05:00 11-01T01:15-05:00 11-01T01:30-05:00 11-01T01:45-05:00 11-01T02:00-05:00", same,
		},
		{
			"gap, hourly", "0 * * * *", "America/New_York", "2026-03-08T05:30Z", "2026-03-08T08:00Z",
			"03-08T01:00-05:00 03-08T03:00-04:00 03-08T04:00-04:00", same,
		},
		{
			"fold, hourly", "0 * * * *", "America/New_York", "2026-11-01T04:30Z", "2026-11-01T07:00Z",
			"11-01T01:00-04:00 11-01T01:00-05:00 11-01T02:00-05:00", same,
		},
		{
			"Lord Howe, half-hour gap", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", "2026-10-05T00:00Z",
			"10-04T02:30+11:00! 10-05T02:15+11:00", "10-05T02:15+11:00",
		},
		{
			"Lord Howe, before the gap", "45 1 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", "2026-10-05T00:00Z",
			"10-04T01:45+10:30 10-05T01:45+11:00", "10-04T01:45+10:30 10-04T02:45+11:00 10-05T01:45+11:00",
		},
		{
			"Lord Howe, hourly", "0 * * * *", "Australia/Lord_Howe", "2026-10-03T14:00Z", "2026-10-03T17:00Z",
			"10-04T01:00+10:30 10-04T03:00+11:00 10-04T04:00+11:00", same,
		},
		{
			"Cairo, gap at midnight", "0 0 * * *", "Africa/Cairo", "2026-04-23T12:00Z", "2026-04-25T12:00Z",
			"04-24T01:00+03:00! 04-25T00:00+03:00", "04-25T00:00+03:00",
		},
		{
			"Cairo, Thursday only", "0 3 * * 4", "Africa/Cairo", "2026-04-22T12:00Z", "2026-04-25T12:00Z",
			"04-23T03:00+02:00", "04-23T03:00+02:00 04-24T03:00+03:00",
		},
		{
			"Beirut, gap at midnight", "0 3 * * 6", "Asia/Beirut", "2026-03-27T12:00Z", "2026-03-30T12:00Z",
			"03-28T03:00+02:00", "03-28T03:00+02:00 03-29T03:00+03:00",
		},
		{
			"Santiago, gap at midnight", "0 3 * * 6", "America/Santiago", "2026-09-04T12:00Z", "2026-09-07T12:00Z",
			"09-05T03:00-04:00", "09-05T03:00-04:00 09-06T03:00-03:00",
		},
		{
			"Sao Paulo 2018, gap at midnight", "0 3 * * 6", "America/Sao_Paulo", "2018-11-02T12:00Z", "2018-11-05T12:00Z",
			"11-03T03:00-03:00", "11-03T03:00-03:00 11-04T03:00-02:00",
		},
		{
			"Asuncion 2023, missing midnight", "0 0 * * *", "America/Asuncion", "2023-09-30T12:00Z", "2023-10-02T12:00Z",
			"10-01T01:00-03:00! 10-02T00:00-03:00", "10-02T00:00-03:00",
		},
		{
			"Havana, missing midnight", "30 0 * * *", "America/Havana", "2025-03-08T12:00Z", "2025-03-10T12:00Z",
			"03-09T01:00-04:00! 03-10T00:30-04:00", "03-10T00:30-04:00",
		},
		{
			"Havana, midnight twice", "30 0 * * *", "America/Havana", "2025-11-01T12:00Z", "2025-11-03T12:00Z",
			"11-02T00:30-04:00 11-03T00:30-05:00", "11-02T00:30-04:00 11-02T00:30-05:00 11-03T00:30-05:00",
		},
		{
			"Casablanca, into Ramadan", "30 2 * * *", "Africa/Casablanca", "2025-02-22T12:00Z", "2025-02-24T12:00Z",
			"02-23T02:30+01:00 02-24T02:30+00:00", "02-23T02:30+01:00 02-23T02:30+00:00 02-24T02:30+00:00",
		},
		{
			"Casablanca, out of Ramadan", "30 2 * * *", "Africa/Casablanca", "2025-04-05T12:00Z", "2025-04-07T12:00Z",
			"04-06T03:00+01:00! 04-07T02:30+01:00", "04-07T02:30+01:00",
		},
		{
			"Troll, two-hour gap", "0 1,2 * * *", "Antarctica/Troll", "2026-03-28T12:00Z", "2026-03-30T12:00Z",
			"03-29T03:00+02:00! 03-30T01:00+02:00 03-30T02:00+02:00", "03-30T01:00+02:00 03-30T02:00+02:00",
		},
		{
			"Troll, two-hour fold, hourly", "0 * * * *", "Antarctica/Troll", "2026-10-24T23:30Z", "2026-10-25T03:30Z",
			"10-25T02:00+02:00 10-25T01:00+00:00 10-25T02:00+00:00 10-25T03:00+00:00", same,
		},
		{
			"Kathmandu, no change", "45 5 * * *", "Asia/Kathmandu", "2026-03-28T12:00Z", "2026-03-30T12:00Z",
			"03-29T05:45+05:45 03-30T05:45+05:45", same,
		},
		{
			"Sao Paulo today, no change", "0 0 * * *", "America/Sao_Paulo", "2026-10-16T12:00Z", "2026-10-18T12:00Z",
			"10-17T00:00-03:00 10-18T00:00-03:00", same,
		},
		{
			"Mexico City today, no change", "0 2 * * *", "America/Mexico_City", "2026-04-04T12:00Z", "2026-04-06T12:00Z",
			"04-05T02:00-06:00 04-06T02:00-06:00", same,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			from, to := instant(t, c.from), instant(t, c.to)
			if got := labels(cronIn(t, c.spec, c.zone), from, to); got != c.want {
				t.Errorf("%s in %s:\n got  %s\n want %s", c.spec, c.zone, got, c.want)
			}
			if c.robfig == same {
				c.robfig = c.want
			}
			if got := naive(t, c.spec, c.zone, from, to); got != c.robfig {
				t.Errorf("the naive control:\n got  %s\n want %s", got, c.robfig)
			}
		})
	}
}

// A missing day makes robfig/cron's search run for ever, so it is not asked.
func TestMissingDay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, zone, from, to, want string }{
		{"0 9 30 * *", "Pacific/Apia", "2011-12-20", "2012-01-31", "12-31T00:00+14:00! 01-30T09:00+14:00"},
		{"0 9 * * *", "Pacific/Apia", "2011-12-29T12:00Z", "2012-01-01T12:00Z", "12-29T09:00-10:00 12-31T00:00+14:00! 12-31T09:00+14:00 01-01T09:00+14:00"},
		{"0 */6 * * *", "Pacific/Apia", "2011-12-29T21:00Z", "2011-12-30T23:00Z", "12-29T12:00-10:00 12-29T18:00-10:00 12-31T00:00+14:00 12-31T06:00+14:00 12-31T12:00+14:00"},
		{"0 9 * * 5", "Pacific/Apia", "2011-12-24", "2012-01-07", "12-31T00:00+14:00! 01-06T09:00+14:00"},
		{"0 12 21 8 *", "Pacific/Kwajalein", "1993-01-01", "1995-01-01", "08-22T00:00+12:00! 08-21T12:00+12:00"},
		{"30 23 * * *", "Pacific/Kwajalein", "1993-08-20T12:00Z", "1993-08-22T12:00Z", "08-20T23:30-12:00 08-22T00:00+12:00! 08-22T23:30+12:00"},
		{"0 0 * * *", "Pacific/Kiritimati", "1994-12-30T12:00Z", "1995-01-02T12:00Z", "01-01T00:00+14:00 01-02T00:00+14:00 01-03T00:00+14:00"},
	} {
		s := cronIn(t, c.spec, c.zone)
		within(t, 5*time.Millisecond, c.spec, func() { s.Next(instant(t, c.from)) })
		got := labels(s, instant(t, c.from), instant(t, c.to))
		if got != c.want {
			t.Errorf("%s in %s:\n got  %s\n want %s", c.spec, c.zone, got, c.want)
		}
	}
	zone := "Pacific/Apia"
	skip := mustSpec(t, SpecConfig{Cron: "0 9 30 * *", Timezone: &zone, DST: DST{Gap: GapSkip}})
	if got := labels(skip, instant(t, "2011-12-20"), instant(t, "2012-02-01")); got != "01-30T09:00+14:00" {
		t.Errorf("gap: skip over the missing day: %s", got)
	}
}

// One search never takes long, wherever it starts.
func TestNextIsQuickEverywhere(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "Pacific/Apia", "Africa/Casablanca", "America/Juneau"} {
		jumps := transitions(mustSpec(t, SpecConfig{Cron: "* * * * *", Timezone: &zone}).Location(), 1840, 2045)
		for _, cfg := range []SpecConfig{
			{Cron: "0-59 0-23 * * *"},
			{Cron: "* * * * *", DST: DST{Gap: GapRunAfter, Fold: FoldLast}},
			{Cron: "* * 30 12 *", DST: DST{Gap: GapSkip, Fold: FoldFirst}},
			{Cron: "0 0 29 2 1", Days: "and"},
			{Cron: "0-59 0 29 2 *", DST: DST{Fold: FoldLast}},
		} {
			cfg.Timezone = &zone
			s := mustSpec(t, cfg)
			for _, jump := range jumps {
				for _, before := range []int64{0, 1, 90_000} {
					at := time.Unix(jump-before, 0)
					within(t, 5*time.Millisecond, s.String(), func() { s.Next(at) })
					within(t, 5*time.Millisecond, s.String(), func() { s.Prev(at) })
				}
			}
		}
	}
}

// The occurrence that a policy picks lies just beyond the one it refuses, and
// the next match is a week away: the search must not leap over it.
func TestFoldOfWeeklyJob(t *testing.T) {
	t.Parallel()
	zone := "Australia/Lord_Howe"
	for _, c := range []struct {
		fold FoldPolicy
		want string
	}{
		{FoldFirst, "03-25T01:48+11:00 04-01T01:48+11:00 04-08T01:48+10:30"},
		{FoldLast, "03-25T01:48+11:00 04-01T01:48+10:30 04-08T01:48+10:30"},
		{FoldBoth, "03-25T01:48+11:00 04-01T01:48+11:00 04-01T01:48+10:30 04-08T01:48+10:30"},
	} {
		s := mustSpec(t, SpecConfig{Cron: "48 1 * * 0", Timezone: &zone, DST: DST{Fold: c.fold}})
		from, to := instant(t, "2018-03-20"), instant(t, "2018-04-12")
		if got := labels(s, from, to); got != c.want {
			t.Errorf("fold %s:\n got  %s\n want %s", c.fold, got, c.want)
		}
		ticks, _ := ticksBetween(s, from, to, 10)
		if latest, _ := latestTicks(s, from, to, 10); !slices.Equal(latest, ticks) {
			t.Errorf("fold %s: backwards %v, forwards %v", c.fold, latest, ticks)
		}
		if n := s.Count(from, to); n != len(ticks) {
			t.Errorf("fold %s: Count %d, want %d", c.fold, n, len(ticks))
		}
	}
}

func TestEveryFollowsElapsedTime(t *testing.T) {
	t.Parallel()
	zone := "America/New_York"
	s := mustSpec(t, SpecConfig{Every: "1h", Timezone: &zone})
	want := "11-01T00:00-04:00 11-01T01:00-04:00 11-01T01:00-05:00 11-01T02:00-05:00"
	if got := labels(s, instant(t, "2026-11-01T03:30Z"), instant(t, "2026-11-01T07:00Z")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLabelTellsTheFoldApart(t *testing.T) {
	t.Parallel()
	s := cronIn(t, "0 * * * *", "Europe/Berlin")
	ticks, _ := ticksBetween(s, instant(t, "2026-10-24T23:30Z"), instant(t, "2026-10-25T01:30Z"), 10)
	if len(ticks) != 2 {
		t.Fatalf("got %d ticks", len(ticks))
	}
	if a, b := ticks[0].Label, ticks[1].Label; a != "2026-10-25T02:00:00+02:00" || b != "2026-10-25T02:00:00+01:00" {
		t.Errorf("got %s and %s", a, b)
	}
	if got := Label(instant(t, "2026-10-25")); got != "2026-10-25T00:00:00+00:00" {
		t.Errorf("UTC: %s", got)
	}
	monrovia, err := time.LoadLocation("Africa/Monrovia")
	if err != nil {
		t.Fatal(err)
	}
	if got := Label(time.Date(1971, 5, 1, 3, 0, 0, 0, monrovia)); got != "1971-05-01T03:00:00-00:44:30" {
		t.Errorf("an offset with seconds: %s", got)
	}
}
