package celery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Errors of [Admin] about dead letters.
var (
	// ErrNoDeadLetter: no dead letter has that id, or somebody else has just
	// requeued or dropped it.
	ErrNoDeadLetter = errors.New("celery: no such dead letter")
	// ErrUnfit: no worker, of any kind, could read the message; it can only be
	// dropped.
	ErrUnfit = errors.New("celery: no worker could read this message")
)

// DeadLetter is a message that could not be run, kept with its reason.
type DeadLetter struct {
	// ID names the entry within its queue.
	ID    string `json:"id"`
	Queue string `json:"queue"`
	// Reason is one word, Detail says more.
	Reason tasks.Reason `json:"reason"`
	Detail string       `json:"detail,omitempty"`
	At     time.Time    `json:"at"`
	// Instance is the replica that had it, List the list it came from.
	Instance string `json:"instance,omitempty"`
	List     string `json:"list,omitempty"`
	// Deliveries is the number of replicas that died under it.
	Deliveries int `json:"deliveries"`
	// Task and TaskID are empty where they could not be read.
	Task   string `json:"task,omitempty"`
	TaskID string `json:"task_id,omitempty"`
	// Raw are the message's bytes.
	Raw []byte `json:"raw,omitempty"`
}

// DeadLetters lists the newest dead letters first, at most limit per queue
// (0: all that are kept), without their bytes. Without queues it covers all
// that have any.
func (a *Admin) DeadLetters(ctx context.Context, limit int64, queues ...string) ([]DeadLetter, error) {
	if len(queues) == 0 {
		var err error
		if queues, err = a.DeadQueues(ctx); err != nil {
			return nil, err
		}
	}
	if limit <= 0 {
		limit = maxDead
	}
	all := []DeadLetter{}
	for _, q := range queues {
		msgs, err := a.cfg.Broker.XRevRangeN(ctx, a.keys.dead(q), "+", "-", limit).Result()
		if err != nil {
			return nil, fmt.Errorf("celery: dead letters of %s: %w", q, err)
		}
		for _, m := range msgs {
			d := deadLetterOf(q, m)
			d.Raw = nil
			all = append(all, d)
		}
	}
	return all, nil
}

// DeadQueues lists the queues that have, or had, dead letters.
func (a *Admin) DeadQueues(ctx context.Context) ([]string, error) {
	queues, err := a.cfg.Broker.SMembers(ctx, a.keys.deadQueues()).Result()
	if err != nil {
		return nil, fmt.Errorf("celery: dead letters: %w", err)
	}
	slices.Sort(queues)
	return queues, nil
}

// DeadNumber is how many dead letters a queue has.
func (a *Admin) DeadNumber(ctx context.Context, queue string) (int, error) {
	n, err := a.cfg.Broker.XLen(ctx, a.keys.dead(queue)).Result()
	if err != nil {
		return 0, fmt.Errorf("celery: dead letters of %s: %w", queue, err)
	}
	return int(n), nil
}

// DeadLetter reads one with its bytes. An id that is not there is
// [ErrNoDeadLetter].
func (a *Admin) DeadLetter(ctx context.Context, queue, id string) (*DeadLetter, error) {
	msgs, err := a.cfg.Broker.XRange(ctx, a.keys.dead(queue), id, id).Result()
	if err != nil {
		var reply redis.Error
		if errors.As(err, &reply) && !errors.Is(err, redis.Nil) { // what is no stream id at all
			return nil, fmt.Errorf("%w: %q in queue %q: %w", ErrNoDeadLetter, id, queue, err)
		}
		return nil, fmt.Errorf("celery: dead letter %s of %s: %w", id, queue, err)
	}
	if len(msgs) == 0 {
		return nil, fmt.Errorf("%w: %q in queue %q", ErrNoDeadLetter, id, queue)
	}
	d := deadLetterOf(queue, msgs[0])
	return &d, nil
}

func deadLetterOf(queue string, m redis.XMessage) DeadLetter {
	text := func(name string) string { s, _ := m.Values[name].(string); return s }
	ms, _ := strconv.ParseInt(text("at"), 10, 64)
	n, _ := strconv.Atoi(text("deliveries"))
	return DeadLetter{
		ID: m.ID, Queue: queue, Reason: tasks.Reason(text("reason")), Detail: text("detail"), At: time.UnixMilli(ms).UTC(),
		Instance: text("instance"), List: text("list"), Deliveries: n, Task: text("task"), TaskID: text("id"),
		Raw: []byte(text("raw")),
	}
}

// letterPage is how many dead letters are read, or changed, in one call.
const letterPage = 100

// EachDeadLetter gives a queue's dead letters to fn in pages, oldest first and
// with their bytes, up to the newest one at the time of the call: what comes
// while fn is at work, a letter that died once more for instance, is left out.
func (a *Admin) EachDeadLetter(ctx context.Context, queue string, fn func([]DeadLetter) error) error {
	key := a.keys.dead(queue)
	newest, err := a.cfg.Broker.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil {
		return fmt.Errorf("celery: dead letters of %s: %w", queue, err)
	}
	for from := "-"; len(newest) > 0; {
		msgs, err := a.cfg.Broker.XRangeN(ctx, key, from, newest[0].ID, letterPage).Result()
		if err != nil {
			return fmt.Errorf("celery: dead letters of %s: %w", queue, err)
		}
		if len(msgs) == 0 {
			return nil
		}
		page := make([]DeadLetter, len(msgs))
		for i, m := range msgs {
			page[i] = deadLetterOf(queue, m)
		}
		if err := fn(page); err != nil {
			return err
		}
		from = "(" + msgs[len(msgs)-1].ID
	}
	return nil
}

// Requeue sends dead letters of one queue again, each to the end of its list
// where new messages come in, as if it had never been delivered: under its id,
// with its guard, its retries and its times, but without deaths, losses, parks
// and the mark of a redelivery. Its result is taken back unless it is a
// SUCCESS. A letter leaves the dead letters in the step that sends it. The
// errors come in the order of the letters: [ErrNoDeadLetter] where another was
// faster, [ErrUnfit].
func (a *Admin) Requeue(ctx context.Context, queue string, letters []DeadLetter) ([]error, error) {
	errs := make([]error, len(letters))
	for from := 0; from < len(letters); from += letterPage {
		to := min(from+letterPage, len(letters))
		if err := a.requeue(ctx, queue, letters[from:to], errs[from:to]); err != nil {
			return nil, err
		}
	}
	return errs, nil
}

func (a *Admin) requeue(ctx context.Context, queue string, letters []DeadLetter, errs []error) error {
	keys, args := []string{a.keys.dead(queue)}, []any{}
	var sent []int
	for i, d := range letters {
		raw, list, err := a.renewed(d)
		if err != nil {
			errs[i] = err
			continue
		}
		// Before the message runs, since what it leaves must stand. Whoever is
		// interrupted here leaves a dead letter of a PENDING task.
		if d.TaskID != "" {
			if err := a.results.Forget(ctx, a.keys.result(d.TaskID)); err != nil {
				return fmt.Errorf("celery: requeue %s: %w", d.ID, err)
			}
		}
		keys, args, sent = append(keys, list), append(args, d.ID, raw), append(sent, i)
	}
	if len(sent) == 0 {
		return nil
	}
	done, err := a.runner.Run(ctx, a.requeueScript, keys, args...).Int64Slice()
	if err == nil && len(done) != len(sent) {
		err = fmt.Errorf("%w: %d of %d", errReply, len(done), len(sent))
	}
	if err != nil {
		return fmt.Errorf("celery: requeue in %s: %w", queue, err)
	}
	for n, i := range sent {
		if done[n] == 0 {
			errs[i] = fmt.Errorf("%w: %q in queue %q", ErrNoDeadLetter, letters[i].ID, queue)
		}
	}
	return nil
}

// renewed is a letter's message as it is sent again, and the list it goes to.
func (a *Admin) renewed(d DeadLetter) (raw []byte, list string, err error) {
	raw, err = wire.Renew(d.Raw, map[string]json.RawMessage{
		wire.HeaderLosses: nil, headerFirstPark: nil, headerParked: nil,
	})
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	name := strings.TrimPrefix(d.List, a.keys.prefix)
	if queue, step := wire.SplitQueueKey(name); queue == d.Queue {
		return raw, a.keys.list(queue, step), nil
	}
	priority := 0
	if m, err := wire.Decode(d.Raw); err == nil {
		priority = m.Priority
	}
	return raw, a.keys.list(d.Queue, priority), nil
}

// Drop deletes dead letters of one queue for good. Their tasks keep their
// results. The errors come in the order of the ids: [ErrNoDeadLetter] where
// there is none any more.
func (a *Admin) Drop(ctx context.Context, queue string, ids ...string) ([]error, error) {
	errs := make([]error, 0, len(ids))
	for page := range slices.Chunk(ids, letterPage) {
		cmds := make([]*redis.IntCmd, len(page))
		_, err := a.cfg.Broker.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range page {
				cmds[i] = p.XDel(ctx, a.keys.dead(queue), id)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("celery: drop in %s: %w", queue, err)
		}
		for i, cmd := range cmds {
			err = nil
			if cmd.Val() == 0 {
				err = fmt.Errorf("%w: %q in queue %q", ErrNoDeadLetter, page[i], queue)
			}
			errs = append(errs, err)
		}
	}
	return errs, nil
}

// Late reports whether a message may not begin any more at an instant: its
// expires, or its job's deadline, has passed. Sent again it ends as REVOKED.
func (d *DeadLetter) Late(now time.Time) bool {
	m, err := wire.Decode(d.Raw)
	if err != nil {
		return false
	}
	if !m.Expires.IsZero() && now.After(m.Expires) {
		return true
	}
	g, err := tasks.DecodeGuard(m.Headers[wire.HeaderGuard])
	return err == nil && g != nil && g.BeginBy > 0 && now.UnixMilli() > g.BeginBy
}

func newResults(results, broker *redis.Client) *resultstore.Writer {
	if results == nil {
		results = broker
	}
	return resultstore.NewWriter(results)
}
