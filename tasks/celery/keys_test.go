package celery

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

func TestTags(t *testing.T) {
	t.Parallel()
	k, other := keys{namespace: "a:b"}, keys{namespace: "a"}
	id := NewInstance()
	for _, c := range []struct {
		tag  string
		want parsedTag
	}{
		{k.tag(id, 5001, 3), parsedTag{owner: id, n: 5001, step: 3}},
		{k.parkTag(id, 7, 9), parsedTag{owner: parkOwner, step: 9}},
	} {
		got, ok := k.parseTag(c.tag)
		if !ok || got != c.want {
			t.Errorf("%s: %+v %v", c.tag, got, ok)
		}
		if _, ok := other.parseTag(c.tag); ok {
			t.Errorf("%s is read in another namespace", c.tag)
		}
	}
	// As versions before wrote it, and as long as Redis must see it.
	if got, ok := k.parseTag("sb:" + id + ":5001:3:a:b"); !ok || got != (parsedTag{owner: id, n: 5001, step: 3}) {
		t.Errorf("without zeros: %+v %v", got, ok)
	}
	if tag := (keys{namespace: "n"}).tag(id, 1, 0); len(tag) <= 64 {
		t.Errorf("%q has %d bytes, more than 64 are needed", tag, len(tag))
	}
	for _, bad := range []string{"", "sb:", "sb:x:1:0:a:b", "sb:" + id + ":x:0:a:b", "sb:" + id + ":1:x:a:b", wire.NewID(), "sb:" + id + ":1:0"} {
		if got, ok := k.parseTag(bad); ok {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestNodeNames(t *testing.T) {
	t.Parallel()
	if n := nodeNames("a@h"); n[0] != "a@h" || n[1] != "a-2@h" || n[2] != "a-3@h" || len(n) != maxNodes {
		t.Error(n[:3])
	}
}

// The index must not be in Redis's compact form, however few messages are held.
func TestIndexIsASkipList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	r.start(Config{Namespace: "n"}, nil, func(context.Context, *tasks.Delivery) tasks.Outcome {
		close(begun)
		<-finish
		return succeed("1")
	})
	defer close(finish)
	r.enqueue("t")
	<-begun
	if got := r.rdb.ObjectEncoding(t.Context(), "unacked_index").Val(); got != "skiplist" {
		t.Errorf("encoding of unacked_index: %q", got)
	}
}

// What runs is kept fresh in unacked_index, whatever its peers' visibility
// timeout is; what was taken away is not brought back.
func TestW02_ALongRunIsKeptFresh(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	begun, finish := make(chan struct{}), make(chan struct{})
	r.start(Config{}, func(e *Engine) { e.tune.refresh = 50 * time.Millisecond }, func(context.Context, *tasks.Delivery) tasks.Outcome {
		close(begun)
		<-finish
		return succeed("1")
	})
	id := r.enqueue("t.long")
	<-begun
	score := func() float64 {
		t.Helper()
		z, err := r.rdb.ZRangeWithScores(ctx, "unacked_index", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(z) != 1 {
			return 0
		}
		return z[0].Score
	}
	first := score()
	if ahead := first - float64(r.storeNow().UnixMicro())/1e6; ahead < 28 || ahead > 30.1 {
		t.Errorf("score %.1f s ahead", ahead)
	}
	testkit.Poll(t, 5*time.Second, 5*time.Millisecond, func() bool { return score() > first+0.2 }, "the score moves on")
	if err := r.rdb.Del(ctx, "unacked_index").Err(); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(200 * time.Millisecond)
	testkit.Poll(t, time.Second, 10*time.Millisecond, func() bool {
		if score() != 0 {
			t.Error("an entry that was gone is back")
		}
		return time.Now().After(until)
	}, "some refreshes")
	close(finish)
	r.wait(id, 5*time.Second)
}

// Dead letters are bounded by number and age, and what falls out is counted.
func TestDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	k := keys{namespace: tasks.DefaultNamespace}
	old := time.Now().Add(-15 * 24 * time.Hour).UnixMilli()
	fresh := time.Now().Add(-time.Hour).UnixMilli()
	_, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 3 {
			p.XAdd(ctx, &redis.XAddArgs{Stream: k.dead("celery"), ID: fmt.Sprintf("%d-%d", old, i), Values: []string{"raw", "old"}})
		}
		for i := range maxDead {
			p.XAdd(ctx, &redis.XAddArgs{Stream: k.dead("celery"), ID: fmt.Sprintf("%d-%d", fresh, i), Values: []string{"raw", "fresh"}})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.push("celery", "no envelope")
	r.start(Config{}, nil, newWitness().runner())
	testkit.Eventually(t, 5*time.Second, func() error {
		d, err := r.admin().Depths(ctx)
		if err != nil {
			return err
		}
		if d.DeadDropped != 4 || d.Queues[0].Dead != maxDead {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	newest, err := r.admin().DeadLetters(ctx, 1)
	if err != nil || len(newest) != 1 || newest[0].Reason != tasks.ReasonNotEnvelope {
		t.Errorf("%+v %v", newest, err)
	}
}
