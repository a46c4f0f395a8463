package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/solobeat/solobeat/internal/lease"
)

// Config makes a [Guard].
type Config struct {
	// Store keeps the records; required.
	Store Store
	// Instance is the replica's name in the records.
	Instance string
	// Logger takes warnings; nil discards.
	Logger *slog.Logger
	// Observer is told what happens; the zero value is silent.
	Observer Observer
	// CallTimeout bounds one call to the store; 0 means 2 s. A claim is tried
	// three times, an end until it is answered or its time is over.
	CallTimeout time.Duration
	// EndTimeout bounds Complete, Release and Fail with all their tries; 0
	// means the claim's lease, at least 5 s.
	EndTimeout time.Duration
}

// Guard claims records and keeps their leases alive. One per process and store
// is enough. It is safe for concurrent use.
type Guard struct {
	cfg    Config
	log    *slog.Logger
	keeper *lease.Keeper[*Hold]

	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	wg      sync.WaitGroup
}

// New returns a guard. It does not ask the store whether it is fit for records:
// [Store.Check] does.
func New(cfg Config) (*Guard, error) {
	if cfg.Store == nil {
		return nil, fmt.Errorf("%w: a guard needs a store", ErrBadOptions)
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = 2 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Guard{cfg: cfg, log: cfg.Logger, closing: make(chan struct{})}
	g.keeper = lease.NewKeeper(g.renew, lease.Options{})
	return g, nil
}

// Store returns the guard's store.
func (g *Guard) Store() Store { return g.cfg.Store }

// Close stops all renewals and waits for calls under way. Records in hand stay
// in progress until their leases pass: end them before.
func (g *Guard) Close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.closing)
	}
	g.mu.Unlock()
	g.keeper.Close()
	g.wg.Wait()
}

type claimConfig struct {
	ClaimOptions
	labels     Labels
	renewEvery time.Duration
	maxHold    time.Duration
	retention  time.Duration
	validity   bool
}

// Option sets how one record is claimed.
type Option func(*claimConfig)

// WithRun names the job ("" for none), the task and the task id of the run.
func WithRun(schedule, task, taskID string) Option {
	return func(c *claimConfig) { c.labels.Schedule, c.labels.Task, c.TaskID = schedule, task, taskID }
}

// WithFingerprint compares the payload with that of earlier uses of the key; see
// [Fingerprint].
func WithFingerprint(fp string) Option { return func(c *claimConfig) { c.Fingerprint = fp } }

// WithLease sets the lease and the time from one renewal to the next: a lock's
// ttl and renew. A zero means 30 s, and a third of the lease.
func WithLease(ttl, renewEvery time.Duration) Option {
	return func(c *claimConfig) { c.Lease, c.renewEvery = ttl, renewEvery }
}

// WithRetention sets how long a completed or failed record is kept, and one that
// was released or never ended; 0 means 7 days.
func WithRetention(d time.Duration) Option { return func(c *claimConfig) { c.retention = d } }

// WithMaxHold ends renewal that long after the claim, and the hold's context
// with [ErrMaxHold]; 0 means never.
func WithMaxHold(d time.Duration) Option { return func(c *claimConfig) { c.maxHold = d } }

// WithFence passes the fence of the lock that is held: the record's will not be
// below it.
func WithFence(lock uint64) Option { return func(c *claimConfig) { c.MinFence = lock } }

// WithValidity makes the lease the run's validity: where there is no lock,
// nothing but the lease keeps a rival out, so the hold's context ends when it
// could not be renewed in time. Under a lock leave it out: the lock decides, and
// the record is only renewed, also after the lock was lost.
func WithValidity(on bool) Option { return func(c *claimConfig) { c.validity = on } }

func (g *Guard) configure(key Key, opts []Option) (claimConfig, error) {
	c := claimConfig{retention: DefaultRetention}
	for _, o := range opts {
		o(&c)
	}
	c.labels.Store = g.cfg.Store.Name()
	c.Instance = g.cfg.Instance
	if c.retention == 0 {
		c.retention = DefaultRetention
	}
	if err := key.Validate(); err != nil {
		return c, err
	}
	if c.retention < time.Millisecond {
		return c, fmt.Errorf("%w: retention %v is below 1ms", ErrBadOptions, c.retention)
	}
	if c.Hold == 0 {
		c.Hold = max(DefaultHold, c.retention, c.Lease)
	}
	var err error
	if c.ClaimOptions, err = c.WithDefaults(); err != nil {
		return c, err
	}
	if c.renewEvery > c.Lease*2/3 {
		return c, fmt.Errorf("%w: a renewal every %v cannot keep a lease of %v", ErrBadOptions, c.renewEvery, c.Lease)
	}
	return c, nil
}

// Peek reads the record under key. A finished one, and one with another
// fingerprint, is also the error that [Guard.Claim] would give:
// [*CompletedError], [*FailedError], [*MismatchError]. Any other state may have
// changed since, and only a claim decides. False: there is no record.
func (g *Guard) Peek(ctx context.Context, key Key, opts ...Option) (Record, bool, error) {
	c, err := g.configure(key, opts)
	if err != nil {
		return Record{}, false, err
	}
	var rec Record
	var found bool
	err = g.call(ctx, OpPeek, func(ctx context.Context) error {
		var err error
		rec, found, err = g.cfg.Store.Peek(ctx, key)
		return err
	})
	switch {
	case err != nil:
		g.cfg.Observer.decision(c.labels, DecisionUnavailable)
		return Record{}, false, err
	case !found:
		return Record{}, false, nil
	case c.Fingerprint != "" && rec.Fingerprint != "" && c.Fingerprint != rec.Fingerprint:
		err = g.refuse(c.labels, Mismatch, rec)
	case rec.State == Completed:
		err = g.refuse(c.labels, Replay, rec)
	case rec.State == Failed:
		err = g.refuse(c.labels, PermanentlyFailed, rec)
	}
	return rec, true, err
}

// refuse counts a verdict that is not Run and turns it into its error.
func (g *Guard) refuse(l Labels, v Verdict, rec Record) error {
	switch v {
	case Replay:
		g.cfg.Observer.decision(l, DecisionCompleted)
		return &CompletedError{Record: rec}
	case PermanentlyFailed:
		g.cfg.Observer.decision(l, DecisionCompleted)
		return &FailedError{Record: rec}
	case Busy:
		g.cfg.Observer.decision(l, DecisionInProgress)
		return &BusyError{Record: rec, Left: rec.LeaseLeft}
	case Backoff:
		g.cfg.Observer.decision(l, DecisionInProgress)
		return &BackoffError{Record: rec, Left: rec.BackoffLeft}
	case Mismatch:
		g.cfg.Observer.decision(l, DecisionMismatch)
		return &MismatchError{Record: rec}
	default:
		g.cfg.Observer.decision(l, DecisionUnavailable)
		return fmt.Errorf("%w: %s answered %v", ErrStoreUnavailable, g.cfg.Store.Name(), v)
	}
}

// claimTries is how often a claim is sent: a lost reply is found out by asking
// again for the same owner.
const claimTries = 3

// Claim tries once to win the record under key. What stands in the way is a
// [*CompletedError], [*BusyError], [*BackoffError], [*FailedError] or
// [*MismatchError]; [ErrKeyMissing], [ErrKeyTooLong], [ErrKeyText] and
// [ErrBadOptions] tell of a bad call, [ErrStoreUnavailable] that the run must
// wait: there is no running without an answer. A claim whose answer was lost is
// given back in the background.
//
// The hold must be ended by Complete, Release or Fail.
func (g *Guard) Claim(ctx context.Context, key Key, opts ...Option) (*Hold, error) {
	c, err := g.configure(key, opts)
	if err != nil {
		return nil, err
	}
	h := newHold(g, c, key)
	if h.entry, err = g.keeper.Add(ctx, h, h.spec()); err != nil {
		if errors.Is(err, lease.ErrClosed) {
			return nil, fmt.Errorf("%w: guard is closed", ErrStoreUnavailable)
		}
		return nil, fmt.Errorf("%w: %w", ErrBadOptions, err)
	}
	verdict, rec, err := g.claim(ctx, h)
	if err != nil {
		h.entry.Remove()
		g.abandon(ctx, h.claim)
		g.cfg.Observer.decision(c.labels, DecisionUnavailable)
		return nil, err
	}
	if verdict != Run {
		h.entry.Remove()
		return nil, g.refuse(c.labels, verdict, rec)
	}
	if h.claim.Takeover {
		g.cfg.Observer.decision(c.labels, DecisionTakeover)
	} else {
		g.cfg.Observer.decision(c.labels, DecisionClaimed)
	}
	return h, nil
}

func (g *Guard) claim(ctx context.Context, h *Hold) (Verdict, Record, error) {
	var verdict Verdict
	var rec Record
	var err error
	for try := range claimTries {
		if try > 0 && !pause(ctx, time.Duration(try)*50*time.Millisecond) {
			return 0, Record{}, fmt.Errorf("%w: %w", ErrStoreUnavailable, context.Cause(ctx))
		}
		var won Claim
		h.entry.Sending()
		err = g.call(ctx, OpClaim, func(ctx context.Context) error {
			var err error
			verdict, won, rec, err = g.cfg.Store.Claim(ctx, h.claim.Key, h.claim.Owner, h.cfg.ClaimOptions)
			return err
		})
		switch {
		case err != nil && !errors.Is(err, ErrStoreUnavailable):
			return 0, Record{}, err
		case err != nil:
			continue
		case verdict != Run:
			return verdict, rec, nil
		}
		h.claim = won
		if h.entry.Confirm() {
			return Run, rec, nil
		}
		err = fmt.Errorf("%w: the answer came after the lease", ErrStoreUnavailable)
	}
	return 0, Record{}, err
}

// lateLooks are the pauses before a claim without an answer is given back once
// more: it may still be on its way, since the store serves the connection of the
// first try, and then reads the closed one to its end.
var lateLooks = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second}

// abandon gives back, in the background, what a claim may have won, or may yet
// win.
func (g *Guard) abandon(ctx context.Context, c Claim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.wg.Go(func() {
		err := g.abandonOnce(ctx, c)
		var closing <-chan struct{} // Close waits for one more look, not for all
	looks:
		for _, pause := range lateLooks {
			if err == nil {
				break
			}
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-closing:
				timer.Stop()
				break looks
			}
			closing = g.closing
			err = g.abandonOnce(ctx, c)
		}
		if err != nil && !errors.Is(err, ErrStale) && !errors.Is(err, ErrRecordLost) {
			g.log.Warn("a claim without an answer could not be given back; its lease bounds it", "key", c.Key.Text, "error", err)
		}
	})
}

func (g *Guard) abandonOnce(ctx context.Context, c Claim) error {
	return g.call(context.WithoutCancel(ctx), OpRelease, func(ctx context.Context) error {
		return g.cfg.Store.Abandon(ctx, c.Key, c.Owner)
	})
}

// call bounds one call to the store and tells the observer of it.
func (g *Guard) call(ctx context.Context, op Operation, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.CallTimeout)
	defer cancel()
	start := time.Now()
	err := f(ctx)
	g.cfg.Observer.operation(g.cfg.Store.Name(), op, !errors.Is(err, ErrStoreUnavailable), time.Since(start))
	return err
}

// renew is the keeper's way to the store.
func (g *Guard) renew(ctx context.Context, due []lease.Due[*Hold]) []lease.Result {
	items := make([]RenewItem, len(due))
	for i, d := range due {
		items[i] = RenewItem{Claim: d.Item.claim}
	}
	var answers []RenewResult
	_ = g.call(ctx, OpRenew, func(ctx context.Context) error {
		answers = g.cfg.Store.Renew(ctx, items)
		for _, a := range answers {
			if errors.Is(a.Err, ErrStoreUnavailable) {
				return a.Err
			}
		}
		return nil
	})
	results := make([]lease.Result, len(answers))
	for i, a := range answers {
		results[i] = due[i].Item.renewed(a.Err)
	}
	return results
}

// pause waits; false: the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
