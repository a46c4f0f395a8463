package wire

import (
	"errors"
	"time"
)

var errTime = errors.New("wire: no ISO 8601 time")

// parseTime reads an ISO 8601 time as the Celery versions write it:
// date and time of day in the extended format, seconds and fraction optional,
// then Z, an offset, or nothing, which means UTC (naive is true then). The
// fraction is decimal, of any length; what is beyond nanoseconds is cut.
func parseTime(s string) (t time.Time, naive bool, err error) {
	p := timeParser{s: s}
	year, month, day := p.date()
	if len(p.s) == 0 {
		t = p.check(year, month, day, 0, 0, 0, 0, 0)
		return t, true, p.err()
	}
	if c := p.s[0]; c != 'T' && c != 't' && c != ' ' {
		return time.Time{}, false, errTime
	}
	p.s = p.s[1:]
	hour := p.number(2)
	p.want(':')
	minute := p.number(2)
	var sec, nsec int
	if p.accept(':') {
		sec = p.number(2)
		if p.accept('.') || p.accept(',') {
			nsec = p.fraction()
		}
	}
	naive = len(p.s) == 0
	t = p.check(year, month, day, hour, minute, sec, nsec, p.offset())
	return t, naive, p.err()
}

// timeParser consumes s from the left and remembers the first failure.
type timeParser struct {
	s   string
	bad bool
}

func (p *timeParser) err() error {
	if p.bad || p.s != "" {
		return errTime
	}
	return nil
}

func (p *timeParser) accept(c byte) bool {
	if p.s == "" || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}

func (p *timeParser) want(c byte) {
	if !p.accept(c) {
		p.bad = true
	}
}

func (p *timeParser) number(digits int) int {
	if len(p.s) < digits {
		p.bad = true
		return 0
	}
	n := 0
	for i := range digits {
		d := p.s[i] - '0'
		if d > 9 {
			p.bad = true
			return 0
		}
		n = n*10 + int(d)
	}
	p.s = p.s[digits:]
	return n
}

func (p *timeParser) date() (year, month, day int) {
	year = p.number(4)
	p.want('-')
	month = p.number(2)
	p.want('-')
	day = p.number(2)
	return year, month, day
}

func (p *timeParser) fraction() int {
	n, seen := 0, 0
	for p.s != "" && p.s[0]-'0' <= 9 {
		if seen < 9 {
			n = n*10 + int(p.s[0]-'0')
		}
		seen++
		p.s = p.s[1:]
	}
	p.bad = p.bad || seen == 0
	for ; seen < 9; seen++ {
		n *= 10
	}
	return n
}

// offset reads Z, ±hh, ±hhmm, ±hh:mm or ±hh:mm:ss (Python writes the last for
// zones before standard time) in seconds east of UTC; nothing means 0.
func (p *timeParser) offset() int {
	if p.s == "" || p.accept('Z') || p.accept('z') {
		return 0
	}
	sign := 1
	switch {
	case p.accept('-'):
		sign = -1
	case !p.accept('+'):
		p.bad = true
		return 0
	}
	hour, minute, sec := p.number(2), 0, 0
	if p.accept(':') || p.s != "" {
		minute = p.number(2)
		if p.accept(':') {
			sec = p.number(2)
		}
	}
	if hour > 23 || minute > 59 || sec > 59 {
		p.bad = true
	}
	return sign * (hour*3600 + minute*60 + sec)
}

func (p *timeParser) check(year, month, day, hour, minute, sec, nsec, offset int) time.Time {
	t := time.Date(year, time.Month(month), day, hour, minute, sec, nsec, time.UTC)
	// A field out of range would carry over into the next one.
	if t.Year() != year || int(t.Month()) != month || t.Day() != day ||
		t.Hour() != hour || t.Minute() != minute || t.Second() != sec || year == 0 {
		p.bad = true
	}
	return t.Add(-time.Duration(offset) * time.Second)
}

// appendTime writes t as every Celery version reads it: Celery 5.2 takes the
// fraction for a whole number of microseconds, so it must have six digits.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, "2006-01-02T15:04:05.000000+00:00")
	}
	// By hand: AppendFormat reads its layout anew each time.
	hour, minute, sec := t.Clock()
	micro := t.Nanosecond() / 1000
	b = append(appendTwo(appendTwo(b, year/100), year%100), '-')
	b = append(appendTwo(b, int(month)), '-')
	b = append(appendTwo(b, day), 'T')
	b = append(appendTwo(b, hour), ':')
	b = append(appendTwo(b, minute), ':')
	b = append(appendTwo(b, sec), '.')
	b = appendTwo(appendTwo(appendTwo(b, micro/10000), micro/100%100), micro%100)
	return append(b, "+00:00"...)
}

// appendTwo appends a number below 100 in two digits.
func appendTwo(b []byte, n int) []byte { return append(b, '0'+byte(n/10), '0'+byte(n%10)) }
