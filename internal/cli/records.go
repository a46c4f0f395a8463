package cli

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
)

// recordView is a record as -o json prints it.
type recordView struct {
	ID          string          `json:"id"`
	Namespace   string          `json:"task"`
	Key         string          `json:"key"`
	State       string          `json:"state"`
	TaskID      string          `json:"task_id,omitempty"`
	Instance    string          `json:"instance,omitempty"`
	Fence       uint64          `json:"fence"`
	Attempt     int             `json:"attempt"`
	LeaseLeftMS int64           `json:"lease_left_ms,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	ResultKind  string          `json:"result_kind"`
	Error       string          `json:"error,omitempty"`
	Created     time.Time       `json:"created"`
	Done        *time.Time      `json:"done,omitempty"`
	Expires     *time.Time      `json:"expires,omitempty"`
}

func recordViewOf(r idempotency.Record) recordView {
	hash := r.Key.Hash()
	v := recordView{
		ID: hex.EncodeToString(hash[:]), Namespace: r.Key.Namespace, Key: r.Key.Text, State: r.State.String(), TaskID: r.TaskID, Instance: r.Instance,
		Fence: r.Fence, Attempt: r.Attempt, LeaseLeftMS: r.LeaseLeft.Milliseconds(), Result: r.Result.Data, ResultKind: r.Result.Kind.String(), Created: r.Created,
	}
	if r.ErrMsg != "" {
		v.Error = strings.TrimPrefix(r.ErrCode+": "+r.ErrMsg, ": ")
	}
	if !r.Done.IsZero() {
		v.Done = &r.Done
	}
	if !r.Expires.IsZero() {
		v.Expires = &r.Expires
	}
	return v
}

func (c *program) recordsCommand() *cobra.Command {
	cmd := group("records", "The idempotency store: what was done, and what is being done")
	var force bool
	var reason string
	forget := &cobra.Command{
		Use: "forget ID", Short: "Let a key be run again",
		Long: `Let a key be run again. A run that still has the record becomes stale: its
result is dropped. A record in progress needs --force.`,
		Args:    args(1, 1, "one record id, see records list"),
		Example: `  solobeat records forget 3f2a9c --reason "report was printed blank"`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.recordsForget(cmd.Context(), ids[0], force, reason)
		},
	}
	forget.Flags().BoolVar(&force, "force", false, "also if it is in progress")
	forget.Flags().StringVar(&reason, "reason", "", "why, kept in the record")
	cmd.AddCommand(
		c.withOutput(&cobra.Command{
			Use: "list", Short: "All records", Args: args(0, 0, ""), Example: "  solobeat records list",
			RunE: func(cmd *cobra.Command, _ []string) error { return c.recordsList(cmd.Context()) },
		}),
		c.withOutput(&cobra.Command{
			Use: "show ID", Short: "One record, by the beginning of its id", Args: args(1, 1, "one record id, see records list"),
			Example: "  solobeat records show 3f2a9c",
			RunE:    func(cmd *cobra.Command, ids []string) error { return c.recordsShow(cmd.Context(), ids[0]) },
		}),
		c.withOutput(forget),
	)
	return cmd
}

func (c *program) openRecords(ctx context.Context) (*stores, *idemredis.Store, error) {
	s, err := c.openLocks(ctx, "records")
	if err != nil {
		return nil, nil, err
	}
	st, err := s.recordStore()
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, st, nil
}

func (c *program) recordsList(ctx context.Context) error {
	s, st, err := c.openRecords(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	views := []recordView{}
	for r, err := range st.List(ctx) {
		if err != nil {
			return err
		}
		views = append(views, recordViewOf(r))
	}
	slices.SortFunc(views, func(a, b recordView) int { return -a.Created.Compare(b.Created) })
	t := &table{header: []string{"ID", "STATE", "TASK", "KEY", "TASK ID", "ATTEMPT", "CREATED"}}
	for _, v := range views {
		t.add(v.ID[:12], v.State, v.Namespace, v.Key, v.TaskID, fmt.Sprint(v.Attempt), ago(v.Created))
	}
	return c.print(views, t, "no records")
}

// find returns the one record whose id begins with the given text; the key
// itself is taken as well.
func find(ctx context.Context, st *idemredis.Store, id string) (idempotency.Record, error) {
	var found []idempotency.Record
	for r, err := range st.List(ctx) {
		if err != nil {
			return idempotency.Record{}, err
		}
		hash := r.Key.Hash()
		if strings.HasPrefix(hex.EncodeToString(hash[:]), strings.ToLower(id)) || r.Key.Text == id {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return idempotency.Record{}, exitf(exitFailed, "no record %q (see solobeat records list)", id)
	case 1:
		return st.Get(ctx, found[0].Key.Hash())
	default:
		return idempotency.Record{}, exitf(exitFailed, "%q means %d records: give more of the id", id, len(found))
	}
}

func (c *program) recordsShow(ctx context.Context, id string) error {
	s, st, err := c.openRecords(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	r, err := find(ctx, st, id)
	if err != nil {
		return err
	}
	return c.printRecord(r)
}

func (c *program) printRecord(r idempotency.Record) error {
	v := recordViewOf(r)
	t := &table{}
	for _, row := range [][2]string{
		{"id", v.ID},
		{"task", v.Namespace},
		{"key", v.Key},
		{"state", v.State},
		{"task id", v.TaskID},
		{"instance", v.Instance},
		{"fence", fmt.Sprint(v.Fence)},
		{"attempt", fmt.Sprint(v.Attempt)},
		{"lease left", short(time.Duration(v.LeaseLeftMS) * time.Millisecond)},
		{"result", cmp.Or(string(v.Result), v.ResultKind)},
		{"error", v.Error},
		{"created", stamp(r.Created)},
		{"done", stamp(r.Done)},
		{"expires", stamp(r.Expires)},
	} {
		t.add(row[0], row[1])
	}
	return c.print(v, t, "")
}

func (c *program) recordsForget(ctx context.Context, id string, force bool, reason string) error {
	s, st, err := c.openRecords(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	r, err := find(ctx, st, id)
	if err != nil {
		return err
	}
	r, err = st.Forget(ctx, r.Key, force, reason)
	if errors.Is(err, idempotency.ErrInProgress) {
		return exitf(exitBusy, "%w: it is being run by %s; --force makes that run stale", err, cmp.Or(r.TaskID, "somebody"))
	}
	if err != nil {
		return err
	}
	c.note("forgotten: %s of %s may be run again", r.Key.Text, r.Key.Namespace)
	if c.output == "json" {
		return c.printRecord(r)
	}
	return nil
}
