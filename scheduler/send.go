package scheduler

import (
	"context"
	"fmt"
	"sync"

	"github.com/solobeat/solobeat/internal/failpoint"
)

// sendsAtOnce bounds the messages that are on their way at one time.
const sendsAtOnce = 16

// send publishes what the store said is to be fired, for engines whose messages
// the claim cannot put down, and claims those ticks; results are replaced by
// what came of it. Message first: whoever dies between the two leaves a tick
// that others find published, never one that is claimed and lost.
func (s *Scheduler) send(ctx context.Context, batch []asked, results []ClaimResult) {
	var sent []int
	for i, a := range batch {
		if a.sender != nil && results[i].Err == nil && results[i].Outcome == Fired {
			sent = append(sent, i)
		}
	}
	if len(sent) == 0 {
		return
	}
	fresh := s.sendAll(ctx, batch, results, sent)
	var claims []asked
	var at []int
	for _, i := range sent {
		if results[i].Err != nil {
			continue
		}
		a := batch[i]
		a.claim.Step = Sent
		claims, at = append(claims, a), append(at, i)
	}
	if len(claims) == 0 {
		return
	}
	for n, r := range s.ask(ctx, claims) {
		results[at[n]] = ofSent(claims[n], r, fresh[at[n]])
	}
}

// ofSent joins what the store says of a tick with who has sent its message:
// that replica has published it, whichever one claimed it.
func ofSent(a asked, r ClaimResult, fresh bool) ClaimResult {
	tick := a.plan.tick.At
	if r.Err != nil {
		return r
	}
	switch {
	case r.Outcome == Fired:
		r.Aside = !fresh
	case r.Outcome == Duplicate && fresh && !r.Last.Before(tick):
		r.Outcome = Fired // whoever stood aside was quicker to claim it
	}
	return r
}

// sendAll sends the messages of the ticks at these places of the batch. It says
// which are this replica's own; a failure becomes the tick's result.
func (s *Scheduler) sendAll(ctx context.Context, batch []asked, results []ClaimResult, at []int) []bool {
	fresh := make([]bool, len(batch))
	slots := make(chan struct{}, sendsAtOnce)
	var wg sync.WaitGroup
	for _, i := range at {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ok, err := s.sendOne(ctx, batch[i])
			if err != nil {
				results[i] = ClaimResult{Err: err}
			}
			fresh[i] = ok
		})
	}
	wg.Wait()
	return fresh
}

func (s *Scheduler) sendOne(ctx context.Context, a asked) (fresh bool, err error) {
	defer func() {
		// A panic in a sender concerns one job, as one in a publisher does.
		if v := recover(); v != nil {
			err = fmt.Errorf("scheduler: panic: %v", v)
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	e, tick := a.entry, a.plan.tick.At
	ok, err := a.sender.Send(ctx, a.request)
	if err != nil {
		return false, err
	}
	failpoint.Hit(failpoint.AfterSend, e.job.Name, "")
	if ok {
		e.sent = tick
	}
	// Sent before, in a turn whose claim brought no answer: still this one's.
	return e.sent.Equal(tick), nil
}
