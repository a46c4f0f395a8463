package celery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/failpoint"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
)

// elsewhere writes results that no script of the broker can write: they are on
// another server, or in a database that the broker's user may not select. A
// commit goes through here before it goes to the loop: is the message still
// ours, write, and only then ack.
type elsewhere struct {
	writer *resultstore.Writer
	box    *mailbox[*commit]
	// waiting are the commits that wait here.
	waiting atomic.Int64
}

// maxUnstored is how many finished messages may wait for the server of the
// results beside those that run. They keep no slot, so that what needs no result
// goes on; above this nothing more is taken.
const maxUnstored = 1000

func newElsewhere(results *redis.Client) *elsewhere {
	return &elsewhere{writer: resultstore.NewWriter(results), box: newMailbox[*commit]()}
}

// finish hands a commit on: to the loop, or to the writer of its result.
func (e *Engine) finish(c *commit) {
	if e.elsewhere == nil || c.key == "" {
		e.finished.put(c)
		if e.ended.Load() {
			e.release(e.finished.take()...)
		}
		return
	}
	e.elsewhere.waiting.Add(1)
	e.elsewhere.box.put(c)
}

// unstored are the messages that are held only until their result is written.
func (e *Engine) unstored() int {
	if e.elsewhere == nil {
		return 0
	}
	return int(min(e.elsewhere.waiting.Load(), maxUnstored))
}

// elsewhereLoop writes results as they come. What was refused, or met a silent
// server, is tried again by itself: a new result does not wait behind it.
func (e *Engine) elsewhereLoop(ctx context.Context) {
	if e.elsewhere == nil {
		return
	}
	var failed []*commit
	tries, again := 0, time.NewTimer(time.Hour)
	defer again.Stop()
	outage := resultsState{e: e}
	for {
		var batch []*commit
		select {
		case <-ctx.Done():
			if n := e.elsewhere.waiting.Load(); n > 0 {
				e.log.Error("results could not be written; their messages are left to peers", "results", n)
			}
			return
		case <-e.elsewhere.box.signal:
			batch = e.elsewhere.box.take()
		case <-again.C:
			batch, failed = failed, nil
		}
		var err error
		for len(batch) > 0 {
			n := min(len(batch), maxCommits)
			left, lerr := e.storeCommits(ctx, batch[:n])
			failed, batch = append(failed, left...), batch[n:]
			err = errors.Join(err, lerr)
		}
		if outage.note(err); err == nil && len(failed) == 0 {
			tries = 0
			continue
		}
		tries++
		again.Reset(backoff(tries))
	}
}

// storeCommits writes results and hands those that are written on to the loop;
// it returns the others, and the first reason.
func (e *Engine) storeCommits(ctx context.Context, batch []*commit) ([]*commit, error) {
	results := make([]resultTo, len(batch))
	for i, c := range batch {
		results[i] = resultTo{tag: c.tagFor(), key: c.key, value: c.result}
	}
	errs := e.storeResults(ctx, results)
	var left []*commit
	var first error
	for i, c := range batch {
		if errs[i] != nil {
			left = append(left, c)
			if first == nil {
				first = errs[i]
			}
			continue
		}
		failpoint.Hit(failpoint.AfterResult, c.it.taskName(), c.it.taskID())
		c.key, c.result = "", nil
		e.elsewhere.waiting.Add(-1)
		e.finished.put(c)
	}
	return left, first
}

// resultTo is a result on its way, and the tag that must still be ours; ""
// writes in any case.
type resultTo struct {
	tag, key string
	value    []byte
}

// storeResults writes the results of messages that are still ours. The errors
// come in the order of the results; nil also says that a message is not ours any
// more, which the ack finds out for itself. Between this look and the write a
// message can be taken over: then what is written is late, but never over a
// SUCCESS.
func (e *Engine) storeResults(ctx context.Context, results []resultTo) []error {
	ctx, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	errs := make([]error, len(results))
	ours := make([]*redis.BoolCmd, len(results))
	_, err := e.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, r := range results {
			if r.tag != "" {
				ours[i] = p.HExists(ctx, e.keys.unacked(), r.tag)
			}
		}
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("celery: broker: %w", err)
		}
		return errs
	}
	var entries []resultstore.Entry
	var at []int
	for i, r := range results {
		if r.tag == "" || ours[i].Val() {
			entries, at = append(entries, resultstore.Entry{Key: r.key, Value: r.value}), append(at, i)
		}
	}
	if len(entries) == 0 {
		return errs
	}
	for n, err := range e.elsewhere.writer.Write(ctx, e.cfg.expirySeconds(), entries...) {
		errs[at[n]] = err
	}
	return errs
}

// storeFirst writes the results of operations where they are elsewhere, and
// takes them off the operations. It returns which of them may be settled, and
// why the others may not yet.
func (e *Engine) storeFirst(ctx context.Context, ops []settleOp) ([]bool, error) {
	ready := make([]bool, len(ops))
	var results []resultTo
	var at []int
	for i, o := range ops {
		if ready[i] = e.elsewhere == nil || o.key == ""; !ready[i] {
			results, at = append(results, resultTo{tag: o.tag, key: o.key, value: o.result}), append(at, i)
		}
	}
	if len(results) == 0 {
		return ready, nil
	}
	var first error
	for n, err := range e.storeResults(ctx, results) {
		if i := at[n]; err == nil {
			ready[i], ops[i].key, ops[i].result = true, "", nil
		} else if first == nil {
			first = err
		}
	}
	return ready, first
}

// resultsState keeps the log quiet about an outage that goes on.
type resultsState struct {
	e      *Engine
	down   bool
	logged time.Time
}

func (s *resultsState) note(err error) {
	switch {
	case err != nil && (!s.down || time.Since(s.logged) >= logGap):
		s.e.log.Warn("results cannot be written; their messages are not acknowledged", "waiting", s.e.elsewhere.waiting.Load(), "error", err)
		s.down, s.logged = true, time.Now()
	case err == nil && s.down && s.e.elsewhere.waiting.Load() == 0:
		s.e.log.Info("results are written again")
		s.down = false
	}
}
