package scheduler

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// Manual is a run of a job that somebody asks for by hand.
type Manual struct {
	// Namespace and KeyPrefix are the deployment's, as in [Config].
	Namespace, KeyPrefix string
	// Tick is what the arguments and keys are rendered from.
	Tick Occurrence
	// Now is the store's clock: the time to begin and `expires` count from it,
	// since the tick may lie far back.
	Now time.Time
	// Mark sets id and record key apart from the tick's own ([ManualMark]); with
	// "" the run is the tick's own, and one that is completed answers for it.
	Mark string
}

// manualMark begins what sets a manual run apart from its tick.
const manualMark = "#manual:"

// ManualMark is a new mark: #manual: and a ULID of the instant.
func ManualMark(now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(max(now.UnixMilli(), 0))<<16)
	_, _ = rand.Read(b[6:]) // never fails
	return manualMark + ulidText(b)
}

// ulidText is a ULID as text: its 128 bits in Crockford's base 32.
func ulidText(b [16]byte) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	var text [26]byte
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = digits[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(text[:])
}

// ManualRequest is the task of a run by hand. Its guards are those of the job.
// The error is a [*JobError].
func (j *Job) ManualRequest(m Manual) (*tasks.Request, error) {
	t, err := j.compile()
	if err != nil {
		return nil, err
	}
	r, err := t.request(j, cmp.Or(m.Namespace, tasks.DefaultNamespace), m.KeyPrefix, m.Tick)
	if err != nil {
		return nil, err
	}
	r.ID += m.Mark
	if r.Guard.Record != nil {
		r.Guard.Record.Key += m.Mark
	}
	r.Guard.BeginBy = m.Now.Add(j.DeadlineOf(m.Tick.At)).UnixMilli()
	if j.Expires > 0 {
		r.Expires = m.Now.Add(j.Expires)
	}
	return r, nil
}

// ErrNoTick is returned by [LastTick] and, as a [*NotTickError], by [TickAt].
var ErrNoTick = errors.New("scheduler: no such tick")

// NotTickError tells of an instant that is no tick of a job.
type NotTickError struct {
	Job string
	// At is the instant, in the job's zone.
	At time.Time
	// Prev and Next are the nearest ticks, zero if there is none.
	Prev, Next Occurrence
}

// Error names the nearest ticks.
func (e *NotTickError) Error() string {
	text := fmt.Sprintf("%s is no tick of job %q", Label(e.At), e.Job)
	var near []string
	for _, o := range []Occurrence{e.Prev, e.Next} {
		if !o.IsZero() {
			near = append(near, o.Label)
		}
	}
	if len(near) == 0 {
		return text + "; it has none"
	}
	return text + "; the nearest: " + strings.Join(near, ", ")
}

// Unwrap makes it an [ErrNoTick].
func (e *NotTickError) Unwrap() error { return ErrNoTick }

// LastTick is the job's last tick at or before now.
func (j *Job) LastTick(now time.Time) (Occurrence, error) {
	if j.Schedule == nil {
		return Occurrence{}, fmt.Errorf("%w: job %q has none", ErrNoTick, j.Name)
	}
	if o := j.Schedule.Prev(now); !o.IsZero() {
		return o, nil
	}
	return Occurrence{}, fmt.Errorf("%w: job %q has none up to now", ErrNoTick, j.Name)
}

// TickAt is the job's tick at an instant such as 2026-12-01T03:00:00+01:00, or
// without an offset in the job's zone. The error is a [*NotTickError] if there
// is none then.
func (j *Job) TickAt(text string) (Occurrence, error) {
	t, civil, ok := parseInstant(strings.TrimSpace(text))
	if !ok {
		return Occurrence{}, fmt.Errorf("scheduler: %q is no instant: write for example 2026-12-01T03:00:00+01:00, or 2026-12-01T03:00:00 in the job's zone", text)
	}
	if j.Schedule == nil {
		return Occurrence{}, &NotTickError{Job: j.Name, At: t}
	}
	loc := j.Schedule.Location()
	at := []int64{t.Unix()}
	if civil {
		switch all := instantsOf(loc, t.Unix()); all.n {
		case 0:
			at[0] = gapEnd(loc, t.Unix())
		case 1:
			at[0] = all.first
		default:
			at = []int64{all.first, all.last}
		}
	}
	for _, unix := range at {
		if o := j.Schedule.Prev(time.Unix(unix, 0)); !o.IsZero() && o.At.Unix() == unix && t.Nanosecond() == 0 {
			return o, nil
		}
	}
	first := time.Unix(at[0], 0).In(loc)
	return Occurrence{}, &NotTickError{Job: j.Name, At: first, Prev: j.Schedule.Prev(first), Next: j.Schedule.Next(first)}
}
