package scheduler

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/tasks"
)

// queueOfIDs is an engine that keeps every id, as asynq does.
type queueOfIDs struct {
	mu   sync.Mutex
	ids  map[string]int // how often an id was sent
	fail int            // so many sends fail before they do anything
	die  bool           // the next send panics
}

// Prepare implements Sender.
func (q *queueOfIDs) Prepare(r *tasks.Request) error {
	if r.Name == "bad" {
		return errors.New("no such queue")
	}
	return nil
}

// Send implements Sender.
func (q *queueOfIDs) Send(_ context.Context, r *tasks.Request) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.die {
		q.die = false
		panic("deliberate")
	}
	if q.fail > 0 {
		q.fail--
		return false, errors.New("out of reach")
	}
	if q.ids == nil {
		q.ids = map[string]int{}
	}
	q.ids[r.ID]++
	return q.ids[r.ID] == 1, nil
}

func (q *queueOfIDs) number() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ids)
}

func sentBy(q *queueOfIDs) func(*Config) {
	return func(c *Config) { c.Senders = map[string]Sender{"other": q} }
}

func onOther(j *Job) { j.Engine = "other" }

// Three replicas and an engine of its own messages: each tick is sent under one
// id, one replica counts it as published and the others stand aside; nothing
// goes into a list.
func TestSentTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, q := newMemState(), &queueOfIDs{}
		var all []*replica
		for _, id := range []string{"a", "b", "c"} {
			all = append(all, launch(t, m, id, []*Job{job(t, "hourly", "0 * * * *", onOther)}, sentBy(q)))
		}
		until(t, "2000-01-01T05:30:00Z")
		enqueued, aside := 0, 0
		for _, r := range all {
			enqueued += r.counts.get("hourly", TickEnqueued)
			aside += r.counts.aside
		}
		if q.number() != 5 || enqueued != 5 || aside != 10 || len(m.messages()) != 0 {
			t.Errorf("%d ids, %d enqueued, %d stood aside, %d in lists", q.number(), enqueued, aside, len(m.messages()))
		}
		if j := m.jobs["hourly"]; j.Seq != 5 || j.Missed != 0 {
			t.Errorf("the store counts %d, and %d missed", j.Seq, j.Missed)
		}
	})
}

// The engine is out of reach, or panics, or the store's answer is lost:
// the tick is sent once in the end, and is its sender's.
func TestSendsThatFail(t *testing.T) {
	for name, trouble := range map[string]func(*memState, *queueOfIDs){
		"out of reach":      func(_ *memState, q *queueOfIDs) { q.fail = 3 },
		"a panic":           func(_ *memState, q *queueOfIDs) { q.die = true },
		"the claim is lost": func(m *memState, _ *queueOfIDs) { m.loseNext = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m, q := newMemState(), &queueOfIDs{}
				r := launch(t, m, "a", []*Job{job(t, "hourly", "0 * * * *", onOther)}, sentBy(q))
				until(t, "2000-01-01T00:59:00Z")
				m.mu.Lock()
				trouble(m, q)
				m.mu.Unlock()
				until(t, "2000-01-01T01:30:00Z")
				if q.number() != 1 || m.jobs["hourly"].Seq != 1 || r.counts.get("hourly", TickEnqueued) != 1 || r.counts.aside != 0 {
					t.Errorf("%d ids, seq %d, %d enqueued, %d stood aside", q.number(), m.jobs["hourly"].Seq,
						r.counts.get("hourly", TickEnqueued), r.counts.aside)
				}
			})
		})
	}
}

// A replica dies between sending and claiming: another finds the id, claims the
// tick, and does not say that it published it.
func TestSentByADeadReplica(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, q := newMemState(), &queueOfIDs{}
		j := job(t, "hourly", "0 * * * *", onOther)
		r := launch(t, m, "b", []*Job{j}, sentBy(q))
		req, err := j.Request("default", j.Schedule.Next(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		until(t, "2000-01-01T02:30:00Z")
		if q.number() != 2 || r.counts.get("hourly", TickEnqueued) != 1 || r.counts.get("hourly", TickDuplicate) != 1 || m.jobs["hourly"].Seq != 2 {
			t.Errorf("%d ids, %d enqueued, %d duplicates, seq %d", q.number(), r.counts.get("hourly", TickEnqueued),
				r.counts.get("hourly", TickDuplicate), m.jobs["hourly"].Seq)
		}
	})
}

// What is too late is missed and never sent; what cannot be sent concerns its
// job only; an engine that nobody serves is refused.
func TestTicksThatAreNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, q := newMemState(), &queueOfIDs{}
		jobs := []*Job{
			job(t, "hourly", "0 * * * *", onOther, policy(MisfireSkip)),
			job(t, "bad", "0 * * * *", onOther, func(j *Job) { j.Task = "bad" }),
		}
		r := launch(t, m, "a", jobs, sentBy(q))
		until(t, "2000-01-01T00:59:00Z")
		m.setDown(true)
		until(t, "2000-01-01T01:30:00Z")
		m.setDown(false)
		until(t, "2000-01-01T02:30:00Z")
		if q.number() != 1 || m.jobs["hourly"].Missed != 1 || m.jobs["hourly"].Seq != 1 {
			t.Errorf("%d ids, %d missed, seq %d", q.number(), m.jobs["hourly"].Missed, m.jobs["hourly"].Seq)
		}
		if r.counts.quarantined["bad"] == nil || r.counts.quarantined["hourly"] != nil {
			t.Errorf("quarantined: %v", r.counts.quarantined)
		}
		var bad *JobError
		_, err := New(Config{Jobs: jobs, State: m, Publisher: &fakePublisher{}, ID: "x"})
		if !errors.As(err, &bad) || bad.Field != "engine" {
			t.Errorf("an engine that is not served: %v", err)
		}
	})
}
