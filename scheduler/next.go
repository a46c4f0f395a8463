package scheduler

import "time"

// cronSchedule enumerates the ticks of five cron fields in one zone. It is
// immutable, so that any number of goroutines may share it.
type cronSchedule struct {
	civil civilMatcher
	loc   *time.Location
	gap   GapPolicy
	fold  FoldPolicy
	text  string
	never bool
	// elapsed tells that the minute or hour field begins with *.
	elapsed bool
}

var _ Schedule = (*cronSchedule)(nil)

// maxSegments bounds how many segments of a zone one search visits. Stretches
// without a matching day are crossed in one step, so that the rarest spec sees
// a handful; the bound only makes it certain that a search ends.
const maxSegments = 1_000

// Next implements [Schedule].
func (s *cronSchedule) Next(after time.Time) Occurrence {
	if s.never {
		return Occurrence{}
	}
	t, shifted, ok := s.nextAfter(clampInstant(after.Unix()))
	if !ok {
		return Occurrence{}
	}
	return newOccurrence(t, s.loc, shifted)
}

// Prev implements [Schedule].
func (s *cronSchedule) Prev(atOrBefore time.Time) Occurrence {
	if s.never {
		return Occurrence{}
	}
	t, shifted, ok := s.lastUpTo(clampInstant(atOrBefore.Unix()))
	if !ok {
		return Occurrence{}
	}
	return newOccurrence(t, s.loc, shifted)
}

// Count implements [Schedule]. Whole months are counted, not walked, so that a
// clock that says 1970 costs nothing (kubernetes/kubernetes#118706); and no
// even spacing is assumed.
func (s *cronSchedule) Count(after, upTo time.Time) int {
	if s.never {
		return 0
	}
	n := 0
	end := clampInstant(upTo.Unix()) + 1
	for t := clampInstant(after.Unix()) + 1; t < end; {
		seg := segmentAt(s.loc, t)
		stop := min(seg.end, end)
		from, to := t, stop
		if !s.plain() {
			// Near a change of the clocks the policies decide.
			from = max(t, later(seg.start, widestShift))
			to = min(stop, earlier(seg.end, widestShift))
		}
		if from == t && from < to {
			n += s.civil.count(from+seg.offset, to+seg.offset)
			t = to
			continue
		}
		if from < to {
			stop = from
		}
		n += s.walk(t, stop)
		t = stop
	}
	return n
}

// plain tells that the ticks are just the instants whose civil time matches.
func (s *cronSchedule) plain() bool { return s.gap == GapSkip && s.fold == FoldBoth }

// walk counts the ticks in [from, to) one by one.
func (s *cronSchedule) walk(from, to int64) int {
	n := 0
	for {
		at, _, ok := s.nextAfter(from - 1)
		if !ok || at >= to {
			return n
		}
		n++
		from = at + 1
	}
}

// Location implements [Schedule].
func (s *cronSchedule) Location() *time.Location { return s.loc }

// String implements [Schedule].
func (s *cronSchedule) String() string { return s.text }

// nextAfter returns the first tick later than after. It goes from one stretch
// of constant offset to the next: inside a stretch civil time and elapsed time
// are one, at its start a gap may have swallowed something.
func (s *cronSchedule) nextAfter(after int64) (at int64, shifted, ok bool) {
	t := after + 1
	for range maxSegments {
		if t > maxInstant {
			return 0, false, false
		}
		seg := segmentAt(s.loc, t)
		c, found := s.civil.next(t + seg.offset)
		if !found {
			return 0, false, false
		}
		if t == seg.start && s.swallowed(seg) {
			natural := c == t+seg.offset && s.chosen(c, t, seg) == t
			return t, !natural, true
		}
		for found && c-seg.offset < seg.end {
			at = c - seg.offset
			other := s.chosen(c, at, seg)
			if other == at {
				return at, false, at <= maxInstant
			}
			// The stretch of the chosen instant shows all that follows too, up
			// to its own end.
			stretch := segmentAt(s.loc, other)
			c = min(stretch.end, maxInstant) + stretch.offset
			if t = c - seg.offset; t >= seg.end {
				t, c = seg.end, seg.end+seg.offset
				break
			}
			c, found = s.civil.next(c)
		}
		if !found {
			return 0, false, false
		}
		t = skipAhead(t, c, seg)
	}
	return 0, false, false
}

// skipAhead returns the next instant to look at, given that the rest of the
// segment, from t on, holds no civil match and that c, past its end, is the
// next one.
func skipAhead(t, c int64, seg segment) int64 {
	// Whatever the clocks do later, an instant more than widestShift after t
	// shows a civil time past t's; so what matches there is c or later.
	far := c - widestOffset - 1
	if far > seg.end && earlier(seg.end, widestShift) > t {
		return far
	}
	return seg.end
}

// lastUpTo returns the last tick at or before t; the mirror of nextAfter.
func (s *cronSchedule) lastUpTo(t int64) (at int64, shifted, ok bool) {
	for range maxSegments {
		if t < minInstant {
			return 0, false, false
		}
		seg := segmentAt(s.loc, t)
		c, found := s.civil.prev(t + seg.offset)
		for found && c-seg.offset >= seg.start {
			at = c - seg.offset
			other := s.chosen(c, at, seg)
			if other == at {
				return at, false, at >= minInstant
			}
			stretch := segmentAt(s.loc, other)
			c = max(stretch.start, minInstant) + stretch.offset - 1
			if t = c - seg.offset; t < seg.start {
				t, c = seg.start, seg.start+seg.offset-1
				break
			}
			c, found = s.civil.prev(c)
		}
		if s.swallowed(seg) {
			return seg.start, true, true
		}
		if !found || seg.start <= minInstant {
			return 0, false, false
		}
		t = skipBack(t, c, seg)
	}
	return 0, false, false
}

// skipBack is skipAhead in the other direction.
func skipBack(t, c int64, seg segment) int64 {
	far := c + widestOffset + 1
	if far < seg.start && later(seg.start, widestShift) < t {
		return far
	}
	return seg.start - 1
}

// swallowed tells whether the gap before seg, if there is one, holds a
// matching civil time that is to run after the gap.
func (s *cronSchedule) swallowed(seg segment) bool {
	if s.gap != GapRunAfter {
		return false
	}
	from, to := gapBefore(s.loc, seg)
	if from >= to {
		return false
	}
	for c, ok := s.civil.next(from); ok && c < to; c, ok = s.civil.next(c + 60) {
		if instantsOf(s.loc, c).n == 0 {
			return true
		}
	}
	return false
}

// chosen applies the fold policy to the instant at, in seg, of the matching
// civil time c: it returns the instant of c that runs, which is at itself if
// all of them do.
func (s *cronSchedule) chosen(c, at int64, seg segment) int64 {
	if s.fold == FoldBoth {
		return at
	}
	if later(seg.start, widestShift) < at && at < earlier(seg.end, widestShift) {
		return at // too far from any change to be there twice
	}
	all := instantsOf(s.loc, c)
	if s.fold == FoldLast {
		return all.last
	}
	return all.first
}

// later and earlier move a bound of a segment, which may be infinite.
func later(bound, by int64) int64 {
	if bound <= minInstant-widestShift {
		return bound
	}
	return bound + by
}

func earlier(bound, by int64) int64 {
	if bound >= maxInstant+widestShift {
		return bound
	}
	return bound - by
}

func clampInstant(t int64) int64 { return min(max(t, minInstant-1), maxInstant) }
