// Package idemredis keeps idempotency records in Redis or Valkey.
//
// A record is a hash, solobeat:<namespace>:record:{<hex SHA-256 of the key>};
// a result above 64 bytes is a string beside it, with ":r" behind, since one
// long value would cost every record its compact form. The braces make both lie
// in one cluster slot. Each operation is one script on one record, and reads
// the server's clock.
//
// Redis is a best-effort store: a failover, a restart or an eviction may lose
// records that it has acknowledged. [Store.Check] refuses what it can see.
package idemredis

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
)

// Options are a store's settings.
type Options struct {
	// Namespace keeps deployments on one server apart; "" means "default".
	// Letters, digits and ._- only, at most 64.
	Namespace string
	// KeyPrefix stands before every key, verbatim (redis.global_keyprefix).
	KeyPrefix string
	// AssumeNoEviction silences the warning where the server does not tell its
	// maxmemory-policy. It does not allow an evicting one.
	AssumeNoEviction bool
	// Logger takes warnings; nil discards.
	Logger *slog.Logger
}

// Store keeps records in Redis. It implements [idempotency.Store].
type Store struct {
	client redis.UniversalClient
	run    *redisconn.Runner
	joint  *redisconn.Batcher // for what each run does
	prefix string             // of every record's key, up to the brace
	opt    Options
}

var _ idempotency.Store = (*Store)(nil)

var namespaceRE = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// New returns a store on client, which stays the caller's. It does not connect.
func New(client redis.UniversalClient, o Options) (*Store, error) {
	if o.Namespace == "" {
		o.Namespace = tasks.DefaultNamespace
	}
	if !namespaceRE.MatchString(o.Namespace) {
		return nil, fmt.Errorf("idemredis: namespace %q: letters, digits and ._- only, at most 64", o.Namespace)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{client: client, opt: o}
	s.use(redisconn.NewRunner(client))
	s.prefix = o.KeyPrefix + "solobeat:" + o.Namespace + ":record:"
	return s, nil
}

func (s *Store) use(r *redisconn.Runner) { s.run, s.joint = r, redisconn.NewBatcher(r) }

// Name is "redis".
func (s *Store) Name() string { return "redis" }

// Strength is [idempotency.BestEffort].
func (s *Store) Strength() idempotency.Strength { return idempotency.BestEffort }

// Check refuses a server whose maxmemory-policy evicts: even volatile-* takes
// records, since they have a time to live (hibiken/asynq#799). A policy that
// cannot be read is a warning.
func (s *Store) Check(ctx context.Context) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return unavailable("check", err)
	}
	policy, err := redisconn.Policy(ctx, s.client)
	if err != nil {
		return unavailable("check", err)
	}
	if policy == "" {
		if !s.opt.AssumeNoEviction {
			s.opt.Logger.Warn("the server does not tell its maxmemory-policy: with any but noeviction it may drop idempotency records")
		}
		return nil
	}
	if policy != "noeviction" {
		return fmt.Errorf("%w: maxmemory-policy is %s; set maxmemory-policy to noeviction, or use a server of its own for records", idempotency.ErrUnsafeEviction, policy)
	}
	return nil
}

func (s *Store) keys(hash [32]byte) []string {
	key := s.prefix + "{" + hex.EncodeToString(hash[:]) + "}"
	return []string{key, key + ":r"}
}

// Claim implements [idempotency.Store].
func (s *Store) Claim(ctx context.Context, key idempotency.Key, owner idempotency.Owner, o idempotency.ClaimOptions) (idempotency.Verdict, idempotency.Claim, idempotency.Record, error) {
	var none idempotency.Claim
	if err := key.Validate(); err != nil {
		return 0, none, idempotency.Record{}, err
	}
	o, err := o.WithDefaults()
	if err != nil {
		return 0, none, idempotency.Record{}, err
	}
	late := func(reply any, err error) { // claimed for who has gone
		if err == nil {
			if code, _, err := decode(reply); err == nil && verdicts[code] == idempotency.Run {
				s.giveBack(ctx, key, owner)
			}
		}
	}
	keys := s.keys(key.Hash())
	reply, err := s.joint.Run(ctx, late, claimScript, 2, keys[0], keys[1], owner.String(), o.Fingerprint,
		o.Lease.Milliseconds(), o.Hold.Milliseconds(), o.MinFence, o.TaskID, o.Instance, key.Namespace, key.Text)
	if err != nil {
		return 0, none, idempotency.Record{}, unavailable("claim", err)
	}
	code, rec, err := decode(reply)
	if err != nil {
		return 0, none, rec, err
	}
	verdict, ok := verdicts[code]
	if !ok {
		return 0, none, rec, fmt.Errorf("idemredis: claim: unknown answer %q", code)
	}
	if verdict != idempotency.Run {
		return verdict, none, rec, nil
	}
	return verdict, idempotency.Claim{
		Key: key, Owner: owner, Fence: rec.Fence, Attempt: rec.Attempt, Takeover: rec.Takeover, Options: o,
	}, rec, nil
}

// giveBackTimeout bounds the release of what was claimed too late.
const giveBackTimeout = 2 * time.Second

// giveBack abandons what nobody knows to be claimed; should it fail, the lease
// decides.
func (s *Store) giveBack(ctx context.Context, key idempotency.Key, owner idempotency.Owner) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err := s.Abandon(ctx, key, owner); err != nil && !errors.Is(err, idempotency.ErrStale) && !errors.Is(err, idempotency.ErrRecordLost) {
		s.opt.Logger.Warn("a record that was claimed too late could not be given back; its lease decides", "key", key.String(), "error", err)
	}
}

// Abandon implements [idempotency.Store].
func (s *Store) Abandon(ctx context.Context, key idempotency.Key, owner idempotency.Owner) error {
	if err := key.Validate(); err != nil {
		return err
	}
	cause := idempotency.Failure{Code: "Abandoned", Msg: "its run has not begun"}
	return s.release(ctx, key, owner, 0, "released", 0, idempotency.DefaultHold, cause)
}

// Renew implements [idempotency.Store]: one pipeline.
func (s *Store) Renew(ctx context.Context, items []idempotency.RenewItem) []idempotency.RenewResult {
	calls := make([]redisconn.Call, len(items))
	for i, it := range items {
		c := it.Claim
		calls[i] = redisconn.Call{
			Keys: s.keys(c.Key.Hash())[:1],
			Args: []any{c.Owner.String(), c.Fence, c.Options.Lease.Milliseconds(), c.Options.Hold.Milliseconds()},
		}
	}
	results := make([]idempotency.RenewResult, len(items))
	for i, cmd := range s.run.RunAll(ctx, renewScript, calls) {
		reply, err := cmd.Result()
		results[i].Err = outcome("renew", reply, err)
	}
	return results
}

// Complete implements [idempotency.Store].
func (s *Store) Complete(ctx context.Context, c idempotency.Claim, r idempotency.Result, retention time.Duration) error {
	kind, data := storedKind(r), []byte(nil)
	if r.Kind == idempotency.ResultInline {
		data = r.Data
	}
	keys := s.keys(c.Key.Hash())
	reply, err := s.joint.Run(ctx, nil, completeScript, 2, keys[0], keys[1],
		c.Owner.String(), c.Fence, millis(retention), kind, data,
		c.Attempt, c.Options.TaskID, c.Options.Instance, c.Options.Fingerprint, c.Key.Namespace, c.Key.Text)
	return outcome("complete", reply, err)
}

// Release implements [idempotency.Store].
func (s *Store) Release(ctx context.Context, c idempotency.Claim, cause idempotency.Failure, backoff time.Duration) error {
	return s.release(ctx, c.Key, c.Owner, c.Fence, "released", backoff, max(c.Options.Hold, backoff), cause)
}

// Fail implements [idempotency.Store].
func (s *Store) Fail(ctx context.Context, c idempotency.Claim, cause idempotency.Failure, retention time.Duration) error {
	return s.release(ctx, c.Key, c.Owner, c.Fence, "failed", 0, retention, cause)
}

func (s *Store) release(ctx context.Context, key idempotency.Key, owner idempotency.Owner, fence uint64, state string, backoff, keep time.Duration, cause idempotency.Failure) error {
	reply, err := s.run.Run(ctx, releaseScript, s.keys(key.Hash())[:1],
		owner.String(), fence, state, backoff.Milliseconds(), millis(keep), cause.Code, cause.Msg).Result()
	return outcome(state, reply, err)
}

// Peek implements [idempotency.Store].
func (s *Store) Peek(ctx context.Context, key idempotency.Key) (idempotency.Record, bool, error) {
	if err := key.Validate(); err != nil {
		return idempotency.Record{}, false, err
	}
	rec, err := s.Get(ctx, key.Hash())
	if errors.Is(err, idempotency.ErrNotFound) {
		return idempotency.Record{}, false, nil
	}
	return rec, err == nil, err
}

// Get implements [idempotency.Store].
func (s *Store) Get(ctx context.Context, hash [32]byte) (idempotency.Record, error) {
	reply, err := s.run.Run(ctx, peekScript, s.keys(hash), 1).Result()
	if err != nil {
		return idempotency.Record{}, unavailable("peek", err)
	}
	code, rec, err := decode(reply)
	if err == nil && code == "absent" {
		err = fmt.Errorf("%w: {%x}", idempotency.ErrNotFound, hash)
	}
	return rec, err
}

// Forget implements [idempotency.Store].
func (s *Store) Forget(ctx context.Context, key idempotency.Key, force bool, reason string) (idempotency.Record, error) {
	if err := key.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	forced := 0
	if force {
		forced = 1
	}
	cause := idempotency.NewFailure(errors.New(reason))
	reply, err := s.run.Run(ctx, forgetScript, s.keys(key.Hash()), forced, idempotency.DefaultHold.Milliseconds(), cause.Msg).Result()
	if err != nil {
		return idempotency.Record{}, unavailable("forget", err)
	}
	code, rec, err := decode(reply)
	switch {
	case err != nil:
		return rec, err
	case code == "absent":
		return rec, fmt.Errorf("%w: %s", idempotency.ErrNotFound, key)
	case code == "busy":
		return rec, fmt.Errorf("%w: %s, lease left %v", idempotency.ErrInProgress, key, rec.LeaseLeft)
	}
	return rec, nil
}

// listBatch is how many keys one step of a list looks at.
const listBatch = 500

// List implements [idempotency.Store]. It walks the server's keys, which costs
// claims nothing and a list on a large server some time; an index would have to
// be written at each claim, in another cluster slot.
func (s *Store) List(ctx context.Context) iter.Seq2[idempotency.Record, error] {
	return func(yield func(idempotency.Record, error) bool) {
		seen := map[string]bool{}
		pattern := globEscape(s.prefix) + "{*}"
		for cursor := uint64(0); ; {
			keys, next, err := s.client.Scan(ctx, cursor, pattern, listBatch).Result()
			if err != nil {
				yield(idempotency.Record{}, unavailable("list", err))
				return
			}
			if !s.listPage(ctx, keys, seen, yield) {
				return
			}
			if cursor = next; cursor == 0 {
				return
			}
		}
	}
}

// listPage yields the records of keys that were not seen before; SCAN may tell
// a key twice. False: the reader has enough, or was told an error.
func (s *Store) listPage(ctx context.Context, keys []string, seen map[string]bool, yield func(idempotency.Record, error) bool) bool {
	var calls []redisconn.Call
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			calls = append(calls, redisconn.Call{Keys: []string{k, k + ":r"}, Args: []any{0}})
		}
	}
	if len(calls) == 0 {
		return true
	}
	for _, cmd := range s.run.RunAll(ctx, peekScript, calls) {
		reply, err := cmd.Result()
		if err != nil {
			yield(idempotency.Record{}, unavailable("list", err))
			return false
		}
		code, rec, err := decode(reply)
		if err == nil && code == "absent" {
			continue
		}
		if !yield(rec, err) || err != nil {
			return false
		}
	}
	return true
}

// millis is a time to live in whole milliseconds; 0 would drop the record.
func millis(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// globEscape quotes the characters that SCAN's patterns treat as special.
func globEscape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(`*?[]\^`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unavailable wraps whatever kept a call from being answered as it should. A
// script that was refused (out of memory, read-only, no permission) has done
// nothing; of a network error that is not known.
func unavailable(op string, err error) error {
	return fmt.Errorf("%w: %s on redis: %w", idempotency.ErrStoreUnavailable, op, err)
}

// outcome decodes the answer {code} of renew, complete and release.
func outcome(op string, reply any, err error) error {
	if err != nil {
		return unavailable(op, err)
	}
	code := ""
	if list, _ := reply.([]any); len(list) > 0 {
		code, _ = list[0].(string)
	}
	switch code {
	case "done", "renewed":
		return nil
	case "stale":
		return idempotency.ErrStale
	case "lost", "absent":
		return idempotency.ErrRecordLost
	default:
		return fmt.Errorf("idemredis: %s: unknown answer %q", op, strconv.Quote(code))
	}
}
