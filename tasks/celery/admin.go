package celery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/resultstore"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// AdminConfig is what an [Admin] is made of. Broker is required.
type AdminConfig struct {
	Broker *redis.Client
	// Results holds the results; nil is the broker's own database.
	Results *redis.Client
	// Namespace, KeyPrefix and ResultsKeyPrefix are as in [Config].
	Namespace, KeyPrefix, ResultsKeyPrefix string
	// Queues are the queues to report; empty is "celery".
	Queues []string
}

// Admin lists what is in the queues and who serves them. It changes nothing but
// dead letters, and those only where it is told to.
type Admin struct {
	cfg     AdminConfig
	keys    keys
	runner  *redisconn.Runner
	results *resultstore.Writer

	tails, requeueScript *redisconn.Script
}

// NewAdmin returns an Admin. It does not connect.
func NewAdmin(cfg AdminConfig) *Admin {
	if cfg.Namespace == "" {
		cfg.Namespace = tasks.DefaultNamespace
	}
	if len(cfg.Queues) == 0 {
		cfg.Queues = []string{DefaultQueue}
	}
	return &Admin{
		cfg: cfg, keys: keys{prefix: cfg.KeyPrefix, namespace: cfg.Namespace, results: cfg.ResultsKeyPrefix},
		runner: redisconn.NewRunner(cfg.Broker), results: newResults(cfg.Results, cfg.Broker),
		tails: redisconn.NewScript(tailsLua), requeueScript: fullScript(requeueLua),
	}
}

// QueueDepth is the number of messages of one queue.
type QueueDepth struct {
	Queue string `json:"queue"`
	// Waiting is the sum over the four priority lists.
	Waiting int64 `json:"waiting"`
	// Dead are the dead letters that are kept.
	Dead int64 `json:"dead"`
}

// Depths are the queues' numbers at one instant. Kombu keeps what is unacked
// in one hash for all queues of the database.
type Depths struct {
	Queues []QueueDepth `json:"queues"`
	// Unacked are messages that a worker, of any kind, has taken.
	Unacked int64 `json:"unacked"`
	// Parked are messages that wait for a time, a lock or a record.
	Parked int64 `json:"parked"`
	// DeadDropped are dead letters that fell out of bounds, over all queues.
	DeadDropped int64 `json:"dead_dropped"`
}

// Depths reads all numbers in one transaction: a message that is taken between
// two of them would count twice, or not at all.
func (a *Admin) Depths(ctx context.Context) (*Depths, error) {
	var waiting [][]*redis.IntCmd
	var dead []*redis.IntCmd
	var unacked, parked *redis.IntCmd
	var dropped *redis.StringSliceCmd
	ask := func(p redis.Pipeliner) error {
		waiting, dead = nil, nil
		for _, q := range a.cfg.Queues {
			var lists []*redis.IntCmd
			for _, key := range QueueKeys(a.keys.prefix, q) {
				lists = append(lists, p.LLen(ctx, key))
			}
			waiting = append(waiting, lists)
			dead = append(dead, p.XLen(ctx, a.keys.dead(q)))
		}
		unacked, parked = p.HLen(ctx, a.keys.unacked()), p.ZCard(ctx, a.keys.parked())
		dropped = p.HVals(ctx, a.keys.deadDropped())
		return nil
	}
	_, err := a.cfg.Broker.TxPipelined(ctx, ask)
	if redis.HasErrorPrefix(err, "EXECABORT") { // which does not say what was refused
		if _, each := a.cfg.Broker.Pipelined(ctx, ask); each != nil {
			err = each
		}
	}
	if err != nil {
		return nil, fmt.Errorf("celery: depths: %w", err)
	}
	d := &Depths{Parked: parked.Val(), Unacked: max(unacked.Val()-parked.Val(), 0)}
	for i, q := range a.cfg.Queues {
		n := QueueDepth{Queue: q, Dead: dead[i].Val()}
		for _, l := range waiting[i] {
			n.Waiting += l.Val()
		}
		d.Queues = append(d.Queues, n)
	}
	for _, v := range dropped.Val() {
		n, _ := strconv.ParseInt(v, 10, 64)
		d.DeadDropped += n
	}
	return d, nil
}

// Tails returns for each queue, in the order of [AdminConfig].Queues, a digest
// of the message that each of its lists gives out next, "" for an empty one. A
// message carries no time; whoever looks again can tell that it still waits.
func (a *Admin) Tails(ctx context.Context) ([][]string, error) {
	var keys []string
	for _, q := range a.cfg.Queues {
		keys = append(keys, QueueKeys(a.keys.prefix, q)...)
	}
	tails, err := a.runner.Run(ctx, a.tails, keys).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("celery: tails: %w", err)
	}
	if len(tails) != len(keys) {
		return nil, fmt.Errorf("celery: tails: %w: %d of %d", errReply, len(tails), len(keys))
	}
	return slices.Collect(slices.Chunk(tails, len(keys)/len(a.cfg.Queues))), nil
}

// Replica is one process of the registry.
type Replica struct {
	Instance string `json:"instance"`
	Node     string `json:"node"`
	Host     string `json:"host"`
	// Version is the program's, "" if it did not tell.
	Version string `json:"version,omitempty"`
	PID     int    `json:"pid"`
	// Since is when it registered.
	Since time.Time `json:"since"`
	// Until is the instant until which it counts as alive; its heartbeat
	// moves it on.
	Until time.Time `json:"until"`
	// Live is whether it does, by the broker's clock. Of the dead those are
	// listed that no living replica has buried yet.
	Live bool `json:"live"`
	// Queues are what it takes from.
	Queues []string `json:"queues"`
}

// Replicas lists the replicas that are registered, by node name.
func (a *Admin) Replicas(ctx context.Context) ([]Replica, error) {
	var (
		now   *redis.TimeCmd
		known *redis.ZSliceCmd
	)
	_, err := a.cfg.Broker.Pipelined(ctx, func(p redis.Pipeliner) error {
		now, known = p.Time(ctx), p.ZRangeWithScores(ctx, a.keys.replicas(), 0, -1)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("celery: replicas: %w", err)
	}
	entries := make([]*redis.MapStringStringCmd, len(known.Val()))
	_, err = a.cfg.Broker.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, z := range known.Val() {
			entries[i] = p.HGetAll(ctx, a.keys.entry(fmt.Sprint(z.Member)))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("celery: replicas: %w", err)
	}
	all := make([]Replica, 0, len(entries))
	for i, z := range known.Val() {
		h := entries[i].Val()
		pid, _ := strconv.Atoi(h["pid"])
		since, _ := strconv.ParseInt(h["since"], 10, 64)
		until := time.UnixMicro(int64(z.Score * 1e6)).UTC()
		all = append(all, Replica{
			Instance: fmt.Sprint(z.Member), Node: h["node"], Host: h["host"], Version: h["version"], PID: pid,
			Since: time.UnixMicro(since).UTC(), Until: until, Live: until.After(now.Val()), Queues: queuesOf(h["lists"]),
		})
	}
	slices.SortFunc(all, func(a, b Replica) int { return cmp.Compare(a.Node+a.Instance, b.Node+b.Instance) })
	return all, nil
}

func queuesOf(lists string) []string {
	queues := []string{}
	for _, name := range namesIn(lists) {
		if q, _ := wire.SplitQueueKey(name); !slices.Contains(queues, q) {
			queues = append(queues, q)
		}
	}
	return queues
}
