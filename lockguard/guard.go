package lockguard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/solobeat/solobeat/internal/lease"
)

// The timeouts of requests to the store. No request waits longer than its
// answer could be of use.
const (
	attemptTimeout = 5 * time.Second
	releaseTimeout = 2 * time.Second
	cleanupTimeout = time.Second
)

// Config is what a Guard is made of.
type Config struct {
	// Backend is the store; required.
	Backend Backend
	// Instance is told to who asks for a holder; "" takes a random one.
	Instance string
	// Logger gets losses and what needs attention; nil discards.
	Logger *slog.Logger
	// Observer is told what happens; the zero value discards.
	Observer Observer
}

// Guard takes locks of one back end. One per process and back end is enough: it
// owns the watchdog that renews them all. Close it.
type Guard struct {
	backend  Backend
	waker    Waker // nil: the back end has none
	instance string
	log      *slog.Logger
	obs      Observer
	keeper   *lease.Keeper[Ref]
	warned   sync.Map // Labels whose numbers were warned about

	closed atomic.Bool // set under mu

	mu      sync.Mutex
	closing chan struct{}
	local   map[string]*Handle   // by key: what this process holds, or asks for
	lines   map[string][]*waiter // who waits in this process, the oldest first
	active  int                  // attempts, handles and cleanups that are not over
	idle    chan struct{}        // closed when the guard is closed and active is 0

	releases alarm
}

// New makes a Guard. It does no I/O: a store that is down is met by the first
// acquire. See [Guard.Probe].
func New(c Config) (*Guard, error) {
	if c.Backend == nil {
		return nil, fmt.Errorf("%w: Backend is nil", ErrConfig)
	}
	g := &Guard{
		backend: c.Backend, instance: c.Instance, log: c.Logger, obs: c.Observer,
		closing: make(chan struct{}), local: map[string]*Handle{}, lines: map[string][]*waiter{}, idle: make(chan struct{}),
	}
	g.waker, _ = c.Backend.(Waker)
	if g.instance == "" {
		g.instance = randomHex()
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.keeper = lease.NewKeeper(g.renew, lease.Options{})
	return g, nil
}

// Probe asks the back end for its abilities and logs its warnings. Call it once
// at the start, if the store is expected to be up.
func (g *Guard) Probe(ctx context.Context) (Caps, error) {
	caps, err := g.backend.Probe(ctx)
	if err != nil {
		return Caps{}, fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
	}
	for _, w := range caps.Warnings {
		g.log.Warn(w, "backend", g.backend.Name())
	}
	return caps, nil
}

// Do runs fn under the lock and releases it afterwards, also if fn panics. The
// context of fn ends, with a cause, when the lock is lost or its max hold has
// passed. By default Do tries once and returns a *BusyError; see WithWait.
//
// What fn returns goes first: nil stays nil even if the lock was lost meanwhile,
// since the work is done; an error is joined with the cause of a loss.
func (g *Guard) Do(ctx context.Context, key string, fn func(context.Context) error, opts ...Option) (err error) {
	held, h, err := g.hold(ctx, key, opts)
	if err != nil {
		return err
	}
	defer func() {
		cause := h.Check()
		_, relErr := h.Release(ctx)
		err = joined(err, cause, relErr)
	}()
	return fn(held)
}

// hold is Acquire, with the context of the hold beside its handle.
func (g *Guard) hold(ctx context.Context, key string, opts []Option) (context.Context, *Handle, error) {
	h, err := g.Acquire(ctx, key, opts...)
	if err != nil {
		return ctx, nil, err
	}
	return h.Context(), h, nil
}

// joined adds to the error of a function what happened to its lock.
func joined(err, cause, relErr error) error {
	if err == nil {
		return nil
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if relErr != nil {
		err = fmt.Errorf("%w (and %w)", err, relErr)
	}
	return err
}

// Inspect tells who holds the lock.
func (g *Guard) Inspect(ctx context.Context, key string) (Holder, error) {
	holder, err := g.backend.Read(ctx, key)
	return holder, readError(ctx, key, err)
}

// ForceRelease frees the lock whoever holds it, and tells who did; Held is false
// if nobody. The holder's function loses the lock: it is cancelled at its next
// renewal, and the fence of the next grant is larger than its own. The reason
// goes to the log. A key that is no lock is ErrForeignKey, and left alone.
func (g *Guard) ForceRelease(ctx context.Context, key, reason string) (Holder, error) {
	holder, err := g.backend.ForceRelease(ctx, key)
	if err == nil && holder.Held {
		g.log.Warn("lock was released by force", "key", key, "reason", reason, "task_id", holder.TaskID,
			"instance", holder.Instance, "fence", uint64(holder.Fence))
	}
	return holder, readError(ctx, key, err)
}

// readError names the error of a look at a lock.
func readError(ctx context.Context, key string, err error) error {
	switch {
	case err == nil, definite(err):
		return err
	case over(ctx):
		return ctxError(ctx, key)
	}
	return fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
}

// Occupied reports whether this process keeps its own attempts off the key: it
// holds the lock, asks for it, or a function goes on whose hold is over. It does
// no I/O.
func (g *Guard) Occupied(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.local[key] != nil
}

// Close refuses new acquires, cancels all contexts with ErrClosed and waits for
// the functions to end and release. A lock whose function still runs is not
// released: when ctx ends first, Close stops renewing and leaves such locks to
// their TTL.
func (g *Guard) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed.Swap(true) {
		close(g.closing)
		if g.active == 0 {
			close(g.idle)
		}
	}
	g.mu.Unlock()
	g.keeper.CancelAll(ErrClosed)
	defer g.keeper.Close()
	select {
	case <-g.idle:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		n := g.active
		g.mu.Unlock()
		return fmt.Errorf("lockguard: close: %d holds or requests are not over: %w", n, context.Cause(ctx))
	}
}

// enter claims the handle's key inside this process.
func (g *Guard) enter(h *Handle) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return ErrClosed
	}
	if other, ok := g.local[h.ref.Key]; ok {
		return other.busy()
	}
	g.local[h.ref.Key] = h
	g.active++
	return nil
}

// busy tells of the handle to who asks for its key too.
func (h *Handle) busy() error {
	b := &BusyError{Holder: Holder{Key: h.ref.Key, Held: true, Instance: h.g.instance}, Unsure: true}
	if h.granted.Load() {
		b.Holder.TaskID, b.Holder.Fence, b.Holder.Since = h.set.taskID, h.fence, h.since
		if left := h.entry.Remaining(); left > 0 {
			b.Holder.Left = left + lease.Margin(h.set.ttl)
			b.Unsure = false
		}
		b.RetryAfter = b.Holder.Left
	}
	return b
}

// leave frees the handle's key inside this process.
func (g *Guard) leave(h *Handle) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.local[h.ref.Key] == h {
		delete(g.local, h.ref.Key)
	}
	if h.freed != nil {
		close(h.freed)
	}
	g.doneLocked()
}

// freed returns the channel that is closed when this process frees the key, nil
// if it does not hold it.
func (g *Guard) freed(key string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.local[key]
	if h == nil {
		return nil
	}
	if h.freed == nil {
		h.freed = make(chan struct{})
	}
	return h.freed
}

func (g *Guard) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doneLocked()
}

func (g *Guard) doneLocked() {
	g.active--
	if g.active == 0 && g.closed.Load() {
		close(g.idle)
	}
}

// lateLooks are the pauses before cleanup looks again. A request that was cut
// off may still be on its way: the store serves the connection of the release
// first, and then reads the closed one to its end.
var lateLooks = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second}

// cleanup releases by token, in the background, what an attempt may have got
// without knowing it, or may yet get if it was not answered. The context is the
// attempt's, which may be over.
func (g *Guard) cleanup(ctx context.Context, ref Ref, l Labels, answered bool) {
	g.mu.Lock()
	g.active++ // the attempt still counts, so the guard is not idle here
	g.mu.Unlock()
	go func() {
		defer g.done()
		result, err := g.undo(context.WithoutCancel(ctx), ref, answered)
		if err != nil {
			g.log.Warn("release after a failed acquire failed; the lock runs out by itself", "key", ref.Key, "error", err)
		}
		if f := g.obs.Cleanup; f != nil {
			f(l, g.backend.Name(), result)
		}
	}()
}

func (g *Guard) undo(ctx context.Context, ref Ref, answered bool) (Release, error) {
	result, err := g.undoOnce(ctx, ref)
	closing := (<-chan struct{})(nil) // a guard that closes looks once again, not for long
	for _, pause := range lateLooks {
		if result == Released || answered && err == nil {
			break
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-closing:
			timer.Stop()
			return result, err
		}
		closing = g.closing
		result, err = g.undoOnce(ctx, ref)
	}
	return result, err
}

func (g *Guard) undoOnce(ctx context.Context, ref Ref) (Release, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	result, err := g.backend.Release(ctx, ref, 0)
	if err != nil {
		result = ReleaseUnknown
	}
	return result, err
}

// renew is the watchdog's call.
func (g *Guard) renew(ctx context.Context, due []lease.Due[Ref]) []lease.Result {
	rs := make([]Renewal, len(due))
	for i, d := range due {
		rs[i] = Renewal{Ref: d.Item, TTL: d.TTL}
	}
	answers := g.backend.Renew(ctx, rs)
	results := make([]lease.Result, len(rs))
	for i := range results {
		switch {
		case i >= len(answers):
			results[i] = lease.Result{Err: errors.New("lockguard: back end gave no answer")}
		case answers[i].State == Renewed:
			results[i] = lease.Result{State: lease.Renewed}
		case answers[i].State == RenewLost:
			results[i] = lease.Result{State: lease.Lost, Reason: lease.Reason(answers[i].Reason)}
		default:
			results[i] = lease.Result{Err: answers[i].Err}
		}
	}
	return results
}

// definite reports whether the store has answered, so that nothing is held.
func definite(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrForeignKey) || errors.Is(err, ErrConfig) || errors.Is(err, ErrClosed)
}

// nearDeadline is how much sooner than a context a connection may fail that gets
// the context's deadline as its own.
const nearDeadline = 10 * time.Millisecond

// over reports whether a request ended by its context.
func over(ctx context.Context) bool {
	if at, ok := ctx.Deadline(); ok && time.Until(at) < nearDeadline {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// ctxError is the caller's own context error, with its cause.
func ctxError(ctx context.Context, key string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("lockguard: %s: %w", key, cause)
	}
	return fmt.Errorf("lockguard: %s: %w: %w", key, err, cause)
}

func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}
