package scheduler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
)

func mustSpec(t testing.TB, cfg SpecConfig) Schedule {
	t.Helper()
	s, _, err := ParseSpec(cfg)
	if err != nil {
		t.Fatalf("ParseSpec(%+v): %v", cfg, err)
	}
	return s
}

func cronIn(t testing.TB, spec, zone string) Schedule {
	t.Helper()
	return mustSpec(t, SpecConfig{Cron: spec, Timezone: &zone})
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at
		}
	}
	t.Fatalf("bad instant %q in a test", text)
	return time.Time{}
}

// labels lists the ticks in (from, to] by their labels without seconds, with a
// ! behind those that are shifted.
func labels(s Schedule, from, to time.Time) string {
	ticks, _ := ticksBetween(s, from, to, 10_000)
	var all []string
	for _, tick := range ticks {
		text := tick.Local.Format("01-02T15:04-07:00")
		if tick.Shifted {
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// utcLabels lists the instants of the ticks in (from, to].
func utcLabels(s Schedule, from, to time.Time) string {
	ticks, _ := ticksBetween(s, from, to, 10_000)
	var all []string
	for _, tick := range ticks {
		all = append(all, tick.At.Format("2006-01-02T15:04Z"))
	}
	return strings.Join(all, " ")
}

// naive lists what robfig/cron's own search gives, the naive control of these
// tests. It never asks across a missing day, where that search does not end.
func naive(t testing.TB, spec, zone string, from, to time.Time) string {
	t.Helper()
	s, err := cron.ParseStandard("CRON_TZ=" + zone + " " + spec)
	if err != nil {
		t.Fatal(err)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for at := s.Next(from.In(loc)); !at.IsZero() && !at.After(to); at = s.Next(at) {
		all = append(all, at.In(loc).Format("01-02T15:04-07:00"))
	}
	return strings.Join(all, " ")
}

// wantSpecError checks that a spec is refused, with all the words in its text.
func wantSpecError(t *testing.T, cfg SpecConfig, kind error, words ...string) {
	t.Helper()
	s, _, err := ParseSpec(cfg)
	if !errors.Is(err, kind) {
		t.Errorf("ParseSpec(%+v) = %v, %v, want %v", cfg, s, err, kind)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("ParseSpec(%+v): %q lacks %q", cfg, err, word)
		}
	}
	if len(SpecErrors(err)) == 0 {
		t.Errorf("ParseSpec(%+v): %v holds no SpecError", cfg, err)
	}
}

// wantWarning checks that a spec is accepted with a warning of that code.
func wantWarning(t *testing.T, cfg SpecConfig, code string, words ...string) {
	t.Helper()
	_, warnings, err := ParseSpec(cfg)
	if err != nil {
		t.Errorf("ParseSpec(%+v): %v", cfg, err)
		return
	}
	for _, w := range warnings {
		if w.Code != code {
			continue
		}
		for _, word := range words {
			if !strings.Contains(w.Msg, word) {
				t.Errorf("ParseSpec(%+v): warning %q lacks %q", cfg, w, word)
			}
		}
		return
	}
	t.Errorf("ParseSpec(%+v): no warning %q among %v", cfg, code, warnings)
}

func wantClean(t *testing.T, cfg SpecConfig) {
	t.Helper()
	if _, warnings, err := ParseSpec(cfg); err != nil || len(warnings) > 0 {
		t.Errorf("ParseSpec(%+v): error %v, warnings %v, want neither", cfg, err, warnings)
	}
}

// within fails the test unless f, which may be called again, once takes less
// than limit: a machine that is busy with other things must not fail it, a
// search that hangs must.
func within(t testing.TB, limit time.Duration, what string, f func()) {
	t.Helper()
	best := time.Duration(1<<63 - 1)
	for range 5 {
		start := time.Now()
		f()
		if best = min(best, time.Since(start)); best < limit {
			return
		}
	}
	t.Fatalf("%s takes %v, the limit is %v", what, best, limit)
}

// ticksBetween returns the ticks t with after < t <= upTo in ascending order, at
// most limit of them, the earliest first; more tells that there are others.
func ticksBetween(s Schedule, after, upTo time.Time, limit int) (ticks []Occurrence, more bool) {
	for tick := s.Next(after); !tick.IsZero() && !tick.At.After(upTo); tick = s.Next(tick.At) {
		if len(ticks) >= limit {
			return ticks, true
		}
		ticks = append(ticks, tick)
	}
	return ticks, false
}

// latestTicks returns the ticks t with after < t <= upTo in ascending order, at
// most limit of them, the newest ones; more tells that there are others.
func latestTicks(s Schedule, after, upTo time.Time, limit int) (ticks []Occurrence, more bool) {
	tick := s.Prev(upTo)
	for ; !tick.IsZero() && tick.At.After(after); tick = s.Prev(tick.At.Add(-time.Second)) {
		if len(ticks) >= limit {
			more = true
			break
		}
		ticks = append(ticks, tick)
	}
	for i, j := 0, len(ticks)-1; i < j; i, j = i+1, j-1 {
		ticks[i], ticks[j] = ticks[j], ticks[i]
	}
	return ticks, more
}
