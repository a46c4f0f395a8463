package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// farState is a store at the end of a long way, which may be cut.
type farState struct {
	*memState
	way    time.Duration
	cut    atomic.Bool
	calls  atomic.Int64 // of Claim
	claims atomic.Int64 // that were asked for
}

// Claim implements State.
func (f *farState) Claim(ctx context.Context, r Replica, claims []Claim) []ClaimResult {
	f.calls.Add(1)
	f.claims.Add(int64(len(claims)))
	if f.cut.Load() {
		<-ctx.Done()
		return failedAll(len(claims), ctx.Err())
	}
	time.Sleep(f.way)
	return f.memState.Claim(ctx, r, claims)
}

// slowPublisher takes a while to render a message.
type slowPublisher struct {
	Publisher
	each time.Duration
}

// Prepare implements Publisher.
func (p slowPublisher) Prepare(r *tasks.Request) (string, []byte, error) {
	time.Sleep(p.each)
	return p.Publisher.Prepare(r)
}

// crowd are jobs that are all due at the full hour.
func crowd(t *testing.T, n int, change ...func(*Job)) []*Job {
	t.Helper()
	jobs := make([]*Job, n)
	for i := range jobs {
		jobs[i] = job(t, fmt.Sprintf("job-%d", i), "0 * * * *", change...)
	}
	return jobs
}

// Many ticks of one instant wait neither for the rendering of all of them nor
// for one round trip each: while the store has one round, the next is made.
func TestTicksOfOneInstantAreMadeWhileOthersAreClaimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many, each, way = 4 * claimRound, time.Millisecond, 40 * time.Millisecond
		far := &farState{memState: newMemState(), way: way}
		launch(t, far, "a", crowd(t, many), func(c *Config) { c.Publisher = slowPublisher{c.Publisher, each} })
		until(t, "2000-01-01T01:00:30Z")
		all := far.messages()
		if len(all) != many || far.claims.Load() != many {
			t.Fatalf("%d messages and %d claims of %d ticks", len(all), far.claims.Load(), many)
		}
		hour := instant(t, "2000-01-01T01:00:00Z")
		first, last := all[0].at.Sub(hour), all[many-1].at.Sub(hour)
		if most := claimRound*each + way + 2*time.Millisecond; first > most {
			t.Errorf("the first message came after %v, want at most %v", first, most)
		}
		if most := many*each + way + 2*time.Millisecond; last > most {
			t.Errorf("the last message came after %v, want at most %v: each round waited for the one before", last, most)
		}
	})
}

// Rounds of ticks whose messages are sent first have two calls each, and are
// all sent once.
func TestTicksOfOneInstantAreSentInRounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many, way = 3 * claimRound, 40 * time.Millisecond
		far, q := &farState{memState: newMemState(), way: way}, &queueOfIDs{}
		r := launch(t, far, "a", crowd(t, many, onOther), sentBy(q))
		until(t, "2000-01-01T01:00:30Z")
		enqueued := 0
		for i := range many {
			enqueued += r.counts.get(fmt.Sprintf("job-%d", i), TickEnqueued)
		}
		if q.number() != many || enqueued != many || far.calls.Load() != 6 {
			t.Errorf("%d ids, %d enqueued, %d calls; want %d, %d and 6", q.number(), enqueued, far.calls.Load(), many, many)
		}
	})
}

// A store that does not answer is asked for one round, not for all that is due;
// once it answers, each tick is published once.
func TestStuckStoreEndsTheBatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		on     func(*Job)
	}{
		{"claimed with its message", func(*Config) {}, func(*Job) {}},
		{"sent first", sentBy(&queueOfIDs{}), onOther},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const many = 3 * claimRound
				far := &farState{memState: newMemState()}
				launch(t, far, "a", crowd(t, many, c.on), c.change)
				until(t, "2000-01-01T00:59:00Z")
				far.cut.Store(true)
				until(t, "2000-01-01T01:00:02.5Z") // one call, and the pause after it
				if n := far.claims.Load(); n != claimRound {
					t.Errorf("%d claims were asked for of a store that does not answer, want %d", n, claimRound)
				}
				far.cut.Store(false)
				until(t, "2000-01-01T01:00:30Z")
				for name, j := range far.jobs {
					if j.Seq != 1 || j.Missed != 0 {
						t.Errorf("%s: %d ticks published, %d missed", name, j.Seq, j.Missed)
					}
				}
			})
		})
	}
}

// An engine that takes no message is not sent those of all other rounds.
func TestEngineOutOfReachEndsTheBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many = 6 * claimRound
		far, q := &farState{memState: newMemState()}, &queueOfIDs{fail: many}
		launch(t, far, "a", crowd(t, many, onOther), sentBy(q))
		until(t, "2000-01-01T01:00:00.5Z")
		if left := q.fail; left != many-2*claimRound {
			t.Errorf("%d messages were tried, want those of the round and of the one on its way", many-left)
		}
	})
}
