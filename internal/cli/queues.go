package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/tasks/celery"
)

func (c *program) queuesCommand() *cobra.Command {
	return c.withOutput(&cobra.Command{
		Use: "queues", Short: "Depths of the queues, and the workers that serve them", Args: args(0, 0, ""),
		Long:    "The queues are those of worker.queues, and those that a live worker serves. Unacked and parked messages are kept by Celery in one place for all queues.",
		Example: "  solobeat queues\n  solobeat queues -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.open(cmd.Context(), "queues")
			if err != nil {
				return err
			}
			defer s.close()
			replicas, err := s.admin(nil).Replicas(cmd.Context())
			if err != nil {
				return err
			}
			d, err := s.admin(allServed(s.cfg.Worker.Queues, replicas)).Depths(cmd.Context())
			if err != nil {
				return err
			}
			t := &table{header: []string{"QUEUE", "WAITING", "DEAD", "WORKERS"}}
			type view struct {
				Queue   string   `json:"queue"`
				Waiting int64    `json:"waiting"`
				Dead    int64    `json:"dead"`
				Workers []string `json:"workers"`
			}
			views := []view{}
			for _, q := range d.Queues {
				v := view{Queue: q.Queue, Waiting: q.Waiting, Dead: q.Dead, Workers: []string{}}
				for _, r := range replicas {
					for _, served := range r.Queues {
						if served == q.Queue {
							v.Workers = append(v.Workers, r.Node)
						}
					}
				}
				views = append(views, v)
				t.add(v.Queue, fmt.Sprint(v.Waiting), fmt.Sprint(v.Dead), strings.Join(v.Workers, " "))
			}
			if c.output == "table" {
				_, _ = fmt.Fprintf(c.Err, "%d unacked, %d parked, over all queues\n", d.Unacked, d.Parked)
			}
			return c.print(map[string]any{"queues": views, "unacked": d.Unacked, "parked": d.Parked, "dead_dropped": d.DeadDropped}, t, "no queues")
		},
	})
}

// allServed are the configured queues, then what live workers serve besides.
func allServed(configured []string, replicas []celery.Replica) []string {
	all := slices.Clone(configured)
	for _, r := range replicas {
		for _, q := range r.Queues {
			if !slices.Contains(all, q) {
				all = append(all, q)
			}
		}
	}
	return all
}
