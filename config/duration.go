package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	goRE    = regexp.MustCompile(`^(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+$`)
	dayRE   = regexp.MustCompile(`^(\d{1,9}(?:\.\d{1,9})?)d(.*)$`)
	wordyRE = regexp.MustCompile(`^(\d+)\s*([A-Za-z]+)$`)
)

// maxDuration is far above what any key needs, and far below what overflows.
const maxDuration = 36500 * 24 * time.Hour

// ParseDuration reads Go's duration syntax with a leading number of days
// ("90s", "1h30m", "2d", "1d12h"; a day is 24 h). A bare number is an error,
// also 0: whether it means seconds or milliseconds is what people get wrong.
// So is more than 100 years.
func ParseDuration(text string) (time.Duration, error) {
	rest, days := text, 0.0
	m := dayRE.FindStringSubmatch(text)
	if m != nil {
		days, _ = strconv.ParseFloat(m[1], 64)
		rest = m[2]
	}
	var d time.Duration
	if m == nil || rest != "" {
		var err error
		signed := m != nil && strings.ContainsAny(rest[:1], "+-")
		d, err = time.ParseDuration(rest)
		switch {
		case err != nil && goRE.MatchString(rest):
			d = maxDuration + 1
		case err != nil || signed || bareNumber(rest):
			return 0, fmt.Errorf("%q is no duration", text)
		}
	}
	whole := math.Round(days * 24 * float64(time.Hour))
	if days > 36500 || d > maxDuration || d < -maxDuration || time.Duration(whole)+d > maxDuration {
		return 0, fmt.Errorf("%q is longer than 100 years", text)
	}
	return time.Duration(whole) + d, nil
}

func bareNumber(text string) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return err == nil
}

// DurationCure guesses what a text that is no duration was meant to be.
func DurationCure(text string) string {
	const general = "write for example 30s, 10m, 1h30m or 2d"
	text = strings.TrimSpace(text)
	if goRE.MatchString(text) || dayRE.MatchString(text) {
		return general
	}
	if bareNumber(text) {
		if n, err := strconv.ParseFloat(text, 64); err != nil || n <= 0 {
			return general
		}
		return fmt.Sprintf("write the unit, for example %ss", text)
	}
	m := wordyRE.FindStringSubmatch(text)
	if m == nil {
		return general
	}
	unit := strings.ToLower(m[2])
	switch {
	case strings.HasPrefix("seconds", unit), unit == "sec", unit == "secs":
		return fmt.Sprintf("write %ss", m[1])
	case strings.HasPrefix("minutes", unit), unit == "min", unit == "mins":
		return fmt.Sprintf("write %sm", m[1])
	case strings.HasPrefix("hours", unit), unit == "hr", unit == "hrs":
		return fmt.Sprintf("write %sh", m[1])
	case strings.HasPrefix("days", unit):
		return fmt.Sprintf("write %sd", m[1])
	case strings.HasPrefix("weeks", unit):
		if n, err := strconv.ParseUint(m[1], 10, 16); err == nil {
			return fmt.Sprintf("write %dd", 7*n)
		}
	}
	return general
}
