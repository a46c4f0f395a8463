package scheduler

import "time"

// Schedule enumerates the ticks of one job. Implementations are immutable and
// safe for concurrent use; they read no clock, so the same question always has
// the same answer (under one version of the zone data).
type Schedule interface {
	// Next returns the first tick later than after, or the zero Occurrence if
	// there is none. The result is always later than after, so that a loop over
	// Next moves on.
	Next(after time.Time) Occurrence

	// Prev returns the last tick at or before the given instant, or the zero
	// Occurrence if there is none.
	Prev(atOrBefore time.Time) Occurrence

	// Count returns how many ticks t there are with after < t <= upTo. It is
	// exact, and takes microseconds for a year of any schedule.
	Count(after, upTo time.Time) int

	// Location is the zone of the job.
	Location() *time.Location

	// String is the schedule in one canonical line: two specs have the same
	// line only if they give the same ticks. White space, names of days and
	// leading zeros do not show in it.
	String() string
}

// Occurrence is one tick of a schedule.
type Occurrence struct {
	// At is the instant, in UTC and in whole seconds.
	At time.Time
	// Local is the same instant in the job's zone.
	Local time.Time
	// Label is [Label] of Local. It differs between the two equal civil times of
	// an autumn fold.
	Label string
	// Shifted tells that the civil time asked for does not exist on that day,
	// and that this is the first instant after the gap.
	Shifted bool
}

// IsZero tells that there is no such tick.
func (o Occurrence) IsZero() bool { return o.At.IsZero() }

// Label is the civil time of t in t's own zone, with seconds and the UTC
// offset, such as 2026-10-25T02:00:00+02:00. UTC itself is +00:00. The offset
// has seconds where the zone's has, as some before 1972.
func Label(t time.Time) string {
	if _, offset := t.Zone(); offset%60 != 0 {
		return t.Format("2006-01-02T15:04:05-07:00:00")
	}
	return t.Format("2006-01-02T15:04:05-07:00")
}

func newOccurrence(unix int64, loc *time.Location, shifted bool) Occurrence {
	at := time.Unix(unix, 0)
	local := at.In(loc)
	return Occurrence{At: at.UTC(), Local: local, Label: Label(local), Shifted: shifted}
}
