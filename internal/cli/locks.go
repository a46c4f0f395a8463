package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
)

// lockView is a lock as -o json prints it.
type lockView struct {
	Key      string `json:"key"`
	Held     bool   `json:"held"`
	TaskID   string `json:"task_id,omitempty"`
	Instance string `json:"instance,omitempty"`
	// Node is the replica's name, "" if it has none or is gone.
	Node   string     `json:"node,omitempty"`
	Fence  uint64     `json:"fence,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	LeftMS int64      `json:"left_ms"`
	// Foreign is true if somebody else's lock has the key, such as redis-py's.
	Foreign bool `json:"foreign"`
	// Kept is true if its run has ended, and min_hold keeps the lock.
	Kept bool `json:"kept"`
}

func lockViewOf(h lockguard.Holder) lockView {
	v := lockView{Key: h.Key, Held: h.Held, TaskID: h.TaskID, Instance: h.Instance, Fence: uint64(h.Fence), LeftMS: h.Left.Milliseconds(), Foreign: h.Foreign, Kept: h.Kept}
	if !h.Since.IsZero() {
		v.Since = &h.Since
	}
	return v
}

func (c *program) locksCommand() *cobra.Command {
	cmd := group("locks", "Who holds what, since when, TTL left, fence")
	cmd.AddCommand(
		c.withOutput(&cobra.Command{
			Use: "list", Short: "All locks that are held through Solobeat", Args: args(0, 0, ""),
			Example: "  solobeat locks list",
			RunE: func(cmd *cobra.Command, _ []string) error {
				ctx := cmd.Context()
				return c.withLocks(ctx, func(s *stores, b *lockredis.Backend) error { return c.locksList(ctx, s, b) })
			},
		}),
		c.withOutput(&cobra.Command{
			Use: "show KEY", Short: "One lock, by its key, whoever holds it", Args: args(1, 1, "one lock key"),
			Example: "  solobeat locks show report:lock",
			RunE: func(cmd *cobra.Command, keys []string) error {
				ctx := cmd.Context()
				return c.withLocks(ctx, func(s *stores, b *lockredis.Backend) error { return c.locksShow(ctx, s, b, keys[0]) })
			},
		}),
		c.locksReleaseCommand(),
	)
	return cmd
}

func (c *program) locksReleaseCommand() *cobra.Command {
	var yes bool
	var reason string
	cmd := &cobra.Command{
		Use: "release KEY", Short: "Free a lock, whoever holds it", Args: args(1, 1, "one lock key"),
		Long: `Free a lock, whoever holds it, and let those who wait for it on. It is for a lock
whose holder hangs, or was not Solobeat's and is gone; one of a worker that died
runs out by itself.

A run that still holds it is cancelled as lost at its next renewal, and comes
back as after any loss. Until then two runs may go on: what refuses a smaller
fence is safe, since the next holder's is larger.

It asks first, or wants --yes where nobody can be asked.`,
		Example: `  solobeat locks release report:lock
  solobeat locks release report:lock --yes --reason "the host is gone"`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			if keys[0] == "" { // of an unset variable: it would count as released
				return usagef("the lock's key is empty")
			}
			ctx := cmd.Context()
			return c.withLocks(ctx, func(s *stores, b *lockredis.Backend) error {
				return c.locksRelease(ctx, s, b, keys[0], yes, reason)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return c.withOutput(cmd)
}

// openLocks is open for commands that need the locks' store only.
func (c *program) openLocks(ctx context.Context, role string) (*stores, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	if c.logLevel == "" {
		cfg.Log.Level = "error"
	}
	s, err := openStores(cfg, newLogger(c.Err, cfg.Log.Level, cfg.Log.Format), role)
	if err != nil {
		return nil, err
	}
	if err := s.reach(ctx, 0, s.lockServer()); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// withLocks opens the locks' back end for one command.
func (c *program) withLocks(ctx context.Context, do func(*stores, *lockredis.Backend) error) error {
	s, err := c.openLocks(ctx, "locks")
	if err != nil {
		return err
	}
	defer s.close()
	b, err := s.lockBackend()
	if err != nil {
		return err
	}
	return do(s, b)
}

func (c *program) locksList(ctx context.Context, s *stores, b *lockredis.Backend) error {
	views, broken := []lockView{}, []error(nil)
	for h, err := range b.List(ctx) {
		if err != nil && h.Key == "" {
			return err
		}
		if err != nil {
			broken = append(broken, err)
			continue
		}
		views = append(views, lockViewOf(h))
	}
	s.nameNodes(ctx, views)
	slices.SortFunc(views, func(a, b lockView) int { return cmp.Compare(a.Key, b.Key) })
	t := &table{header: []string{"KEY", "HOLDER", "SINCE", "LEFT", "FENCE"}}
	for _, v := range views {
		t.rows = append(t.rows, []string{v.Key, v.holder(), sinceText(v.Since), short(time.Duration(v.LeftMS) * time.Millisecond), fmt.Sprint(v.Fence)})
	}
	empty := "no lock is held through Solobeat"
	if len(broken) > 0 {
		empty = "no lock that could be read is held"
	}
	return errors.Join(append(broken, c.print(views, t, empty))...)
}

// holder is who holds the lock: the task, and the replica that runs it.
func (v lockView) holder() string {
	id := cmp.Or(v.TaskID, v.Instance)
	if v.Node != "" {
		id += " (" + v.Node + ")"
	}
	if v.Kept {
		id += ", ended"
	}
	return id
}

// left is how long the lock lasts unless it is renewed.
func (v lockView) left() string {
	if v.LeftMS == 0 {
		return "for ever: it has no TTL"
	}
	return short(time.Duration(v.LeftMS) * time.Millisecond)
}

const foreignHolder = "somebody without a name of ours (redis-py's Lock, or a program of your own)"

// sentence tells people who holds the lock.
func (v lockView) sentence() string {
	if v.Foreign {
		return fmt.Sprintf("%s is held by %s, left: %s", v.Key, foreignHolder, v.left())
	}
	return fmt.Sprintf("%s is held by %s, since %s, left: %s, fence %d", v.Key, v.holder(), sinceText(v.Since), v.left(), v.Fence)
}

// locksRelease frees a lock by force.
func (c *program) locksRelease(ctx context.Context, s *stores, b *lockredis.Backend, key string, yes bool, reason string) error {
	h, err := b.Read(ctx, key)
	switch {
	case errors.Is(err, lockguard.ErrForeignKey):
		return exitf(exitFailed, "%w: it is left alone", err)
	case err != nil:
		return err
	}
	if h.Held {
		seen := []lockView{lockViewOf(h)}
		s.nameNodes(ctx, seen)
		c.note("%s", seen[0].sentence())
		if !yes {
			if err := c.confirm(ctx, "Release it?"); err != nil {
				return err
			}
		}
	}
	return c.release(ctx, s, b, key, reason)
}

func (c *program) release(ctx context.Context, s *stores, b lockguard.Backend, key, reason string) error {
	g, err := lockguard.New(lockguard.Config{Backend: b, Logger: s.log})
	if err != nil {
		return err
	}
	freed, err := g.ForceRelease(ctx, key, reason)
	if err != nil {
		return err
	}
	s.wake(ctx, key)
	freed.Key = key
	v := []lockView{lockViewOf(freed)}
	s.nameNodes(ctx, v)
	switch {
	case !freed.Held:
		c.note("%s is free: there was nothing to release", key)
	case freed.Kept:
		c.note("released: %s; its run had ended", key)
	case freed.Foreign:
		c.note("released: %s; whoever held it is not told", key)
	default:
		c.note("released: %s; the run of %s is cancelled as lost at its next renewal, and the next fence is above %d", key, v[0].holder(), freed.Fence)
	}
	if c.output == "json" {
		return c.print(v[0], nil, "")
	}
	return nil
}

// confirm asks whoever sits at the terminal.
func (c *program) confirm(ctx context.Context, question string) error {
	if !isTerminal(c.In) || !isTerminal(c.Err) {
		return usagef("--yes is needed, since nobody can be asked here")
	}
	_, _ = fmt.Fprint(c.Err, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() { // a read of a terminal does not end with a context
		text, _ := bufio.NewReader(c.In).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
	}
	return exitf(exitFailed, "nothing was done")
}

// nameNodes fills in the replicas' names. The registry may be on another server
// than the locks, and who only wants to see locks does not wait for it long.
func (s *stores) nameNodes(ctx context.Context, views []lockView) {
	if !slices.ContainsFunc(views, func(v lockView) bool { return v.Instance != "" }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	replicas, err := s.admin(nil).Replicas(ctx)
	if err != nil {
		s.log.Debug("replicas", "error", err)
	}
	nodes := map[string]string{}
	for _, r := range replicas {
		nodes[r.Instance] = r.Node
	}
	for i, v := range views {
		views[i].Node = nodes[v.Instance]
	}
}

func sinceText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return ago(*t)
}

func (c *program) locksShow(ctx context.Context, s *stores, b *lockredis.Backend, key string) error {
	h, err := b.Read(ctx, key)
	if err != nil {
		return err
	}
	h.Key = key
	one := []lockView{lockViewOf(h)}
	s.nameNodes(ctx, one)
	v, t := one[0], &table{}
	t.add("key", v.Key)
	if !v.Held {
		t.add("held", "no")
		return c.print(v, t, "")
	}
	holder := cmp.Or(v.TaskID, v.Instance)
	switch {
	case v.Foreign:
		holder = foreignHolder
	case v.Kept:
		holder += ", which has ended: min_hold keeps the lock"
	}
	t.add("held by", holder)
	t.add("instance", v.Instance)
	t.add("node", v.Node)
	t.add("since", sinceText(v.Since))
	t.add("left", v.left())
	t.add("fence", fmt.Sprint(v.Fence))
	return c.print(v, t, "")
}
