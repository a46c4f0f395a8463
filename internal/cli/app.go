package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/idempotency/idemredis"
	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/scheduler/schedredis"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
)

// stores are the Redis clients of the roles and what is built on them. Roles
// with one URL share one client.
type stores struct {
	cfg      *config.Config
	log      *slog.Logger
	instance string
	// embedded is true on the demo's own store, which tells no
	// maxmemory-policy.
	embedded bool
	// patience is for how long a step of the start is repeated.
	patience time.Duration

	broker, results, locks *redis.Client
	clients                map[string]*redis.Client // by URL
	sender                 *celery.Client
}

func openStores(cfg *config.Config, log *slog.Logger, role string) (*stores, error) {
	redisconn.Quiet(log)
	s := &stores{cfg: cfg, log: log, instance: celery.NewInstance(), clients: map[string]*redis.Client{}}
	open := func(url string) (*redis.Client, error) {
		if c, ok := s.clients[url]; ok {
			return c, nil
		}
		c, err := redisconn.Open(redisconn.Options{URL: url, Name: "solobeat-" + role, PoolSize: poolSize(cfg)})
		if err != nil {
			return nil, exit(exitConfig, err)
		}
		s.clients[url] = c
		return c, nil
	}
	var err error
	if s.broker, err = open(cfg.Redis.URL); err != nil {
		return nil, err
	}
	if s.results, err = open(cfg.Redis.ResultsURL); err != nil {
		return nil, err
	}
	if s.locks, err = open(cfg.Redis.LocksURL); err != nil {
		return nil, err
	}
	s.sender = celery.NewClient(celery.ClientConfig{
		Broker: s.broker, Results: s.results, Namespace: cfg.Namespace, KeyPrefix: cfg.Redis.GlobalKeyPrefix,
		ResultsKeyPrefix: cfg.Redis.ResultsKeyPrefix, Queue: cfg.Worker.Queues[0],
	})
	return s, nil
}

// poolSize leaves room for one blocking wait per list beside the runs.
func poolSize(cfg *config.Config) int {
	n := 4*len(cfg.Worker.Queues) + min(cfg.Worker.Concurrency, 64) + 16
	if cfg.Worker.Has(config.EngineAsynq) {
		n += min(cfg.Worker.Concurrency, 64) + 10*cfg.Asynq.Servers
	}
	return n
}

func (s *stores) close() {
	for _, c := range s.clients {
		_ = c.Close()
	}
}

// server is a Redis server of ours and the key that names it.
type server struct {
	client   *redis.Client
	key, url string
}

// setting is where the server's URL is set, as messages name it.
func (s server) setting() string { return s.key + " (" + config.EnvName(s.key) + ")" }

// all are the servers of the roles, the broker first; one that has several
// roles is named by the first.
func (s *stores) all() []server {
	var all []server
	for _, one := range []server{s.brokerServer(), s.resultServer(), s.lockServer()} {
		if !slices.ContainsFunc(all, func(other server) bool { return other.client == one.client }) {
			all = append(all, one)
		}
	}
	return all
}

// brokerServer holds the queues and the schedule.
func (s *stores) brokerServer() server { return server{s.broker, "redis.url", s.cfg.Redis.URL} }

// resultServer holds the results.
func (s *stores) resultServer() server {
	key := "redis.results_url"
	if s.results == s.broker {
		key = "redis.url"
	}
	return server{s.results, key, s.cfg.Redis.ResultsURL}
}

// lockServer holds the locks and the records.
func (s *stores) lockServer() server {
	key := "redis.locks_url"
	if s.locks == s.broker {
		key = "redis.url"
	}
	return server{s.locks, key, s.cfg.Redis.LocksURL}
}

// reach waits until each of the servers answers, up to wait for all of them;
// of each that does not answer yet it says so once.
func (s *stores) reach(ctx context.Context, wait time.Duration, servers ...server) error {
	deadline := time.Now().Add(wait)
	for _, one := range servers {
		if err := s.reachOne(ctx, deadline, one); err != nil {
			return err
		}
	}
	return nil
}

// insist repeats a step of the start, for patience, as long as the server does
// not answer it: reach has found it answering, and one lost reply is no reason
// to end.
func (s *stores) insist(ctx context.Context, step func() error) error {
	deadline := time.Now().Add(s.patience)
	for {
		err := step()
		if err == nil || !unanswered(err) || time.Now().After(deadline) {
			return err
		}
		s.log.Debug("a step of the start is tried again", "error", redisconn.MaskText(err.Error()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// unanswered says whether an error is of the network.
func unanswered(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (s *stores) reachOne(ctx context.Context, deadline time.Time, one server) error {
	told := false
	for {
		limit := tryTimeout
		if told {
			limit = min(tryTimeout, max(time.Until(deadline), shortTry))
		}
		err := one.ping(ctx, limit)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case permanent(err):
			return exit(exitConfig, redisconn.ReachError(one.url, one.setting(), err))
		case time.Now().After(deadline):
			return exit(exitFailed, redisconn.ReachError(one.url, one.setting(), err))
		}
		if !told {
			told = true
			msg := "redis does not answer yet"
			if redisconn.Answered(err) { // it is loading, or failing over
				msg = "redis is not ready yet"
			}
			s.log.Warn(msg, "url", redisconn.MaskURL(one.url), "key", one.key, "error", redisconn.MaskText(err.Error()))
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

const (
	// tryTimeout bounds one try to reach a server: one that is frozen takes
	// connections and answers nothing.
	tryTimeout = 3 * time.Second
	// shortTry is the least that a try gets at the end of the wait.
	shortTry = 200 * time.Millisecond
)

// ping asks the server for an answer within limit.
func (s server) ping(ctx context.Context, limit time.Duration) error {
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := s.client.Ping(try).Err()
	var late net.Error
	if errors.As(err, &late) && late.Timeout() && ctx.Err() == nil {
		return fmt.Errorf("no reply within %s", short(limit))
	}
	return err
}

// permanent tells wrong credentials, or a database that there is not, from a
// server that is away.
func permanent(err error) bool {
	for _, p := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "DB index"} {
		if redis.HasErrorPrefix(err, p) {
			return true
		}
	}
	return false
}

func (s *stores) lockBackend() (*lockredis.Backend, error) {
	return lockredis.New(s.locks, lockredis.Options{Namespace: s.cfg.Namespace, KeyPrefix: s.cfg.Redis.GlobalKeyPrefix, Logger: s.log})
}

func (s *stores) lockGuard(ctx context.Context, obs lockguard.Observer) (*lockguard.Guard, error) {
	b, err := s.lockBackend()
	if err != nil {
		return nil, exit(exitConfig, err)
	}
	g, err := lockguard.New(lockguard.Config{Backend: b, Instance: s.instance, Logger: s.log, Observer: obs})
	if err != nil {
		return nil, exit(exitConfig, err)
	}
	var caps lockguard.Caps
	err = s.insist(ctx, func() (err error) { caps, err = g.Probe(ctx); return err })
	if err != nil {
		return nil, fmt.Errorf("locks: %w", err)
	}
	if !s.embedded {
		for _, w := range caps.Warnings {
			s.log.Warn(w, "role", "locks")
		}
	}
	return g, nil
}

func (s *stores) recordStore() (*idemredis.Store, error) {
	return idemredis.New(s.locks, idemredis.Options{
		Namespace: s.cfg.Namespace, KeyPrefix: s.cfg.Redis.GlobalKeyPrefix, AssumeNoEviction: s.embedded, Logger: s.log,
	})
}

func (s *stores) recordGuard(ctx context.Context, obs idempotency.Observer) (*idempotency.Guard, error) {
	st, err := s.recordStore()
	if err != nil {
		return nil, exit(exitConfig, err)
	}
	if err := s.insist(ctx, func() error { return st.Check(ctx) }); err != nil {
		if errors.Is(err, idempotency.ErrUnsafeEviction) {
			return nil, exit(exitConfig, err)
		}
		return nil, fmt.Errorf("records: %w", err)
	}
	return idempotency.New(idempotency.Config{Store: st, Instance: s.instance, Logger: s.log, Observer: obs})
}

func (s *stores) state() *schedredis.State {
	return schedredis.New(s.broker, schedredis.Options{Namespace: s.cfg.Namespace, KeyPrefix: s.cfg.Redis.GlobalKeyPrefix})
}

// wakeTimeout: what is parked has a timer too, so a broker that is away keeps
// nobody waiting.
const wakeTimeout = time.Second

// wake brings forward what is parked, on each engine, for a lock that was just
// released.
func (s *stores) wake(ctx context.Context, lock string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	for _, engine := range []interface {
		Wake(ctx context.Context, lockKey string) error
	}{s.sender, s.asynqClient()} {
		if err := engine.Wake(ctx, lock); err != nil {
			s.log.Debug("what is parked for the lock waits for its timer", "lock", lock, "error", err)
		}
	}
}

func (s *stores) asynqClient() *asynqengine.Client {
	return asynqengine.NewClient(asynqengine.ClientConfig{
		Client: s.broker, Results: s.results, Namespace: s.cfg.Namespace, KeyPrefix: s.cfg.Redis.GlobalKeyPrefix,
		ResultsKeyPrefix: s.cfg.Redis.ResultsKeyPrefix, Queue: s.cfg.Worker.Queues[0],
	})
}

// schedule reads the schedule file of the configuration.
func (c *program) schedule(cfg *config.Config) ([]*scheduler.Job, error) {
	if cfg.Schedule.File == "" {
		return nil, errNoSchedule()
	}
	jobs, problems, err := readSchedule(cfg)
	c.warn(problems)
	return jobs, err
}

// withSchedule adds to the errors of solobeat.yaml those of the schedule that it
// names, so that a start tells both.
func (c *program) withSchedule(err error) error {
	var ps config.Problems
	named := config.NamedSchedule(c.configFile(), c.env)
	if named == "" || !errors.As(err, &ps) {
		return err
	}
	_, more, _ := config.LoadSchedule(named)
	return slices.Concat(ps, more)
}

// readSchedule reads the schedule file by itself and together with the
// configuration that names it. The problems hold the warnings too; if only both
// together are wrong, there are jobs beside the error.
func readSchedule(cfg *config.Config) ([]*scheduler.Job, config.Problems, error) {
	jobs, problems, err := config.LoadSchedule(cfg.Schedule.File)
	if err != nil {
		return nil, problems, err
	}
	more, err := config.Together(cfg, jobs)
	return jobs, append(problems, more...), err
}

func errNoSchedule() error {
	return exitf(exitConfig, "no schedule file: set schedule.file in solobeat.yaml, or SOLOBEAT_SCHEDULE_FILE")
}
