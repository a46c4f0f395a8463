package schedredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
	"github.com/solobeat/solobeat/tasks"
)

// list publishes to a plain list; a real publisher is an engine's client.
type list struct{}

// Prepare implements scheduler.Publisher.
func (list) Prepare(r *tasks.Request) (string, []byte, error) {
	return "celery", []byte(r.Name + " " + string(r.Kwargs["hour"])), nil
}

// Two schedulers with one job on one store: each tick is published once.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	spec := scheduler.SpecConfig{Every: "1s"}
	schedule, _, err := scheduler.ParseSpec(spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	job := &scheduler.Job{
		Name: "report", Task: "reports.hourly", Spec: spec, Schedule: schedule,
		Kwargs: map[string]any{"hour": `{{ .Tick.UTC | hour }}`},
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	published := make(chan string, 10)
	for _, id := range []string{"one", "two"} {
		s, err := scheduler.New(scheduler.Config{
			Jobs: []*scheduler.Job{job}, ID: id, Publisher: list{},
			State:    schedredis.New(client, schedredis.Options{}),
			Observer: scheduler.Observer{Fired: func(job string, _ scheduler.Occurrence, _ string) { published <- job }},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		done := make(chan struct{})
		defer func() { <-done }()
		go func() {
			defer close(done)
			_ = s.Run(ctx)
		}()
	}
	for range 3 {
		fmt.Println(<-published)
	}
	cancel()
	// Output:
	// report
	// report
	// report
}
