package scheduler

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func jobInBerlin(t *testing.T, spec string, change ...func(*Job)) *Job {
	t.Helper()
	return job(t, "report", spec, append([]func(*Job){func(j *Job) { j.Schedule = cronIn(t, spec, "Europe/Berlin") }}, change...)...)
}

// A run by hand is rendered from its tick, has a time of its own to begin in,
// and only with a mark an id and a key of its own.
func TestManualRequest(t *testing.T) {
	t.Parallel()
	now := instant(t, "2026-12-01T15:00:00Z")
	j := jobInBerlin(t, "30 2 * * *", func(j *Job) {
		j.Kwargs = map[string]any{"day": "{{ .Tick.Local | date }}"}
		j.Lock, j.Record = &JobLock{}, &JobRecord{Key: "day:{{ .Tick.Local | date }}"}
		j.Expires, j.Misfire.Deadline = 10*time.Minute, time.Hour
	})
	tick, err := j.LastTick(now)
	if err != nil {
		t.Fatal(err)
	}
	own, err := j.Request("ns", tick)
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []string{"", ManualMark(now)} {
		r, err := j.ManualRequest(Manual{Namespace: "ns", KeyPrefix: "p:", Tick: tick, Now: now, Mark: mark})
		if err != nil {
			t.Fatal(err)
		}
		if r.ID != own.ID+mark || r.Guard.Record.Key != own.Guard.Record.Key+mark || r.Guard.Label != own.Guard.Label || r.Guard.Tick != own.Guard.Tick {
			t.Errorf("%q: id %q, guard %+v", mark, r.ID, r.Guard)
		}
		if got := string(r.Kwargs["day"]); got != `"2026-12-01"` {
			t.Errorf("day %s", got)
		}
		if r.Guard.Lock.Key != "p:solobeat:ns:lock:report" {
			t.Errorf("lock %q", r.Guard.Lock.Key)
		}
		if want := now.Add(time.Hour).UnixMilli(); r.Guard.BeginBy != want || !r.Expires.Equal(now.Add(10*time.Minute)) {
			t.Errorf("begin by %d, want %d; expires %s", r.Guard.BeginBy, want, r.Expires)
		}
		if _, err := r.Guard.Encode(); err != nil {
			t.Error(err)
		}
	}
	j.Record = nil
	if r, err := j.ManualRequest(Manual{Tick: tick, Now: now, Mark: ManualMark(now)}); err != nil || r.Guard.Record != nil {
		t.Errorf("without a record: %+v, %v", r, err)
	}
}

// Marks are ULIDs: they sort by their instants, and no two are equal.
func TestManualMark(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^#manual:[0-7][0-9A-HJKMNP-TV-Z]{25}$`)
	var all []string
	for i := range 200 {
		m := ManualMark(time.UnixMilli(int64(i) * 1_000_000_007))
		if !form.MatchString(m) {
			t.Fatalf("%q is no ULID", m)
		}
		all = append(all, m)
	}
	if !slices.IsSorted(all) {
		t.Error("marks do not sort by their instants")
	}
	at := time.UnixMilli(1)
	if a, b := ManualMark(at), ManualMark(at); a == b || a[:18] != b[:18] || !strings.HasPrefix(a, "#manual:0000000001") {
		t.Errorf("%q and %q of one instant", a, b)
	}
	// The example of the ULID specification: 01ARZ3NDEKTSV4RRFFQ69G5FAV.
	if got := ulidText([16]byte{0x01, 0x56, 0x3e, 0x3a, 0xb5, 0xd3, 0xd6, 0x76, 0x4c, 0x61, 0xef, 0xb9, 0x93, 0x02, 0xbd, 0x5b}); got != "01ARZ3NDEKTSV4RRFFQ69G5FAV" {
		t.Errorf("ULID %s", got)
	}
}

func TestTickAt(t *testing.T) {
	t.Parallel()
	hourly, daily := jobInBerlin(t, "0 * * * *"), jobInBerlin(t, "30 2 * * *")
	both := jobInBerlin(t, "30 2 * * *", func(j *Job) {
		zone := "Europe/Berlin"
		j.Schedule = mustSpec(t, SpecConfig{Cron: "30 2 * * *", Timezone: &zone, DST: DST{Fold: FoldLast}})
	})
	for _, c := range []struct {
		job        *Job
		text, want string
	}{
		{hourly, "2026-12-01T03:00:00+01:00", "2026-12-01T03:00:00+01:00"},
		{hourly, "2026-12-01T02:00:00Z", "2026-12-01T03:00:00+01:00"},
		{hourly, "2026-12-01T03:00", "2026-12-01T03:00:00+01:00"},
		{hourly, "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+02:00"},
		{hourly, "2026-10-25T02:00:00+01:00", "2026-10-25T02:00:00+01:00"},
		{hourly, "2026-10-25T02:00:00", "2026-10-25T02:00:00+02:00"}, // the first of two
		{daily, "2026-10-25T02:30:00", "2026-10-25T02:30:00+02:00"},
		{both, "2026-10-25T02:30:00", "2026-10-25T02:30:00+01:00"},  // the one that is a tick
		{daily, "2026-03-29T02:30:00", "2026-03-29T03:00:00+02:00"}, // the clocks skip it
	} {
		o, err := c.job.TickAt(c.text)
		if err != nil || o.Label != c.want {
			t.Errorf("%s: %s, %v, want %s", c.text, o.Label, err, c.want)
		}
	}
	for _, c := range []struct {
		job  *Job
		text string
		want []string
	}{
		{daily, "2026-12-01T03:00:00", []string{"2026-12-01T03:00:00+01:00 is no tick", "2026-12-01T02:30:00+01:00, 2026-12-02T02:30:00+01:00"}},
		{daily, "2026-12-01T02:30:00.5+01:00", []string{"is no tick"}},
		{job(t, "once", "0 0 1 1 *", func(j *Job) { j.Schedule = mustSpec(t, SpecConfig{At: "2026-12-01T00:00:00Z"}) }), "2026-11-01T00:00:00Z", []string{"the nearest: 2026-12-01T00:00:00+00:00"}},
		{&Job{Name: "none"}, "2026-11-01T00:00:00Z", []string{"it has none"}},
	} {
		_, err := c.job.TickAt(c.text)
		var e *NotTickError
		if !errors.As(err, &e) || !errors.Is(err, ErrNoTick) {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		for _, word := range c.want {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q lacks %q", c.text, err, word)
			}
		}
	}
	if _, err := daily.TickAt("yesterday"); err == nil || errors.Is(err, ErrNoTick) {
		t.Errorf("yesterday: %v", err)
	}
	if _, err := (&Job{Name: "none"}).LastTick(time.Now()); !errors.Is(err, ErrNoTick) {
		t.Error(err)
	}
}
