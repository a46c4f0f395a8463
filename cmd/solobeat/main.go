// Command solobeat is a Celery-compatible worker and cron scheduler in which
// every guarded job runs solo. See solobeat help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/solobeat/solobeat/internal/cli"
	"github.com/solobeat/solobeat/tasks/command/guardian"
)

func main() {
	guardian.RunIfChild() // does not return in a guardian process
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.LookupEnv)
	stop()
	os.Exit(code)
}
