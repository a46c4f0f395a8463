package locktest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/solobeat/solobeat/lockguard"
)

// Memory is a Backend in memory, for tests of code that takes locks. All Guards
// made on one Memory share its locks. It reads the time by time.Now, so it works
// inside a synctest bubble. The zero value is ready.
type Memory struct {
	mu      sync.Mutex
	locks   map[string]*entry
	fences  map[string]lockguard.Fence
	waiters map[string]map[chan struct{}]struct{}
	fault   func(op, key string) error
	calls   map[string]int
}

type entry struct {
	token  string
	until  time.Time
	holder lockguard.Holder
}

var (
	_ lockguard.Backend = (*Memory)(nil)
	_ lockguard.Waker   = (*Memory)(nil)
	_ lockguard.Lister  = (*Memory)(nil)
)

// ErrDown is what calls return while the store is made to fail.
var ErrDown = errors.New("locktest: store is down")

// ErrReplyLost lets a call fail after it was done.
var ErrReplyLost = errors.New("locktest: reply was lost")

// Fail lets calls fail for which f returns an error, until the next Fail. op is
// probe, acquire, renew, release, force or read. With nil all calls work. f may block;
// a call does not wait for it longer than its context.
func (m *Memory) Fail(f func(op, key string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Calls is how many calls of an operation were made.
func (m *Memory) Calls(op string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[op]
}

// Delete drops a lock behind its holder's back.
func (m *Memory) Delete(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.locks, key)
}

// Take gives a lock to another holder, whoever holds it.
func (m *Memory) Take(key string, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.init()
	m.locks[key] = &entry{token: "foreign", until: time.Now().Add(ttl), holder: lockguard.Holder{Foreign: true}}
}

// Held says whether anybody holds the lock.
func (m *Memory) Held(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key) != nil
}

// Name is "memory".
func (m *Memory) Name() string { return "memory" }

// Probe implements lockguard.Backend.
func (m *Memory) Probe(ctx context.Context) (lockguard.Caps, error) {
	return lockguard.Caps{Fence: lockguard.Strong}, m.called(ctx, "probe", "")
}

// TryAcquire implements lockguard.Backend.
func (m *Memory) TryAcquire(ctx context.Context, a lockguard.Attempt) (lockguard.Grant, error) {
	if a.TTL < lockguard.MinTTL {
		return lockguard.Grant{}, fmt.Errorf("%w: ttl %v", lockguard.ErrConfig, a.TTL)
	}
	err := m.called(ctx, "acquire", a.Key)
	if err != nil && !errors.Is(err, ErrReplyLost) {
		return lockguard.Grant{}, err
	}
	grant, refused := m.acquire(a)
	if err != nil {
		return lockguard.Grant{}, err
	}
	return grant, refused
}

func (m *Memory) acquire(a lockguard.Attempt) (lockguard.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.init()
	e := m.get(a.Key)
	switch {
	case e == nil:
		m.fences[a.Key]++
		e = &entry{token: a.Token, holder: lockguard.Holder{
			TaskID: a.TaskID, Instance: a.Instance, Since: time.Now(),
			Fence: m.fences[a.Key] + lockguard.Fence(a.FenceBase),
		}}
		m.locks[a.Key] = e
	case e.token != a.Token:
		h := e.tell(a.Key)
		return lockguard.Grant{}, &lockguard.BusyError{Holder: h, RetryAfter: h.Left}
	}
	e.until = time.Now().Add(a.TTL)
	return lockguard.Grant{Fence: e.holder.Fence}, nil
}

// Renew implements lockguard.Backend.
func (m *Memory) Renew(ctx context.Context, rs []lockguard.Renewal) []lockguard.RenewResult {
	out := make([]lockguard.RenewResult, len(rs))
	for i, r := range rs {
		err := m.called(ctx, "renew", r.Key)
		if r.TTL < lockguard.MinTTL {
			err = fmt.Errorf("%w: ttl %v", lockguard.ErrConfig, r.TTL)
		}
		if err == nil || errors.Is(err, ErrReplyLost) {
			out[i] = m.renewOne(r)
		}
		if err != nil {
			out[i] = lockguard.RenewResult{Err: err}
		}
	}
	return out
}

func (m *Memory) renewOne(r lockguard.Renewal) lockguard.RenewResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e := m.get(r.Key); {
	case e == nil:
		return lockguard.RenewResult{State: lockguard.RenewLost, Reason: lockguard.ReasonGone}
	case e.token != r.Token:
		return lockguard.RenewResult{State: lockguard.RenewLost, Reason: lockguard.ReasonTaken}
	default:
		e.until = time.Now().Add(r.TTL)
		return lockguard.RenewResult{State: lockguard.Renewed}
	}
}

// Release implements lockguard.Backend.
func (m *Memory) Release(ctx context.Context, r lockguard.Ref, keep time.Duration) (lockguard.Release, error) {
	err := m.called(ctx, "release", r.Key)
	if err != nil && !errors.Is(err, ErrReplyLost) {
		return lockguard.ReleaseUnknown, err
	}
	result := m.release(r, keep)
	if err != nil {
		return lockguard.ReleaseUnknown, err
	}
	return result, nil
}

func (m *Memory) release(r lockguard.Ref, keep time.Duration) lockguard.Release {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, kept := m.get(r.Key), "kept:"+r.Token
	if e == nil || e.token != r.Token && e.token != kept {
		return lockguard.NotHeld
	}
	if keep > 0 && e.token == kept {
		return lockguard.Kept
	}
	if until := e.holder.Since.Add(keep); keep > 0 && time.Now().Before(until) {
		e.token, e.until, e.holder.Kept = kept, until, true
		return lockguard.Kept
	}
	m.free(r.Key)
	return lockguard.Released
}

// free drops a lock and tells its waiters.
func (m *Memory) free(key string) {
	delete(m.locks, key)
	for c := range m.waiters[key] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// ForceRelease implements lockguard.Backend.
func (m *Memory) ForceRelease(ctx context.Context, key string) (lockguard.Holder, error) {
	if err := m.called(ctx, "force", key); err != nil {
		return lockguard.Holder{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.get(key)
	if e == nil {
		return lockguard.Holder{Key: key}, nil
	}
	h := e.tell(key)
	m.free(key)
	return h, nil
}

// Read implements lockguard.Backend.
func (m *Memory) Read(ctx context.Context, key string) (lockguard.Holder, error) {
	if err := m.called(ctx, "read", key); err != nil {
		return lockguard.Holder{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.get(key); e != nil {
		return e.tell(key), nil
	}
	return lockguard.Holder{Key: key}, nil
}

// List implements lockguard.Lister.
func (m *Memory) List(context.Context) iter.Seq2[lockguard.Holder, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	var hs []lockguard.Holder
	for key := range m.locks {
		if e := m.get(key); e != nil && !e.holder.Foreign {
			hs = append(hs, e.tell(key))
		}
	}
	return func(yield func(lockguard.Holder, error) bool) {
		for _, h := range hs {
			if !yield(h, nil) {
				return
			}
		}
	}
}

// Wake implements lockguard.Waker.
func (m *Memory) Wake(_ context.Context, key string) (<-chan struct{}, func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.init()
	c := make(chan struct{}, 1)
	if m.waiters[key] == nil {
		m.waiters[key] = map[chan struct{}]struct{}{}
	}
	m.waiters[key][c] = struct{}{}
	return c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.waiters[key], c)
	}, nil
}

func (m *Memory) init() {
	if m.locks == nil {
		m.locks = map[string]*entry{}
		m.fences = map[string]lockguard.Fence{}
		m.waiters = map[string]map[chan struct{}]struct{}{}
	}
}

// called counts the call and lets it fail.
func (m *Memory) called(ctx context.Context, op, key string) error {
	m.mu.Lock()
	if m.calls == nil {
		m.calls = map[string]int{}
	}
	m.calls[op]++
	fault := m.fault
	m.mu.Unlock()
	if fault == nil {
		return ctx.Err()
	}
	answer := make(chan error, 1)
	go func() { answer <- fault(op, key) }()
	select {
	case err := <-answer:
		if err == nil {
			return ctx.Err()
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// get returns the entry unless it has run out.
func (m *Memory) get(key string) *entry {
	e := m.locks[key]
	if e != nil && !time.Now().Before(e.until) {
		delete(m.locks, key)
		return nil
	}
	return e
}

func (e *entry) tell(key string) lockguard.Holder {
	h := e.holder
	h.Key, h.Held, h.Left = key, true, time.Until(e.until)
	return h
}
