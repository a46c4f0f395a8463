package lockredis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
)

// A companion tells what was put into it, whatever stands in its parts.
func FuzzTail(f *testing.F) {
	for _, part := range []string{"", " ", "a b", "0 0 0", "\x00\r\n", "é"} {
		f.Add(uint64(7), part, "i "+part)
		f.Add(uint64(0), "t"+part, part)
	}
	f.Fuzz(func(t *testing.T, base uint64, task, instance string) {
		base %= lockguard.MaxFenceBase
		var h lockguard.Holder
		if err := readCompanion(&h, "5 1000 token "+tail(base, task, instance)); err != nil {
			t.Fatal(err)
		}
		want := lockguard.Holder{TaskID: task, Instance: instance, Fence: lockguard.Fence(5 + base), Since: time.UnixMilli(1000)}
		if h != want {
			t.Errorf("%+v, want %+v", h, want)
		}
	})
}

func TestBrokenCompanion(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "5", "5 1 token 0 0", "x 1 token 0 0  ", "5 1 token x 0  ", "5 1 token 0 x  ", "5 1 token 0 -1  ", "5 1 token 0 3 ab i",
		"5 1 token 0 99999999999999999999  ",
	} {
		if err := readCompanion(new(lockguard.Holder), text); !errors.Is(err, errReply) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The token of a companion is compared whole, and at its place: a lock of others
// whose value stands elsewhere in it, or begins like it, is not its holder's.
func TestCompanionOfAnother(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	g, b := newGuard(t, c, lockguard.Observer{})
	for _, value := range []string{"0", "toke", "token0", "1", "5", "t", "i", ".", "%S+", "token 0", ""} {
		c.Set(ctx, "k", value, time.Minute)
		c.Set(ctx, b.companion("k"), "5 1 token 0 1 t i", time.Minute)
		h, err := g.Inspect(ctx, "k")
		if err != nil || !h.Held || !h.Foreign {
			t.Errorf("value %q: Inspect: %+v, %v", value, h, err)
		}
		var busy *lockguard.BusyError
		if _, err := g.TryAcquire(ctx, "k"); !errors.As(err, &busy) || !busy.Holder.Foreign {
			t.Errorf("value %q: TryAcquire: %v, %+v", value, err, busy)
		}
		if got, err := b.Release(ctx, lockguard.Ref{Key: "k", Token: "other"}, time.Minute); got != lockguard.NotHeld || err != nil {
			t.Errorf("value %q: Release: %v, %v", value, got, err)
		}
	}
	if told := c.Get(ctx, b.companion("k")).Val(); !strings.HasPrefix(told, "5 1 token ") {
		t.Errorf("a refusal has changed the companion: %q", told)
	}
}

// The time of a grant of which the companion does not tell is not taken from it.
func TestMinHoldWithoutItsCompanion(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	_, b := newGuard(t, c, lockguard.Observer{})
	for _, told := range []string{"5 1 other 0 0  ", "x", ""} {
		c.Set(ctx, "k", "token", time.Hour)
		c.Set(ctx, b.companion("k"), told, time.Hour)
		if got, err := b.Release(ctx, lockguard.Ref{Key: "k", Token: "token"}, time.Minute); got != lockguard.Kept || err != nil {
			t.Errorf("companion %q: Release: %v, %v", told, got, err)
		}
		if left := c.PTTL(ctx, "k").Val(); left < 50*time.Second || left > time.Minute {
			t.Errorf("companion %q: kept for %v, want a minute", told, left)
		}
		if got := c.Get(ctx, b.companion("k")).Val(); got != told {
			t.Errorf("companion %q became %q", told, got)
		}
	}
}
