package celery

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// Where the stream of dead letters cannot be written, a bad message is kept
// beside it, the log and the counters say so, and the good ones that were taken
// in the same step still run: a script that raises in its middle would lose them.
func TestUnwritableDeadLettersLoseNothing(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, r *rig, stream string) *redis.Client{
		"a key of another type": func(t *testing.T, r *rig, stream string) *redis.Client {
			if err := r.rdb.Set(t.Context(), stream, "somebody's", 0).Err(); err != nil {
				t.Fatal(err)
			}
			return nil
		},
		"a user without xadd": func(t *testing.T, r *rig, _ string) *redis.Client {
			if err := r.rdb.Do(t.Context(), "acl", "setuser", "u", "reset", "on", ">p", "~*", "&*", "+@all", "-xadd").Err(); err != nil {
				t.Fatal(err)
			}
			c := testkit.RedisClient(t, r.addr, 0)
			c.Options().Username, c.Options().Password = "u", "p"
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			k := r.engine(Config{}, nil).keys
			broker := prepare(t, r, k.dead("celery"))
			var good []string
			for range 5 {
				good = append(good, r.enqueue("t.ok"))
				r.push("celery", "garbage")
			}
			unknown := r.enqueue("t.unknown")
			var mu sync.Mutex
			dead, unlisted := map[tasks.Reason]int{}, map[tasks.Reason]int{}
			var log bytes.Buffer
			count := func(in map[tasks.Reason]int) func(string, tasks.Reason) {
				return func(_ string, reason tasks.Reason) {
					mu.Lock()
					defer mu.Unlock()
					in[reason]++
				}
			}
			w := r.start(Config{
				Broker: broker, Concurrency: 2, Registered: func(task string) bool { return task == "t.ok" },
				Observer: Observer{DeadLettered: count(dead), DeadUnlisted: count(unlisted)}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}, nil, newWitness().runner())
			for _, id := range good {
				if s := r.wait(id, 20*time.Second).State; s != wire.StateSuccess {
					t.Errorf("%s: %s", id, s)
				}
			}
			if s := r.wait(unknown, 20*time.Second).State; s != wire.StateFailure {
				t.Errorf("%s: %s", unknown, s)
			}
			testkit.Poll(t, 5*time.Second, 10*time.Millisecond, func() bool { return r.rdb.LLen(t.Context(), k.deadRaw("celery")).Val() == 6 }, "the bad ones are kept")
			found, err := r.admin().Unlisted(t.Context())
			if err != nil || len(found) != 1 || found[0] != (UnlistedLetters{Queue: "celery", List: k.deadRaw("celery"), Number: 6}) {
				t.Errorf("unlisted: %v, %v", found, err)
			}
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			if want := map[tasks.Reason]int{tasks.ReasonNotEnvelope: 5, tasks.ReasonNotRegistered: 1}; len(dead) > 0 || !maps.Equal(unlisted, want) {
				t.Errorf("counted as dead letters %v, beside them %v, want none and %v", dead, unlisted, want)
			}
			for _, line := range strings.Split(log.String(), "\n") {
				if strings.Contains(line, "dead letters") && !(strings.Contains(line, "level=ERROR") && strings.Contains(line, "list="+k.deadRaw("celery"))) {
					t.Errorf("the log does not say where it lies: %s", line)
				}
			}
			if n := strings.Count(log.String(), "reason=NotRegistered"); n != 1 {
				t.Errorf("%d reasons in the log, of which no list knows:\n%s", n, &log)
			}
		})
	}
}

// What lies beside the dead letters is sent to its queue again, by its priority
// and as it came, each message once whoever else does the same; or it is deleted.
func TestUnlistedLettersAreRequeuedOrDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	id := r.enqueue("t.ok", tasks.WithPriority(3))
	k := r.engine(Config{}, nil).keys
	if err := r.rdb.LMove(ctx, k.list("celery", 3), k.deadRaw("celery"), "RIGHT", "LEFT").Err(); err != nil {
		t.Fatal(err)
	}
	r.push(k.deadRaw("celery"), "garbage")
	r.push(k.deadRaw("other"), "1", "2", "3")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var sent []DeadLetter
	for range 2 {
		wg.Go(func() {
			some, err := r.admin().RequeueUnlisted(ctx, "celery")
			mu.Lock()
			defer mu.Unlock()
			if sent = append(sent, some...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(sent) != 2 || sent[0].TaskID+sent[1].TaskID != id || sent[0].Task+sent[1].Task != "t.ok" {
		t.Errorf("sent: %+v", sent)
	}
	if n := r.rdb.LLen(ctx, k.list("celery", 3)).Val(); n != 1 || r.rdb.LRange(ctx, "celery", 0, -1).Val()[0] != "garbage" {
		t.Errorf("%d in the list of priority 3, %q in that of 0", n, r.rdb.LRange(ctx, "celery", 0, -1).Val())
	}
	gone, err := r.admin().DropUnlisted(ctx, "other")
	if err != nil || len(gone) != 3 || string(gone[0].Raw) != "1" {
		t.Errorf("dropped: %v, %v", gone, err)
	}
	if left, err := r.admin().Unlisted(ctx); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
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
