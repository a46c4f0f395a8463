package scheduler

import (
	"testing"
	"time"
)

// fuzzSeeds are texts on which other parsers panicked or hung (robfig/cron#554,
// #470, #144, netresearch/go-cron#89, adhocore/gronx#44, gorhill/cronexpr#16),
// and plain ones to start from.
func fuzzSeeds() []string {
	return []string{
		"TZ=0", "TZ=", "CRON_TZ=America/Los_Angeles", "TZ=TZ=TZ=", "TZ= * * * * *", "TZ=UTC", "CRON_TZ=",
		"*/0 * * * *", "15/0 * * * *", "0-0/-005 * * * *", "*/60 * * * *", "*/40 * * * *", "0 */25 * * *", "0 0 */32 * *",
		"@every 500ms", "@every 0s", "@every -1m", "@every 1.5s", "@every", "@", "@daily", "@Daily", "@reboot",
		",", ", , , , ,", "*-5 * * * *", "*/100 * * * *", "- - - - -", "/ / / / /", "1-/2 * * * *", "*/* * * * *",
		"0 0 31 2 *", "0 0 29 2 1", "0 9 30 * *", "0 0 * * 5-7", "0 0 * * sun-tue", "0 0 * * fri-mon", "0 22-2 * * *",
		"30 2 * * *", "*/15 * * * *", "0 * * * *", "5 0 18 * 1", "0 0 */2 * 1", "59 23 31 12 7", "0 0 L * *", "0 0 ? * 1#2", "H H * * *",
		"* * * * * *", "\x00", "٣ * * * *", "0\u00a0* * * *", "99999999999999999999 * * * *", "0 0 1-31/9999999999 * *",
	}
}

// X11: no text makes the checker panic or hang.
func TestX11_HostileTexts(t *testing.T) {
	t.Parallel()
	for _, text := range fuzzSeeds() {
		for _, cfg := range []SpecConfig{{Cron: text}, {Every: text}, {At: text}, {Cron: "0 0 * * *", Timezone: &text}, {Cron: "0 0 * * *", Days: text}} {
			within(t, time.Second, text, func() {
				s, _, err := ParseSpec(cfg)
				if s != nil {
					s.Next(time.Unix(1_780_000_000, 0))
				}
				if err != nil && len(SpecErrors(err)) == 0 {
					t.Errorf("%q: %v is no SpecError", text, err)
				}
			})
		}
	}
}

// FuzzCronSpec feeds any text to the parser. What it accepts must move forward,
// agree with itself backwards, and equal the minute walk in the given zone.
func FuzzCronSpec(f *testing.F) {
	for i, seed := range fuzzSeeds() {
		f.Add(seed, uint16(i), int64(1_774_000_000+i*500_000), byte(i*5))
	}
	zones := allZones()
	zones = append(zones, "UTC")
	f.Fuzz(func(t *testing.T, text string, zoneIndex uint16, unix int64, options byte) {
		zone := zones[int(zoneIndex)%len(zones)]
		cfg := SpecConfig{
			Cron: text, Timezone: &zone,
			Days: [...]string{"", "or", "and", ""}[options&3],
			DST: DST{
				Gap:  [...]GapPolicy{"", GapRunAfter, GapSkip, ""}[options>>2&3],
				Fold: [...]FoldPolicy{"", FoldFirst, FoldLast, FoldBoth}[options>>4&3],
			},
		}
		var s Schedule
		var err error
		within(t, time.Second, text, func() { s, _, err = ParseSpec(cfg) })
		if err != nil && len(SpecErrors(err)) == 0 {
			t.Fatalf("%q: %v is no SpecError", text, err)
		}
		if s == nil {
			return
		}
		// From 1850 to 2100: from the first zones to the rules after the lists.
		from := floorMod(unix, 7_889_400_000) - 3_786_912_000
		if seg := segmentAt(s.Location(), from); options >= 64 && seg.end < maxInstant {
			// Mostly where the clocks change, a little or a lot before.
			from = seg.end - int64(options)*900 + unix%3600
		}
		within(t, time.Second, text, func() { checkChain(t, s, from) })
		cs, ok := s.(*cronSchedule)
		if !ok || err != nil {
			return
		}
		to := from + 30*3600
		checkAgainstWalk(t, s, walkSpecOf(cs, cfg), walk(s.Location(), from, to), from, to)
	})
}

// checkChain follows a schedule from an instant, and goes back again.
func checkChain(t *testing.T, s Schedule, from int64) {
	t.Helper()
	at := time.Unix(from, 0)
	for range 20 {
		next := s.Next(at)
		if next.IsZero() {
			return
		}
		if !next.At.After(at) {
			t.Fatalf("%s: Next(%v) = %v, which is not later", s, at, next.At)
		}
		if back := s.Prev(next.At); back != next {
			t.Fatalf("%s: Prev(%v) = %+v, want the same tick", s, next.At, back)
		}
		if between := s.Prev(next.At.Add(-1)); !between.IsZero() && between.At.After(at) {
			t.Fatalf("%s: Prev finds %v between %v and its next tick %v", s, between.At, at, next.At)
		}
		at = next.At
	}
}

// walkSpecOf turns the parsed fields into sets for the walk; that the fields
// are parsed right is what TestNextEqualsMinuteWalk checks.
func walkSpecOf(s *cronSchedule, cfg SpecConfig) *walkSpec {
	set := func(bits uint64) map[int]bool {
		values := make(map[int]bool)
		for v := range 64 {
			if bits>>v&1 == 1 {
				values[v] = true
			}
		}
		return values
	}
	w := &walkSpec{
		text: cfg.Cron, minute: set(s.civil.minute), hour: set(s.civil.hour), dom: set(s.civil.dom),
		month: set(s.civil.month), dow: set(s.civil.dow), elapsed: s.elapsed, dst: cfg.DST,
		days: "and",
	}
	if !s.civil.both {
		w.days = "or"
	}
	return w
}
