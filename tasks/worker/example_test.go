package worker_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// A task whose runs are guarded by a lock of their payment. An engine calls
// Run with what it takes; here it is called by hand.
func Example() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	backend, err := lockredis.New(rdb, lockredis.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := lockguard.New(lockguard.Config{Backend: backend})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close(context.Background()) }()

	type args struct {
		ID string `json:"payment_id"`
	}
	var reg tasks.Registry
	err = tasks.Register(&reg, "payments.charge", func(ctx context.Context, in args) (string, error) {
		h, _ := lockguard.FromContext(ctx)
		return "charged " + in.ID + " under " + h.Key(), nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	chain, err := worker.New(worker.Config{
		Registry: &reg,
		Locks:    map[string]*lockguard.Guard{worker.DefaultBackend: locks},
		Tasks: map[string]worker.TaskConfig{
			"payments.charge": {Lock: &worker.LockConfig{Key: "payment:{{ .Params.payment_id }}", OnBusy: tasks.OnBusyRetry}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	out := chain.Run(context.Background(), &tasks.Delivery{Task: &tasks.Task{
		ID: "7c1f", Name: "payments.charge", Attempt: 1, Kwargs: map[string]json.RawMessage{"payment_id": json.RawMessage(`"4711"`)},
	}})
	fmt.Println(out.Kind, string(out.Result))
	// Output: succeeded "charged 4711 under payment:4711"
}
