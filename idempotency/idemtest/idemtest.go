// Package idemtest is the conformance suite that every store of records passes.
package idemtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/solobeat/solobeat/idempotency"
)

// Harness is a store under test and what the suite must be able to do to it.
type Harness struct {
	// Store holds no records at first, and nobody else writes to it.
	Store idempotency.Store
	// Lossy is the same store over a connection whose next reply LoseReply
	// loses, after the server has done what was asked.
	Lossy     idempotency.Store
	LoseReply func()
	// Wipe makes the store lose all its data.
	Wipe func()
	// Tick is called while the suite waits for time to pass; nil where the
	// store's clock runs by itself.
	Tick func()
}

// Run runs the suite; setup makes a fresh harness for each test.
func Run(t *testing.T, setup func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"T1 claim", testClaim},
		{"T1 options", testOptions},
		{"T2 same owner", testSameOwner},
		{"T2 lost reply", testLostReply},
		{"T3 takeover", testTakeover},
		{"T5 renew", testRenew},
		{"T7 complete", testComplete},
		{"T7 late", testLateComplete},
		{"T7 results", testResults},
		{"T8 T9 release", testRelease},
		{"T10 fail", testFail},
		{"T13 forget", testForget},
		{"T14 retention", testRetention},
		{"T15 vanished", testVanished},
		{"I01 lease is not retention", testLeaseApart},
		{"I05 other task id", testOtherTask},
		{"I06 one winner", testOneWinner},
		{"I06 one takeover", testOneTakeover},
		{"I08 crash after the effect", testCrashAfterEffect},
		{"I09 mismatch", testMismatch},
		{"I12 failed is not done", testFailedNotDone},
		{"I14 redelivered after success", testRedelivered},
		{"fence", testFence},
		{"stale owner", testStaleOwner},
		{"abandon", testAbandon},
		{"list", testList},
		{"keys", testKeys},
		{"model", testModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(&suite{T: t, Harness: setup(t), ctx: t.Context()})
		})
	}
}

const (
	long  = time.Hour              // a lease that no test outlives
	short = 150 * time.Millisecond // one that a test waits for
	soon  = 2 * time.Second        // as short, for a test that must look before it is over
)

type suite struct {
	*testing.T
	Harness
	ctx context.Context
}

func key(text string) idempotency.Key {
	return idempotency.Key{Namespace: "payments.charge", Text: text}
}

func options(lease time.Duration, task string) idempotency.ClaimOptions {
	return idempotency.ClaimOptions{Lease: lease, TaskID: task, Instance: "instance-of-" + task}
}

// claim fails the test unless the verdict is the wanted one.
func (s *suite) claim(k idempotency.Key, o idempotency.ClaimOptions, want idempotency.Verdict) (idempotency.Claim, idempotency.Record) {
	s.Helper()
	v, c, rec, err := s.Store.Claim(s.ctx, k, idempotency.NewOwner(), o)
	if err != nil {
		s.Fatalf("claim of %s: %v", k, err)
	}
	if v != want {
		s.Fatalf("claim of %s: %v, want %v (record %+v)", k, v, want, rec)
	}
	return c, rec
}

// won claims a record that must be free.
func (s *suite) won(k idempotency.Key, lease time.Duration, task string) idempotency.Claim {
	s.Helper()
	c, _ := s.claim(k, options(lease, task), idempotency.Run)
	return c
}

func (s *suite) peek(k idempotency.Key) idempotency.Record {
	s.Helper()
	rec, ok, err := s.Store.Peek(s.ctx, k)
	if err != nil || !ok {
		s.Fatalf("peek of %s: %v, %v", k, ok, err)
	}
	return rec
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) is(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("got error %v, want %v", err, want)
	}
}

// eventually waits for cond, and lets the store's clock run.
func (s *suite) eventually(what string, cond func() bool) {
	s.Helper()
	deadline := time.Now().Add(15 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			s.Fatalf("not within 15 s: %s", what)
		}
		<-tick.C
		if s.Tick != nil {
			s.Tick()
		}
	}
}

// leaseOver waits until the record's lease has passed by the store's clock.
func (s *suite) leaseOver(k idempotency.Key) {
	s.Helper()
	s.eventually("lease passes", func() bool { return s.peek(k).LeaseLeft == 0 })
}

func (s *suite) renew(c idempotency.Claim) error {
	s.Helper()
	r := s.Store.Renew(s.ctx, []idempotency.RenewItem{{Claim: c}})
	if len(r) != 1 {
		s.Fatalf("renew of one item gave %d results", len(r))
	}
	return r[0].Err
}

func (s *suite) complete(c idempotency.Claim, text string) error {
	return s.Store.Complete(s.ctx, c, idempotency.NewResult([]byte(text)), long)
}

func (s *suite) release(c idempotency.Claim, backoff time.Duration) error {
	return s.Store.Release(s.ctx, c, idempotency.NewFailure(errors.New("boom")), backoff)
}

func (s *suite) fail(c idempotency.Claim) error {
	return s.Store.Fail(s.ctx, c, idempotency.NewFailure(errors.New("card declined")), long)
}
