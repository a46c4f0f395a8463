package scheduler

import (
	"cmp"
	"time"

	"github.com/solobeat/solobeat/lockguard"
)

// Bounds of [DefaultDeadline].
const (
	MinDefaultDeadline = time.Minute
	MaxDefaultDeadline = 24 * time.Hour
)

// Between returns the ticks t with after < t <= upTo in ascending order, at
// most limit of them, the earliest first; more tells that there are others.
// Use [Schedule.Count] for their number and [Schedule.Prev] for the newest.
func Between(s Schedule, after, upTo time.Time, limit int) (ticks []Occurrence, more bool) {
	for tick := s.Next(after); !tick.IsZero() && !tick.At.After(upTo); tick = s.Next(tick.At) {
		if len(ticks) >= limit {
			return ticks, true
		}
		ticks = append(ticks, tick)
	}
	return ticks, false
}

// Latest returns the ticks t with after < t <= upTo in ascending order, at
// most limit of them, the newest ones; more tells that there are others.
func Latest(s Schedule, after, upTo time.Time, limit int) (ticks []Occurrence, more bool) {
	tick := s.Prev(upTo)
	for ; !tick.IsZero() && tick.At.After(after); tick = s.Prev(tick.At.Add(-time.Second)) {
		if len(ticks) >= limit {
			more = true
			break
		}
		ticks = append(ticks, tick)
	}
	for i, j := 0, len(ticks)-1; i < j; i, j = i+1, j-1 {
		ticks[i], ticks[j] = ticks[j], ticks[i]
	}
	return ticks, more
}

// Upcoming returns the first n ticks at or after from.
func Upcoming(s Schedule, from time.Time, n int) []Occurrence {
	var ticks []Occurrence
	for tick := s.Next(from.Add(-1)); !tick.IsZero() && len(ticks) < n; tick = s.Next(tick.At) {
		ticks = append(ticks, tick)
	}
	return ticks
}

// DefaultDeadline is how long after tick a run may still begin, where a job
// does not say: until the next tick, at least a minute, at most a day.
func DefaultDeadline(s Schedule, tick time.Time) time.Duration {
	next := s.Next(tick)
	if next.IsZero() {
		return MaxDefaultDeadline
	}
	return min(max(next.At.Sub(tick), MinDefaultDeadline), MaxDefaultDeadline)
}

// SkippedByGap returns the civil times that a job with `gap: skip` leaves out
// in after < t <= upTo because the clocks jumped over them, as
// 2012-03-11T02:00:00, at most limit of them. They are ticks to no one, and
// worth a line in the log. An entry that follows elapsed time leaves nothing
// out that its author would miss, and has none here.
func SkippedByGap(s Schedule, after, upTo time.Time, limit int) []string {
	cs, ok := s.(*cronSchedule)
	if !ok || cs.never || cs.gap != GapSkip || cs.elapsed {
		return nil
	}
	var skipped []string
	end := clampInstant(upTo.Unix())
	for seg := segmentAt(cs.loc, clampInstant(after.Unix())); seg.end <= end && len(skipped) < limit; {
		seg = segmentAt(cs.loc, seg.end)
		from, to := gapBefore(cs.loc, seg)
		for c, ok := cs.civil.next(from); ok && c < to && len(skipped) < limit; c, ok = cs.civil.next(c + 60) {
			if instantsOf(cs.loc, c).n == 0 {
				skipped = append(skipped, time.Unix(c, 0).UTC().Format("2006-01-02T15:04:05"))
			}
		}
	}
	return skipped
}

const (
	// gapTicks are walked one by one: for what fires once a day or less often
	// they reach far enough.
	gapTicks = 64
	// gapSpan is looked over in steps of gapStep where ticks are dense: a gap
	// longer than a step, such as a night or a weekend, is always met.
	gapSpan = 8 * 24 * time.Hour
	gapStep = time.Hour
)

// LongestGap returns the longest time between two neighbouring ticks after
// from, 0 if there are fewer than two. `0 9 * * 1-5` gives three days. It is
// exact for up to 64 ticks, and for gaps above an hour in the next 8 days.
func LongestGap(s Schedule, from time.Time) time.Duration {
	var longest time.Duration
	tick := s.Next(from)
	for range gapTicks {
		next := s.Next(tick.At)
		if tick.IsZero() || next.IsZero() {
			return longest
		}
		longest = max(longest, next.At.Sub(tick.At))
		tick = next
	}
	for at, end := tick.At, from.Add(gapSpan); at.Before(end); at = at.Add(gapStep) {
		prev, next := s.Prev(at), s.Next(at)
		if prev.IsZero() || next.IsZero() {
			break
		}
		longest = max(longest, next.At.Sub(prev.At))
	}
	return longest
}

// ExpectedRun is how long a run of the job is expected to take: its lock's
// `expect`, or what stands for it.
func (j *Job) ExpectedRun() time.Duration {
	var l JobLock
	if j.Lock != nil {
		l = *j.Lock
	}
	return cmp.Or(l.Expect, l.TTL, j.Timeout, lockguard.DefaultExpect)
}
