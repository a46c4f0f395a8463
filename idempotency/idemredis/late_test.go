package idemredis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
	"github.com/solobeat/solobeat/internal/testkit"
)

// flights is how many calls a batcher has on their way at most.
const flights = 8

// A claim that the server grants when its caller has left, since it was sent with
// others who stay, is given back: nobody waits for a lease that nobody holds.
func TestLateClaimIsGivenBack(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	look := newStore(t, server.Client(t), idemredis.Options{})
	for n := range 10 { // until the one that leaves is sent with the one that stays
		key := idempotency.Key{Namespace: "t", Text: fmt.Sprintf("leaves-%d", n)}
		if !claimedLate(t, server, key) {
			continue
		}
		var rec idempotency.Record
		testkit.Poll(t, 5*time.Second, time.Millisecond, func() bool {
			var err error
			rec, _, err = look.Peek(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return rec.State != idempotency.InProgress
		}, "the claim of %s is given back", key)
		if rec.State != idempotency.Released || rec.ErrCode != "Abandoned" || rec.Attempt != 0 { // it is no attempt
			t.Errorf("the record is %v, %q, attempt %d", rec.State, rec.ErrCode, rec.Attempt)
		}
		if v, c := claim(t, look, key, idempotency.ClaimOptions{}); v != idempotency.Run || c.Attempt != 1 {
			t.Errorf("the next one: %v, attempt %d", v, c.Attempt)
		}
		return
	}
	t.Fatal("no claim was granted to a caller who had left")
}

// claimedLate has a caller leave while its claim is on its way with another's; it
// tells whether the server has granted both.
func claimedLate(t *testing.T, server *testkit.RedisServer, key idempotency.Key) bool {
	t.Helper()
	p := testkit.NewProxy(t, server.Addr)
	s := newStore(t, p.Client(t), idemredis.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	one := func(ctx context.Context, k idempotency.Key) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, _, _, err := s.Claim(ctx, k, idempotency.NewOwner(), idempotency.ClaimOptions{})
			done <- err
		}()
		return done
	}
	beside := func(name string) idempotency.Key { return idempotency.Key{Namespace: key.Text, Text: name} }
	if err := <-one(ctx, beside("first")); err != nil { // loads the script
		t.Fatal(err)
	}
	var held []*testkit.Held
	var others []<-chan error
	for i := range flights {
		h := p.HoldRequest(fmt.Sprintf("flight-%d", i))
		others = append(others, one(ctx, beside(fmt.Sprintf("flight-%d", i))))
		<-h.Seen
		held = append(held, h)
		<-time.After(time.Millisecond) // a batcher starts the next one not before
	}
	joint := p.HoldRequest(key.Text + "\r")
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	left, stays := one(leaving, key), one(ctx, beside("stays"))
	others = append(others, stays)
	<-time.After(10 * time.Millisecond) // both wait for a flight to land
	held[0].Release()
	<-joint.Seen
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who leaves: %v", err)
	}
	joint.Release()
	err := <-stays
	for _, h := range held {
		h.Release()
	}
	for _, done := range others[:flights] {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	_, found, peekErr := s.Peek(ctx, key)
	if peekErr != nil {
		t.Fatal(peekErr)
	}
	return err == nil && found
}
