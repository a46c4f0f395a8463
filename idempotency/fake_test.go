package idempotency_test

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/solobeat/solobeat/idempotency"
)

// fakeStore answers as it is told and notes what it was asked.
type fakeStore struct {
	mu    sync.Mutex
	calls map[string]int
	owner idempotency.Owner // of the last claim

	claim    func(n int) (idempotency.Verdict, idempotency.Record, error)
	renew    func(ctx context.Context, n int) error
	abandon  func(n int) error
	complete func(n int) error
}

var _ idempotency.Store = (*fakeStore)(nil)

func (f *fakeStore) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[op]++
	return f.calls[op]
}

func (f *fakeStore) seen(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *fakeStore) Name() string                   { return "fake" }
func (f *fakeStore) Strength() idempotency.Strength { return idempotency.BestEffort }
func (f *fakeStore) Check(context.Context) error    { return nil }

func (f *fakeStore) Claim(_ context.Context, key idempotency.Key, owner idempotency.Owner, o idempotency.ClaimOptions) (idempotency.Verdict, idempotency.Claim, idempotency.Record, error) {
	n := f.count("claim")
	f.mu.Lock()
	f.owner = owner
	f.mu.Unlock()
	v, rec := idempotency.Run, idempotency.Record{Key: key}
	if f.claim != nil {
		var err error
		if v, rec, err = f.claim(n); err != nil {
			return 0, idempotency.Claim{}, rec, err
		}
	}
	if v != idempotency.Run {
		return v, idempotency.Claim{}, rec, nil
	}
	return v, idempotency.Claim{Key: key, Owner: owner, Fence: 7, Attempt: 1, Takeover: rec.Takeover, Options: o}, rec, nil
}

func (f *fakeStore) Abandon(context.Context, idempotency.Key, idempotency.Owner) error {
	n := f.count("abandon")
	if f.abandon != nil {
		return f.abandon(n)
	}
	return nil
}

func (f *fakeStore) Renew(ctx context.Context, items []idempotency.RenewItem) []idempotency.RenewResult {
	n := f.count("renew")
	results := make([]idempotency.RenewResult, len(items))
	if f.renew != nil {
		err := f.renew(ctx, n)
		for i := range results {
			results[i].Err = err
		}
	}
	return results
}

func (f *fakeStore) Complete(context.Context, idempotency.Claim, idempotency.Result, time.Duration) error {
	n := f.count("complete")
	if f.complete != nil {
		return f.complete(n)
	}
	return nil
}

func (f *fakeStore) Release(context.Context, idempotency.Claim, idempotency.Failure, time.Duration) error {
	f.count("release")
	return nil
}

func (f *fakeStore) Fail(context.Context, idempotency.Claim, idempotency.Failure, time.Duration) error {
	f.count("fail")
	return nil
}

func (f *fakeStore) Peek(context.Context, idempotency.Key) (idempotency.Record, bool, error) {
	f.count("peek")
	return idempotency.Record{}, false, nil
}

func (f *fakeStore) Get(context.Context, [32]byte) (idempotency.Record, error) {
	return idempotency.Record{}, idempotency.ErrNotFound
}

func (f *fakeStore) List(context.Context) iter.Seq2[idempotency.Record, error] {
	return func(func(idempotency.Record, error) bool) {}
}

func (f *fakeStore) Forget(context.Context, idempotency.Key, bool, string) (idempotency.Record, error) {
	return idempotency.Record{}, idempotency.ErrNotFound
}

// tally counts what an observer is told.
type tally struct {
	mu        sync.Mutex
	decisions map[idempotency.Decision]int
	stale     map[idempotency.Operation]int
	failed    map[idempotency.Operation]int
	lost      int
	labels    idempotency.Labels
}

func newTally() *tally {
	return &tally{
		decisions: map[idempotency.Decision]int{},
		stale:     map[idempotency.Operation]int{},
		failed:    map[idempotency.Operation]int{},
	}
}

func (t *tally) observer() idempotency.Observer {
	locked := func(f func()) {
		t.mu.Lock()
		defer t.mu.Unlock()
		f()
	}
	return idempotency.Observer{
		Decision: func(l idempotency.Labels, d idempotency.Decision) {
			locked(func() { t.decisions[d]++; t.labels = l })
		},
		Operation: func(_ string, op idempotency.Operation, ok bool, _ time.Duration) {
			locked(func() {
				if !ok {
					t.failed[op]++
				}
			})
		},
		Lost:  func(idempotency.Labels) { locked(func() { t.lost++ }) },
		Stale: func(_ idempotency.Labels, op idempotency.Operation) { locked(func() { t.stale[op]++ }) },
	}
}
