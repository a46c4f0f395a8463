package scheduler_test

import (
	"testing"
	"time"

	"github.com/solobeat/solobeat/scheduler"
)

// The longest gap decides how long a job may go without a success: the mean
// would cry wolf every Monday.
func TestLongestGap(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC) // a Wednesday
	for _, c := range []struct {
		spec scheduler.SpecConfig
		want time.Duration
	}{
		{scheduler.SpecConfig{Cron: "0 * * * *"}, time.Hour},
		{scheduler.SpecConfig{Cron: "0 9 * * 1-5"}, 72 * time.Hour},
		{scheduler.SpecConfig{Cron: "*/5 9-17 * * 1-5"}, 63*time.Hour + 5*time.Minute},
		{scheduler.SpecConfig{Cron: "* 0-1,4-23 * * *"}, 2*time.Hour + time.Minute},
		{scheduler.SpecConfig{Cron: "0 0 1 * *"}, 31 * 24 * time.Hour},
		{scheduler.SpecConfig{Every: "90s"}, 90 * time.Second},
		{scheduler.SpecConfig{At: "2026-12-01T00:00:00Z"}, 0},
	} {
		s, _, err := scheduler.ParseSpec(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := scheduler.LongestGap(s, from); got != c.want {
			t.Errorf("%+v: %s, want %s", c.spec, got, c.want)
		}
	}
}

func BenchmarkLongestGap(b *testing.B) {
	s, _, err := scheduler.ParseSpec(scheduler.SpecConfig{Cron: "*/5 9-17 * * 1-5"})
	if err != nil {
		b.Fatal(err)
	}
	from := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	for b.Loop() {
		scheduler.LongestGap(s, from)
	}
}
