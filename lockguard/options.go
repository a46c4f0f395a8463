package lockguard

import (
	"fmt"
	"time"

	"github.com/solobeat/solobeat/internal/lease"
	"github.com/solobeat/solobeat/tasks"
)

// The defaults and limits of a lock's numbers.
const (
	// DefaultTTL is the TTL unless WithTTL sets another.
	DefaultTTL = 30 * time.Second
	// MinTTL is the smallest TTL that is taken.
	MinTTL = time.Second
	// MinStallAfter is the smallest stall after that is taken.
	MinStallAfter = time.Second
	// DefaultMaxHold ends a hold unless WithMaxHold sets another.
	DefaultMaxHold = 24 * time.Hour
	// DefaultExpect is the run time above which a run has outlived its lock,
	// where a job or task names neither that nor a TTL nor a timeout. A lock
	// that is taken without WithExpect has none.
	DefaultExpect = 5 * time.Minute

	// MaxFenceBase bounds WithFenceBase, so that base and microseconds together
	// stay below 2^53, where stores and JSON readers still count exactly.
	MaxFenceBase = 1 << 52

	minRenewEvery = 10 * time.Millisecond
)

// Option changes one acquire.
type Option func(*settings)

type settings struct {
	ttl, renew, maxHold, minHold, expect, wait, stallAfter time.Duration

	taskID    string
	labels    Labels
	fenceBase uint64
	observe   bool
	stopWait  <-chan struct{}
}

// WithTTL sets the time after which an unrenewed lock runs out: at least 1 s,
// default 30 s. It bounds how long a crashed holder keeps others out; it need
// not cover the run, since the lock is renewed.
func WithTTL(d time.Duration) Option { return func(s *settings) { s.ttl = d } }

// WithRenewEvery sets the time between renewals: default TTL/3; more than that
// is warned about, more than 2/3 of the TTL is an error.
func WithRenewEvery(d time.Duration) Option { return func(s *settings) { s.renew = d } }

// WithMaxHold ends the hold that long after the grant: default 24 h. The context
// then ends with ErrMaxHold, and the lock is not renewed any more.
func WithMaxHold(d time.Duration) Option { return func(s *settings) { s.maxHold = d } }

// WithMinHold keeps the lock busy for that long after the grant, by the store's
// clock, also if it is released sooner: for short functions whose next caller
// may be late, or has another clock. Default 0. A holder that dies is not waited
// for longer than the TTL.
func WithMinHold(d time.Duration) Option { return func(s *settings) { s.minHold = d } }

// WithStallAfter ends renewal when no [Handle.Heartbeat] has come for that long,
// counted from the grant; the lock is then lost at the end of its TTL, by
// ReasonStalled. Default 0: never.
func WithStallAfter(d time.Duration) Option { return func(s *settings) { s.stallAfter = d } }

// WithOnLost says what a loss does to the function: its context ends (cancel,
// the default), or goes on (observe), so that only Check, the Observer and the
// log tell. The end of max hold ends it in any case.
func WithOnLost(p tasks.OnLost) Option {
	return func(s *settings) { s.observe = p == tasks.OnLostObserve }
}

// WithExpect sets the time after which the run counts as outlived; default
// never.
func WithExpect(d time.Duration) Option { return func(s *settings) { s.expect = d } }

// WithWait lets Acquire and Do wait for a busy lock, or a store out of reach;
// default 0: one try.
func WithWait(d time.Duration) Option { return func(s *settings) { s.wait = d } }

// WithWaitStop ends the wait of Acquire and Do, as if its time were over, when
// stop is closed.
func WithWaitStop(stop <-chan struct{}) Option { return func(s *settings) { s.stopWait = stop } }

// WithTaskID tells the task id to who asks for the holder.
func WithTaskID(id string) Option { return func(s *settings) { s.taskID = id } }

// WithLabels sets the configured names for the Observer.
func WithLabels(l Labels) Option { return func(s *settings) { s.labels = l } }

// WithFenceBase is added to the back end's fence: set it to the last fence when
// the back end is changed. At most [MaxFenceBase].
func WithFenceBase(base uint64) Option { return func(s *settings) { s.fenceBase = base } }

// Numbers are a lock's numbers, for those who check a configuration. 0 means the
// default, except TTL, which has none here.
type Numbers struct{ TTL, RenewEvery, MaxHold, MinHold, Expect, Wait, StallAfter time.Duration }

// Check returns an error that wraps ErrConfig for numbers that cannot work, and
// a warning ("" if none) for those that work badly.
func (n Numbers) Check() (warning string, err error) {
	bad := func(format string, a ...any) (string, error) {
		return "", fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, a...))
	}
	switch {
	case n.TTL < MinTTL:
		return bad("ttl %v: at least %v is needed", n.TTL, MinTTL)
	case n.RenewEvery < 0 || n.RenewEvery > 0 && n.RenewEvery < minRenewEvery:
		return bad("renew %v: at least %v is needed", n.RenewEvery, minRenewEvery)
	case n.RenewEvery > n.TTL*2/3:
		return bad("renew %v: more than 2/3 of ttl %v leaves no time for a second try", n.RenewEvery, n.TTL)
	case n.MaxHold < 0:
		return bad("max_hold %v is negative", n.MaxHold)
	case n.MinHold < 0:
		return bad("min_hold %v is negative", n.MinHold)
	case n.StallAfter < 0 || n.StallAfter > 0 && n.StallAfter < MinStallAfter:
		return bad("stall_after %v: at least %v is needed", n.StallAfter, MinStallAfter)
	case n.Expect < 0:
		return bad("expect %v is negative", n.Expect)
	case n.Wait < 0:
		return bad("wait %v is negative", n.Wait)
	case n.RenewEvery > n.TTL/3:
		return fmt.Sprintf("renew %v is more than 1/3 of ttl %v: two failed renewals lose the lock", n.RenewEvery, n.TTL), nil
	}
	return "", nil
}

// settings puts the defaults and the options into s, which is zero.
func (g *Guard) settings(s *settings, key string, opts []Option) error {
	s.ttl, s.maxHold = DefaultTTL, DefaultMaxHold
	for _, o := range opts {
		o(s)
	}
	if key == "" {
		return fmt.Errorf("%w: key is empty", ErrConfig)
	}
	if s.fenceBase > MaxFenceBase {
		return fmt.Errorf("%w: fence_base %d: at most 2^52 is allowed", ErrConfig, s.fenceBase)
	}
	warning, err := Numbers{
		TTL: s.ttl, RenewEvery: s.renew, MaxHold: s.maxHold, MinHold: s.minHold, Expect: s.expect, Wait: s.wait, StallAfter: s.stallAfter,
	}.Check()
	if err != nil {
		return err
	}
	if warning != "" {
		if _, told := g.warned.LoadOrStore(s.labels, true); !told {
			g.log.Warn(warning, "lock", s.labels.Lock, "schedule", s.labels.Schedule)
		}
	}
	if s.maxHold == 0 {
		s.maxHold = DefaultMaxHold
	}
	return nil
}

// spec is what the watchdog needs to know of h.
func (h *Handle) spec() lease.Spec {
	return lease.Spec{
		TTL: h.set.ttl, RenewEvery: h.set.renew, MaxHold: h.set.maxHold, Expect: h.set.expect,
		StallAfter: h.set.stallAfter, Observe: h.set.observe, AnswerBy: h.answerBy,
		MaxHoldCause: ErrMaxHold,
		RemovedCause: ErrNotHeld,
		Owner:        (*leaseOwner)(h),
	}
}
