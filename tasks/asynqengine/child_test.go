package asynqengine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
)

// What a child process of a test is and where its Redis is.
const (
	childRole = "TEST_ASYNQ_CHILD"
	childAddr = "TEST_ASYNQ_ADDR"
)

// child is the main of a child process.
func child(role string) int {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(childAddr), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	var err error
	switch role {
	case "worker":
		err = childWorker(rdb)
	case "zones":
		err = childZones(rdb)
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childWorker begins the first task that comes and never ends it.
func childWorker(rdb *redis.Client) error {
	e, err := New(Config{Client: rdb})
	if err != nil {
		return err
	}
	return e.Run(context.Background(), func(ctx context.Context, d *tasks.Delivery) tasks.Outcome {
		fmt.Println("began", d.Task.ID)
		<-ctx.Done()
		return tasks.Outcome{Kind: tasks.Returned, Err: ctx.Err()}
	})
}

// zoneJobs are two jobs at nine in the morning, here and there.
func zoneJobs() ([]*scheduler.Job, error) {
	var jobs []*scheduler.Job
	for _, zone := range []string{"Asia/Tokyo", "America/New_York"} {
		j := &scheduler.Job{
			Name: zone[len(zone)-4:], Task: "report", Spec: scheduler.SpecConfig{Cron: "0 9 * * *", Timezone: &zone}, Engine: EngineName,
			Kwargs: map[string]any{"day": "{{ .Tick.Local | date }}"},
		}
		var err error
		if j.Schedule, _, err = scheduler.ParseSpec(j.Spec); err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// childZones publishes the next tick of each job.
func childZones(rdb *redis.Client) error {
	jobs, err := zoneJobs()
	if err != nil {
		return err
	}
	client := NewClient(ClientConfig{Client: rdb})
	for _, j := range jobs {
		tick := j.Schedule.Next(time.Unix(zonesFrom, 0))
		req, err := j.Request("default", tick)
		if err != nil {
			return err
		}
		if _, err := client.Send(context.Background(), req); err != nil {
			return err
		}
		text, err := json.Marshal(tick.Local.Format(time.RFC3339))
		if err != nil {
			return err
		}
		fmt.Println(req.ID, string(text), time.Now().Format("-0700"))
	}
	return nil
}

// zonesFrom is 2026-11-29T20:00:00Z.
const zonesFrom = 1795982400
