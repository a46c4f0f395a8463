package scheduler_test

import (
	"fmt"
	"time"

	"github.com/solobeat/solobeat/scheduler"
)

func ExampleParseSpec() {
	zone := "Asian/Shanghai"
	_, _, err := scheduler.ParseSpec(scheduler.SpecConfig{Cron: "0 25 * * *", Timezone: &zone})
	for _, e := range scheduler.SpecErrors(err) {
		fmt.Println(e.Text())
	}
	_, warnings, _ := scheduler.ParseSpec(scheduler.SpecConfig{Cron: "*/40 * * * *"})
	fmt.Println(warnings[0])
	// Output:
	// timezone: "Asian/Shanghai" is no known time zone; did you mean Asia/Shanghai?
	// cron: "0 25 * * *" has "25" in the hour field, which is out of range; write a value from 0-23
	// cron: */40 is no even spacing: it fires at minute 0 and 40, and then at 0 again
}

func ExampleSchedule() {
	zone := "Europe/Berlin"
	hourly, _, err := scheduler.ParseSpec(scheduler.SpecConfig{Cron: "0 * * * *", Timezone: &zone})
	if err != nil {
		fmt.Println(err)
		return
	}
	daily, _, err := scheduler.ParseSpec(scheduler.SpecConfig{Cron: "30 2 * * *", Timezone: &zone})
	if err != nil {
		fmt.Println(err)
		return
	}
	// An autumn night: an hourly job has both 02:00 hours, a daily one the first.
	night := time.Date(2026, 10, 24, 23, 30, 0, 0, time.UTC)
	for range 2 {
		tick := hourly.Next(night)
		fmt.Println(tick.Label)
		night = tick.At
	}
	fmt.Println(daily.Prev(night).Label)
	// A spring night: 02:30 does not exist.
	tick := daily.Next(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC))
	fmt.Println(tick.Label, tick.Shifted)
	// Output:
	// 2026-10-25T02:00:00+02:00
	// 2026-10-25T02:00:00+01:00
	// 2026-10-25T02:30:00+02:00
	// 2026-03-29T03:00:00+02:00 true
}
