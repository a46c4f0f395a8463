package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/idempotency"
)

var testKey = idempotency.Key{Namespace: "reports.hourly", Text: "report:2026-10-25T02+02:00"}

func newGuard(t *testing.T, c idempotency.Config) *idempotency.Guard {
	t.Helper()
	g, err := idempotency.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// bubble runs f in a bubble of fake time with a guard on a fake store.
func bubble(t *testing.T, f func(t *testing.T, g *idempotency.Guard, s *fakeStore, seen *tally)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, seen := &fakeStore{}, newTally()
		g, err := idempotency.New(idempotency.Config{Store: s, Instance: "i1", Observer: seen.observer()})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		f(t, g, s, seen)
	})
}

func mustClaim(t *testing.T, g *idempotency.Guard, opts ...idempotency.Option) *idempotency.Hold {
	t.Helper()
	h, err := g.Claim(t.Context(), testKey, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// after lets fake time pass.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestVerdictsAreTypedErrors(t *testing.T) {
	rec := idempotency.Record{Key: testKey, TaskID: "t0", ErrMsg: "declined", LeaseLeft: 3 * time.Second, BackoffLeft: 2 * time.Second}
	for v, check := range map[idempotency.Verdict]func(error) (bool, idempotency.Decision){
		idempotency.Replay: func(err error) (bool, idempotency.Decision) {
			e, ok := errors.AsType[*idempotency.CompletedError](err)
			return ok && e.Record.TaskID == "t0", idempotency.DecisionCompleted
		},
		idempotency.Busy: func(err error) (bool, idempotency.Decision) {
			e, ok := errors.AsType[*idempotency.BusyError](err)
			return ok && e.Left == 3*time.Second && errors.Is(err, idempotency.ErrInProgress), idempotency.DecisionInProgress
		},
		idempotency.Backoff: func(err error) (bool, idempotency.Decision) {
			e, ok := errors.AsType[*idempotency.BackoffError](err)
			return ok && e.Left == 2*time.Second, idempotency.DecisionInProgress
		},
		idempotency.PermanentlyFailed: func(err error) (bool, idempotency.Decision) {
			e, ok := errors.AsType[*idempotency.FailedError](err)
			return ok && e.Record.ErrMsg == "declined", idempotency.DecisionCompleted
		},
		idempotency.Mismatch: func(err error) (bool, idempotency.Decision) {
			_, ok := errors.AsType[*idempotency.MismatchError](err)
			return ok && errors.Is(err, idempotency.ErrMismatch), idempotency.DecisionMismatch
		},
	} {
		bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, seen *tally) {
			s.claim = func(int) (idempotency.Verdict, idempotency.Record, error) { return v, rec, nil }
			_, err := g.Claim(t.Context(), testKey, idempotency.WithRun("hourly-report", "reports.hourly", "t1"))
			ok, decision := check(err)
			if !ok {
				t.Errorf("%v gave %v", v, err)
			}
			want := map[idempotency.Decision]int{decision: 1}
			if d := cmp.Diff(want, seen.decisions); d != "" {
				t.Errorf("%v: %s", v, d)
			}
			if d := cmp.Diff(idempotency.Labels{Schedule: "hourly-report", Task: "reports.hourly", Store: "fake"}, seen.labels); d != "" {
				t.Error(d)
			}
			after(time.Hour)
			if s.seen("renew")+s.seen("abandon") != 0 {
				t.Errorf("%v: renewed or gave back what was not won", v)
			}
		})
	}
}

// TestClaimAsksAgain: a reply that was lost is asked for again by the same
// owner; without any answer there is no running, and what may have been won is
// given back.
func TestClaimAsksAgain(t *testing.T) {
	t.Run("second try", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, seen *tally) {
			var first idempotency.Owner
			s.claim = func(n int) (idempotency.Verdict, idempotency.Record, error) {
				if n == 1 {
					first = s.owner
					return 0, idempotency.Record{}, fmt.Errorf("%w: EOF", idempotency.ErrStoreUnavailable)
				}
				return idempotency.Run, idempotency.Record{}, nil
			}
			h := mustClaim(t, g)
			if s.owner != first {
				t.Error("the second try is another owner's")
			}
			if seen.decisions[idempotency.DecisionClaimed] != 1 || seen.failed[idempotency.OpClaim] != 1 {
				t.Errorf("observed %+v", seen)
			}
			if err := h.Release(t.Context(), nil, 0); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("never an answer", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, seen *tally) {
			s.claim = func(int) (idempotency.Verdict, idempotency.Record, error) {
				return 0, idempotency.Record{}, fmt.Errorf("%w: EOF", idempotency.ErrStoreUnavailable)
			}
			if _, err := g.Claim(t.Context(), testKey); !errors.Is(err, idempotency.ErrStoreUnavailable) {
				t.Fatalf("got %v", err)
			}
			after(time.Second)
			if s.seen("claim") != 3 || s.seen("abandon") != 1 || seen.decisions[idempotency.DecisionUnavailable] != 1 {
				t.Errorf("calls %v, decisions %v", s.calls, seen.decisions)
			}
		})
	})
	t.Run("too late", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, _ *tally) {
			s.claim = func(n int) (idempotency.Verdict, idempotency.Record, error) {
				if n == 1 {
					<-time.After(3 * time.Second) // the whole lease
				}
				return idempotency.Run, idempotency.Record{}, nil
			}
			h := mustClaim(t, g, idempotency.WithLease(3*time.Second, 0), idempotency.WithValidity(true))
			if n := s.seen("claim"); n != 2 {
				t.Errorf("%d claims", n)
			}
			if err := h.Check(); err != nil {
				t.Error(err)
			}
			_ = h.Release(t.Context(), nil, 0)
		})
	})
	t.Run("caller gives up", func(t *testing.T) {
		bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, _ *tally) {
			ctx, cancel := context.WithCancel(t.Context())
			s.claim = func(int) (idempotency.Verdict, idempotency.Record, error) {
				cancel()
				return 0, idempotency.Record{}, idempotency.ErrStoreUnavailable
			}
			if _, err := g.Claim(ctx, testKey); !errors.Is(err, idempotency.ErrStoreUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			after(time.Second)
			if s.seen("claim") != 1 || s.seen("abandon") != 1 {
				t.Errorf("calls %v", s.calls)
			}
		})
	})
}

// A claim that was given up may be carried out after it was given back: it is
// looked for again, up to four times in all, and by a guard that closes twice.
func TestAbandonedClaimThatComesLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		found, want int
		close       bool
	}{
		"at the third look": {found: 3, want: 3}, "never": {found: 99, want: 4}, "closing": {found: 99, want: 2, close: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, _ *tally) {
				s.claim = func(int) (idempotency.Verdict, idempotency.Record, error) {
					return 0, idempotency.Record{}, idempotency.ErrStoreUnavailable
				}
				s.abandon = func(n int) error {
					if n < c.found {
						return idempotency.ErrRecordLost
					}
					return nil
				}
				if _, err := g.Claim(t.Context(), testKey); !errors.Is(err, idempotency.ErrStoreUnavailable) {
					t.Fatalf("got %v", err)
				}
				if c.close {
					g.Close()
				} else {
					after(5 * time.Second)
				}
				if n := s.seen("abandon"); n != c.want {
					t.Errorf("given back %d times, want %d", n, c.want)
				}
			})
		})
	}
}

// TestRenewedUntilEnded: every third of the lease while the function runs, and
// not once after the end was sent.
func TestRenewedUntilEnded(t *testing.T) {
	bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, _ *tally) {
		h := mustClaim(t, g, idempotency.WithLease(30*time.Second, 0), idempotency.WithValidity(true))
		if at, ok := h.Deadline(); !ok || time.Until(at) > 30*time.Second || time.Until(at) < 28*time.Second {
			t.Errorf("deadline in %v, %v", time.Until(at), ok)
		}
		moved := h.Changed()
		after(61 * time.Second)
		if n := s.seen("renew"); n != 6 {
			t.Errorf("%d renewals in 61 s", n)
		}
		select {
		case <-moved:
		default:
			t.Error("the deadline has moved and nobody was told")
		}
		if err := h.Check(); err != nil {
			t.Error(err)
		}
		if h.Context().Err() != nil {
			t.Error(context.Cause(h.Context()))
		}
		if err := h.Complete(t.Context(), []byte("1")); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(h.Check(), idempotency.ErrEnded) {
			t.Errorf("check after the end: %v", h.Check())
		}
		if _, ok := h.Deadline(); ok {
			t.Error("a deadline after the end")
		}
		after(time.Hour)
		if n := s.seen("renew"); n != 6 {
			t.Errorf("%d renewals after the end", n-6)
		}
	})
}

// TestStoreStalls: without a lock the lease is the validity, so the run ends
// before a rival may begin. Under a lock the lock decides, and the record is
// renewed again when the store is back: it must keep out a rival of its key.
func TestStoreStalls(t *testing.T) {
	for _, validity := range []bool{true, false} {
		t.Run(fmt.Sprintf("validity %v", validity), func(t *testing.T) {
			bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, _ *tally) {
				stalled := true
				s.renew = func(ctx context.Context, _ int) error {
					if stalled {
						<-ctx.Done()
						return fmt.Errorf("%w: %w", idempotency.ErrStoreUnavailable, ctx.Err())
					}
					return nil
				}
				h := mustClaim(t, g, idempotency.WithLease(3*time.Second, 0), idempotency.WithValidity(validity))
				start := time.Now()
				select {
				case <-h.Context().Done():
					if took := time.Since(start); took >= 3*time.Second || took < 2*time.Second {
						t.Errorf("the context ended after %v", took)
					}
				case <-time.After(13 * time.Second):
				}
				synctest.Wait()
				ended, cause := h.Context().Err() != nil, context.Cause(h.Context())
				if ended != validity || errors.Is(cause, idempotency.ErrLeaseLost) != validity {
					t.Errorf("after a stall the context: %v", cause)
				}
				if err := h.Check(); errors.Is(err, idempotency.ErrLeaseLost) != validity {
					t.Errorf("check: %v", err)
				}
				stalled = false
				before := s.seen("renew")
				after(10 * time.Second)
				if again := s.seen("renew") > before+2; again == validity {
					t.Errorf("%d renewals in 10 s after the stall", s.seen("renew")-before)
				}
				if err := h.Complete(t.Context(), []byte("1")); err != nil { // late, and not taken over
					t.Error(err)
				}
			})
		})
	}
}

// TestTakenOver: whoever has lost the record to another ends at once, with or
// without a lock, and its end is refused.
func TestTakenOver(t *testing.T) {
	for _, validity := range []bool{true, false} {
		bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, seen *tally) {
			s.renew = func(context.Context, int) error { return idempotency.ErrStale }
			s.complete = func(int) error { return idempotency.ErrStale }
			h := mustClaim(t, g, idempotency.WithValidity(validity))
			after(11 * time.Second)
			if cause := context.Cause(h.Context()); !errors.Is(cause, idempotency.ErrStale) {
				t.Errorf("cause %v", cause)
			}
			if err := h.Check(); !errors.Is(err, idempotency.ErrStale) {
				t.Errorf("check %v", err)
			}
			for range 2 {
				if err := h.Complete(t.Context(), nil); !errors.Is(err, idempotency.ErrStale) {
					t.Errorf("complete %v", err)
				}
			}
			if seen.stale[idempotency.OpRenew] != 1 || seen.stale[idempotency.OpComplete] != 1 || s.seen("complete") != 1 {
				t.Errorf("stale %v, calls %v", seen.stale, s.calls)
			}
		})
	}
}

// TestVanished: a record that its store has lost is a loss where nothing else
// keeps others out; it is counted once, however often it is noticed.
func TestVanished(t *testing.T) {
	for _, validity := range []bool{true, false} {
		bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, seen *tally) {
			s.renew = func(context.Context, int) error { return idempotency.ErrRecordLost }
			s.complete = func(int) error { return idempotency.ErrRecordLost }
			h := mustClaim(t, g, idempotency.WithValidity(validity))
			after(time.Minute)
			if lost := errors.Is(context.Cause(h.Context()), idempotency.ErrRecordLost); lost != validity {
				t.Errorf("validity %v: cause %v", validity, context.Cause(h.Context()))
			}
			if err := h.Complete(t.Context(), []byte("1")); err != nil {
				t.Errorf("a completion that made the record anew: %v", err)
			}
			if seen.lost != 1 {
				t.Errorf("counted %d times", seen.lost)
			}
		})
	}
}

func TestMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, _ *tally) {
		h := mustClaim(t, g, idempotency.WithMaxHold(time.Minute))
		after(time.Minute)
		if cause := context.Cause(h.Context()); !errors.Is(cause, idempotency.ErrMaxHold) {
			t.Errorf("cause %v", cause)
		}
		n := s.seen("renew")
		after(time.Hour)
		if s.seen("renew") != n {
			t.Error("renewed after max_hold")
		}
		if err := h.Complete(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}

// TestEndIsTold: neither a cancelled context nor a store that is away for a
// while keeps a completion from being told; one that is away for longer leaves
// the record to its lease, and the call may be made again.
func TestEndIsTold(t *testing.T) {
	away := fmt.Errorf("%w: EOF", idempotency.ErrStoreUnavailable)
	bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, seen *tally) {
		back := time.Now().Add(13 * time.Second)
		s.complete = func(int) error {
			if time.Now().Before(back) {
				return away
			}
			return nil
		}
		h := mustClaim(t, g)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Complete(ctx, []byte("1")); err != nil {
			t.Error(err)
		}
		n := s.seen("complete")
		if err := h.Release(ctx, nil, 0); err != nil || s.seen("release") != 0 {
			t.Errorf("an end after the end: %v, calls %v", err, s.calls)
		}
		if n < 3 || n > 40 || seen.failed[idempotency.OpComplete] != n-1 {
			t.Errorf("%d tries in 13 s, %d failed", n, seen.failed[idempotency.OpComplete])
		}
	})
	bubble(t, func(t *testing.T, g *idempotency.Guard, s *fakeStore, _ *tally) {
		s.complete = func(int) error { return away }
		h := mustClaim(t, g, idempotency.WithLease(8*time.Second, 0))
		start := time.Now()
		if err := h.Complete(t.Context(), nil); !errors.Is(err, idempotency.ErrStoreUnavailable) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 8*time.Second {
			t.Errorf("tried for %v", took)
		}
		s.complete = nil
		if err := h.Complete(t.Context(), nil); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

func TestBadCalls(t *testing.T) {
	if _, err := idempotency.New(idempotency.Config{}); !errors.Is(err, idempotency.ErrBadOptions) {
		t.Errorf("guard without store: %v", err)
	}
	g := newGuard(t, idempotency.Config{Store: &fakeStore{}})
	for name, opt := range map[string]idempotency.Option{
		"lease":       idempotency.WithLease(time.Microsecond, 0),
		"renew":       idempotency.WithLease(3*time.Second, 2500*time.Millisecond),
		"retention":   idempotency.WithRetention(-time.Second),
		"fingerprint": idempotency.WithFingerprint("x"),
		"fence":       idempotency.WithFence(1 << 60),
	} {
		if _, err := g.Claim(t.Context(), testKey, opt); !errors.Is(err, idempotency.ErrBadOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := g.Claim(t.Context(), idempotency.Key{Namespace: "n"}); !errors.Is(err, idempotency.ErrKeyMissing) {
		t.Errorf("empty key: %v", err)
	}
	if _, _, err := g.Peek(t.Context(), idempotency.Key{}); !errors.Is(err, idempotency.ErrKeyMissing) {
		t.Errorf("empty key: %v", err)
	}
	g.Close()
	if _, err := g.Claim(t.Context(), testKey); !errors.Is(err, idempotency.ErrStoreUnavailable) {
		t.Errorf("closed guard: %v", err)
	}
}

func TestFromContext(t *testing.T) {
	g := newGuard(t, idempotency.Config{Store: &fakeStore{}})
	h := mustClaim(t, g)
	if got, ok := idempotency.FromContext(h.Context()); !ok || got != h || got.Fence() != 7 || got.Key() != testKey || got.Attempt() != 1 || got.Takeover() {
		t.Errorf("got %v, %v", got, ok)
	}
	if _, ok := idempotency.FromContext(t.Context()); ok {
		t.Error("a hold from nowhere")
	}
	if err := h.Fail(t.Context(), errors.New("no")); err != nil {
		t.Error(err)
	}
}
