package scheduler

import (
	"fmt"
	"strings"
	"time"
)

// lintCron warns of what a spec says and its author rarely means.
func lintCron(cfg SpecConfig, fields []*cronField, s *cronSchedule, c *collector) {
	warn := func(code string, f *cronField, format string, args ...any) {
		c.warn(Warning{Code: code, Field: "cron", Offset: f.offset, Msg: fmt.Sprintf(format, args...)})
	}
	lintDays(cfg, fields[fieldDOM], fields[fieldDOW], warn)
	for _, f := range fields {
		lintSteps(f, warn)
	}
	minute, hour := fields[fieldMinute], fields[fieldHour]
	if !minute.restricted() && hour.restricted() {
		// "* 0 * * *" for once a day (hibiken/asynq#306).
		warn("every-minute", minute, "runs 60 times in each matching hour; for once write 0 %s in the first two fields", hour.text)
	}
	if !s.elapsed && len(hour.values()) == 24 && cfg.DST.Fold == "" {
		warn("all-hours", hour, "%s is each hour, and yet the repeated hour of an autumn fold runs once; write * for both", hour.text)
	}
	lintMonthEnd(fields[fieldDOM], fields[fieldMonth], s, warn)
}

type warnFunc func(code string, f *cronField, format string, args ...any)

func lintDays(cfg SpecConfig, dom, dow *cronField, warn warnFunc) {
	if cfg.Days != "" || !dom.restricted() || !dow.restricted() {
		return
	}
	if dom.star || dow.star {
		warn("days", dom, "day of month %s and day of week %s must both match, since one of them begins with *; "+
			"other crons differ, so write `days: and`, or `days: or` for either", dom.text, dow.text)
		return
	}
	warn("days", dom, "runs on day of month %s and also on day of week %s, as in cron; "+
		"write `days: or` if that is meant, `days: and` for days that match both", dom.text, dow.text)
}

// lintSteps warns of steps that do not divide their field, and so are no even
// spacing, and of those that leave the field's first value only.
func lintSteps(f *cronField, warn warnFunc) {
	size := f.def.max - f.def.min + 1
	for _, item := range f.items {
		if !item.stepped || item.step == 1 {
			continue
		}
		fires := stepValues(item, f.def)
		switch {
		case len(fires) == 1:
			warn("step", f, "%s is longer than the field: it fires at %s %s only", item.text, f.def.name, fires[0])
		case item.star && f.def.name != "day of month" && size%item.step != 0:
			warn("step", f, "%s is no even spacing: it fires at %s %s, and then at %s again", item.text, f.def.name, listed(fires), fires[0])
		}
	}
}

func stepValues(item cronItem, def fieldDef) []string {
	var fires []string
	for v := item.low; v <= item.high; v += item.step {
		shown := v
		if item.wrapHigh {
			shown = v % 7
		}
		fires = append(fires, fmt.Sprint(shown))
		if v > def.max {
			break
		}
	}
	return fires
}

func listed(values []string) string {
	const most = 12
	if len(values) > most {
		return strings.Join(values[:most], ", ") + ", …, " + values[len(values)-1]
	}
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values[:len(values)-1], ", ") + " and " + values[len(values)-1]
}

// lintMonthEnd warns of dates that some of the chosen months do not have.
func lintMonthEnd(dom, month *cronField, s *cronSchedule, warn warnFunc) {
	if !s.civil.both || !dom.restricted() || !s.civil.exists() {
		return
	}
	days := dom.values()
	if len(days) == 0 || days[0] < 29 {
		return
	}
	var short []string
	for _, m := range month.values() {
		switch longest := daysIn(2000, time.Month(m)); {
		case longest < days[0]:
			short = append(short, time.Month(m).String())
		case m == 2:
			short = append(short, "February outside leap years")
		}
	}
	if len(short) > 0 {
		warn("month-end", dom, "day %s does not exist in %s, which is left out; for the end of a month run on day 1 of the next", dom.text, listed(short))
	}
}
