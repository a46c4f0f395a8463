package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
)

func (c *program) queuesCommand() *cobra.Command {
	return c.withOutput(&cobra.Command{
		Use: "queues", Short: "Depths of the queues, and the workers that serve them", Args: args(0, 0, ""),
		Long: `Depths of the queues of worker.queues, in the engines of worker.engines, and of those
that a live worker serves, and the workers. Unacked and parked messages are kept by
Celery in one place for all queues.`,
		Example: "  solobeat queues\n  solobeat queues -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.open(cmd.Context(), "queues")
			if err != nil {
				return err
			}
			defer s.close()
			return c.queues(cmd.Context(), s)
		},
	})
}

// queueView is one queue of one engine, as `queues` prints it.
type queueView struct {
	Engine  string `json:"engine"`
	Queue   string `json:"queue"`
	Waiting int64  `json:"waiting"`
	Dead    int64  `json:"dead"`
	// Active and Parked are asynq's only; Celery keeps those numbers for all
	// queues together.
	Active  *int64   `json:"active,omitempty"`
	Parked  *int64   `json:"parked,omitempty"`
	Workers []string `json:"workers"`
}

// queuesView is what `queues -o json` prints.
type queuesView struct {
	Queues      []queueView `json:"queues"`
	Unacked     int64       `json:"unacked"`
	Parked      int64       `json:"parked"`
	DeadDropped int64       `json:"dead_dropped"`
}

func (c *program) queues(ctx context.Context, s *stores) error {
	all := queuesView{Queues: []queueView{}}
	if s.cfg.Worker.Has(celery.EngineName) {
		if err := all.addCelery(ctx, s); err != nil {
			return err
		}
		if c.output == "table" {
			_, _ = fmt.Fprintf(c.Err, "%d unacked, %d parked, over all Celery queues\n", all.Unacked, all.Parked)
		}
	}
	if s.cfg.Worker.Has(asynqengine.EngineName) {
		if err := all.addAsynq(ctx, s); err != nil {
			return err
		}
	}
	return c.print(all, all.table(s.cfg.Worker.Has(asynqengine.EngineName)), "no queues")
}

// table shows the columns that both engines need only where both may be.
func (v *queuesView) table(asynq bool) *table {
	t := &table{header: []string{"QUEUE", "WAITING", "DEAD", "WORKERS"}}
	if asynq {
		t.header = []string{"ENGINE", "QUEUE", "WAITING", "ACTIVE", "PARKED", "DEAD", "WORKERS"}
	}
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	for _, q := range v.Queues {
		waiting, dead, workers := fmt.Sprint(q.Waiting), fmt.Sprint(q.Dead), strings.Join(q.Workers, " ")
		if asynq {
			t.add(q.Engine, q.Queue, waiting, number(q.Active), number(q.Parked), dead, workers)
		} else {
			t.add(q.Queue, waiting, dead, workers)
		}
	}
	return t
}

func (v *queuesView) addCelery(ctx context.Context, s *stores) error {
	replicas, err := s.admin(nil).Replicas(ctx)
	if err != nil {
		return err
	}
	replicas = slices.DeleteFunc(replicas, func(r celery.Replica) bool { return !r.Live })
	served := make([][]string, len(replicas))
	for i, r := range replicas {
		served[i] = r.Queues
	}
	d, err := s.admin(allServed(s.cfg.Worker.Queues, served...)).Depths(ctx)
	if err != nil {
		return err
	}
	v.Unacked, v.Parked, v.DeadDropped = d.Unacked, d.Parked, d.DeadDropped
	for _, q := range d.Queues {
		row := queueView{Engine: celery.EngineName, Queue: q.Queue, Waiting: q.Waiting, Dead: q.Dead, Workers: []string{}}
		for _, r := range replicas {
			if slices.Contains(r.Queues, q.Queue) {
				row.Workers = append(row.Workers, r.Node)
			}
		}
		v.Queues = append(v.Queues, row)
	}
	return nil
}

func (v *queuesView) addAsynq(ctx context.Context, s *stores) error {
	workers, err := s.asynqAdmin(nil).Workers()
	if err != nil {
		return err
	}
	served := make([][]string, len(workers))
	for i, w := range workers {
		served[i] = w.Queues
	}
	depths, err := s.asynqAdmin(allServed(s.cfg.Worker.Queues, served...)).Depths(ctx)
	if err != nil {
		return err
	}
	for _, d := range depths {
		row := queueView{
			Engine: asynqengine.EngineName, Queue: d.Queue, Waiting: d.Waiting, Dead: d.Archived,
			Active: &d.Active, Parked: &d.Scheduled, Workers: []string{},
		}
		for _, w := range workers {
			name := fmt.Sprintf("%s:%d", w.Host, w.PID)
			if slices.Contains(w.Queues, d.Queue) && !slices.Contains(row.Workers, name) {
				row.Workers = append(row.Workers, name)
			}
		}
		v.Queues = append(v.Queues, row)
	}
	return nil
}

// allServed are the configured queues, then those that live workers serve
// besides, of which each has a list.
func allServed(configured []string, served ...[]string) []string {
	all := slices.Clone(configured)
	for _, queues := range served {
		for _, q := range queues {
			if !slices.Contains(all, q) {
				all = append(all, q)
			}
		}
	}
	return all
}
