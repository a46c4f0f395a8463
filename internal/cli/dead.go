package cli

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/tasks/celery"
)

func (c *program) deadCommand() *cobra.Command {
	cmd := group("dead", "Dead letters: messages that could not be run, with their reason")
	var queue string
	var n int64
	list := &cobra.Command{
		Use: "list", Short: "The dead letters of all queues, or of one", Args: args(0, 0, ""),
		Example: "  solobeat dead list\n  solobeat dead list --queue payments -n 20",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.deadList(cmd.Context(), queue, n) },
	}
	list.Flags().StringVar(&queue, "queue", "", "this queue only")
	list.Flags().Int64VarP(&n, "count", "n", 0, "at most so many per queue (default: all)")
	var from string
	show := &cobra.Command{
		Use: "show ID", Short: "One dead letter with its bytes", Args: args(1, 1, "one dead letter id, see dead list"),
		Example: "  solobeat dead show 1795968075637-0",
		RunE:    func(cmd *cobra.Command, ids []string) error { return c.deadShow(cmd.Context(), from, ids[0]) },
	}
	show.Flags().StringVar(&from, "queue", "", "its queue (default: all are looked through)")
	cmd.AddCommand(c.withOutput(list), c.withOutput(show))
	return cmd
}

func (c *program) deadList(ctx context.Context, queue string, n int64) error {
	s, err := c.open(ctx, "dead")
	if err != nil {
		return err
	}
	defer s.close()
	var queues []string
	if queue != "" {
		queues = []string{queue}
	}
	letters, err := s.admin(nil).DeadLetters(ctx, n, queues...)
	if err != nil {
		return err
	}
	t := &table{header: []string{"ID", "QUEUE", "REASON", "TASK", "TASK ID", "WHEN", "DETAIL"}}
	for _, d := range letters {
		t.add(d.ID, d.Queue, string(d.Reason), d.Task, d.TaskID, ago(d.At), d.Detail)
	}
	return c.print(letters, t, "no dead letters")
}

func (c *program) deadShow(ctx context.Context, queue, id string) error {
	s, err := c.open(ctx, "dead")
	if err != nil {
		return err
	}
	defer s.close()
	a := s.admin(nil)
	d, err := findDead(ctx, a, queue, id)
	if errors.Is(err, celery.ErrNoDeadLetter) {
		return exitf(exitFailed, "no dead letter %q (see solobeat dead list)", id)
	}
	if err != nil {
		return err
	}
	raw := string(d.Raw)
	if !utf8.ValidString(raw) {
		raw = fmt.Sprintf("%q", raw)
	}
	t := &table{}
	for _, row := range [][2]string{
		{"id", d.ID},
		{"queue", d.Queue},
		{"reason", string(d.Reason)},
		{"detail", d.Detail},
		{"task", d.Task},
		{"task id", d.TaskID},
		{"when", stamp(d.At)},
		{"instance", d.Instance},
		{"list", d.List},
		{"deaths", fmt.Sprint(d.Deliveries)},
		{"message", raw},
	} {
		t.add(row[0], row[1])
	}
	return c.print(d, t, "")
}

func findDead(ctx context.Context, a *celery.Admin, queue, id string) (*celery.DeadLetter, error) {
	if queue != "" {
		return a.DeadLetter(ctx, queue, id)
	}
	all, err := a.DeadLetters(ctx, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.ID == id {
			return a.DeadLetter(ctx, d.Queue, id)
		}
	}
	return nil, fmt.Errorf("%w: %s", celery.ErrNoDeadLetter, id)
}
