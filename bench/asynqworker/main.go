// Command asynqworker is one asynq server with a handler that does nothing and
// writes a result.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/hibiken/asynq"
)

func main() {
	concurrency, err := strconv.Atoi(os.Getenv("BENCH_CONCURRENCY"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "BENCH_CONCURRENCY:", err)
		os.Exit(1)
	}
	srv := asynq.NewServer(asynq.RedisClientOpt{Addr: os.Getenv("BENCH_REDIS")}, asynq.Config{Concurrency: concurrency})
	mux := asynq.NewServeMux()
	mux.HandleFunc("bench.noop", func(_ context.Context, t *asynq.Task) error {
		_, err := t.ResultWriter().Write([]byte("null"))
		return err
	})
	if err := srv.Run(mux); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
