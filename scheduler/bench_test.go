package scheduler

import (
	"testing"
	"time"
)

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, spec, zone, from string }{
		{"hourly UTC", "0 * * * *", "UTC", "2026-06-01T00:00Z"},
		{"hourly Berlin", "0 * * * *", "Europe/Berlin", "2026-06-01T00:00Z"},
		{"daily Berlin", "30 2 * * *", "Europe/Berlin", "2026-06-01T00:00Z"},
		{"daily Berlin, at the gap", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z"},
		{"daily Berlin, at the fold", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z"},
		{"monthly Berlin", "0 6 1 * *", "Europe/Berlin", "2026-02-03T00:00Z"},
		{"29 February", "0 0 29 2 *", "Europe/Berlin", "2096-03-01T00:00Z"},
		{"each minute of the second hour only", "0-59 0-23 * * *", "Europe/Berlin", "2026-10-25T00:59Z"},
		{"Apia, missing day", "0 9 30 * *", "Pacific/Apia", "2011-12-20T00:00Z"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, from := cronIn(b, c.spec, c.zone), instant(b, c.from)
			b.ReportAllocs()
			for b.Loop() {
				if s.Next(from).IsZero() {
					b.Fatal("no tick")
				}
			}
		})
	}
}

func BenchmarkCount(b *testing.B) {
	for _, spec := range []string{"* * * * *", "30 2 * * *"} {
		b.Run(spec, func(b *testing.B) {
			s := cronIn(b, spec, "Europe/Berlin")
			for b.Loop() {
				s.Count(time.Unix(0, 0), instant(b, "2026-06-01T00:00Z"))
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	zone := "Europe/Berlin"
	p := NewSpecParser()
	for b.Loop() {
		if _, _, err := p.Parse(SpecConfig{Cron: "*/15 6-22 * * mon-fri", Timezone: &zone}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseSpec(b *testing.B) {
	zone := "Europe/Berlin"
	for b.Loop() {
		if _, _, err := ParseSpec(SpecConfig{Cron: "*/15 6-22 * * mon-fri", Timezone: &zone}); err != nil {
			b.Fatal(err)
		}
	}
}
