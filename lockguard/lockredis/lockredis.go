package lockredis

import (
	"context"
	_ "embed" // scripts
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

//go:embed acquire.lua
var acquireSource string

//go:embed renew.lua
var renewSource string

//go:embed release.lua
var releaseSource string

//go:embed keep.lua
var keepSource string

//go:embed holder.lua
var holderSource string

//go:embed force.lua
var forceSource string

//go:embed read.lua
var readSource string

// companionLife is how long a companion outlives the last grant, unless the hold
// may last longer.
const companionLife = 25 * time.Hour

// giveBackTimeout bounds the release of what was granted too late.
const giveBackTimeout = 2 * time.Second

// Options are the settings of a Backend.
type Options struct {
	// Namespace stands in the companion keys; "" means "default". Guards that
	// share locks must share it.
	Namespace string
	// KeyPrefix stands before every key but the locks, whose names are verbatim.
	KeyPrefix string
	// Logger gets what waiters meet; nil discards.
	Logger *slog.Logger
}

// Backend is a lockguard.Backend, Waker, Lister and Yielder. It needs no Close: its one
// subscription lives while somebody waits for a lock.
type Backend struct {
	client  redis.UniversalClient
	runner  *redisconn.Runner
	batcher *redisconn.Batcher
	log     *slog.Logger
	prefix  string // of companion keys and the channel
	channel string

	channelWord any // channel, as a word of a command

	acquire, renew, release, keep, force, read *redisconn.Script

	mu       sync.Mutex
	listener *listener // nil while nobody waits
}

var (
	_ lockguard.Backend = (*Backend)(nil)
	_ lockguard.Waker   = (*Backend)(nil)
	_ lockguard.Lister  = (*Backend)(nil)
	_ lockguard.Yielder = (*Backend)(nil)
)

// New makes a Backend on a client, which stays the caller's to close. The client
// should end commands with their context (ContextTimeoutEnabled) and not repeat
// them by itself (MaxRetries -1): the Guard repeats what may be repeated.
func New(client redis.UniversalClient, o Options) (*Backend, error) {
	switch client.(type) {
	case nil:
		return nil, fmt.Errorf("%w: lockredis: client is nil", lockguard.ErrConfig)
	case *redis.ClusterClient, *redis.Ring:
		// A batch of renewals is one script over keys of many slots.
		return nil, fmt.Errorf("%w: lockredis: one Redis server is needed, not a cluster", lockguard.ErrConfig)
	}
	return newBackend(client, redisconn.NewRunner(client), o)
}

func newBackend(client redis.UniversalClient, runner *redisconn.Runner, o Options) (*Backend, error) {
	ns := o.Namespace
	if ns == "" {
		ns = tasks.DefaultNamespace
	}
	if strings.ContainsAny(ns, "{} \r\n") {
		return nil, fmt.Errorf("%w: lockredis: namespace %q has a brace or white space in it", lockguard.ErrConfig, ns)
	}
	b := &Backend{
		client: client, runner: runner, batcher: redisconn.NewBatcher(runner), log: o.Logger,
		prefix: o.KeyPrefix + "solobeat:" + ns + ":",
		// Never with allow-oom: a full server must refuse a claim.
		acquire: redisconn.NewJointScript(acquireSource),
		read:    redisconn.NewScript(holderSource + readSource),
		renew:   redisconn.NewScript(renewSource, "allow-oom"),
		release: redisconn.NewJointScript(redisconn.UnlockSource+releaseSource, "allow-oom"),
		keep:    redisconn.NewScript(keepSource, "allow-oom"),
		force:   redisconn.NewScript(holderSource+forceSource, "allow-oom"),
	}
	b.channel = b.prefix + "lock-released"
	b.channelWord = b.channel
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	return b, nil
}

// Name is "redis".
func (b *Backend) Name() string { return "redis" }

// Probe pings and reads the eviction policy: a server that evicts can drop a
// held lock (sibson/redbeat#291). That is a warning, as is a policy that cannot
// be read.
func (b *Backend) Probe(ctx context.Context) (lockguard.Caps, error) {
	if err := b.client.Ping(ctx).Err(); err != nil {
		return lockguard.Caps{}, err
	}
	caps := lockguard.Caps{Fence: lockguard.BestEffort}
	policy, err := redisconn.Policy(ctx, b.client)
	switch {
	case err != nil:
		return lockguard.Caps{}, err
	case policy == "":
		caps.Warnings = append(caps.Warnings,
			"Redis does not tell its maxmemory-policy; with any other than noeviction it can drop held locks.")
	case policy != "noeviction":
		caps.Warnings = append(caps.Warnings, fmt.Sprintf(
			"Redis has maxmemory-policy %s and can drop held locks; set it to noeviction.", policy))
	}
	return caps, nil
}

// TryAcquire implements lockguard.Backend.
func (b *Backend) TryAcquire(ctx context.Context, a lockguard.Attempt) (lockguard.Grant, error) {
	if a.TTL < lockguard.MinTTL {
		return lockguard.Grant{}, fmt.Errorf("%w: lockredis: ttl %v is below %v", lockguard.ErrConfig, a.TTL, lockguard.MinTTL)
	}
	life := max(companionLife, max(a.MaxHold, a.MinHold)+a.TTL)
	ref, base := lockguard.Ref{Key: a.Key, Token: a.Token}, a.FenceBase
	late := func(answer any, err error) { // granted to who has gone
		if err != nil {
			return
		}
		if _, err := decodeAcquire(ref.Key, base, answer); err == nil {
			b.giveBack(ctx, ref)
		}
	}
	answer, err := b.batcher.Run(ctx, late, b.acquire, 2, a.Key, b.companion(a.Key),
		a.Token, a.TTL.Milliseconds(), life.Milliseconds(), tail(a.FenceBase, a.TaskID, a.Instance))
	if err != nil {
		return lockguard.Grant{}, err
	}
	return decodeAcquire(a.Key, a.FenceBase, answer)
}

// Renew implements lockguard.Backend.
func (b *Backend) Renew(ctx context.Context, rs []lockguard.Renewal) []lockguard.RenewResult {
	results := make([]lockguard.RenewResult, len(rs))
	keys := make([]string, 0, len(rs))
	args := make([]any, 0, 2*len(rs))
	at := make([]int, 0, len(rs)) // index in rs of each key that is sent
	for i, r := range rs {
		if r.TTL < lockguard.MinTTL { // PEXPIRE with 0 deletes and reports success
			results[i].Err = fmt.Errorf("%w: lockredis: ttl %v is below %v", lockguard.ErrConfig, r.TTL, lockguard.MinTTL)
			continue
		}
		keys, args, at = append(keys, r.Key), append(args, r.Token, r.TTL.Milliseconds()), append(at, i)
	}
	if len(keys) == 0 {
		return results
	}
	codes, err := b.runner.Run(ctx, b.renew, keys, args...).Int64Slice()
	if err == nil && len(codes) != len(keys) {
		err = fmt.Errorf("lockredis: renew: %d codes for %d keys", len(codes), len(keys))
	}
	for j, i := range at {
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i] = decodeRenew(codes[j])
	}
	return results
}

// Release implements lockguard.Backend.
func (b *Backend) Release(ctx context.Context, r lockguard.Ref, keep time.Duration) (lockguard.Release, error) {
	var answer any
	var err error
	if keep < time.Millisecond {
		answer, err = b.batcher.Run(ctx, nil, b.release, 1, r.Key, r.Token, b.channelWord)
	} else {
		answer, err = b.runner.Run(ctx, b.keep, []string{r.Key, b.companion(r.Key)}, r.Token, keep.Milliseconds(), b.channel).Result()
	}
	if err != nil {
		return lockguard.ReleaseUnknown, err
	}
	return decodeRelease(answer)
}

// ReleaseChannel implements lockguard.Yielder.
func (b *Backend) ReleaseChannel() string { return b.channel }

// giveBack releases what nobody knows to be held; should it fail, the lock runs
// out by itself.
func (b *Backend) giveBack(ctx context.Context, r lockguard.Ref) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if _, err := b.Release(ctx, r, 0); err != nil {
		b.log.Warn("a lock that was granted too late could not be given back; it runs out by itself", "key", r.Key, "error", err)
	}
}

// ForceRelease implements lockguard.Backend.
func (b *Backend) ForceRelease(ctx context.Context, key string) (lockguard.Holder, error) {
	return b.holder(ctx, b.force, key, b.channel)
}

// Read implements lockguard.Backend.
func (b *Backend) Read(ctx context.Context, key string) (lockguard.Holder, error) {
	return b.holder(ctx, b.read, key)
}

// holder runs a script that tells the holder.
func (b *Backend) holder(ctx context.Context, script *redisconn.Script, key string, args ...any) (lockguard.Holder, error) {
	reply, err := b.runner.Run(ctx, script, []string{key, b.companion(key)}, args...).Slice()
	if err != nil {
		return lockguard.Holder{}, err
	}
	return decodeRead(key, reply)
}

var errReply = errors.New("lockredis: reply of the script is not understood")
