package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// faulty is a [State] whose store stops answering: calls hang until their
// deadlines. At the end claims whose callers have long gone may still be done,
// in any order, among those of callers that wait.
type faulty struct {
	*memState
	r *rand.Rand

	mu    sync.Mutex
	fault *fault // nil: none
}

type fault struct {
	over  chan struct{}
	lost  bool // what was sent meanwhile never arrives; set before over is closed
	queue []*queued
}

// queued is a claim that was sent during a fault.
type queued struct {
	r       Replica
	claims  []Claim
	results []ClaimResult
}

func (f *faulty) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = &fault{over: make(chan struct{})}
}

// end ends the fault; arrived says whether what was sent during it arrives.
func (f *faulty) end(arrived bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.fault.queue
	f.r.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	for _, q := range queue {
		if arrived {
			q.results = f.memState.Claim(context.Background(), q.r, q.claims)
		}
	}
	f.fault.lost = !arrived
	close(f.fault.over)
	f.fault = nil
}

// pass hangs while there is a fault.
func (f *faulty) pass(ctx context.Context) error {
	f.mu.Lock()
	now := f.fault
	f.mu.Unlock()
	if now == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return errDown
	case <-now.over:
	}
	if now.lost {
		<-ctx.Done()
		return errDown
	}
	return nil
}

// Now implements State.
func (f *faulty) Now(ctx context.Context) (time.Time, error) {
	if err := f.pass(ctx); err != nil {
		return time.Time{}, err
	}
	return f.memState.Now(ctx)
}

// Current implements State.
func (f *faulty) Current(ctx context.Context) (FileInfo, error) {
	if err := f.pass(ctx); err != nil {
		return FileInfo{}, err
	}
	return f.memState.Current(ctx)
}

// Load implements State.
func (f *faulty) Load(ctx context.Context, jobs []string) ([]JobState, error) {
	if err := f.pass(ctx); err != nil {
		return nil, err
	}
	return f.memState.Load(ctx, jobs)
}

// Beat implements State.
func (f *faulty) Beat(ctx context.Context, r Replica, revisions map[string]string) (BeatReply, error) {
	if err := f.pass(ctx); err != nil {
		return BeatReply{}, err
	}
	return f.memState.Beat(ctx, r, revisions)
}

// Claim implements State.
func (f *faulty) Claim(ctx context.Context, r Replica, claims []Claim) []ClaimResult {
	f.mu.Lock()
	now := f.fault
	q := &queued{r: r, claims: claims}
	if now != nil {
		now.queue = append(now.queue, q)
	}
	f.mu.Unlock()
	err := f.pass(ctx)
	switch {
	case err != nil:
	case now == nil:
		return f.memState.Claim(ctx, r, claims)
	default:
		return q.results
	}
	results := make([]ClaimResult, len(claims))
	for i := range results {
		results[i].Err = err
	}
	return results
}

// A fault of less than 15 s loses no tick under once and all, and doubles none,
// whatever became of the claims that were sent meanwhile: lost, done late in
// any order, done with their replies lost; also if another replica starts
// during the fault or right after it.
func TestS06_AnyShortFaultLosesNothing(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { shortFault(t, seed) })
		})
	}
}

func shortFault(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	f := &faulty{memState: newMemState(), r: r}
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(most-least)))
	}
	jobs := []*Job{job(t, "once", "every 1s"), job(t, "slow", "every 7s"), job(t, "all", "every 1s", policy(MisfireAll))}
	pass(between(0, time.Second))
	replicas, alone := 1+r.IntN(4), seed%3 == 0
	if alone {
		replicas = 1 // nobody else asks at a better moment
	}
	var fleet []*replica
	for i := range replicas {
		fleet = append(fleet, launch(t, f, fmt.Sprint("r", i), jobs))
		pass(between(0, time.Second))
	}
	pass(between(time.Second, 20*time.Second))
	for range 3 {
		if r.IntN(2) == 0 {
			f.memState.mu.Lock()
			f.loseNext = r.IntN(3)
			f.memState.mu.Unlock()
			pass(between(0, 2*time.Second))
		}
		f.begin()
		lasts := between(time.Second, 15*time.Second)
		if alone || r.IntN(3) == 0 {
			lasts = between(14*time.Second, 15*time.Second)
		}
		starts := between(0, lasts+4*time.Second)
		late := !alone && r.IntN(2) == 0
		if late && starts < lasts {
			pass(starts)
			fleet = append(fleet, launch(t, f, fmt.Sprintf("new%d", len(fleet)), jobs))
			pass(lasts - starts)
		} else {
			pass(lasts)
		}
		f.end(r.IntN(2) == 0)
		if late && starts >= lasts {
			pass(starts - lasts)
			fleet = append(fleet, launch(t, f, fmt.Sprintf("new%d", len(fleet)), jobs))
		}
		pass(between(8*time.Second, 20*time.Second))
	}
	synctest.Wait()
	noneTwice(t, f.memState)
	complete(t, f.memState, map[string]time.Duration{"once": time.Second, "slow": 7 * time.Second, "all": time.Second})
	for name, j := range f.jobs {
		if j.Missed != 0 {
			t.Errorf("%s: %d ticks recorded as missed", name, j.Missed)
		}
		missed := 0
		for _, r := range fleet {
			missed += r.counts.get(name, TickMissed)
		}
		if missed != 0 {
			t.Errorf("%s: %d ticks counted as missed", name, missed)
		}
	}
}

// complete fails for each tick between a job's first published one and its last
// that is not there, or too late a last one.
func complete(t *testing.T, m *memState, periods map[string]time.Duration) {
	t.Helper()
	first, seen := map[string]time.Time{}, map[string]bool{}
	for _, p := range m.messages() {
		if first[p.job].IsZero() {
			first[p.job] = p.tick
		}
		seen[p.job+p.tick.String()] = true
	}
	for name, period := range periods {
		if first[name].IsZero() {
			t.Errorf("%s: no tick at all", name)
			continue
		}
		for tick := first[name]; tick.Before(m.now()); tick = tick.Add(period) {
			if !seen[name+tick.String()] {
				t.Errorf("%s: tick %s was lost", name, tick.Format("15:04:05"))
			}
		}
	}
}
