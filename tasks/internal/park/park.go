// Package park says for how long a message is put aside, on every engine.
package park

import (
	"math/rand/v2"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

const (
	// First is the first wait; it doubles per park in a row.
	First = time.Second
	// Most is the longest one.
	Most = 30 * time.Second
	// SuspectGap is the wait of a suspect while another one runs.
	SuspectGap = time.Second

	guard  = 10 * time.Second // a guard that only a newer replica knows
	jitter = 0.2
)

// The reasons for which an engine parks by itself, beside those of package tasks.
const (
	ETA     = "eta"
	Retry   = "retry"
	Suspect = "suspect"
)

// Backoff is the wait of the n-th park in a row, n from 1.
func Backoff(n int) time.Duration {
	d := First
	for i := 1; i < n && d < Most; i++ {
		d *= 2
	}
	return min(d, Most)
}

// Delay is the timer of the n-th park in a row, ± 20 %, so that what was parked
// together does not come back together. What waits in a line for a key looks
// when the key may be free.
func Delay(p tasks.Park, n int, waits bool) time.Duration {
	d := Backoff(n)
	switch {
	case p.Reason == tasks.ParkGuard:
		d = guard
	case waits && p.Left > 0:
		d = min(p.Left, d)
	}
	return time.Duration(float64(d) * (1 + jitter*(2*rand.Float64()-1)))
}

// Limit is the end of a wait for a lock or a record: 24 h after the first
// park, or the chain's own if that is sooner.
func Limit(p tasks.Park, first time.Time) time.Time {
	limit := first.Add(tasks.MaxWait)
	if !p.Deadline.IsZero() && p.Deadline.Before(limit) {
		return p.Deadline
	}
	return limit
}
