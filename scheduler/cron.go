package scheduler

import (
	"fmt"
	"strings"
	"time"
)

// longestSpec is far more than five full lists of values need.
const longestSpec = 1000

// macro returns the five fields that a word such as @daily stands for, or "".
func macro(word string) string {
	switch word {
	case "@yearly", "@annually":
		return "0 0 1 1 *"
	case "@monthly":
		return "0 0 1 * *"
	case "@weekly":
		return "0 0 * * 0"
	case "@daily", "@midnight":
		return "0 0 * * *"
	case "@hourly":
		return "0 * * * *"
	}
	return ""
}

const fiveFields = "five fields (minute, hour, day of month, month, day of week)"

// parseCron reads the value of `cron`. It returns a schedule unless it has
// added errors to c; and, beside the schedule, the error that it never fires.
func parseCron(cfg SpecConfig, loc *time.Location, c *collector) (*cronSchedule, *SpecError) {
	text := cfg.Cron
	fields := splitCron(text, c)
	if fields == nil {
		return nil, nil
	}
	if err := readFields(fields); err != nil {
		err.Value = text
		c.add(err)
		return nil, nil
	}
	dom, dow := fields[fieldDOM], fields[fieldDOW]
	s := &cronSchedule{
		civil: civilMatcher{
			minute: fields[fieldMinute].bits,
			hour:   fields[fieldHour].bits,
			dom:    dom.bits,
			month:  fields[fieldMonth].bits,
			dow:    dow.bits,
			both:   bothDays(cfg.Days, dom, dow),
		},
		loc: loc,
	}
	s.elapsed = fields[fieldMinute].star || fields[fieldHour].star
	s.gap, s.fold = cfg.DST.policies(s.elapsed)
	s.text = canonical(fields, s)
	lintCron(cfg, fields, s, c)
	if !s.civil.exists() {
		s.never = true
		return s, &SpecError{
			Field: "cron", Value: text, Offset: dom.offset, Err: ErrNeverFires,
			Msg:  fmt.Sprintf("never fires: no such month has a day %s", dom.text),
			Cure: "write a date that exists, or `enabled: false` for a job that is started by hand only",
		}
	}
	return s, nil
}

// bothDays decides how day of month and day of week combine. With cron's own
// rule a field counts as free if it begins with *, also as */2: that is what
// Vixie cron and its heirs do. robfig/cron, and Kubernetes with it, drops the
// mark when there is a step.
func bothDays(days string, dom, dow *cronField) bool {
	switch days {
	case "and":
		return true
	case "or":
		return !dom.restricted() || !dow.restricted()
	}
	return dom.star || dow.star
}

// splitCron checks the text and cuts it into checked fields; nil after errors.
func splitCron(text string, c *collector) []*cronField {
	fail := func(msg, cure string) []*cronField {
		c.add(&SpecError{Field: "cron", Value: text, Msg: msg, Cure: cure, Err: ErrBadSpec})
		return nil
	}
	spec := strings.TrimRight(text, "\r\n")
	if len(spec) > longestSpec {
		return fail(fmt.Sprintf("has %d characters", len(spec)), "write "+fiveFields)
	}
	parts, offsets := splitFields(spec)
	if len(parts) == 0 {
		return fail("is empty", "write "+fiveFields)
	}
	if msg, cure := notFields(parts); msg != "" {
		return fail(msg, cure)
	}
	if strings.HasPrefix(parts[0], "@") {
		parts, offsets = splitFields(macro(parts[0]))
	}
	if len(parts) != 5 {
		return fail(fieldCount(parts))
	}
	fields := make([]*cronField, 5)
	failed := false
	for i, def := range fieldDefs() {
		f, errs := parseField(def, parts[i], offsets[i])
		for _, err := range errs {
			err.Value = text
			c.add(err)
			failed = true
		}
		fields[i] = f
	}
	if failed {
		return nil
	}
	return fields
}

func fieldCount(parts []string) (msg, cure string) {
	msg = fmt.Sprintf("has %d fields, and five are needed", len(parts))
	if len(parts) == 1 {
		msg = "has one field, and five are needed"
	}
	switch {
	case len(parts) == 6 && isDigits(parts[5]) && len(parts[5]) == 4:
		return msg, "leave out the year, the last field"
	case len(parts) == 6 || len(parts) == 7:
		return msg, "leave out the seconds, the first field (for periods below a minute use `every`)"
	}
	return msg, "write minute, hour, day of month, month and day of week"
}

// notFields recognises what is no list of fields at all, and says what to do.
func notFields(parts []string) (msg, cure string) {
	const off = "; to switch the job off write `enabled: false`"
	first := parts[0]
	lower := strings.ToLower(first)
	switch {
	case strings.HasPrefix(lower, "tz=") || strings.HasPrefix(lower, "cron_tz="):
		// robfig/cron#554 and #470: its parser panics where no fields follow.
		_, zone, _ := strings.Cut(first, "=")
		if zone == "" {
			return "has a zone inside the spec", "remove it, and write `timezone: Europe/Berlin` (or another zone) beside it"
		}
		return "has a zone inside the spec", fmt.Sprintf("write `timezone: %s` beside it, and here the five fields only", zone)
	case strings.HasPrefix(first, "@"):
		return macroProblem(parts)
	case len(parts) == 1 && isOffWord(lower):
		return "is no schedule", "write " + fiveFields + off
	}
	for _, part := range parts {
		switch {
		case strings.HasPrefix(part, "#"):
			return "has a comment inside the spec", "put the comment outside the quotes" + off
		case strings.ContainsAny(part, "'\"`"):
			return "has quotes inside the spec", "write the five fields in one pair of quotes" + off
		}
		if i := strings.IndexFunc(part, strayRune); i >= 0 {
			r := []rune(part[i:])[0]
			return fmt.Sprintf("has the stray character %q", r), "write " + fiveFields + off
		}
	}
	return "", ""
}

func isOffWord(lower string) bool {
	switch lower {
	case "disable", "disabled", "never", "off", "none", "no", "false", "null", "nil", "manual", "~", "-":
		return true
	}
	return false
}

// strayRune tells what occurs in no dialect of the fields.
func strayRune(r rune) bool {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return false
	}
	return !strings.ContainsRune("*/,-?#~()+.", r)
}

func macroProblem(parts []string) (msg, cure string) {
	const known = "write @hourly, @daily, @weekly, @monthly or @yearly, or five fields"
	word := parts[0]
	lower := strings.ToLower(word)
	switch {
	case macro(word) != "" && len(parts) == 1:
		return "", ""
	case macro(word) != "":
		return "has something after " + word, "remove it"
	case macro(lower) != "":
		return "is not known in this spelling", "write " + lower
	case lower == "@every":
		period := "5m"
		if len(parts) == 2 {
			period = parts[1]
		}
		return "is no cron spec", fmt.Sprintf("write `every: %s` instead of `cron`", period)
	case lower == "@reboot" || lower == "@startup":
		return "has no meaning here, where replicas start at any time", "give the job a time, or run it once with `at`"
	case lower == "@at":
		return "is no cron spec", "write `at: 2026-12-01T03:00:00` instead of `cron`"
	case lower == "@manually" || lower == "@triggered" || lower == "@never":
		return "is no cron spec", "write any schedule with `enabled: false` for a job that is started by hand only"
	}
	return "is not known", known
}

// canonical spells a schedule in one way: sorted values, resolved policies.
func canonical(fields []*cronField, s *cronSchedule) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = rangesOf(f)
	}
	days := "or"
	if s.civil.both {
		days = "and"
	}
	return fmt.Sprintf("cron %s in %s, days %s, gap %s, fold %s", strings.Join(texts, " "), s.loc, days, s.gap, s.fold)
}

// rangesOf lists a field's values as numbers and ranges, or * for all.
func rangesOf(f *cronField) string {
	values := f.values()
	if len(values) == f.def.max-f.def.min+1 {
		return "*"
	}
	var parts []string
	for i := 0; i < len(values); {
		j := i
		for j+1 < len(values) && values[j+1] == values[j]+1 {
			j++
		}
		switch {
		case j > i+1:
			parts = append(parts, fmt.Sprintf("%d-%d", values[i], values[j]))
			i = j + 1
		default:
			parts = append(parts, fmt.Sprint(values[i]))
			i++
		}
	}
	return strings.Join(parts, ",")
}
