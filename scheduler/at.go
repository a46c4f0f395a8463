package scheduler

import (
	"fmt"
	"strings"
	"time"
)

// atSchedule has one tick.
type atSchedule struct {
	unix    int64
	shifted bool
	never   bool // a civil time that the policy drops
	loc     *time.Location
	text    string
}

var _ Schedule = (*atSchedule)(nil)

// Next implements [Schedule].
func (s *atSchedule) Next(after time.Time) Occurrence {
	if s.never || s.unix <= after.Unix() {
		return Occurrence{}
	}
	return newOccurrence(s.unix, s.loc, s.shifted)
}

// Prev implements [Schedule].
func (s *atSchedule) Prev(atOrBefore time.Time) Occurrence {
	if s.never || s.unix > atOrBefore.Unix() {
		return Occurrence{}
	}
	return newOccurrence(s.unix, s.loc, s.shifted)
}

// Count implements [Schedule].
func (s *atSchedule) Count(after, upTo time.Time) int {
	if s.never || s.unix <= after.Unix() || s.unix > upTo.Unix() {
		return 0
	}
	return 1
}

// Location implements [Schedule].
func (s *atSchedule) Location() *time.Location { return s.loc }

// String implements [Schedule].
func (s *atSchedule) String() string { return s.text }

// Layouts of `at`, with and without a UTC offset. Seconds may be left out.
var (
	atOffsetLayouts = [...]string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07:00"}
	atCivilLayouts  = [...]string{"2006-01-02T15:04:05", "2006-01-02T15:04"}
)

// parseAt reads an instant. Without an offset it is a civil time in the job's
// zone, to which the policies about gaps and folds apply.
func parseAt(text string, loc *time.Location, dst DST) (*atSchedule, *SpecError) {
	bad := func(msg, cure string) (*atSchedule, *SpecError) {
		return nil, &SpecError{Field: "at", Value: text, Msg: msg, Cure: cure, Err: ErrBadSpec}
	}
	value := strings.TrimSpace(text)
	if len(value) > 10 && value[10] == ' ' {
		value = value[:10] + "T" + strings.TrimLeft(value[11:], " ")
	}
	t, civil, ok := parseInstant(value)
	switch {
	case !ok && dateOnly(value):
		return bad("has no time of day", "write for example "+value+"T03:00:00")
	case !ok:
		return bad("is no instant", "write for example 2026-12-01T03:00:00 (in the job's zone) or 2026-12-01T03:00:00+01:00")
	case t.Nanosecond() != 0:
		return bad("has a fraction of a second", "write whole seconds")
	case t.Year() < 1970 || t.Unix() > maxInstant:
		return bad("is out of range", "write a year from 1970 to 9999")
	}
	s := &atSchedule{unix: t.Unix(), loc: loc}
	if civil {
		if err := s.resolve(text, t.Unix(), dst); err != nil {
			return nil, err
		}
	}
	at := "never"
	if !s.never {
		at = Label(time.Unix(s.unix, 0).UTC())
	}
	s.text = fmt.Sprintf("at %s in %s", at, loc)
	return s, nil
}

func parseInstant(value string) (t time.Time, civil, ok bool) {
	for _, layout := range atOffsetLayouts {
		if t, err := time.Parse(layout, value); err == nil {
			return t, false, true
		}
	}
	for _, layout := range atCivilLayouts {
		if t, err := time.Parse(layout, value); err == nil {
			return t, true, true
		}
	}
	return time.Time{}, false, false
}

func dateOnly(value string) bool {
	_, err := time.Parse(time.DateOnly, value)
	return err == nil
}

// resolve maps the civil time c to its instant.
func (s *atSchedule) resolve(text string, c int64, dst DST) *SpecError {
	all := instantsOf(s.loc, c)
	switch {
	case all.n == 0 && dst.Gap == GapSkip:
		s.never = true
	case all.n == 0:
		s.unix, s.shifted = gapEnd(s.loc, c), true
	case all.n > 1 && dst.Fold == FoldBoth:
		return &SpecError{
			Field: "at", Value: text, Err: ErrBadSpec,
			Msg:  "occurs twice in " + s.loc.String() + ", and `fold: both` would run it twice",
			Cure: "write a UTC offset, or `fold: first` or `fold: last`",
		}
	case dst.Fold == FoldLast:
		s.unix = all.last
	default:
		s.unix = all.first
	}
	return nil
}

// gapEnd returns the first instant after the gap that swallowed c.
func gapEnd(loc *time.Location, c int64) int64 {
	for t := c - widestOffset; t <= c+widestOffset; {
		s := segmentAt(loc, t)
		if from, to := gapBefore(loc, s); from <= c && c < to {
			return s.start
		}
		t = s.end
	}
	return c // not reached: what no clock shows lies in a gap
}
