package schedredis

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
)

//go:embed claim.lua
var claimSource string

//go:embed registry.lua
var registrySource string

//go:embed ran.lua
var ranSource string

//go:embed pause.lua
var pauseSource string

// batch is how many claims go into one pipeline: about 2 ms of script time
// each, so that nobody else waits long for the server.
const batch = 500

// Options say where the state lies.
type Options struct {
	// Namespace is the deployment's; "" is "default".
	Namespace string
	// KeyPrefix stands before every key, verbatim (redis.global_keyprefix).
	KeyPrefix string
}

// State keeps the schedule's state in Redis. It is safe for concurrent use.
type State struct {
	client   redis.UniversalClient
	runner   *redisconn.Runner
	claim    *redisconn.Script
	registry *redisconn.Script
	ran      *redisconn.Script
	pause    *redisconn.Script
	prefix   string
	warm     atomic.Bool
}

var (
	_ scheduler.State = (*State)(nil)
	_ scheduler.Admin = (*State)(nil)
)

// New returns the state on client, which stays the caller's to close.
func New(client redis.UniversalClient, o Options) *State {
	ns := o.Namespace
	if ns == "" {
		ns = tasks.DefaultNamespace
	}
	s := &State{
		client: client, claim: redisconn.NewScript(claimSource), registry: redisconn.NewScript(registrySource),
		ran:    redisconn.NewScript(ranSource, "allow-oom"),
		pause:  redisconn.NewScript(pauseSource, "allow-oom"), // a cure of a full server
		prefix: o.KeyPrefix + "solobeat:" + ns + ":sched:",
	}
	s.runner = redisconn.NewRunner(client)
	return s
}

func (s *State) jobKey(job string) string     { return s.prefix + "job:" + job }
func (s *State) historyKey(job string) string { return s.prefix + "history:" + job }

// Now implements [scheduler.State].
func (s *State) Now(ctx context.Context) (time.Time, error) {
	t, err := s.client.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("schedredis: TIME: %w", err)
	}
	return t.UTC(), nil
}

// Check implements [scheduler.State]: a server that evicts keys may drop a
// job's state, and then a tick would be lost or doubled. A server that does
// not tell its policy passes.
func (s *State) Check(ctx context.Context) error {
	policy, err := redisconn.Policy(ctx, s.client)
	var reply redis.Error
	switch {
	case errors.As(err, &reply) && !redisconn.Transient(err):
		return nil // INFO refused
	case err != nil:
		return fmt.Errorf("schedredis: %w", err)
	case policy != "" && policy != "noeviction":
		return fmt.Errorf("%w: maxmemory-policy is %s; set it to noeviction", scheduler.ErrUnsafePolicy, policy)
	}
	return nil
}

// Beat implements [scheduler.State]. The map is sent only where it is missing.
func (s *State) Beat(ctx context.Context, r scheduler.Replica, revisions map[string]string) (scheduler.BeatReply, error) {
	args := s.registryArgs("beat", r)
	reply, needMap, err := s.runRegistry(ctx, args)
	if err != nil || !needMap {
		return reply, err
	}
	args[7] = "1"
	for job, rev := range revisions {
		args = append(args, job, rev)
	}
	reply, needMap, err = s.runRegistry(ctx, args)
	if err == nil && needMap {
		err = errors.New("schedredis: registry asks for the map that was just sent")
	}
	return reply, err
}

// Leave implements [scheduler.State].
func (s *State) Leave(ctx context.Context, r scheduler.Replica) error {
	_, _, err := s.runRegistry(ctx, s.registryArgs("leave", r))
	return err
}

func (s *State) registryArgs(op string, r scheduler.Replica) []any {
	load := ""
	if r.Load > 0 {
		load = strconv.FormatInt(r.Load, 10)
	}
	return []any{op, s.prefix, r.ID, r.File, load, r.Name, r.Path, "0"}
}

func (s *State) runRegistry(ctx context.Context, args []any) (reply scheduler.BeatReply, needMap bool, err error) {
	keys := []string{s.prefix + "beats", s.prefix + "info", s.prefix + "files", s.prefix + "current"}
	v, err := s.runner.Run(ctx, s.registry, keys, args...).Slice()
	if err != nil {
		return reply, false, fmt.Errorf("schedredis: registry: %w", err)
	}
	return decodeRegistry(v)
}

// decodeRegistry reads what registry.lua returns; its header is the contract.
func decodeRegistry(v []any) (reply scheduler.BeatReply, needMap bool, err error) {
	if len(v) == 1 && text(v, 0) == "MAP" {
		return reply, true, nil
	}
	if len(v) != 12 || text(v, 0) != "OK" {
		return reply, false, fmt.Errorf("schedredis: registry answered %v", v)
	}
	buried, _ := v[5].([]any)
	for i := range buried {
		reply.Buried = append(reply.Buried, text(buried, i))
	}
	reply.Load, _ = strconv.ParseInt(text(v, 1), 10, 64)
	reply.Now = instant(text(v, 2))
	reply.Registered, reply.Switched = v[3] == int64(1), v[4] == int64(1)
	reply.Current = scheduler.FileInfo{
		Generation: text(v, 6), File: text(v, 7), Replica: text(v, 8), Name: text(v, 9), Path: text(v, 10),
	}
	others, _ := v[11].(int64)
	reply.Others = int(others)
	return reply, false, nil
}

// Claim implements [scheduler.State], in pipelines of at most 500. After the
// first that brought no answer at all the rest is not sent: a stuck server
// ends the batch.
func (s *State) Claim(ctx context.Context, r scheduler.Replica, claims []scheduler.Claim) []scheduler.ClaimResult {
	results := make([]scheduler.ClaimResult, 0, len(claims))
	for len(claims) > 0 {
		n := min(batch, len(claims))
		if !s.warm.Load() {
			n = 1 // a server that does not know the script yet learns it from one call, not from 500
		}
		got := s.claimSome(ctx, r, claims[:n])
		results = append(results, got...)
		claims = claims[n:]
		if last := got[len(got)-1]; last.Err != nil && !last.Refused {
			for range claims {
				results = append(results, scheduler.ClaimResult{Err: last.Err})
			}
			return results
		}
	}
	return results
}

func (s *State) claimSome(ctx context.Context, r scheduler.Replica, claims []scheduler.Claim) []scheduler.ClaimResult {
	calls := make([]redisconn.Call, len(claims))
	for i := range claims {
		calls[i] = s.claimCall(r, &claims[i])
	}
	warm := true
	results := make([]scheduler.ClaimResult, len(claims))
	for i, cmd := range s.runner.RunAll(ctx, s.claim, calls) {
		results[i] = decodeClaim(cmd)
		warm = warm && (results[i].Err == nil || results[i].Refused)
	}
	s.warm.Store(warm)
	return results
}

func (s *State) claimCall(r scheduler.Replica, c *scheduler.Claim) redisconn.Call {
	list := c.List
	if list == "" {
		list = s.prefix + "none" // never written: such a claim gives up, or is about what is sent elsewhere
	}
	return redisconn.Call{
		Keys: []string{s.jobKey(c.Job), s.historyKey(c.Job), s.prefix + "current", list},
		Args: []any{
			millis(c.Tick), millis(c.Due), millis(c.MissAfter), millis(c.Prev), flag(c.InOrder), millis(c.Base), c.Jumped,
			millis(c.Next), c.Revision, r.File, c.Label, c.Civil, r.ID, r.Name, c.TaskID, c.Message, step(c),
		},
	}
}

// decodeClaim reads what claim.lua returns; its header is the contract.
func decodeClaim(cmd *redis.Cmd) scheduler.ClaimResult {
	v, err := cmd.Slice()
	if err != nil {
		return scheduler.ClaimResult{Err: fmt.Errorf("schedredis: claim: %w", err), Refused: refused(err)}
	}
	r := scheduler.ClaimResult{Now: instant(text(v, 1))}
	switch text(v, 0) {
	case "FIRED":
		r.Outcome = scheduler.Fired
	case "DUP":
		r.Outcome, r.Mark, r.Last, r.By = scheduler.Duplicate, instant(text(v, 2)), instant(text(v, 3)), text(v, 4)
		r.LastAs = map[string]scheduler.Outcome{"fired": scheduler.Fired, "missed": scheduler.Missed, "paused": scheduler.Paused}[text(v, 5)]
	case "EARLY":
		ms, _ := strconv.ParseInt(text(v, 2), 10, 64)
		r.Outcome, r.Wait = scheduler.Early, time.Duration(ms)*time.Millisecond
	case "STALE":
		r.Outcome, r.Generation = scheduler.Stale, text(v, 2)
	case "GAP":
		r.Outcome, r.Mark = scheduler.Gap, instant(text(v, 2))
	case "MISSED":
		r.Outcome = scheduler.Missed
	case "PAUSED":
		r.Outcome = scheduler.Paused
	case "UNSEEDED":
		r.Outcome, r.Mark = scheduler.Unseeded, instant(text(v, 2))
		r.NeedBeat = r.Mark.IsZero()
	default:
		r.Err = fmt.Errorf("schedredis: claim answered %v", v)
	}
	return r
}

// refused tells an answer about one job's keys from trouble of the whole
// server: a full one, a replica, one that asks for a password. Redis 6 wraps
// the errors of commands in a text of its own, so the text is searched.
func refused(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) || redisconn.Transient(err) {
		return false
	}
	for _, word := range []string{"OOM", "MISCONF", "READONLY", "NOREPLICAS", "NOAUTH", "NOPERM", "NOSCRIPT", "UNKILLABLE"} {
		if strings.Contains(err.Error(), word) {
			return false
		}
	}
	return true
}

// text is element i of a script's reply as text, "" if it is not there.
func text(v []any, i int) string {
	if i >= len(v) {
		return ""
	}
	switch x := v[i].(type) {
	case string:
		return x
	case int64:
		return strconv.FormatInt(x, 10)
	default:
		return ""
	}
}

// instant reads milliseconds since the epoch; "" is the zero time.
func instant(ms string) time.Time {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// millis is the inverse of instant.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// step is what a claim does, as the script takes it.
func step(c *scheduler.Claim) string {
	switch {
	case c.Step == scheduler.Look:
		return "look"
	case c.Step == scheduler.Sent:
		return "sent"
	case c.List == "":
		return "give up"
	default:
		return "whole"
	}
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
