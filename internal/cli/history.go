package cli

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

const (
	// historyBuffer bounds the outcomes that wait to be written; more are
	// dropped, since history is for people and never holds up a run.
	historyBuffer  = 256
	historyTimeout = time.Second
	// parkedKnown bounds the tasks that are known to be parked.
	parkedKnown = 1000
)

// historyStore is the part of [scheduler.Admin] that a historian needs.
type historyStore interface {
	AddHistory(ctx context.Context, job string, e scheduler.HistoryEntry) error
}

// historian writes the outcomes of jobs' runs into the jobs' history, beside
// the runs: a store that is slow or away costs history and nothing else.
type historian struct {
	store historyStore
	by    func() string
	log   *slog.Logger

	entries chan historyNote
	stop    chan struct{}
	done    chan struct{}

	mu     sync.Mutex
	parked map[string][]tasks.ParkReason // by task id, for what its parking has been told
}

type historyNote struct {
	job   string
	entry scheduler.HistoryEntry
}

func newHistorian(ctx context.Context, store historyStore, by func() string, log *slog.Logger) *historian {
	h := &historian{
		store: store, by: by, log: log, parked: map[string][]tasks.ParkReason{},
		entries: make(chan historyNote, historyBuffer), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go h.write(context.WithoutCancel(ctx)) // what has ended by the stop is still written
	return h
}

// note queues the outcome of a run; a run of no job has no history.
func (h *historian) note(run worker.Run, out tasks.Outcome) {
	job := run.Schedule
	if g := run.Task.Guard; job == "" && g != nil {
		job = g.Job
	}
	if job == "" || !h.worth(run, out) {
		return
	}
	select {
	case h.entries <- historyNote{job, h.entry(run, out)}:
	default:
	}
}

// worth leaves out that a message was parked again for the same reason: it may
// be every second, and would push all else out of the history. A handler that
// ran ends that, unless the replica was too short of resources for it to begin.
func (h *historian) worth(run worker.Run, out tasks.Outcome) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, why := run.Task.ID, out.Park.Reason
	if out.Kind != tasks.Parked || run.Executed && why != tasks.ParkShortage {
		delete(h.parked, id)
		return true
	}
	told := h.parked[id]
	if slices.Contains(told, why) || told == nil && len(h.parked) >= parkedKnown {
		return false
	}
	h.parked[id] = append(told, why)
	return true
}

func (h *historian) entry(run worker.Run, out tasks.Outcome) scheduler.HistoryEntry {
	e := scheduler.HistoryEntry{
		Outcome: out.Kind.String(), Count: 1, By: h.by(), TaskID: run.Task.ID,
		Run: &scheduler.RunEntry{
			Reason: string(out.Reason), Attempt: run.Task.Attempt, Fence: run.Fence, Takeover: run.Takeover, TookMS: run.Took.Milliseconds(),
		},
	}
	if g := run.Task.Guard; g != nil {
		e.Label = g.Label
		if g.Tick > 0 {
			e.Tick = time.UnixMilli(g.Tick).UTC()
		}
	}
	switch {
	case out.Note != nil:
		e.Outcome, e.Run.Reason = out.Note.Outcome, string(out.Note.Reason)
	case out.Kind == tasks.Parked:
		e.Run.Reason = string(out.Park.Reason)
	}
	return e
}

func (h *historian) write(ctx context.Context) {
	defer close(h.done)
	for {
		select {
		case n := <-h.entries:
			h.add(ctx, n)
		case <-h.stop:
			for {
				select {
				case n := <-h.entries:
					h.add(ctx, n)
				default:
					return
				}
			}
		}
	}
}

func (h *historian) add(ctx context.Context, n historyNote) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	if err := h.store.AddHistory(ctx, n.job, n.entry); err != nil {
		h.log.Debug("history was not written", "schedule", n.job, "error", err)
	}
}

// close writes what waits, for at most 2 s.
func (h *historian) close() {
	close(h.stop)
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-h.done:
	case <-timer.C:
	}
}
