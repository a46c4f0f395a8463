package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// SpecConfig is the part of a job that says when it is due, as written.
// Exactly one of Cron, Every and At is set.
type SpecConfig struct {
	// Cron is five fields (minute, hour, day of month, month, day of week) or
	// one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.
	Cron string
	// Every is a period of whole seconds, at least 1s, counted from the Unix
	// epoch; a Go duration, also with days ("90s", "1h30m", "1d12h").
	Every string
	// At is one instant. Without a UTC offset it is in the job's zone.
	At string
	// Timezone is an IANA name such as Europe/Berlin; nil means UTC. A pointer,
	// because a zone that is given but empty is a mistake.
	Timezone *string
	// Days says how day of month and day of week combine. Empty is cron's rule:
	// if either field begins with *, a day must match both (so the star drops
	// out, and */2 narrows the other field), else either. "or": either, where
	// both are restricted (*/2 is a restriction). "and": both, as in Celery.
	Days string
	// DST is what to do where the clocks change. It goes with Cron and At.
	DST DST
}

// DST says what becomes of a civil time that does not exist (a gap) or exists
// twice (a fold). The zero value is `auto`: an entry whose minute or hour field
// begins with * skips the gap and runs in both hours of the fold; any other
// runs after the gap, and at the first of two equal times. A field left empty
// keeps its automatic value.
type DST struct {
	// Mode is "auto" or empty; with "auto", Gap and Fold are empty.
	Mode string
	Gap  GapPolicy
	Fold FoldPolicy
}

// GapPolicy is what becomes of a civil time that the clocks jump over.
type GapPolicy string

// The gap policies.
const (
	// GapRunAfter runs at the first instant after the gap, once, however many
	// of the job's times lie in the gap.
	GapRunAfter GapPolicy = "run_after"
	// GapSkip does not run.
	GapSkip GapPolicy = "skip"
)

// FoldPolicy is what becomes of a civil time that the clocks show twice.
type FoldPolicy string

// The fold policies.
const (
	FoldFirst FoldPolicy = "first"
	FoldLast  FoldPolicy = "last"
	FoldBoth  FoldPolicy = "both"
)

// The kinds of mistakes in a spec, for errors.Is.
var (
	// ErrBadSpec is a spec that cannot be read.
	ErrBadSpec = errors.New("scheduler: bad schedule")
	// ErrUnknownZone is a time zone that does not exist or is not acceptable.
	ErrUnknownZone = errors.New("scheduler: unknown time zone")
	// ErrNeverFires is a spec that can be read and has no tick: 31 April, or an
	// instant that a gap swallows under `gap: skip`. ParseSpec returns the
	// schedule beside this error, so that a job that is switched off may have it
	// ("by hand only").
	ErrNeverFires = errors.New("scheduler: schedule never fires")
)

// SpecError is one mistake in a spec. Its text names the mistake and the cure.
type SpecError struct {
	// Field is the key at fault: cron, every, at, timezone, days, dst, dst.gap,
	// dst.fold, or empty where a key is missing or too many are given.
	Field string
	// Value is the key's value as written.
	Value string
	// Offset is where in Value the mistake begins, in bytes.
	Offset int
	// Msg is what is wrong, Cure what to write instead.
	Msg, Cure string
	// Err is ErrBadSpec, ErrUnknownZone or ErrNeverFires.
	Err error
}

// Error implements error.
func (e *SpecError) Error() string { return "scheduler: " + e.Text() }

// Text is the message without the package's name, for a caller that puts a
// file position before it.
func (e *SpecError) Text() string {
	var b strings.Builder
	if e.Field != "" {
		fmt.Fprintf(&b, "%s: %s ", e.Field, quoted(e.Value))
	}
	b.WriteString(e.Msg)
	if e.Cure != "" {
		b.WriteString("; " + e.Cure)
	}
	return b.String()
}

// Unwrap returns the kind of the mistake.
func (e *SpecError) Unwrap() error { return e.Err }

// SpecErrors returns the mistakes in an error of ParseSpec, in the order of
// the keys.
func SpecErrors(err error) []*SpecError {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var all []*SpecError
		for _, e := range joined.Unwrap() {
			all = append(all, SpecErrors(e)...)
		}
		return all
	}
	var one *SpecError
	if errors.As(err, &one) {
		return []*SpecError{one}
	}
	return nil
}

// Warning is something in a spec that is legal and rarely meant.
type Warning struct {
	// Code is a stable short name, such as "days" or "step".
	Code string
	// Field and Offset are as in SpecError.
	Field  string
	Offset int
	// Msg says what will happen, and what to write if that is not meant.
	Msg string
}

// String is the warning in one line.
func (w Warning) String() string { return w.Field + ": " + w.Msg }

// ParseSpec reads a spec with a parser of its own; see [SpecParser.Parse].
func ParseSpec(cfg SpecConfig) (Schedule, []Warning, error) {
	return NewSpecParser().Parse(cfg)
}

// SpecParser reads specs and keeps the zones it has loaded, so that a file
// with many jobs reads each zone once. Not safe for concurrent use.
type SpecParser struct {
	zones map[string]zoneResult
}

// NewSpecParser returns a parser.
func NewSpecParser() *SpecParser {
	return &SpecParser{zones: make(map[string]zoneResult)}
}

// Parse checks a spec in full: an error lists every mistake in it (see
// [SpecErrors]) and never comes with warnings about parts that are wrong. The
// schedule is nil unless the error is nil or [ErrNeverFires]. Parse never
// panics, whatever the text.
func (p *SpecParser) Parse(cfg SpecConfig) (Schedule, []Warning, error) {
	var c collector
	loc := p.zone(cfg.Timezone, &c)
	c.checkDST(cfg.DST)
	c.checkDays(cfg)

	var schedule Schedule
	var never *SpecError
	switch given := c.kind(cfg); given {
	case "cron":
		if s, err := parseCron(cfg, loc, &c); s != nil {
			schedule, never = s, err
		}
	case "every":
		if cfg.DST != (DST{}) {
			c.warn(Warning{Code: "dst", Field: "dst", Msg: "has no effect on `every`, which follows elapsed time"})
		}
		seconds, err := parseEvery(cfg.Every)
		if c.add(err); err == nil {
			schedule = &everySchedule{period: seconds, loc: loc}
		}
	case "at":
		s, err := parseAt(cfg.At, loc, cfg.DST)
		if c.add(err); err == nil {
			schedule = s
			if s.never {
				never = &SpecError{
					Field: "at", Value: cfg.At, Err: ErrNeverFires,
					Msg:  "does not exist in " + loc.String() + ", where the clocks jump over it",
					Cure: "write another time, or `gap: run_after`",
				}
			}
		}
	}
	if len(c.errs) > 0 {
		return nil, c.warnings, errors.Join(c.errs...)
	}
	if never != nil {
		return schedule, c.warnings, never
	}
	return schedule, c.warnings, nil
}

// collector gathers what is to be said about one spec.
type collector struct {
	errs     []error
	warnings []Warning
}

func (c *collector) add(err *SpecError) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *collector) warn(w Warning) { c.warnings = append(c.warnings, w) }

// kind returns which of cron, every and at is given, or "" after a complaint.
func (c *collector) kind(cfg SpecConfig) string {
	var given []string
	for _, k := range []struct{ name, value string }{{"cron", cfg.Cron}, {"every", cfg.Every}, {"at", cfg.At}} {
		if k.value != "" {
			given = append(given, k.name)
		}
	}
	switch len(given) {
	case 1:
		return given[0]
	case 0:
		c.add(&SpecError{
			Err: ErrBadSpec, Msg: "a job needs exactly one of cron, every and at, and has none",
			Cure: "write for example `cron: \"0 * * * *\"` or `every: 5m`",
		})
	default:
		c.add(&SpecError{
			Err: ErrBadSpec, Msg: "a job needs exactly one of cron, every and at, and has " + strings.Join(given, " and "),
			Cure: "keep one of them",
		})
	}
	return ""
}

func (c *collector) checkDays(cfg SpecConfig) {
	bad := func(msg, cure string) {
		c.add(&SpecError{Field: "days", Value: cfg.Days, Msg: msg, Cure: cure, Err: ErrBadSpec})
	}
	switch cfg.Days {
	case "":
	case "and", "or":
		if cfg.Cron == "" && (cfg.Every != "" || cfg.At != "") {
			bad("goes with cron only", "remove it")
		}
	default:
		bad("is not known", "write `or` (a day matches either field) or `and` (it matches both)")
	}
}

func (c *collector) checkDST(d DST) {
	bad := func(field, value, cure string) {
		c.add(&SpecError{Field: field, Value: value, Msg: "is not known", Cure: cure, Err: ErrBadSpec})
	}
	switch {
	case d.Mode != "" && d.Mode != "auto":
		bad("dst", d.Mode, "write `auto` or {gap: run_after|skip, fold: first|last|both}")
	case d.Mode == "auto" && (d.Gap != "" || d.Fold != ""):
		c.add(&SpecError{
			Field: "dst", Value: d.Mode, Err: ErrBadSpec,
			Msg: "cannot stand beside gap and fold", Cure: "keep one of them",
		})
	}
	switch d.Gap {
	case "", GapRunAfter, GapSkip:
	default:
		bad("dst.gap", string(d.Gap), "write `run_after` or `skip`")
	}
	switch d.Fold {
	case "", FoldFirst, FoldLast, FoldBoth:
	default:
		bad("dst.fold", string(d.Fold), "write `first`, `last` or `both`")
	}
}

// policies resolves what is automatic in d for an entry that follows elapsed
// time, or for one that does not.
func (d DST) policies(elapsed bool) (GapPolicy, FoldPolicy) {
	gap, fold := GapRunAfter, FoldFirst
	if elapsed {
		gap, fold = GapSkip, FoldBoth
	}
	if d.Gap != "" {
		gap = d.Gap
	}
	if d.Fold != "" {
		fold = d.Fold
	}
	return gap, fold
}

// quoted shows a value in a message, shortened, control characters escaped.
func quoted(value string) string {
	const most = 60
	if len(value) > most {
		cut := most
		for cut > most-4 && value[cut]&0xc0 == 0x80 {
			cut--
		}
		return fmt.Sprintf("%q…", value[:cut])
	}
	return fmt.Sprintf("%q", value)
}

// zoneResult is a zone name that was looked up.
type zoneResult struct {
	loc     *time.Location
	err     *SpecError
	warning *Warning
}
