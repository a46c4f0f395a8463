package scheduler

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

// fieldDef is one of the five cron fields.
type fieldDef struct {
	name     string
	min, max int
	names    []string // from min on, in full
}

func fieldDefs() [5]fieldDef {
	return [5]fieldDef{
		{name: "minute", min: 0, max: 59},
		{name: "hour", min: 0, max: 23},
		{name: "day of month", min: 1, max: 31},
		{name: "month", min: 1, max: 12, names: []string{
			"january", "february", "march", "april", "may", "june", "july",
			"august", "september", "october", "november", "december",
		}},
		{name: "day of week", min: 0, max: 6, names: []string{
			"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday",
		}},
	}
}

const (
	fieldMinute = iota
	fieldHour
	fieldDOM
	fieldMonth
	fieldDOW
)

// cronField is a field after checking.
type cronField struct {
	def    fieldDef
	text   string
	offset int    // of text in the spec
	clean  string // in the words of robfig/cron
	bits   uint64
	star   bool // the text begins with *
	items  []cronItem
}

// restricted tells that the field leaves something out.
func (f *cronField) restricted() bool {
	for v := f.def.min; v <= f.def.max; v++ {
		if f.bits>>v&1 == 0 {
			return true
		}
	}
	return !f.star
}

// values lists what the field matches.
func (f *cronField) values() []int {
	var all []int
	for v := f.def.min; v <= f.def.max; v++ {
		if f.bits>>v&1 == 1 {
			all = append(all, v)
		}
	}
	return all
}

// cronItem is one of the comma-separated parts of a field.
type cronItem struct {
	text     string
	star     bool
	low      int
	high     int
	step     int
	stepped  bool // a step is written
	wrapHigh bool // high is 7, Sunday
}

// splitFields cuts a spec at blanks and tabs, and only there: another white
// space is a stray character, to be named.
func splitFields(spec string) (fields []string, offsets []int) {
	start := -1
	for i := 0; i <= len(spec); i++ {
		blank := i == len(spec) || spec[i] == ' ' || spec[i] == '\t'
		switch {
		case blank && start >= 0:
			fields, offsets = append(fields, spec[start:i]), append(offsets, start)
			start = -1
		case !blank && start < 0:
			start = i
		}
	}
	return fields, offsets
}

// parseField checks one field, item by item.
func parseField(def fieldDef, text string, offset int) (*cronField, []*SpecError) {
	f := &cronField{def: def, text: text, offset: offset, star: strings.HasPrefix(text, "*")}
	var errs []*SpecError
	var clean []string
	at := offset
	for _, part := range strings.Split(text, ",") {
		item, err := def.parseItem(part)
		if err != nil {
			err.Offset = at
			errs = append(errs, err)
		} else {
			f.items = append(f.items, item)
			clean = append(clean, item.clean(def))
		}
		at += len(part) + 1
	}
	f.clean = strings.Join(clean, ",")
	return f, errs
}

// fieldError is a mistake in a field; its offset and the spec come later.
func fieldError(msg, cure string) *SpecError {
	return &SpecError{Field: "cron", Msg: msg, Cure: cure, Err: ErrBadSpec}
}

func (d fieldDef) parseItem(part string) (cronItem, *SpecError) {
	item := cronItem{text: part, step: 1}
	if part == "" {
		return item, fieldError(fmt.Sprintf("has an empty item in the %s field", d.name), "remove the comma, or write the missing value")
	}
	if err := d.checkForeign(part); err != nil {
		return item, err
	}
	base, step, stepped := strings.Cut(part, "/")
	if stepped {
		if err := d.parseStep(&item, step); err != nil {
			return item, err
		}
	}
	low, high, ranged := strings.Cut(base, "-")
	switch {
	case base == "*":
		item.star, item.low, item.high = true, d.min, d.max
		return item, nil
	case strings.HasPrefix(base, "*"):
		return item, fieldError(fmt.Sprintf("has %s in the %s field", quoted(part), d.name), "write * or */n, or a range such as "+d.example())
	case strings.HasPrefix(base, "-"):
		return item, fieldError(fmt.Sprintf("has a negative value %s in the %s field", quoted(base), d.name), "write a value from "+d.span())
	}
	var err *SpecError
	if item.low, err = d.value(low); err != nil {
		return item, err
	}
	item.high = item.low
	if ranged {
		if item.high, err = d.value(high); err != nil {
			return item, err
		}
	}
	return item, d.orderRange(&item, high, ranged)
}

// orderRange settles the ends of an item: 7 for Sunday, `5/15` for 5-59/15.
func (d fieldDef) orderRange(item *cronItem, high string, ranged bool) *SpecError {
	sunday := len(d.names) == 7
	if sunday && item.low == 7 && !(ranged && item.high == 7) {
		item.low = 0
		if !ranged {
			item.high = 0
		}
	}
	if sunday && ranged && item.high == 0 && item.low > 0 && !isDigits(high) {
		item.high = 7 // fri-sun: the end of the week, by name
	}
	if !ranged && item.stepped {
		item.high = d.max
	}
	item.wrapHigh = sunday && item.high == 7
	if item.low > item.high {
		return fieldError(
			fmt.Sprintf("has the range %s in the %s field, which runs backwards", quoted(item.text), d.name),
			"write "+d.unwrapped(item))
	}
	return nil
}

// unwrapped spells a range over the end of the field as two.
func (d fieldDef) unwrapped(item *cronItem) string {
	part := func(low, high int) string {
		if low == high {
			return strconv.Itoa(low)
		}
		return fmt.Sprintf("%d-%d", low, high)
	}
	if item.stepped {
		return fmt.Sprintf("the values one by one, such as %d,%d", item.high, item.low)
	}
	return part(item.low, d.max) + "," + part(d.min, item.high)
}

func (d fieldDef) parseStep(item *cronItem, step string) *SpecError {
	where := fmt.Sprintf("has the step %s in the %s field", quoted(step), d.name)
	const cure = "write a step from 1 on, such as */5"
	switch {
	case strings.HasPrefix(step, "-"):
		return fieldError(where+", which is negative", cure)
	case !isDigits(step):
		return fieldError(where+", which is no number", cure)
	}
	n, err := strconv.Atoi(step)
	switch {
	case err != nil || n > 1_000_000:
		return fieldError(where+", which is far larger than the field", cure)
	case n == 0:
		return fieldError(where+", which is zero", cure)
	}
	item.step, item.stepped = n, true
	return nil
}

// value reads a number or a name.
func (d fieldDef) value(text string) (int, *SpecError) {
	where := fmt.Sprintf("has %s in the %s field", quoted(text), d.name)
	if isDigits(text) {
		n, err := strconv.Atoi(text)
		top := d.max
		if len(d.names) == 7 {
			top = 7
		}
		if err != nil || n < d.min || n > top {
			return 0, fieldError(where+", which is out of range", "write a value from "+d.span())
		}
		return n, nil
	}
	if text == "" {
		return 0, fieldError(fmt.Sprintf("has a range with a missing end in the %s field", d.name), "write both ends, such as "+d.example())
	}
	if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
		return 0, fieldError(where+", which has a sign", "write a value from "+d.span())
	}
	lower := strings.ToLower(text)
	for i, name := range d.names {
		if lower == name || lower == name[:3] {
			return d.min + i, nil
		}
	}
	return 0, fieldError(where+", which is no "+d.kind(), d.nameCure(lower))
}

func (d fieldDef) kind() string {
	if len(d.names) > 0 {
		return "number or name of a " + strings.TrimSuffix(d.name, " of week")
	}
	return "number"
}

// nameCure suggests what an unknown word was meant to be.
func (d fieldDef) nameCure(lower string) string {
	for _, other := range fieldDefs() {
		for _, name := range other.names {
			if other.name != d.name && (lower == name || lower == name[:3]) {
				return fmt.Sprintf("%s belongs to the %s field; the fields are minute, hour, day of month, month, day of week", name[:3], other.name)
			}
		}
	}
	for _, name := range d.names {
		if len(lower) >= 3 && strings.HasPrefix(lower, name[:3]) {
			return "did you mean " + name[:3] + "?"
		}
	}
	if len(d.names) > 0 {
		return fmt.Sprintf("write %s, or a name such as %s", d.span(), d.names[1][:3])
	}
	return "write a value from " + d.span()
}

func (d fieldDef) span() string {
	if len(d.names) == 7 {
		return "0-7 (0 and 7 are Sunday)"
	}
	return fmt.Sprintf("%d-%d", d.min, d.max)
}

func (d fieldDef) example() string {
	return fmt.Sprintf("%d-%d", d.min+1, d.min+5)
}

// checkForeign names the signs of other cron dialects.
func (d fieldDef) checkForeign(part string) *SpecError {
	where := fmt.Sprintf("has %s in the %s field", quoted(part), d.name)
	upper := strings.ToUpper(part)
	switch {
	case part == "?":
		return fieldError(where+", which is Quartz's sign for \"any\"", "write *")
	case strings.Contains(part, "#"):
		return fieldError(where+"; the n-th weekday of a month is not supported",
			"for the second Monday write days 8-14 and weekday 1 with `days: and`")
	case upper == "L" && d.name == "day of month":
		return fieldError(where+"; the last day of a month is not supported",
			"write 28-31 and let the task check the date, or run on day 1 of the next month")
	case isForeignLetter(upper, 'L'):
		return fieldError(where+"; L (the last) is not supported",
			"for the last Friday of months with 31 days write days 25-31 and weekday 5 with `days: and`")
	case isForeignLetter(upper, 'W'):
		return fieldError(where+"; W (the nearest weekday) is not supported", "write the days, and weekdays 1-5 with `days: and`")
	case upper == "H" || strings.HasPrefix(upper, "H(") || strings.HasPrefix(upper, "H/"):
		return fieldError(where+"; H (a hashed value) is not supported", "write a value, or set `jitter`")
	case strings.Contains(part, "~"):
		return fieldError(where+"; a random value is not supported", "write a value, or set `jitter`")
	}
	return nil
}

// isForeignLetter tells whether text is a number with the letter, or the
// letter alone, as in 5L, L-3, 15W, LW.
func isForeignLetter(text string, letter byte) bool {
	if strings.IndexByte(text, letter) < 0 {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && c != 'L' && c != 'W' && c != '-' {
			return false
		}
	}
	return true
}

// clean spells an item so that robfig/cron reads it as meant: it knows no 7
// for Sunday.
func (i cronItem) clean(d fieldDef) string {
	if i.wrapHigh {
		var days []string
		for v := i.low; v <= i.high; v += i.step {
			days = append(days, strconv.Itoa(v%7))
		}
		return strings.Join(days, ",")
	}
	text := fmt.Sprintf("%d-%d", i.low, i.high)
	if i.star {
		text = "*"
	}
	if i.step == 1 {
		return text
	}
	// A step past the end of the field leaves the first value only.
	return fmt.Sprintf("%s/%d", text, min(i.step, d.max+1))
}

func isDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// readFields has robfig/cron read the cleaned fields. All it gets are numbers
// in range, so it has nothing to refuse.
func readFields(fields []*cronField) *SpecError {
	clean := make([]string, len(fields))
	for i, f := range fields {
		clean[i] = f.clean
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(strings.Join(clean, " "))
	if err != nil {
		return &SpecError{Field: "cron", Msg: "cannot be read: " + err.Error(), Err: ErrBadSpec}
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return &SpecError{Field: "cron", Msg: "is no list of fields", Err: ErrBadSpec}
	}
	const values = 1<<63 - 1 // the top bit is robfig's mark for a star
	for i, bits := range []uint64{spec.Minute, spec.Hour, spec.Dom, spec.Month, spec.Dow} {
		fields[i].bits = bits & values
	}
	return nil
}
