package lockredis

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
)

// What goes together in one script is each by itself: one lock's error, holder
// or foreign key is not its neighbours', and each release is told to who listens.
func TestLocksOfOneScriptAreEachByItself(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	_, b := newGuard(t, c, lockguard.Observer{})
	names := []string{"free", "held", "broken", "list", "last"}
	var keys []string
	var take, free []any
	for _, name := range names {
		keys = append(keys, name, b.companion(name))
		take = append(take, "t-"+name, 30000, 60000, tail(0, "task-"+name, "i"))
		free = append(free, "t-"+name, b.channel)
	}
	c.Set(ctx, "held", "another", time.Minute)
	c.LPush(ctx, b.companion("broken"), "x")
	c.LPush(ctx, "list", "x")

	replies, err := b.runner.Run(ctx, b.acquire, keys, take...).Slice()
	if err != nil || len(replies) != len(names) {
		t.Fatalf("acquire: %v, %v", replies, err)
	}
	var got []string
	for i, reply := range replies {
		if err, ok := reply.(error); ok {
			got = append(got, err.Error()[:9])
			continue
		}
		grant, err := decodeAcquire(names[i], 0, reply)
		got = append(got, fmt.Sprint(grant.Fence > 0, " ", err))
	}
	want := []string{
		"true <nil>", "false lockguard: lock is busy: held", "WRONGTYPE",
		`false lockguard: key is not a lock: "list" is a list in Redis`, "true <nil>",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("acquire (-want +got):\n%s", d)
	}
	if n := c.Exists(ctx, "broken").Val(); n != 0 {
		t.Error("a lock was taken whose companion is of another type")
	}
	if h, err := b.Read(ctx, "last"); err != nil || h.TaskID != "task-last" {
		t.Errorf("the last one's companion tells of %+v, %v", h, err)
	}

	c.Set(ctx, "broken", "t-broken", time.Minute)
	heard := c.Subscribe(ctx, b.channel)
	defer heard.Close()
	if _, err := heard.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	codes, err := b.runner.Run(ctx, b.release, names, free...).Int64Slice()
	if want := []int64{1, -1, 1, -1, 1}; err != nil || !slices.Equal(codes, want) {
		t.Errorf("release: %v, %v; want %v", codes, err, want)
	}
	for _, name := range []string{"free", "broken", "last"} {
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		m, err := heard.ReceiveMessage(within)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload != name {
			t.Errorf("told of %q, want %q", m.Payload, name)
		}
	}
	if got := c.Get(ctx, "held").Val(); got != "another" {
		t.Errorf("the other's lock: %q", got)
	}
}

// The error of a lock that is alone is that of the script, by which a client
// knows that its server has become a replica.
func TestErrorOfOneLockIsThatOfItsScript(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := testkit.Redis(t).Client(t)
	_, b := newGuard(t, c, lockguard.Observer{})
	c.LPush(ctx, b.companion("k"), "x")
	if got, err := b.runner.Run(ctx, b.acquire, []string{"k", b.companion("k")}, "t", 30000, 60000, tail(0, "", "")).Result(); err == nil {
		t.Errorf("acquire: %v, want the error of its companion", got)
	}
}
