package scheduler

import (
	"math/bits"
	"time"
)

const (
	secondsPerDay = 24 * 60 * 60
	minutesPerDay = 24 * 60

	// civilHorizon bounds the search for a matching day, in months. The rarest
	// date that exists, 29 February on a given day of the week, recurs after at
	// most 40 years: 28 in general, 12 more when a year such as 2100 is no leap
	// year.
	civilHorizon = 41 * 12
)

// civilMatcher is the set of civil minutes that the five cron fields describe.
// Civil times are counted in seconds as if they were UTC; they know no zone.
type civilMatcher struct {
	minute uint64 // bits 0..59
	hour   uint64 // bits 0..23
	dom    uint64 // bits 1..31
	month  uint64 // bits 1..12
	dow    uint64 // bits 0..6, Sunday is 0
	both   bool   // dom and dow must both match, instead of either
}

// next returns the first matching civil time at or after c.
func (m *civilMatcher) next(c int64) (int64, bool) {
	minute := floorDiv(c+59, 60)
	day := floorDiv(minute, minutesPerDay)
	year, month, dom := dateOf(day)
	first := day - int64(dom-1)
	days := m.daysOf(year, month, first)
	if days>>dom&1 == 1 {
		if at, ok := m.timeFrom(int(minute - day*minutesPerDay)); ok {
			return (day*minutesPerDay + int64(at)) * 60, true
		}
	}
	days &^= 1<<(dom+1) - 1
	for range civilHorizon {
		if days != 0 {
			day = first + int64(bits.TrailingZeros64(days)) - 1
			at, ok := m.timeFrom(0)
			return (day*minutesPerDay + int64(at)) * 60, ok
		}
		first += int64(daysIn(year, month))
		if month++; month > 12 {
			year, month = year+1, 1
		}
		days = m.daysOf(year, month, first)
	}
	return 0, false
}

// prev returns the last matching civil time at or before c.
func (m *civilMatcher) prev(c int64) (int64, bool) {
	minute := floorDiv(c, 60)
	day := floorDiv(minute, minutesPerDay)
	year, month, dom := dateOf(day)
	first := day - int64(dom-1)
	days := m.daysOf(year, month, first)
	if days>>dom&1 == 1 {
		if at, ok := m.timeUpTo(int(minute - day*minutesPerDay)); ok {
			return (day*minutesPerDay + int64(at)) * 60, true
		}
	}
	days &= 1<<dom - 1
	for range civilHorizon {
		if days != 0 {
			day = first + int64(bits.Len64(days)) - 2
			at, ok := m.timeUpTo(minutesPerDay - 1)
			return (day*minutesPerDay + int64(at)) * 60, ok
		}
		if month--; month < 1 {
			year, month = year-1, 12
		}
		first -= int64(daysIn(year, month))
		days = m.daysOf(year, month, first)
	}
	return 0, false
}

// count returns how many matching civil times lie in [from, to).
func (m *civilMatcher) count(from, to int64) int {
	lo, hi := floorDiv(from+59, 60), floorDiv(to+59, 60)
	if lo >= hi {
		return 0
	}
	loDay, hiDay := floorDiv(lo, minutesPerDay), floorDiv(hi, minutesPerDay)
	perDay := bits.OnesCount64(m.minute) * bits.OnesCount64(m.hour)
	total := m.countDays(loDay, hiDay) * perDay
	if m.dayMatches(loDay) {
		total -= m.timesBefore(int(lo - loDay*minutesPerDay))
	}
	if m.dayMatches(hiDay) {
		total += m.timesBefore(int(hi - hiDay*minutesPerDay))
	}
	return total
}

// countDays returns how many matching days lie in [from, to), in days since
// the Unix epoch.
func (m *civilMatcher) countDays(from, to int64) int {
	total := 0
	for day := from; day < to; {
		year, month, dom := dateOf(day)
		first := day - int64(dom-1)
		days := m.daysOf(year, month, first) &^ (1<<dom - 1)
		end := first + int64(daysIn(year, month))
		if to < end {
			days &= 1<<(to-first+1) - 1
		}
		total += bits.OnesCount64(days)
		day = end
	}
	return total
}

func (m *civilMatcher) dayMatches(day int64) bool {
	year, month, dom := dateOf(day)
	return m.daysOf(year, month, day-int64(dom-1))>>dom&1 == 1
}

// daysOf returns the matching days of one month as bits 1..31; first is the
// month's first day in days since the Unix epoch.
func (m *civilMatcher) daysOf(year int, month time.Month, first int64) uint64 {
	if m.month>>month&1 == 0 {
		return 0
	}
	// The week's bits, turned so that bit 0 is the weekday of the first, and
	// laid out over the month. 1970-01-01 was a Thursday.
	turn := floorMod(first+4, 7)
	week := (m.dow>>turn | m.dow<<(7-turn)) & 0x7f
	weekdays := (week | week<<7 | week<<14 | week<<21 | week<<28) << 1
	days := m.dom | weekdays
	if m.both {
		days = m.dom & weekdays
	}
	return days & (1<<(daysIn(year, month)+1) - 2)
}

// timeFrom returns the first matching minute of the day at or after at.
func (m *civilMatcher) timeFrom(at int) (int, bool) {
	hour := at / 60
	if m.hour>>hour&1 == 1 {
		if rest := m.minute >> (at % 60); rest != 0 {
			return at + bits.TrailingZeros64(rest), true
		}
	}
	rest := m.hour &^ (1<<(hour+1) - 1)
	if rest == 0 || m.minute == 0 {
		return 0, false
	}
	return bits.TrailingZeros64(rest)*60 + bits.TrailingZeros64(m.minute), true
}

// timeUpTo returns the last matching minute of the day at or before at.
func (m *civilMatcher) timeUpTo(at int) (int, bool) {
	hour := at / 60
	if m.hour>>hour&1 == 1 {
		if rest := m.minute & (1<<(at%60+1) - 1); rest != 0 {
			return hour*60 + bits.Len64(rest) - 1, true
		}
	}
	rest := m.hour & (1<<hour - 1)
	if rest == 0 || m.minute == 0 {
		return 0, false
	}
	return (bits.Len64(rest)-1)*60 + bits.Len64(m.minute) - 1, true
}

// timesBefore counts the matching minutes of a day before minute at.
func (m *civilMatcher) timesBefore(at int) int {
	hour := at / 60
	n := bits.OnesCount64(m.hour&(1<<hour-1)) * bits.OnesCount64(m.minute)
	if m.hour>>hour&1 == 1 {
		n += bits.OnesCount64(m.minute & (1<<(at%60) - 1))
	}
	return n
}

// exists tells whether any day of the Gregorian calendar matches.
func (m *civilMatcher) exists() bool {
	if !m.both {
		return true // some day of the week always comes
	}
	// Over 400 years each date falls on each day of the week, also 29 February.
	return m.domExists()
}

func (m *civilMatcher) domExists() bool {
	for month := time.January; month <= time.December; month++ {
		longest := daysIn(2000, month) // a leap year
		if m.month>>month&1 == 1 && m.dom&(1<<(longest+1)-2) != 0 {
			return true
		}
	}
	return false
}

func dateOf(day int64) (int, time.Month, int) {
	return time.Unix(day*secondsPerDay, 0).UTC().Date()
}

func daysIn(year int, month time.Month) int {
	switch month {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	default:
		return 31
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }
