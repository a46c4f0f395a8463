package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/config"
)

func (c *program) deadCommand() *cobra.Command {
	cmd := group("dead", "Dead letters: messages that could not be run, with their reason")
	list := c.deadSubcommand("list", "The dead letters of all queues, or of one", args(0, 0, ""),
		"  solobeat dead list\n  solobeat dead list --queue payments -n 20", c.deadList)
	list.cmd.Flags().Int64VarP(&list.pick.count, "count", "n", 0, "at most so many per queue (default: all)")
	show := c.deadSubcommand("show ID", "One dead letter with its bytes", args(1, 1, "one dead letter id, see dead list"),
		"  solobeat dead show 1795968075637-0", c.deadShow)
	requeue := c.deadSubcommand("requeue ID... | --all", "Send dead letters again", args(0, -1, ""),
		"  solobeat dead requeue 1795968075637-0\n  solobeat dead requeue --all --queue payments --reason NotRegistered\n  solobeat dead requeue --raw", c.deadRequeue)
	requeue.cmd.Long = `Send dead letters again, behind what waits in their queue: under their own id,
with their guard and their times, but as if they had never been delivered. Their
result is PENDING again, unless it is a SUCCESS. With --all what becomes a dead
letter meanwhile is left out.`
	requeue.all()
	requeue.raw("send")
	drop := c.deadSubcommand("drop ID... | --all", "Delete dead letters for good", args(0, -1, ""),
		"  solobeat dead drop 1795968075637-0\n  solobeat dead drop --all --reason NotEnvelope --yes", c.deadDrop)
	drop.cmd.Long = "Delete dead letters for good. Their tasks keep their results. On a terminal it asks first."
	drop.all()
	drop.raw("delete")
	drop.cmd.Flags().BoolVarP(&drop.pick.yes, "yes", "y", false, "do not ask")
	for _, sub := range []*deadCommand{list, show, requeue, drop} {
		cmd.AddCommand(c.withOutput(sub.cmd))
	}
	return cmd
}

// deadCommand is one of the subcommands and what its flags pick.
type deadCommand struct {
	cmd  *cobra.Command
	pick *pick
}

func (c *program) deadSubcommand(use, short string, check cobra.PositionalArgs, example string, run func(context.Context, *pick) error) *deadCommand {
	p := &pick{}
	cmd := &cobra.Command{Use: use, Short: short, Example: example, Args: check}
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		p.ids = ids
		for _, name := range []string{"queue", "engine", "reason"} {
			// One of an unset variable would pick everything.
			if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
				return usagef("--%s is empty: name one, or leave it out", name)
			}
		}
		if err := p.check(); err != nil {
			return err
		}
		return run(cmd.Context(), p)
	}
	cmd.Flags().StringVar(&p.queue, "queue", "", "this queue only")
	cmd.Flags().StringVar(&p.engine, "engine", "", "celery or asynq (default: those of worker.engines)")
	return &deadCommand{cmd: cmd, pick: p}
}

func (d *deadCommand) all() {
	d.pick.changes = true
	d.cmd.Flags().BoolVar(&d.pick.all, "all", false, "all dead letters, or those that the other options pick")
	d.cmd.Flags().StringVar(&d.pick.reason, "reason", "", "with --all: those of this reason only")
}

func (d *deadCommand) raw(verb string) {
	d.cmd.Flags().BoolVar(&d.pick.raw, "raw", false, verb+" what lies beside the dead letters, see dead list, all of it or one queue's")
}

// pick says which dead letters are meant.
type pick struct {
	ids                   []string
	queue, engine, reason string
	count                 int64
	changes, all, yes     bool
	raw                   bool // those beside the dead letters
}

func (p *pick) check() error {
	switch {
	case p.engine != "" && p.engine != config.EngineCelery && p.engine != config.EngineAsynq:
		return usagef("--engine %s: %s or %s is known", p.engine, config.EngineCelery, config.EngineAsynq)
	case !p.changes:
		return nil
	case p.raw && (len(p.ids) > 0 || p.all || p.reason != ""):
		return usagef("--raw is for all that lie beside the dead letters, or with --queue one queue's: they have no ids and no reasons")
	case p.raw && p.engine == config.EngineAsynq:
		return usagef("--raw is for the engine %s", config.EngineCelery)
	case p.raw:
		return nil
	case len(p.ids) == 0 && !p.all:
		return usagef("want dead letter ids, see dead list, or --all")
	case len(p.ids) > 0 && p.all:
		return usagef("want ids or --all, got both")
	case p.reason != "" && !p.all:
		return usagef("--reason goes with --all")
	}
	slices.Sort(p.ids)
	p.ids = slices.Compact(p.ids)
	return nil
}

// matches reports whether a letter has the reason that is asked for.
func (p *pick) matches(d deadView) bool {
	return p.reason == "" || strings.EqualFold(p.reason, string(d.Reason))
}

// openDead opens the stores and the shelves that are picked.
func (c *program) openDead(ctx context.Context, p *pick) (*stores, []shelf, error) {
	s, err := c.open(ctx, "dead")
	if err != nil {
		return nil, nil, err
	}
	if p.changes {
		if err := s.reach(ctx, 0, s.resultServer()); err != nil {
			s.close()
			return nil, nil, err
		}
	}
	return s, s.shelves(p.engine), nil
}

// queuesOf are the queues of a shelf that are picked.
func (p *pick) queuesOf(ctx context.Context, one shelf) ([]string, error) {
	if p.queue != "" {
		return []string{p.queue}, nil
	}
	return one.queues(ctx)
}

func (c *program) deadList(ctx context.Context, p *pick) error {
	s, shelves, err := c.openDead(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	c.noteUnlisted(ctx, p, shelves)
	views := []deadView{}
	for _, one := range shelves {
		queues, err := p.queuesOf(ctx, one)
		if err != nil {
			return err
		}
		for _, q := range queues {
			letters, err := one.list(ctx, q, p.count)
			if err != nil {
				return err
			}
			views = append(views, letters...)
		}
	}
	t := &table{header: []string{"ID", "ENGINE", "QUEUE", "REASON", "TASK", "TASK ID", "WHEN", "DETAIL"}}
	for _, d := range views {
		t.add(d.ID, d.Engine, d.Queue, string(d.Reason), d.Task, d.TaskID, ago(d.At), d.Detail)
	}
	return c.print(views, t, "no dead letters")
}

func (c *program) deadShow(ctx context.Context, p *pick) error {
	s, shelves, err := c.openDead(ctx, p)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := p.find(ctx, shelves, p.ids[0])
	if err != nil {
		return err
	}
	d := found.letter
	raw := string(d.Raw)
	if !utf8.ValidString(raw) {
		raw = fmt.Sprintf("%q", raw)
	}
	t := &table{}
	for _, row := range [][2]string{
		{"id", d.ID},
		{"engine", d.Engine},
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

// foundLetter is a dead letter and the shelf that it lies on.
type foundLetter struct {
	shelf  shelf
	letter deadView
}

// find looks for one id in the picked queues.
func (p *pick) find(ctx context.Context, shelves []shelf, id string) (*foundLetter, error) {
	var found []foundLetter
	for _, one := range shelves {
		queues, err := p.queuesOf(ctx, one)
		if err != nil {
			return nil, err
		}
		for _, q := range queues {
			d, err := one.read(ctx, q, id)
			switch {
			case err == nil:
				found = append(found, foundLetter{one, *d})
			case !errors.Is(err, errNoLetter):
				return nil, err
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, exitf(exitFailed, "no dead letter %q%s (see solobeat dead list)", id, inQueue(p.queue))
	case 1:
		return &found[0], nil
	}
	var where []string
	for _, f := range found {
		where = append(where, f.letter.Engine+" "+f.letter.Queue)
	}
	return nil, exitf(exitFailed, "%d dead letters have the id %q (%s): add --queue or --engine", len(found), id, strings.Join(where, ", "))
}

func inQueue(queue string) string {
	if queue == "" {
		return ""
	}
	return fmt.Sprintf(" in queue %q", queue)
}
