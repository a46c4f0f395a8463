package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
)

// Two deliveries of one payment: the second is answered from the record.
func Example() {
	server, err := miniredis.Run() // stands in for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	store, err := idemredis.New(client, idemredis.Options{Namespace: "shop"})
	if err != nil {
		panic(err)
	}
	guard, err := idempotency.New(idempotency.Config{Store: store, Instance: "replica-1"})
	if err != nil {
		panic(err)
	}
	defer guard.Close()

	ctx := context.Background()
	for _, taskID := range []string{"task-1", "task-2"} {
		out, err := charge(ctx, guard, taskID, "7")
		fmt.Println(taskID, string(out), err)
	}
	// Output:
	// charging payment 7
	// task-1 {"charge":"ch_1"} <nil>
	// task-2 {"charge":"ch_1"} <nil>
}

func charge(ctx context.Context, g *idempotency.Guard, taskID, payment string) (json.RawMessage, error) {
	key := idempotency.Key{Namespace: "payments.charge", Text: payment}
	hold, err := g.Claim(ctx, key,
		idempotency.WithRun("", "payments.charge", taskID),
		idempotency.WithValidity(true)) // no lock: the lease is what keeps others out
	if done, ok := errors.AsType[*idempotency.CompletedError](err); ok {
		return done.Record.Result.Data, nil
	}
	if err != nil {
		return nil, err // busy, failed before, another payload, store away
	}
	if err := hold.Check(); err != nil { // right before the effect
		return nil, errors.Join(err, hold.Release(ctx, err, 0))
	}
	fmt.Println("charging payment", payment)
	out := json.RawMessage(`{"charge":"ch_1"}`)
	return out, hold.Complete(ctx, out)
}

func ExampleFingerprint() {
	first := map[string]json.RawMessage{"amount": []byte("10"), "currency": []byte(`"EUR"`), "note": []byte(`"a"`)}
	again := map[string]json.RawMessage{"amount": []byte("10"), "currency": []byte(`"EUR"`), "note": []byte(`"b"`)}
	other := map[string]json.RawMessage{"amount": []byte("20"), "currency": []byte(`"EUR"`), "note": []byte(`"a"`)}
	fields := []string{"amount", "currency"}
	a, _ := idempotency.Fingerprint(fields, first)
	b, _ := idempotency.Fingerprint(fields, again)
	c, _ := idempotency.Fingerprint(fields, other)
	fmt.Println(a == b, a == c)
	// Output: true false
}

func ExampleJobKey() {
	k := idempotency.JobKey("reports.hourly", "hourly-report", "2026-10-25T02:00+02:00")
	fmt.Println(k)
	// Output: "job:hourly-report:2026-10-25T02:00+02:00" of reports.hourly
}
