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
