package celery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// kill puts a message into the dead letters of its queue as one that has killed
// its workers, with what such a message carries by then.
func (r *rig) kill(name string, opts ...tasks.Option) string {
	r.t.Helper()
	req, err := tasks.NewRequest(name, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	list, raw, err := r.client.Prepare(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if raw, err = wire.Redeliver(raw, 3); err == nil {
		raw, err = wire.SetHeaders(raw, map[string]json.RawMessage{
			wire.HeaderLosses: json.RawMessage("2"), headerFirstPark: json.RawMessage("1000000"), headerParked: json.RawMessage(`{"for": "lock", "n": 9, "key": "k"}`),
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.letter(req.Queue, list, req.ID, raw)
	r.rdb.Set(r.t.Context(), wire.ResultKey(req.ID), `{"status": "FAILURE", "result": {"exc_type": "WorkerLostError"}}`, time.Hour)
	return req.ID
}

func (r *rig) letter(queue, list, id string, raw []byte) {
	r.t.Helper()
	k := keys{namespace: tasks.DefaultNamespace}
	_, err := r.rdb.Pipelined(r.t.Context(), func(p redis.Pipeliner) error {
		p.XAdd(r.t.Context(), &redis.XAddArgs{Stream: k.dead(queue), Values: []any{
			"raw", raw, "reason", "WorkerLostError", "at", time.Now().UnixMilli(), "list", list, "deliveries", "3", "id", id,
		}})
		p.SAdd(r.t.Context(), k.deadQueues(), queue)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) letters(a *Admin, queue string) (all []DeadLetter) {
	r.t.Helper()
	if err := a.EachDeadLetter(r.t.Context(), queue, func(page []DeadLetter) error { all = append(all, page...); return nil }); err != nil {
		r.t.Fatal(err)
	}
	return all
}

// A message that has killed its workers runs again as if it had never been
// delivered: at the sending end of its own step, with its id, guard and
// headers. Naively put back as it is it would be condemned at its next death.
func TestRequeueForgetsDeathsAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAdmin(AdminConfig{Broker: r.rdb})
	guard := &tasks.Guard{Version: tasks.GuardVersion, Lock: &tasks.LockGuard{Key: "k", TTLMS: 1000, OnBusy: tasks.OnBusyRetry}}
	waiting := r.enqueue("waits", tasks.WithPriority(6))
	id := r.kill("t", tasks.WithPriority(6), guarded(guard), tasks.WithKwargs(map[string]any{"n": json.RawMessage("12345678901234567890")}))
	letters := r.letters(a, DefaultQueue)
	if len(letters) != 1 || letters[0].TaskID != id {
		t.Fatalf("letters %+v", letters)
	}
	errs, err := a.Requeue(t.Context(), DefaultQueue, letters)
	if err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	list, err := r.rdb.LRange(t.Context(), wire.QueueKey(DefaultQueue, 6), 0, -1).Result()
	if err != nil || len(list) != 2 {
		t.Fatalf("%d messages in the step's list, %v", len(list), err)
	}
	m, err := wire.Decode([]byte(list[0])) // the left end is where messages come in
	if err != nil {
		t.Fatal(err)
	}
	if next, _ := wire.Decode([]byte(list[1])); next.ID != waiting {
		t.Error("the letter stands before what waited")
	}
	it := newItem("", nil, &source{queue: DefaultQueue}, list[0], time.Now(), time.Now())
	if d := it.deliv; m.ID != id || d.Deaths != 0 || d.Losses != 0 || !d.FirstPark.IsZero() || d.Begun() || it.note != (parkNote{}) {
		t.Errorf("id %s, delivery %+v, note %+v", m.ID, d, it.note)
	}
	guard.Version = it.deliv.Task.Guard.Version // the lowest that says it all
	if d := cmp.Diff(guard, it.deliv.Task.Guard); d != "" || string(m.Kwargs["n"]) != "12345678901234567890" {
		t.Errorf("guard %s, kwargs %s", d, m.Kwargs)
	}
	if n := r.rdb.Exists(t.Context(), wire.ResultKey(id)).Val(); n != 0 {
		t.Error("the result still says FAILURE")
	}
	if left := r.letters(a, DefaultQueue); len(left) != 0 {
		t.Errorf("%d letters are left", len(left))
	}
}

// A SUCCESS is what a task has done: no operator takes it back.
func TestRequeueLeavesASuccess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAdmin(AdminConfig{Broker: r.rdb})
	id := r.kill("t")
	for _, form := range []string{`{"status": "SUCCESS", "result": 1}`, `{"result": 1, "status":"SUCCESS"}`} {
		r.rdb.Set(t.Context(), wire.ResultKey(id), form, 0)
		if _, err := a.Requeue(t.Context(), DefaultQueue, r.letters(a, DefaultQueue)); err != nil {
			t.Fatal(err)
		}
		if got := r.rdb.Get(t.Context(), wire.ResultKey(id)).Val(); got != form {
			t.Errorf("result %q, want %q", got, form)
		}
		r.letter(DefaultQueue, DefaultQueue, id, []byte(r.rdb.RPop(t.Context(), DefaultQueue).Val()))
	}
}

// Several operators at once, requeuing and dropping: every letter ends in one
// way, told to one of them.
func TestManyOperatorsNoneLostNoneDoubled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n, operators = 500, 6
	for range n {
		r.kill("t")
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	told := map[string][]string{}
	note := func(letters []DeadLetter, errs []error, what string) {
		mu.Lock()
		defer mu.Unlock()
		for i, d := range letters {
			if errs[i] == nil {
				told[d.TaskID] = append(told[d.TaskID], what)
			} else if !errors.Is(errs[i], ErrNoDeadLetter) {
				t.Error(errs[i])
			}
		}
	}
	for op := range operators {
		wg.Go(func() {
			a := NewAdmin(AdminConfig{Broker: testkit.RedisClient(t, r.addr, 0)})
			err := a.EachDeadLetter(context.Background(), DefaultQueue, func(page []DeadLetter) error {
				if op%3 == 0 {
					ids := make([]string, len(page))
					for i, d := range page {
						ids[i] = d.ID
					}
					errs, err := a.Drop(context.Background(), DefaultQueue, ids...)
					if err == nil {
						note(page, errs, "dropped")
					}
					return err
				}
				errs, err := a.Requeue(context.Background(), DefaultQueue, page)
				if err == nil {
					note(page, errs, "requeued")
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want := 0
	for id, whats := range told {
		if len(whats) != 1 {
			t.Errorf("%s: %v", id, whats)
		}
		if whats[0] == "requeued" {
			want++
		}
	}
	if len(told) != n {
		t.Errorf("%d of %d letters were told of", len(told), n)
	}
	if got := int(r.rdb.LLen(t.Context(), DefaultQueue).Val()); got != want {
		t.Errorf("%d messages in the queue, %d were told of", got, want)
	}
}

// An operator who requeues all while a worker runs that condemns them again is
// done after one round.
func TestRequeueAllEndsThoughLettersComeBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 250 {
		r.kill(fmt.Sprint("t", i))
	}
	a := NewAdmin(AdminConfig{Broker: r.rdb})
	seen := 0
	err := a.EachDeadLetter(t.Context(), DefaultQueue, func(page []DeadLetter) error {
		seen += len(page)
		if seen > 250 {
			return errors.New("it goes round and round")
		}
		if _, err := a.Requeue(t.Context(), DefaultQueue, page); err != nil {
			return err
		}
		for range page { // at once condemned
			raw, err := r.rdb.RPop(t.Context(), DefaultQueue).Bytes()
			if err != nil {
				return err
			}
			r.letter(DefaultQueue, DefaultQueue, "", raw)
		}
		return nil
	})
	if err != nil || seen != 250 {
		t.Errorf("%d letters, %v", seen, err)
	}
	if left := len(r.letters(a, DefaultQueue)); left != 250 {
		t.Errorf("%d letters are left", left)
	}
}

// What no worker could read stays where it is: a Python worker would stumble
// over it. A list that cannot be written leaves the letter too.
func TestRequeueKeepsWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAdmin(AdminConfig{Broker: r.rdb})
	r.letter(DefaultQueue, DefaultQueue, "", []byte("no json"))
	errs, err := a.Requeue(t.Context(), DefaultQueue, r.letters(a, DefaultQueue))
	if err != nil || !errors.Is(errs[0], ErrUnfit) || len(r.letters(a, DefaultQueue)) != 1 || r.rdb.Exists(t.Context(), DefaultQueue).Val() != 0 {
		t.Errorf("%v, %v", errs, err)
	}
	r.kill("t", tasks.WithQueue("other"))
	r.rdb.Set(t.Context(), "other", "no list", 0)
	if _, err := a.Requeue(t.Context(), "other", r.letters(a, "other")); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a key of another type: %v", err)
	}
	if n := len(r.letters(a, "other")); n != 1 {
		t.Errorf("%d letters are left of the one that could not be sent", n)
	}
}

// A requeued message runs and succeeds; one that still kills is a suspect only
// at its second death.
func TestRequeuedMessageRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.kill("t")
	a := NewAdmin(AdminConfig{Broker: r.rdb})
	if _, err := a.Requeue(t.Context(), DefaultQueue, r.letters(a, DefaultQueue)); err != nil {
		t.Fatal(err)
	}
	var suspects atomic.Int64
	r.start(Config{Observer: Observer{Suspect: func(string) { suspects.Add(1) }}}, fast, newWitness().runner())
	if res := r.wait(id, 10*time.Second); res.State != wire.StateSuccess || suspects.Load() != 0 {
		t.Errorf("%s, %d suspects", res.State, suspects.Load())
	}
	r.empty()
}

// Late tells of messages whose time is over.
func TestLateLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := time.Now()
	r.kill("ontime", tasks.WithExpires(now.Add(time.Hour)))
	r.kill("expired", tasks.WithExpires(now.Add(-time.Hour)))
	r.kill("missed", guarded(&tasks.Guard{Version: tasks.GuardVersion, Job: "j", Tick: now.Add(-2 * time.Hour).UnixMilli(), BeginBy: now.Add(-time.Hour).UnixMilli()}))
	var late []bool
	for _, d := range r.letters(NewAdmin(AdminConfig{Broker: r.rdb}), DefaultQueue) {
		late = append(late, d.Late(now))
	}
	if d := cmp.Diff([]bool{false, true, true}, late); d != "" {
		t.Error(d)
	}
}

func guarded(g *tasks.Guard) tasks.Option {
	return func(r *tasks.Request) error { r.Guard = g; return nil }
}
