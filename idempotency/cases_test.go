package idempotency_test

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

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
	"github.com/solobeat/solobeat/internal/testkit"
)

func redisStore(t *testing.T, c redis.UniversalClient) idempotency.Store {
	t.Helper()
	s, err := idemredis.New(c, idemredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// worker is the way of one delivery, in its plainest form: claim, run, end.
type worker struct {
	g    *idempotency.Guard
	opts []idempotency.Option
	ran  *atomic.Int64
}

// deliver returns what the caller of the task would see.
func (w worker) deliver(ctx context.Context, key idempotency.Key, id string, run func(*idempotency.Hold) (string, error)) (string, error) {
	h, err := w.g.Claim(ctx, key, append(w.opts, idempotency.WithRun("", key.Namespace, id), idempotency.WithValidity(true))...)
	if done, ok := errors.AsType[*idempotency.CompletedError](err); ok {
		return string(done.Record.Result.Data), nil
	}
	if err != nil {
		return "", err
	}
	w.ran.Add(1)
	out, err := run(h)
	if err != nil {
		return "", errors.Join(err, h.Release(ctx, err, 0))
	}
	return out, h.Complete(ctx, []byte(out))
}

func newWorker(t *testing.T, s idempotency.Store, opts ...idempotency.Option) worker {
	t.Helper()
	return worker{g: newGuard(t, idempotency.Config{Store: s, Instance: "i1", Logger: testkit.Logger(t)}), opts: opts, ran: &atomic.Int64{}}
}

var payment = idempotency.Key{Namespace: "payments.charge", Text: "7"}

// TestI05_SecondTaskID: a slow success, and meanwhile the same payment under a
// new task id. The second waits, then gets the first one's outcome. A lock that
// is gone with its run charges again.
func TestI05_SecondTaskID(t *testing.T) {
	t.Parallel()
	c := testkit.Redis(t).Client(t)
	w := newWorker(t, redisStore(t, c))
	charge := func(*idempotency.Hold) (string, error) { return `{"charge":"ch_1"}`, nil }

	started, finish, first := make(chan struct{}), make(chan struct{}), make(chan string)
	go func() {
		out, err := w.deliver(t.Context(), payment, "id-1", func(h *idempotency.Hold) (string, error) {
			close(started)
			<-finish
			return charge(h)
		})
		first <- fmt.Sprint(out, err)
	}()
	<-started
	_, err := w.deliver(t.Context(), payment, "id-2", charge)
	busy, ok := errors.AsType[*idempotency.BusyError](err)
	if !ok || busy.Record.TaskID != "id-1" || busy.Left <= 0 {
		t.Errorf("while the first runs: %v", err)
	}
	close(finish)
	if got := <-first; got != `{"charge":"ch_1"}<nil>` {
		t.Errorf("first: %s", got)
	}
	out, err := w.deliver(t.Context(), payment, "id-2", charge)
	if err != nil || out != `{"charge":"ch_1"}` || w.ran.Load() != 1 {
		t.Errorf("second: %s, %v; ran %d times", out, err, w.ran.Load())
	}

	naive := 0
	for range 2 { // the two deliveries one after the other, under SET NX and DEL
		if ok, err := c.SetNX(t.Context(), "lock", "x", time.Minute).Result(); err == nil && ok {
			naive++
			c.Del(t.Context(), "lock")
		}
	}
	if naive != 2 {
		t.Errorf("the naive lock ran %d times: this test shows nothing", naive)
	}
}

// TestI06_ConcurrentDeliveries: 50 deliveries of one key at once.
func TestI06_ConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorker(t, redisStore(t, testkit.Redis(t).Client(t)))
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			_, err := w.deliver(t.Context(), payment, fmt.Sprint("id-", i), func(*idempotency.Hold) (string, error) { return "1", nil })
			if err != nil && !errors.Is(err, idempotency.ErrInProgress) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.ran.Load(); n != 1 {
		t.Fatalf("ran %d times", n)
	}
}

// TestI01_CrashedRun: the process dies in the handler. A redelivery before the
// lease has passed is deferred, one after it takes over.
func TestI01_CrashedRun(t *testing.T) {
	t.Parallel()
	s := redisStore(t, testkit.Redis(t).Client(t))
	lease := idempotency.WithLease(2*time.Second, 0)
	dead := newWorker(t, s, lease)
	key := idempotency.Key{Namespace: "payments.charge", Text: "pay-42"}
	crashed, err := dead.g.Claim(t.Context(), key, lease)
	if err != nil {
		t.Fatal(err)
	}
	dead.g.Close() // no renewal any more, and no end

	w := newWorker(t, s, lease)
	run := func(h *idempotency.Hold) (string, error) {
		if !h.Takeover() || h.Fence() <= crashed.Fence() || h.Attempt() != 2 {
			t.Errorf("takeover %v, fence %d after %d, attempt %d", h.Takeover(), h.Fence(), crashed.Fence(), h.Attempt())
		}
		return "1", nil
	}
	if _, err := w.deliver(t.Context(), key, "id-1", run); !errors.Is(err, idempotency.ErrInProgress) {
		t.Fatalf("before the lease has passed: %v", err)
	}
	testkit.Poll(t, 10*time.Second, 20*time.Millisecond, func() bool {
		_, err := w.deliver(t.Context(), key, "id-1", run)
		return err == nil
	}, "the crashed run is taken over")
	if w.ran.Load() != 1 {
		t.Errorf("ran %d times", w.ran.Load())
	}
	if err := crashed.Complete(t.Context(), []byte("2")); !errors.Is(err, idempotency.ErrStale) {
		t.Errorf("the dead run's late completion: %v", err)
	}
}

// provider charges once per key, as payment gateways do.
type provider map[string]int

func (p provider) charge(key string) { p[key]++ }

// TestI08_SameKeyForTheProvider: the effect has happened, "done" was not written.
// The next run has the same key to pass on, so the provider charges once; a key
// made of the attempt would not.
func TestI08_SameKeyForTheProvider(t *testing.T) {
	t.Parallel()
	s := redisStore(t, testkit.Redis(t).Client(t))
	lease := idempotency.WithLease(300*time.Millisecond, 0)
	ours, naive := provider{}, provider{}
	run := func(h *idempotency.Hold) {
		k := h.Key()
		ours.charge(k.Namespace + " " + k.Text)
		naive.charge(fmt.Sprint(k, h.Attempt()))
	}
	first := newGuard(t, idempotency.Config{Store: s})
	h, err := first.Claim(t.Context(), payment, lease)
	if err != nil {
		t.Fatal(err)
	}
	run(h)
	first.Close()

	second := newGuard(t, idempotency.Config{Store: s})
	testkit.Poll(t, 10*time.Second, 20*time.Millisecond, func() bool {
		h, err = second.Claim(t.Context(), payment, lease)
		return err == nil
	}, "takeover")
	run(h)
	if err := h.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(ours) != 1 || len(naive) != 2 {
		t.Errorf("charges by key %v, by attempt %v", ours, naive)
	}
}

// TestI09_OtherPayload: one payment id, another amount: an error, no run, and
// not the stored answer.
func TestI09_OtherPayload(t *testing.T) {
	t.Parallel()
	s := redisStore(t, testkit.Redis(t).Client(t))
	printOf := func(amount string) idempotency.Option {
		fp, err := idempotency.Fingerprint([]string{"amount"}, map[string]json.RawMessage{"amount": []byte(amount)})
		if err != nil {
			t.Fatal(err)
		}
		return idempotency.WithFingerprint(fp)
	}
	run := func(*idempotency.Hold) (string, error) { return `"paid"`, nil }
	ten, twenty := newWorker(t, s, printOf("10")), newWorker(t, s, printOf("20"))
	if _, err := ten.deliver(t.Context(), payment, "id-1", run); err != nil {
		t.Fatal(err)
	}
	out, err := twenty.deliver(t.Context(), payment, "id-2", run)
	if !errors.Is(err, idempotency.ErrMismatch) || out != "" || twenty.ran.Load() != 0 {
		t.Errorf("other amount: %q, %v, ran %d times", out, err, twenty.ran.Load())
	}
	_, _, err = twenty.g.Peek(t.Context(), payment, twenty.opts...)
	if !errors.Is(err, idempotency.ErrMismatch) {
		t.Errorf("peek: %v", err)
	}
	if out, err := ten.deliver(t.Context(), payment, "id-3", run); err != nil || out != `"paid"` {
		t.Errorf("same amount: %q, %v", out, err)
	}
}

// TestI12_FailedIsNotDone: three failed attempts, then one by hand.
func TestI12_FailedIsNotDone(t *testing.T) {
	t.Parallel()
	w := newWorker(t, redisStore(t, testkit.Redis(t).Client(t)))
	boom := errors.New("boom")
	for range 3 {
		if _, err := w.deliver(t.Context(), payment, "id-1", func(*idempotency.Hold) (string, error) { return "", boom }); !errors.Is(err, boom) {
			t.Fatal(err)
		}
	}
	rec, found, err := w.g.Peek(t.Context(), payment)
	if err != nil || !found || rec.State != idempotency.Released || rec.ErrMsg != "boom" || rec.Attempt != 3 {
		t.Errorf("after three failures: %+v, %v, %v", rec, found, err)
	}
	if out, err := w.deliver(t.Context(), payment, "by hand", func(*idempotency.Hold) (string, error) { return "1", nil }); err != nil || out != "1" {
		t.Errorf("by hand: %s, %v", out, err)
	}
	if w.ran.Load() != 4 {
		t.Errorf("ran %d times", w.ran.Load())
	}
	done, ok := errors.AsType[*idempotency.CompletedError](func() error { _, _, err := w.g.Peek(t.Context(), payment); return err }())
	if !ok || string(done.Record.Result.Data) != "1" {
		t.Errorf("peek of the finished key: %v", done)
	}
}

// TestI14_RedeliveredAfterSuccess: the connection dies right after the record is
// completed, before the ack. The redelivered message is answered, not run.
func TestI14_RedeliveredAfterSuccess(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	proxy := testkit.NewProxy(t, server.Addr)
	w := newWorker(t, redisStore(t, proxy.Client(t)))
	if _, err := w.deliver(t.Context(), payment, "warm", func(*idempotency.Hold) (string, error) { return "0", nil }); err != nil {
		t.Fatal(err)
	}
	key := idempotency.Key{Namespace: "payments.charge", Text: "8"}
	out, err := w.deliver(t.Context(), key, "id-1", func(*idempotency.Hold) (string, error) {
		proxy.DropReplyTo("evalsha") // of the completion
		return "1", nil
	})
	if err != nil || out != "1" || proxy.Dropped() != 1 {
		t.Fatalf("a completion whose reply is lost: %s, %v, lost %d", out, err, proxy.Dropped())
	}
	proxy.CloseAll()
	out, err = w.deliver(t.Context(), key, "id-1", func(*idempotency.Hold) (string, error) { return "2", nil })
	if err != nil || out != "1" || w.ran.Load() != 2 {
		t.Errorf("redelivered: %s, %v, ran %d times in all", out, err, w.ran.Load())
	}
}

// TestLostReplies: the reply to the claim is lost, or the request comes late.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	proxy := testkit.NewProxy(t, server.Addr)
	direct := redisStore(t, server.Client(t))
	g := newGuard(t, idempotency.Config{Store: redisStore(t, proxy.Client(t)), Instance: "i1", CallTimeout: 300 * time.Millisecond})
	warm, err := g.Claim(t.Context(), idempotency.Key{Text: "warm"})
	if err != nil {
		t.Fatal(err)
	}
	if err := warm.Release(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}

	proxy.DropReplyTo("evalsha")
	h, err := g.Claim(t.Context(), payment)
	if err != nil || h.Attempt() != 1 || h.Takeover() || proxy.Dropped() != 1 {
		t.Fatalf("lost reply: %+v, %v", h, err)
	}
	if err := h.Complete(t.Context(), []byte("1")); err != nil {
		t.Fatal(err)
	}

	late := proxy.HoldRequest("late key")
	key := idempotency.Key{Text: "late key"}
	h, err = g.Claim(t.Context(), key)
	if err != nil {
		t.Fatalf("late request: %v", err)
	}
	late.Release() // the first try arrives after the second has won: the same owner
	if err := h.Complete(t.Context(), []byte("2")); err != nil {
		t.Fatal(err)
	}
	rec, _, err := direct.Peek(t.Context(), key)
	if err != nil || rec.State != idempotency.Completed || rec.Attempt != 1 {
		t.Errorf("%+v, %v", rec, err)
	}

	// A caller that gives up: what it may have won is free at once, not only
	// when its lease has passed.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	giving := newGuard(t, idempotency.Config{
		Store:    redisStore(t, proxy.Client(t)),
		Observer: idempotency.Observer{Operation: func(string, idempotency.Operation, bool, time.Duration) { cancel() }},
	})
	proxy.DropReplyTo("given up")
	key = idempotency.Key{Text: "given up"}
	if _, err := giving.Claim(ctx, key); !errors.Is(err, idempotency.ErrStoreUnavailable) || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	testkit.Poll(t, 10*time.Second, 10*time.Millisecond, func() bool {
		v, c, _, err := direct.Claim(t.Context(), key, idempotency.NewOwner(), idempotency.ClaimOptions{})
		if err != nil || v != idempotency.Run {
			return false
		}
		if c.Attempt != 1 {
			t.Errorf("the abandoned claim was counted: attempt %d", c.Attempt)
		}
		return true
	}, "the abandoned record is free")
}

// TestStoreStall: the server is stopped for longer than the calls last; a run
// under a lock goes on, is renewed again, and is completed.
func TestStoreStall(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	g := newGuard(t, idempotency.Config{Store: redisStore(t, server.Client(t)), CallTimeout: 200 * time.Millisecond})
	h, err := g.Claim(t.Context(), payment, idempotency.WithLease(600*time.Millisecond, 0))
	if err != nil {
		t.Fatal(err)
	}
	server.Pause()
	if _, err := g.Claim(t.Context(), idempotency.Key{Text: "other"}); !errors.Is(err, idempotency.ErrStoreUnavailable) {
		t.Errorf("claim on a stopped server: %v", err)
	}
	time.AfterFunc(time.Second, server.Continue)
	if err := h.Complete(t.Context(), []byte(strings.Repeat("1", 100))); err != nil {
		t.Fatal(err)
	}
	if h.Context().Err() == nil {
		t.Error("the context outlives its hold")
	}
}
