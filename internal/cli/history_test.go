package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/worker"
)

// fakeHistory notes entries, or hangs.
type fakeHistory struct {
	mu    sync.Mutex
	lines []string
	runs  []string
	done  map[string]bool
	hangs bool
	err   error
}

// AddHistory implements historyStore.
func (f *fakeHistory) AddHistory(ctx context.Context, job string, e scheduler.HistoryEntry) error {
	if f.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, fmt.Sprintf("%s %s %s/%d %s", job, e.TaskID, e.Outcome, e.Run.Attempt, e.Run.Reason))
	return f.err
}

// NoteRun implements historyStore.
func (f *fakeHistory) NoteRun(ctx context.Context, job string, r scheduler.RunNote) (bool, error) {
	if f.hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	again := r.Succeeded && f.done[r.TaskID]
	if r.Succeeded {
		if f.done == nil {
			f.done = map[string]bool{}
		}
		f.done[r.TaskID] = true
	}
	f.runs = append(f.runs, fmt.Sprintf("%s %s %d %t", job, r.TaskID, r.Tick.UnixMilli(), r.Succeeded))
	return again, nil
}

func runOf(id, job string, attempt int) worker.Run {
	return worker.Run{Task: &tasks.Task{ID: id, Attempt: attempt, Guard: &tasks.Guard{Job: job, Tick: 1700000000000, Label: "l"}}, Schedule: job}
}

// Each outcome of a job's run is written; that a message is parked once only,
// until it has run.
func TestHistoryOfRuns(t *testing.T) {
	t.Parallel()
	store := &fakeHistory{err: errors.New("not now")} // an error stops nothing
	h := newHistorian(t.Context(), store, me, slog.New(slog.DiscardHandler), func(string) {})
	parked := tasks.Outcome{Kind: tasks.Parked, Reason: "busy", Park: tasks.Park{Reason: tasks.ParkLock}}
	h.note(runOf("a", "j", 1), parked)
	h.note(runOf("a", "j", 1), parked)
	h.note(runOf("a", "j", 1), parked)
	h.note(runOf("b", "j", 1), parked)
	h.note(runOf("a", "j", 1), tasks.Outcome{Kind: tasks.Retried, Reason: "error"})
	h.note(runOf("a", "j", 2), parked)
	h.note(runOf("a", "j", 2), tasks.Outcome{Kind: tasks.Succeeded})
	h.note(runOf("c", "j", 1), tasks.Outcome{Kind: tasks.Succeeded, Reason: "skipped", Note: &tasks.Note{Outcome: "skipped", Reason: "busy"}})
	h.note(worker.Run{Task: &tasks.Task{ID: "app", Attempt: 1}}, tasks.Outcome{Kind: tasks.Succeeded})
	early := runOf("d", "j", 1)
	early.Schedule = "" // turned away before its plan was made
	h.note(early, tasks.Outcome{Kind: tasks.Failed, Reason: "KeyMissing"})
	h.close()
	want := []string{
		"j a parked/1 lock", "j b parked/1 lock", "j a retried/1 error", "j a parked/2 lock", "j a succeeded/2 ",
		"j c skipped/1 busy", "j d failed/1 KeyMissing",
	}
	if diff := cmp.Diff(want, store.lines); diff != "" {
		t.Error(diff)
	}
}

// A run counts for its job's state when it begins and when it is settled, and
// as a success once its handler has returned a result: a replay from the record
// is none. Two of one task are told.
func TestStateOfRuns(t *testing.T) {
	t.Parallel()
	store := &fakeHistory{}
	var twice []string
	h := newHistorian(t.Context(), store, me, slog.New(slog.DiscardHandler), func(job string) { twice = append(twice, job) })
	ran := func(id string) worker.Run {
		r := runOf(id, "j", 1)
		r.Executed = true
		return r
	}
	h.begun(runOf("a", "j", 1))
	h.note(ran("a"), tasks.Outcome{Kind: tasks.Succeeded})
	h.note(runOf("b", "j", 1), tasks.Outcome{Kind: tasks.Parked, Park: tasks.Park{Reason: tasks.ParkLock}})
	h.note(runOf("a", "j", 1), tasks.Outcome{Kind: tasks.Succeeded, Reason: "completed"})
	h.note(runOf("b", "j", 1), tasks.Outcome{Kind: tasks.Succeeded, Reason: "skipped"})
	h.note(ran("c"), tasks.Outcome{Kind: tasks.Failed, Reason: "error"})
	h.begun(worker.Run{Task: &tasks.Task{ID: "app"}})
	h.note(ran("a"), tasks.Outcome{Kind: tasks.Succeeded})
	h.close()
	want := []string{
		"j a 1700000000000 false", "j a 1700000000000 true", "j a 1700000000000 false", "j b 1700000000000 false",
		"j c 1700000000000 false", "j a 1700000000000 true",
	}
	if diff := cmp.Diff(want, store.runs); diff != "" {
		t.Error(diff)
	}
	if !cmp.Equal(twice, []string{"j"}) {
		t.Errorf("told to have run twice: %q", twice)
	}
}

// A shortage parks a task again and again though its handler was called each
// time: that is one entry, with the reason, beside that of another reason.
func TestHistoryOfAShortage(t *testing.T) {
	t.Parallel()
	store := &fakeHistory{}
	h := newHistorian(t.Context(), store, me, slog.New(slog.DiscardHandler), func(string) {})
	executed := runOf("a", "j", 1)
	executed.Executed = true
	short := tasks.Outcome{Kind: tasks.Parked, Reason: tasks.ReasonShortage, Park: tasks.Park{Reason: tasks.ParkShortage}}
	locked := tasks.Outcome{Kind: tasks.Parked, Reason: "busy", Park: tasks.Park{Reason: tasks.ParkLock}}
	for range 3 {
		h.note(runOf("a", "j", 1), locked)
		h.note(executed, short)
	}
	h.note(executed, tasks.Outcome{Kind: tasks.Succeeded})
	h.note(executed, short)
	if d := historyDetail(h.entry(executed, short)); d != "shortage" {
		t.Errorf("DETAIL %q", d)
	}
	h.close()
	want := []string{"j a parked/1 lock", "j a parked/1 shortage", "j a succeeded/1 ", "j a parked/1 shortage"}
	if diff := cmp.Diff(want, store.lines); diff != "" {
		t.Error(diff)
	}
}

// A store that hangs holds up neither the runs nor the end of the process.
func TestHistoryHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHistorian(t.Context(), &fakeHistory{hangs: true}, me, slog.New(slog.DiscardHandler), func(string) {})
		began := time.Now()
		for i := range 10 * historyBuffer {
			h.note(runOf(fmt.Sprint(i), "j", 1), tasks.Outcome{Kind: tasks.Succeeded})
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the runs were held up for %s", d)
		}
		h.close()
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("the end was held up for %s", d)
		}
		<-h.done // the rest times out, one second each
	})
}

// What is known of parked messages stays bounded.
func TestHistoryForgetsNothingForEver(t *testing.T) {
	t.Parallel()
	store := &fakeHistory{}
	h := newHistorian(t.Context(), store, me, slog.New(slog.DiscardHandler), func(string) {})
	defer h.close()
	for i := range 3 * parkedKnown {
		h.note(runOf(fmt.Sprint(i), "j", 1), tasks.Outcome{Kind: tasks.Parked})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.parked) > parkedKnown {
		t.Errorf("%d parked tasks are kept", len(h.parked))
	}
}

func me() string { return "me" }

// What fails on either engine without a run is told by nobody else: a run's end
// comes from the chain, and would be written twice.
func TestHistoryOfWhatFailsWithoutARun(t *testing.T) {
	t.Parallel()
	store := &fakeHistory{}
	r := &replica{
		metrics: metrics.New(metrics.Config{}), pulses: map[string]*pulse{},
		history: newHistorian(t.Context(), store, me, slog.New(slog.DiscardHandler), func(string) {}),
	}
	byCelery, byAsynq := r.celeryObserver().Finished, r.asynqObserver().Finished
	for _, ran := range []bool{false, true} {
		byCelery(celery.Finished{Outcome: tasks.Failed, Reason: tasks.ReasonWorkerLost, Ran: ran, Message: runOf("c", "j", 3).Task})
		byAsynq(asynqengine.Finished{Outcome: tasks.Failed, Reason: tasks.ReasonWorkerLost, Ran: ran, Message: runOf("a", "j", 3).Task})
	}
	byCelery(celery.Finished{Outcome: tasks.Failed, Reason: tasks.ReasonMalformed})
	byAsynq(asynqengine.Finished{Outcome: tasks.Revoked, Message: runOf("r", "j", 1).Task})
	r.history.close()
	if diff := cmp.Diff([]string{"j c failed/3 WorkerLostError", "j a failed/3 WorkerLostError"}, store.lines); diff != "" {
		t.Error(diff)
	}
	if _, beside := r.health()["worker_asynq"]; !beside || len(r.readiness()) != 2 {
		t.Errorf("checks %v", r.readiness())
	}
}
