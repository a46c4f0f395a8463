package celery_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery"
	"github.com/solobeat/solobeat/tasks/worker"
)

// A worker inside a program of one's own, and a client that sends it a task and
// waits for the result. Either side may as well be Python.
func Example() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()

	type args struct {
		X int `json:"x"`
		Y int `json:"y"`
	}
	var reg tasks.Registry
	err = tasks.Register(&reg, "math.add", func(_ context.Context, in args) (int, error) { return in.X + in.Y, nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	chain, err := worker.New(worker.Config{Registry: &reg})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := celery.New(celery.Config{Broker: rdb, AfterPark: chain.Free})
	if err != nil {
		fmt.Println(err)
		return
	}
	chain.SetWakers(engine)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- engine.Run(ctx, chain.Run) }()

	client := celery.NewClient(celery.ClientConfig{Broker: rdb})
	id, err := client.Enqueue(ctx, "math.add", tasks.WithKwargs(args{X: 2, Y: 3}))
	if err != nil {
		fmt.Println(err)
	}
	result, done, err := client.Wait(ctx, id, 10*time.Second)
	if done {
		fmt.Println(result.State, string(result.Value))
	} else {
		fmt.Println("no result:", err)
	}
	stop() // what runs has Config.Grace to end
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	// Output: SUCCESS 5
}
