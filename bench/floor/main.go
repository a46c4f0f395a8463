// Command floor is a bare go-redis loop that does the Redis work of a Celery
// worker in the cheapest way there is: batches of 100, take, result and ack in
// one script. It decodes nothing; a message's id is cut out by its position in
// the text. It is no worker: a kill loses nothing, but nobody takes over.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed take.lua
var take string

const (
	batch = 100
	// idText stands before the task id in what Celery's client writes.
	idText = `"id": "`
	idLen  = 36
)

func main() {
	fmt.Fprintln(os.Stderr, loop(context.Background(), os.Getenv("BENCH_REDIS")))
	os.Exit(1)
}

// loop runs until Redis is gone.
func loop(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute})
	sha, err := client.ScriptLoad(ctx, take).Result()
	if err != nil {
		return err
	}
	keys := []string{"unacked", "unacked_index", "celery", "celery\x06\x163", "celery\x06\x166", "celery\x06\x169"}
	var acks []any
	for call := 1; ; call++ {
		args := append([]any{batch, call, len(acks) / 3}, acks...)
		taken, err := client.EvalSha(ctx, sha, keys, args...).StringSlice()
		if err != nil {
			return err
		}
		if acks, err = results(acks[:0], call, taken); err != nil {
			return err
		}
		if len(taken) > 0 {
			continue
		}
		// Nothing there: wait for a message without taking it.
		if err := client.BLMove(ctx, "celery", "celery", "RIGHT", "RIGHT", 0).Err(); err != nil {
			return err
		}
	}
}

// results appends tag, result key and result of each message.
func results(acks []any, call int, taken []string) ([]any, error) {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00")
	for j, raw := range taken {
		at := strings.Index(raw, idText)
		if at < 0 || len(raw) < at+len(idText)+idLen {
			return nil, fmt.Errorf("floor: no id in %q", raw)
		}
		id := raw[at+len(idText):][:idLen]
		acks = append(acks, "floor:"+strconv.Itoa(call)+":"+strconv.Itoa(j+1), "celery-task-meta-"+id,
			`{"status": "SUCCESS", "result": null, "traceback": null, "children": [], "date_done": "`+now+`", "task_id": "`+id+`"}`)
	}
	return acks, nil
}
