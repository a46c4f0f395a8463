package scheduler

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// everySchedule has a tick each period seconds of real time, counted from the
// Unix epoch. A fixed phase is what keeps replicas that started at different
// moments, and restarts, on the same ticks: a period counted from the start of
// the process never ends in a process that restarts sooner
// (riverqueue/river#791), and each late wake-up would move it.
type everySchedule struct {
	period int64 // seconds, at least 1
	loc    *time.Location
}

var _ Schedule = (*everySchedule)(nil)

// Next implements [Schedule].
func (s *everySchedule) Next(after time.Time) Occurrence {
	at := floorDiv(clampInstant(after.Unix()), s.period)*s.period + s.period
	if at > maxInstant || at < minInstant {
		return Occurrence{}
	}
	return newOccurrence(at, s.loc, false)
}

// Prev implements [Schedule].
func (s *everySchedule) Prev(atOrBefore time.Time) Occurrence {
	at := floorDiv(clampInstant(atOrBefore.Unix()), s.period) * s.period
	if at < minInstant {
		return Occurrence{}
	}
	return newOccurrence(at, s.loc, false)
}

// Count implements [Schedule].
func (s *everySchedule) Count(after, upTo time.Time) int {
	from, to := clampInstant(after.Unix()), clampInstant(upTo.Unix())
	return int(max(0, floorDiv(to, s.period)-floorDiv(from, s.period)))
}

// Location implements [Schedule].
func (s *everySchedule) Location() *time.Location { return s.loc }

// String implements [Schedule].
func (s *everySchedule) String() string {
	return fmt.Sprintf("every %ds in %s", s.period, s.loc)
}

// parseEvery reads a period: a Go duration, before which whole days may stand
// ("90s", "1h30m", "1d", "1d12h"). Less than a second and fractions of one are
// refused; elsewhere they become 1 s without a word.
func parseEvery(text string) (seconds int64, err *SpecError) {
	bad := func(msg, cure string) (int64, *SpecError) {
		return 0, &SpecError{Field: "every", Value: text, Msg: msg, Cure: cure, Err: ErrBadSpec}
	}
	d, ok := parseDuration(strings.TrimSpace(text))
	switch {
	case !ok && isNumber(text):
		return bad("has no unit", fmt.Sprintf("write %ss for seconds", strings.TrimSpace(text)))
	case !ok:
		return bad("is no duration", "write a number and a unit, such as 30s, 5m, 1h30m or 1d")
	case d <= 0:
		return bad("is not above zero", "write at least 1s, or `enabled: false` to switch the job off")
	case d < time.Second:
		return bad("is below one second", "write at least 1s")
	case d%time.Second != 0:
		return bad("has a fraction of a second", fmt.Sprintf("write whole seconds, such as %ds", int64(d.Round(time.Second)/time.Second)))
	}
	return int64(d / time.Second), nil
}

func parseDuration(text string) (time.Duration, bool) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		return d, err == nil
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, false
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil || d < 0 || rest[0] == '+' {
			return 0, false
		}
	}
	whole := time.Duration(n) * 24 * time.Hour
	if d > math.MaxInt64-whole {
		return 0, false
	}
	return whole + d, true
}

func isNumber(text string) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return err == nil
}
