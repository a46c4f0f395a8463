package asynqengine

import (
	"context"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Results on a server of their own that is away for longer than a write's
// patience: the task does not end without its result, and runs once. A server
// that refuses it holds no slot for ever.
func TestResultsServerIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	results := testkit.Redis(t)
	store := results.ClientDB(t, 1)
	r.client = NewClient(ClientConfig{Client: r.rdb, Results: store})
	var w witness
	r.handle("t", func(_ context.Context, task *tasks.Task) (any, error) { w.saw(task); return "done", nil })
	r.start(setup{cfg: Config{Results: results.ClientDB(t, 1)}, tune: func(tu *tuning) {
		fast(tu)
		tu.patience, tu.call = 300*time.Millisecond, 200*time.Millisecond
	}})
	results.Stop()
	id := r.send("t", nil)
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return w.of(id) == 1 }, "it runs")
	over := time.Now().Add(time.Second)
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return time.Now().After(over) }, "patience is over")
	if s := r.state(id); s != "active" {
		t.Errorf("it is %s without its result", s)
	}
	results.Restart()
	if res := r.wait(id); res.State != wire.StateSuccess || w.of(id) != 1 {
		t.Errorf("%s after %d runs", res.State, w.of(id))
	}
	if err := store.Do(t.Context(), "acl", "setuser", "default", "-set").Err(); err != nil {
		t.Fatal(err)
	}
	refused := r.send("t", nil)
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool { return r.state(refused) != "active" && w.of(refused) == 1 }, "it ends")
}
