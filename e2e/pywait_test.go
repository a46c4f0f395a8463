package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks/celery"
)

// Ten thousand messages, while one client subscribes and another polls.
func TestPythonThousands(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		s := newStack(t)
		py := s.pyClient(version, nil)
		s.worker("w1", []string{"SOLOBEAT_WORKER_CONCURRENCY=50"})
		s.worker("w2", []string{"SOLOBEAT_WORKER_CONCURRENCY=50"})
		const half = 5000
		subscribed := py.start(t, `
			with app.producer_or_acquire() as producer:
				results = [send("tests.add", [n, 2**60], producer=producer) for n in range(arg)]
			return ResultSet(results, app=app).join_native(timeout=TIMEOUT) == [n + 2**60 for n in range(arg)]
		`, half)
		polled := py.start(t, `
			with app.producer_or_acquire() as producer:
				results = [send("tests.add", [n, -2**60], producer=producer) for n in range(arg)]
			broker = server(app.conf.result_backend)
			values, deadline = {}, time.monotonic() + TIMEOUT
			while len(values) < arg and time.monotonic() < deadline:
				left = [r.id for r in results if r.id not in values]
				for i in range(0, len(left), 500):
					for id, text in zip(left[i:i + 500], broker.mget("celery-task-meta-" + id for id in left[i:i + 500])):
						if text is not None:
							values[id] = json.loads(text)
			states = {m["status"] for m in values.values()}
			return states == {"SUCCESS"} and [values[r.id]["result"] for r in results] == [n - 2**60 for n in range(arg)]
		`, half)
		for what, a := range map[string]*answer{"subscribed": subscribed, "polled": polled} {
			var right bool
			if a.into(t, &right); !right {
				t.Errorf("not all that was %s is right", what)
			}
		}
		s.idle(patience)
		n := 0
		for _, text := range results(t, s) {
			if strings.Contains(text, `"status": "SUCCESS"`) {
				n++
			}
		}
		if n != 2*half {
			t.Errorf("%d results are SUCCESS, want %d", n, 2*half)
		}
	})
}

// results are all results of database 0.
func results(t *testing.T, s *stack) []string {
	t.Helper()
	keys, err := s.broker.Keys(t.Context(), "celery-task-meta-*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for chunk := range slices.Chunk(keys, 1000) {
		for _, v := range s.broker.MGet(t.Context(), chunk...).Val() {
			text, _ := v.(string)
			all = append(all, text)
		}
	}
	return all
}

// Twenty waiters lose their subscriptions: all of them return, and what was
// published is what is stored.
func TestR04_SubscriptionsAreCut(t *testing.T) {
	t.Parallel()
	everyCelery(t, func(t *testing.T, version testkit.Celery) {
		const waiters = 20
		s := newStack(t)
		py := s.pyClient(version, nil)
		s.worker("w", []string{"SOLOBEAT_WORKER_CONCURRENCY=" + strconv.Itoa(waiters)})
		witness := s.broker.PSubscribe(t.Context(), "celery-task-meta-*")
		defer witness.Close()
		published := witness.Channel()
		a := py.start(t, `
			got, lock = [], threading.Lock()
			def wait(n):
				result = send("tests.sleep", ["R04 %d" % n, 3])
				value = outcome(result, 8 + 7)  # seven for a busy machine
				with lock:
					got.append({"id": result.id, "state": value["state"], "raised": value.get("raised", "")})
			threads = [threading.Thread(target=wait, args=(n,)) for n in range(arg)]
			for t in threads:
				t.start()
			for t in threads:
				t.join()
			return got
		`, waiters)
		testkit.Poll(t, patience, 20*time.Millisecond, func() bool {
			started, _ := s.ledger.Keys(t.Context(), "sleep:R04*").Result()
			channels, _ := s.broker.PubSubChannels(t.Context(), "celery-task-meta-*").Result()
			return len(started) == waiters && len(channels) == waiters
		}, "%d waiters", waiters)
		if n, err := s.broker.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); err != nil || n < waiters {
			t.Fatalf("%d subscriptions were cut, %v", n, err)
		}
		var got []struct{ ID, State, Raised string }
		a.into(t, &got)
		if len(got) != waiters {
			t.Errorf("%d waiters returned, want %d", len(got), waiters)
		}
		for _, g := range got {
			if g.State != "SUCCESS" || g.Raised != "" {
				t.Errorf("a waiter saw %+v", g)
			}
			stored := s.broker.Get(t.Context(), "celery-task-meta-"+g.ID).Val()
			timer := time.NewTimer(patience)
			select {
			case m := <-published:
				if other := s.broker.Get(t.Context(), m.Channel).Val(); other != m.Payload {
					t.Errorf("published %s, stored %s", m.Payload, other)
				}
			case <-timer.C:
				t.Fatalf("nothing was published beside %s", stored)
			}
			timer.Stop()
		}
	})
}

// A look at an unfinished result returns at once, and waits that are given up
// leave no subscription behind.
func TestR09_WaitsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	began := time.Now()
	code, out, errs := s.cli(t, nil, "result", "no-such-task", "-o", "json")
	if code != 75 || !strings.Contains(out, `"PENDING"`) {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %s", d)
	}
	client := celery.NewClient(celery.ClientConfig{Broker: s.redis.ClientDB(t, 0)})
	look := time.Now()
	if r, done, err := client.Wait(t.Context(), "no-such-task", 0); r != nil || done || err != nil {
		t.Errorf("Wait of zero: %v %t %v", r, done, err)
	}
	if d := time.Since(look); d > 5*time.Second {
		t.Errorf("Wait of zero took %s", d)
	}
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*time.Millisecond)
			defer cancel()
			if _, done, _ := client.Wait(ctx, fmt.Sprintf("forgotten-%d", i), time.Hour); done {
				t.Error("a result out of nothing")
			}
		})
	}
	wg.Wait()
	testkit.Eventually(t, patience, func() error {
		list, err := s.broker.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		if err != nil || strings.TrimSpace(list) != "" {
			return fmt.Errorf("left over: %q %w", list, err)
		}
		return nil
	})
}
