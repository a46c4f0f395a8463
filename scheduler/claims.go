package scheduler

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// asked is a claim on its way.
type asked struct {
	entry *entry
	plan  plan
	claim Claim
	// sender publishes the request, nil where the claim does.
	sender  Sender
	request *tasks.Request
}

// flight is a round of claims on its way to the store.
type flight struct {
	round   []asked
	results []ClaimResult // valid once done is closed, as is what follows
	done    chan struct{}

	sent, received time.Time // by the local clock
}

// claimDue claims what is due, up to one batch; the next turn follows at once.
// It goes in rounds: while the store settles one, the next is prepared, and
// while that is on its way, the messages of the first are sent where the claim
// does not publish them. So many ticks of one instant wait neither for the
// rendering of all of them nor for one round trip each. A round that the store
// did not answer ends the batch.
func (s *Scheduler) claimDue(ctx context.Context) {
	now := s.clock.now()
	var flying *flight
	for left := claimBatch; ; {
		round := s.prepareDue(ctx, now, min(claimRound, left))
		left -= len(round)
		landed := flying
		var results []ClaimResult
		if landed != nil {
			results = s.land(landed)
		}
		if err := unanswered(results); err != nil {
			s.settleAll(ctx, landed.round, results)
			s.settleAll(ctx, round, failedAll(len(round), err))
			return
		}
		if flying = nil; len(round) > 0 {
			flying = s.depart(ctx, round)
		}
		if landed != nil {
			s.send(ctx, landed.round, results)
			s.settleAll(ctx, landed.round, results)
			if unanswered(results) != nil {
				left = 0 // the one that is flying is the last
			}
		}
		if flying == nil {
			return
		}
	}
}

// prepareDue prepares at most limit claims of what is due.
func (s *Scheduler) prepareDue(ctx context.Context, now time.Time, limit int) []asked {
	var round []asked
	for len(round) < limit && len(s.heap) > 0 && !s.heap[0].at.After(now) && ctx.Err() == nil {
		e, _ := heap.Pop(&s.heap).(*entry)
		if a, ok := s.prepare(e, now); ok {
			round = append(round, a)
		}
	}
	return round
}

// ask claims a round and waits for the answer; the results are as many.
func (s *Scheduler) ask(ctx context.Context, round []asked) []ClaimResult {
	return s.land(s.depart(ctx, round))
}

// depart sends a round of claims off.
func (s *Scheduler) depart(ctx context.Context, round []asked) *flight {
	f := &flight{round: round, done: make(chan struct{}), sent: s.local()}
	claims := make([]Claim, len(round))
	for i := range round {
		claims[i] = round[i].claim
	}
	self := s.self()
	go func() {
		defer close(f.done)
		// Also while shutting down: what was asked for shall be counted.
		callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		f.results = s.cfg.State.Claim(callCtx, self, claims)
		f.received = s.local()
	}()
	return f
}

// land waits for the answer; the results are as many as the claims.
func (s *Scheduler) land(f *flight) []ClaimResult {
	<-f.done
	results := f.results
	for i := range f.round {
		if i >= len(results) {
			results = append(results, ClaimResult{Err: errors.New("scheduler: the store gave no answer")})
		}
		if results[i].Err == nil {
			s.storeWorks()
			s.clock.check(f.sent, f.received, results[i].Now)
		}
	}
	return results
}

// unanswered is the error of a claim of the round that brought no answer, or
// whose message could not be sent: others would fare no better, and are asked
// for again after the pause.
func unanswered(results []ClaimResult) error {
	for _, r := range results {
		if r.Err != nil && !r.Refused {
			return r.Err
		}
	}
	return nil
}

func failedAll(n int, err error) []ClaimResult {
	results := make([]ClaimResult, n)
	for i := range results {
		results[i].Err = err
	}
	return results
}

func (s *Scheduler) settleAll(ctx context.Context, round []asked, results []ClaimResult) {
	for i, a := range round {
		s.settle(ctx, a, results[i])
	}
}
