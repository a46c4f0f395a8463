package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// series are the figures of one line, one a round.
type series []float64

// percentile is the value that p (0 to 1) of the sorted values do not exceed,
// the middle of two where it lies between them.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := p * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func (s series) median() float64 { return percentile(s, 0.5) }

// over divides round by round, so that a drift of the machine meets both.
func (s series) over(other series) series {
	var ratios series
	for i := range min(len(s), len(other)) {
		ratios = append(ratios, s[i]/other[i])
	}
	return ratios
}

// show prints the median and, for several rounds, the range; format is of one
// value, and unit stands behind the whole.
func (s series) show(format, unit string) string {
	text := fmt.Sprintf(format, s.median())
	if len(s) > 1 {
		text += fmt.Sprintf(" ("+format+"–"+format+")", slices.Min(s), slices.Max(s))
	}
	if unit != "" {
		text += " " + unit
	}
	return text
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
