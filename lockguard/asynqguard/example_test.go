package asynqguard_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/asynqguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
)

// serve is the whole of a program that adopts the guards: one run at a time of
// each type of task, over all processes.
func serve(client redis.UniversalClient) (*asynq.Server, *lockguard.Guard, error) {
	backend, err := lockredis.New(client, lockredis.Options{})
	if err != nil {
		return nil, nil, err
	}
	locks, err := lockguard.New(lockguard.Config{Backend: backend})
	if err != nil {
		return nil, nil, err
	}
	mux := asynq.NewServeMux()
	mux.Use(asynqguard.Lock(locks, asynqguard.ByType("lock:")))
	mux.HandleFunc("report:send", sendReport)
	server := asynq.NewServerFromRedisClient(client, asynq.Config{IsFailure: asynqguard.IsFailure, RetryDelayFunc: asynqguard.RetryDelay})
	return server, locks, server.Start(mux)
}

var sent = make(chan string)

func sendReport(ctx context.Context, _ *asynq.Task) error {
	h, _ := lockguard.FromContext(ctx)
	sent <- "sent under " + h.Key()
	return nil
}

func Example() {
	store, err := miniredis.Run() // in place of your Redis
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	server, locks, err := serve(client)
	if err != nil {
		log.Fatal(err)
	}
	_, _ = asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("report:send", nil))
	fmt.Println(<-sent)
	server.Shutdown()
	_ = locks.Close(context.Background())
	_ = client.Close()
	store.Close()
	// Output: sent under lock:report:send
}
