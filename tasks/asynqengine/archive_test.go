package asynqengine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// condemn gives a task in its queue n deaths by asynq's own count: what its
// recoverer does with a task whose process has died.
func (r *rig) condemn(id string, n int) {
	r.t.Helper()
	key := stateKey(DefaultQueue, "t:"+id)
	raw, err := r.rdb.HGet(r.t.Context(), key, "msg").Bytes()
	if err != nil {
		r.t.Fatal(err)
	}
	raw = append(raw, 6<<3, byte(n)) // the field retried of asynq's message
	if err := r.rdb.HSet(r.t.Context(), key, "msg", raw).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// A task that has killed its processes ends in the archive. Requeued it runs
// again and is not condemned for its old deaths, as it is by asynq's own
// RunTask.
func TestRequeueFromTheArchive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAdmin(AdminConfig{Client: r.rdb})
	id := r.send("t", nil)
	r.condemn(id, 3)
	w := &witness{}
	r.handle("t", func(_ context.Context, t *tasks.Task) (any, error) { w.saw(t); return nil, nil })
	r.start(setup{tune: fast})
	r.becomes(id, "archived")
	got, err := a.Archived(DefaultQueue, id)
	if err != nil || got.Reason != tasks.ReasonWorkerLost || got.Task != "t" {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := r.inspect.RunTask(DefaultQueue, id); err != nil { // the naive way
		t.Fatal(err)
	}
	r.becomes(id, "archived")
	if n := w.of(id); n != 0 {
		t.Fatalf("it ran %d times: the test tests nothing", n)
	}
	if err := a.Requeue(t.Context(), DefaultQueue, id); err != nil {
		t.Fatal(err)
	}
	if res := r.wait(id); res.State != wire.StateSuccess || w.of(id) != 1 {
		t.Errorf("%s after %d runs", res.State, w.of(id))
	}
	if run := w.all(); len(run) == 1 && (run[0].Attempt != 1 || run[0].Redelivered) {
		t.Errorf("attempt %d, redelivered %v", run[0].Attempt, run[0].Redelivered)
	}
	if err := a.Requeue(t.Context(), DefaultQueue, id); !errors.Is(err, ErrNoArchived) {
		t.Errorf("a second time: %v", err)
	}
	if err := a.Drop(t.Context(), DefaultQueue, id); !errors.Is(err, ErrNoArchived) {
		t.Errorf("drop of what has run: %v", err)
	}
}

// Operators at once: each task is requeued or dropped once, and what one has
// requeued no other deletes, as asynq's own DeleteTask would.
func TestManyOperatorsOnTheArchive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 60
	var ids []string
	for range n {
		id := r.send("t", nil)
		if err := r.inspect.ArchiveTask(DefaultQueue, id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	fates := map[string][]string{}
	for op := range 4 {
		wg.Go(func() {
			a := NewAdmin(AdminConfig{Client: testkit.RedisClient(t, r.addr, 0)})
			act, what := a.Requeue, "requeued"
			if op%2 == 0 {
				act, what = a.Drop, "dropped"
			}
			for _, id := range ids {
				switch err := act(context.Background(), DefaultQueue, id); {
				case err == nil:
					mu.Lock()
					fates[id] = append(fates[id], what)
					mu.Unlock()
				case !errors.Is(err, ErrNoArchived):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	want := int64(0)
	for _, id := range ids {
		if len(fates[id]) != 1 {
			t.Errorf("%s: %v", id, fates[id])
		}
		if len(fates[id]) > 0 && fates[id][0] == "requeued" {
			want++
		}
	}
	if got := r.rdb.LLen(t.Context(), stateKey(DefaultQueue, "pending")).Val(); got != want {
		t.Errorf("%d pending, want %d", got, want)
	}
	if left, err := NewAdmin(AdminConfig{Client: r.rdb}).ArchiveIDs(t.Context(), DefaultQueue); err != nil || len(left) != 0 {
		t.Errorf("archive %v, %v", left, err)
	}
}

// Archived tells until when a task may begin: the sooner of both limits.
func TestArchivedExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	by := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	id := r.send("t", &tasks.Guard{Job: "j", Tick: by.Add(-time.Hour).UnixMilli(), BeginBy: by.UnixMilli()}, tasks.WithExpires(by.Add(time.Hour)))
	if err := r.inspect.ArchiveTask(DefaultQueue, id); err != nil {
		t.Fatal(err)
	}
	if got, err := NewAdmin(AdminConfig{Client: r.rdb}).Archived(DefaultQueue, id); err != nil || !got.Expires.Equal(by) {
		t.Errorf("%+v, %v, want %s", got, err, by)
	}
}
