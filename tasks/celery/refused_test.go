package celery

import (
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Where the stream of dead letters cannot be written, a bad message is kept
// beside it, and the good ones that were taken in the same step still run: a
// script that raises in its middle would lose them.
func TestUnwritableDeadLettersLoseNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stream := r.engine(Config{}, nil).keys.dead("celery")
	if err := r.rdb.Set(t.Context(), stream, "somebody's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var good []string
	for range 5 {
		good = append(good, r.enqueue("t.ok"))
		r.push("celery", "garbage")
	}
	r.start(Config{Concurrency: 2}, nil, newWitness().runner())
	for _, id := range good {
		if s := r.wait(id, 20*time.Second).State; s != wire.StateSuccess {
			t.Errorf("%s: %s", id, s)
		}
	}
	kept := r.engine(Config{}, nil).keys.own("dead-raw:celery")
	testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return r.rdb.LLen(t.Context(), kept).Val() == 5 }, "the bad ones are kept")
	found, err := NewAdmin(AdminConfig{Broker: r.rdb}).Unlisted(t.Context())
	if err != nil || found[kept] != 5 {
		t.Errorf("unlisted: %v, %v", found, err)
	}
}

// A key of another type in the place of unacked: nothing is popped that could
// not be put down.
func TestForeignUnackedLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.rdb.Set(t.Context(), "unacked", "somebody's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 5 {
		ids = append(ids, r.enqueue("t.ok"))
	}
	r.start(Config{Concurrency: 2}, nil, newWitness().runner())
	e := r.engine(Config{}, nil)
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool {
		calls := r.rdb.HVals(t.Context(), e.keys.calls()).Val()
		return len(calls) == 1 && calls[0] != "0"
	}, "a take was tried")
	if err := r.rdb.Del(t.Context(), "unacked").Err(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if s := r.wait(id, 20*time.Second).State; s != wire.StateSuccess {
			t.Errorf("%s: %s", id, s)
		}
	}
}
