package lockredis_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
)

func Example() {
	server, err := miniredis.Run() // your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()

	backend, err := lockredis.New(client, lockredis.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := lockguard.New(lockguard.Config{Backend: backend})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = guard.Close(ctx) }()

	// A Python program that holds redis.lock.Lock("report:lock") is kept out,
	// and keeps this one out.
	err = guard.Do(ctx, "report:lock", func(context.Context) error {
		fmt.Println("building the report")
		return nil
	}, lockguard.WithTTL(30*time.Second))
	fmt.Println(err)
	// Output:
	// building the report
	// <nil>
}

// A holder that was paused for longer than its TTL comes back with its old
// fence, and is refused.
func ExampleSetFenced() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	const paused, current = lockguard.Fence(41), lockguard.Fence(42)
	fmt.Println(lockredis.SetFenced(ctx, client, "report", "new", current))
	err = lockredis.SetFenced(ctx, client, "report", "old", paused)
	fmt.Println(errors.Is(err, lockguard.ErrFenced))
	value, fence, err := lockredis.GetFenced(ctx, client, "report")
	fmt.Println(value, fence, err)
	// Output:
	// <nil>
	// true
	// new 42 <nil>
}
