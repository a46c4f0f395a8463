package idemredis_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
)

// An operator lets a finished key run once more.
func ExampleStore_Forget() {
	server, err := miniredis.Run() // stands in for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	store, err := idemredis.New(client, idemredis.Options{Namespace: "shop", AssumeNoEviction: true})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	key := idempotency.Key{Namespace: "reports.daily", Text: "report:2026-10-25"}
	_, claim, _, _ := store.Claim(ctx, key, idempotency.NewOwner(), idempotency.ClaimOptions{TaskID: "task-1"})
	_ = store.Complete(ctx, claim, idempotency.NewResult([]byte(`"42 rows"`)), idempotency.DefaultRetention)

	was, err := store.Forget(ctx, key, false, "the input was wrong")
	fmt.Println(was.State, string(was.Result.Data), err)
	verdict, again, _, _ := store.Claim(ctx, key, idempotency.NewOwner(), idempotency.ClaimOptions{TaskID: "task-2"})
	fmt.Println(verdict, again.Fence > claim.Fence)
	err = store.Complete(ctx, claim, idempotency.Result{}, idempotency.DefaultRetention)
	fmt.Println(errors.Is(err, idempotency.ErrStale))
	// Output:
	// completed "42 rows" <nil>
	// run true
	// true
}
