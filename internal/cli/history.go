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
	NoteRun(ctx context.Context, job string, r scheduler.RunNote) (again bool, err error)
}

// historian writes what became of jobs' runs into the jobs' history and state,
// beside the runs: a store that is slow or away costs history and nothing else.
type historian struct {
	store historyStore
	by    func() string
	log   *slog.Logger
	// twice is told of a job of which one tick has succeeded twice.
	twice func(job string)

	entries chan historyNote
	stop    chan struct{}
	done    chan struct{}

	mu     sync.Mutex
	parked map[string][]tasks.ParkReason // by task id, for what its parking has been told
}

// historyNote is one thing to write; without a Run in its entry only the state.
type historyNote struct {
	job     string
	entry   scheduler.HistoryEntry
	settled bool // the tick's message waits for nothing any more
	success bool
}

func newHistorian(ctx context.Context, store historyStore, by func() string, log *slog.Logger, twice func(job string)) *historian {
	h := &historian{
		store: store, by: by, log: log, twice: twice, parked: map[string][]tasks.ParkReason{},
		entries: make(chan historyNote, historyBuffer), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go h.write(context.WithoutCancel(ctx)) // what has ended by the stop is still written
	return h
}

// begun queues that a run has begun; a run of no job has no history.
func (h *historian) begun(run worker.Run) {
	if job := jobOf(run); job != "" {
		h.queue(historyNote{job: job, entry: scheduler.HistoryEntry{Tick: tickOf(run), TaskID: run.Task.ID}, settled: true})
	}
}

// note queues the outcome of a run.
func (h *historian) note(run worker.Run, out tasks.Outcome) {
	job := jobOf(run)
	if job == "" || !h.worth(run, out) {
		return
	}
	h.queue(historyNote{
		job: job, entry: h.entry(run, out), settled: out.Kind != tasks.Parked || run.Executed,
		success: out.Kind == tasks.Succeeded && run.Executed,
	})
}

func (h *historian) queue(n historyNote) {
	select {
	case h.entries <- n:
	default:
	}
}

// jobOf is the job of a run, "" for a task that an app sent.
func jobOf(run worker.Run) string {
	if g := run.Task.Guard; run.Schedule == "" && g != nil {
		return g.Job
	}
	return run.Schedule
}

// tickOf is the tick of a run, zero without one.
func tickOf(run worker.Run) time.Time {
	if g := run.Task.Guard; g != nil && g.Tick > 0 {
		return time.UnixMilli(g.Tick).UTC()
	}
	return time.Time{}
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
		e.Label, e.Tick = g.Label, tickOf(run)
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
	if n.entry.Run != nil {
		if err := h.store.AddHistory(ctx, n.job, n.entry); err != nil {
			h.log.Debug("history was not written", "schedule", n.job, "error", err)
		}
	}
	if !n.settled {
		return
	}
	again, err := h.store.NoteRun(ctx, n.job, scheduler.RunNote{Tick: n.entry.Tick, Succeeded: n.success, TaskID: n.entry.TaskID})
	switch {
	case err != nil:
		h.log.Debug("the state of the job's runs was not written", "schedule", n.job, "error", err)
	case again:
		h.log.Error("a tick has run twice, to its end both times", "schedule", n.job, "task_id", n.entry.TaskID, "label", n.entry.Label)
		h.twice(n.job)
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
