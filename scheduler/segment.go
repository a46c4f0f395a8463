package scheduler

import (
	"math"
	"time"
)

const (
	// Ticks lie between these instants, so that every label has a year of four
	// digits, whatever the zone.
	minInstant = -62135596800 + 2*secondsPerDay // 0001-01-03
	maxInstant = 253402300800 - 2*secondsPerDay // 9999-12-30

	// No UTC offset is larger: today's run from -12:00 to +14:00, those before
	// zones were drawn from -15:56 to +15:13.
	widestOffset = 16 * 60 * 60

	// Instants of one civil time are never further apart.
	widestShift = 2 * widestOffset
)

// segment is a stretch of instants [start, end) with one UTC offset. Two
// neighbours may have the same offset.
type segment struct {
	start, end int64
	offset     int64
}

func (s segment) contains(t int64) bool { return s.start <= t && t < s.end }

// segmentAt returns the segment of loc that holds the instant t.
func segmentAt(loc *time.Location, t int64) segment {
	local := time.Unix(t, 0).In(loc)
	_, offset := local.Zone()
	start, end := local.ZoneBounds()
	s := segment{start: math.MinInt64, end: math.MaxInt64, offset: int64(offset)}
	if !start.IsZero() {
		s.start = start.Unix()
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if !s.contains(t) {
		// Beyond a zone's last listed transition the bounds that package time
		// gives are exact near a change of the clocks only: its years end after
		// 365 days, so 31 December of a leap year lies outside its own segment.
		// Trusting that would be a search that makes no progress.
		s.start, s.end = t, t+1
		day := t - floorMod(t, secondsPerDay)
		if offsetAt(loc, day) == s.offset {
			s.start = day
		}
		if offsetAt(loc, day+secondsPerDay-1) == s.offset {
			s.end = day + secondsPerDay
		}
	}
	return s
}

func offsetAt(loc *time.Location, t int64) int64 {
	_, offset := time.Unix(t, 0).In(loc).Zone()
	return int64(offset)
}

// gapBefore returns the civil times [from, to) that do not exist because the
// clocks went forward at the start of s; from == to where they did not.
func gapBefore(loc *time.Location, s segment) (from, to int64) {
	if s.start <= minInstant {
		return 0, 0
	}
	before := offsetAt(loc, s.start-1)
	if before >= s.offset {
		return 0, 0
	}
	return s.start + before, s.start + s.offset
}

// instants is what a civil time stands for: none in a gap, two in a fold.
type instants struct {
	n           int
	first, last int64
}

// instantsOf returns the instants at which the clocks of loc show the civil
// time c.
func instantsOf(loc *time.Location, c int64) instants {
	var found instants
	for t := c - widestOffset; t <= c+widestOffset; {
		s := segmentAt(loc, t)
		if at := c - s.offset; s.contains(at) && at >= t {
			if found.n == 0 {
				found.first = at
			}
			found.last = at
			found.n++
		}
		t = s.end
	}
	return found
}
