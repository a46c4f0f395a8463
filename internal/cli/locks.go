package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks/celery"
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
}

func lockViewOf(h lockguard.Holder) lockView {
	v := lockView{Key: h.Key, Held: h.Held, TaskID: h.TaskID, Instance: h.Instance, Fence: uint64(h.Fence), LeftMS: h.Left.Milliseconds(), Foreign: h.Foreign}
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
			RunE:    func(cmd *cobra.Command, _ []string) error { return c.locksList(cmd.Context()) },
		}),
		c.withOutput(&cobra.Command{
			Use: "show KEY", Short: "One lock, by its key, whoever holds it", Args: args(1, 1, "one lock key"),
			Example: "  solobeat locks show report:lock",
			RunE:    func(cmd *cobra.Command, keys []string) error { return c.locksShow(cmd.Context(), keys[0]) },
		}),
	)
	return cmd
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

func (c *program) locksList(ctx context.Context) error {
	s, err := c.openLocks(ctx, "locks")
	if err != nil {
		return err
	}
	defer s.close()
	b, err := s.lockBackend()
	if err != nil {
		return err
	}
	views := []lockView{}
	for h, err := range b.List(ctx) {
		if err != nil {
			return err
		}
		views = append(views, lockViewOf(h))
	}
	s.nameNodes(ctx, views)
	slices.SortFunc(views, func(a, b lockView) int { return cmp.Compare(a.Key, b.Key) })
	t := &table{header: []string{"KEY", "HOLDER", "SINCE", "LEFT", "FENCE"}}
	for _, v := range views {
		t.rows = append(t.rows, []string{v.Key, v.holder(), sinceText(v.Since), short(time.Duration(v.LeftMS) * time.Millisecond), fmt.Sprint(v.Fence)})
	}
	return c.print(views, t, "no lock is held")
}

// holder is who holds the lock: the task, and the replica that runs it.
func (v lockView) holder() string {
	id := cmp.Or(v.TaskID, v.Instance)
	if v.Node != "" {
		return id + " (" + v.Node + ")"
	}
	return id
}

// nameNodes fills in the replicas' names. The registry may be on another server
// than the locks, and who only wants to see locks does not wait for it long.
func (s *stores) nameNodes(ctx context.Context, views []lockView) {
	if !slices.ContainsFunc(views, func(v lockView) bool { return v.Instance != "" }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	a := celery.NewAdmin(celery.AdminConfig{Broker: s.registry, Namespace: s.cfg.Namespace, KeyPrefix: s.cfg.Redis.GlobalKeyPrefix, Queues: s.cfg.Worker.Queues})
	replicas, err := a.Replicas(ctx)
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

func (c *program) locksShow(ctx context.Context, key string) error {
	s, err := c.openLocks(ctx, "locks")
	if err != nil {
		return err
	}
	defer s.close()
	b, err := s.lockBackend()
	if err != nil {
		return err
	}
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
	if v.Foreign {
		holder = "somebody without a name of ours (redis-py's Lock, or a program of your own)"
	}
	left := short(time.Duration(v.LeftMS) * time.Millisecond)
	if v.LeftMS < 0 {
		left = "for ever: it has no TTL"
	}
	t.add("held by", holder)
	t.add("instance", v.Instance)
	t.add("node", v.Node)
	t.add("since", sinceText(v.Since))
	t.add("left", left)
	t.add("fence", fmt.Sprint(v.Fence))
	return c.print(v, t, "")
}
