package lockredis

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/lockguard"
)

const childTTL = 2 * time.Second

// child is a holder in a process of its own, so that a test can kill or stop it.
// It tells on standard output what it sees.
func child(role string) int {
	ctx := context.Background()
	c, err := redisconn.Open(redisconn.Options{URL: os.Getenv("LOCKREDIS_URL")})
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	switch role {
	case "guarded":
		err = guardedChild(ctx, c)
	case "naive":
		err = naiveChild(ctx, c)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Println("error:", err)
	return 1
}

// slept returns after a pause of the whole process: the test lets it go on when
// the lock has run out, at least two thirds of the TTL later.
func slept() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for last := time.Now(); time.Since(last) < childTTL*6/10; {
		last = time.Now()
		<-tick.C
	}
}

func guardedChild(ctx context.Context, c *redis.Client) error {
	b, err := New(c, Options{})
	if err != nil {
		return err
	}
	var lost atomic.Int32
	g, err := lockguard.New(lockguard.Config{Backend: b, Instance: "child", Observer: lockguard.Observer{
		Lost: func(_ lockguard.Labels, r lockguard.Reason) { lost.Add(1); fmt.Println("told lost:", r) },
		Renewed: func(_ lockguard.Labels, _ string, o lockguard.RenewOutcome, _ time.Duration) {
			fmt.Println("renewed:", o)
		},
	}})
	if err != nil {
		return err
	}
	h, err := g.TryAcquire(ctx, "k", lockguard.WithTTL(childTTL))
	if err != nil {
		return err
	}
	fence, _ := h.Fence()
	fmt.Println("held with fence", fence)
	slept()
	check := h.Check() // the very first thing after the pause
	fmt.Printf("woke: context ended: %v, check: %v\n", h.Context().Err() != nil, check)
	fmt.Println("cause:", context.Cause(h.Context()))
	fmt.Println("fenced write:", SetFenced(ctx, c, "value", "by child", fence))
	result, err := h.Release(ctx)
	fmt.Println("release:", result, err)
	fmt.Println("losses told:", lost.Load())
	return g.Close(ctx)
}

// naiveChild guards its work as many programs do.
func naiveChild(ctx context.Context, c *redis.Client) error {
	ok, err := c.SetNX(ctx, "k", "child", childTTL).Result()
	if err != nil || !ok {
		return fmt.Errorf("lock: %v, %w", ok, err)
	}
	fmt.Println("held without a fence")
	slept()
	c.Incr(ctx, "effects")
	c.Del(ctx, "k")
	fmt.Println("done")
	return nil
}
