package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/bench/rig"
)

const (
	queueKey  = "celery"
	resultKey = "celery-task-meta-"
	// workerLimit bounds one round of one worker.
	workerLimit = 5 * time.Minute
)

// messages are count messages of a task, made by a real Celery client, oldest
// first. They are made once; every round of every worker gets the same bytes.
func (b *bench) messages(ctx context.Context, task string, count int) ([]string, error) {
	if len(b.made[task]) >= count {
		return b.made[task][:count], nil
	}
	srv, err := rig.StartRedis(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	defer srv.Stop()
	b.say("%d messages of %s are made by a Celery client", count, task)
	p, err := rig.Start(ctx, b.dir, "client", b.pythonEnv(srv.URL()), b.python, filepath.Join(b.root, "bench", "python", "make_messages.py"), task, strconv.Itoa(count))
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx); err != nil {
		return nil, err
	}
	all, err := srv.Client.LRange(ctx, queueKey, 0, -1).Result() // the newest first
	if err != nil || len(all) != count {
		return nil, fmt.Errorf("a Celery client made %d messages of %d: %w", len(all), count, err)
	}
	slices.Reverse(all)
	b.made[task] = all
	if b.kept == "" {
		return all, nil
	}
	text, err := json.Marshal(b.made)
	if err != nil {
		return nil, err
	}
	return all, os.WriteFile(b.kept, text, 0o600)
}

// keepMessages reads the messages that an earlier run has kept in a file, and
// keeps those that are made from now on there.
func (b *bench) keepMessages(name string) error {
	b.kept = name
	text, err := os.ReadFile(name)
	if name == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &b.made); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (b *bench) pythonEnv(url string) []string {
	return []string{"BENCH_REDIS_URL=" + url}
}

// side is one kind of worker.
type side struct {
	name string
	// count is the number of messages of a round, beside those of the warm-up.
	count int
	// start starts the worker on a server, with env added to its environment.
	start func(ctx context.Context, addr string, env ...string) (*rig.Proc, error)
	queue queue
	// via, if any, starts what stands between the worker and its server and
	// returns the address to use.
	via func(ctx context.Context, addr string) (string, error)
}

// queue is where a side's messages wait, and how its results are counted.
type queue interface {
	// stage puts the messages from and up to to under key, where no worker sees
	// them. It is called before the worker starts.
	stage(ctx context.Context, c *redis.Client, key string, from, to int) error
	// list is the key of the list that workers take from.
	list() string
	// done grows by one with each result, and is off by a few at most.
	done(ctx context.Context, c *redis.Client) (int64, error)
	// drained says that nothing waits and nothing is held.
	drained(ctx context.Context, c *redis.Client) (bool, error)
	// results counts the results that say success.
	results(ctx context.Context, c *redis.Client) (int, error)
}

// celeryQueue is a Celery queue with messages that a Celery client made.
type celeryQueue struct {
	messages []string
	// leaves are the keys that a message leaves: its result, the last fence of
	// its lock, its record.
	leaves int
}

func (q celeryQueue) list() string { return queueKey }

func (q celeryQueue) stage(ctx context.Context, c *redis.Client, key string, from, to int) error {
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, m := range q.messages[from:to] {
			p.LPush(ctx, key, m)
		}
		return nil
	})
	return err
}

// done counts what messages leave; the few other keys do not grow.
func (q celeryQueue) done(ctx context.Context, c *redis.Client) (int64, error) {
	n, err := c.DBSize(ctx).Result()
	return n / int64(q.leaves), err
}

func (q celeryQueue) drained(ctx context.Context, c *redis.Client) (bool, error) {
	var waiting, held *redis.IntCmd
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		waiting, held = p.LLen(ctx, queueKey), p.HLen(ctx, "unacked")
		return nil
	})
	return waiting.Val()+held.Val() == 0, err
}

func (q celeryQueue) results(ctx context.Context, c *redis.Client) (int, error) {
	all, err := resultsOf(ctx, c)
	found := 0
	for _, text := range all {
		if strings.Contains(text, `"SUCCESS"`) {
			found++
		}
	}
	return found, err
}

// resultsOf reads all results of Celery tasks.
func resultsOf(ctx context.Context, c *redis.Client) ([]string, error) {
	var all []string
	for cursor := uint64(0); ; {
		keys, next, err := c.ScanType(ctx, cursor, resultKey+"*", 1000, "string").Result()
		if err != nil {
			return nil, err
		}
		if len(keys) > 0 {
			vals, err := c.MGet(ctx, keys...).Result()
			if err != nil {
				return nil, err
			}
			for _, v := range vals {
				text, _ := v.(string)
				all = append(all, text)
			}
		}
		if cursor = next; cursor == 0 {
			return all, nil
		}
	}
}

// sample is what one round of one side measured.
type sample struct {
	rate          float64 // messages a second
	worker, redis float64 // CPU microseconds a message
}

const (
	stagedKey = "bench:staged"
	warmKey   = "bench:warm"
	warmUp    = 200
)

// measure is one round: the worker is up, has done a few and is idle, then all
// messages are there at once. mark, if any, is called before and after.
func (b *bench) measure(ctx context.Context, s side, mark func(p *rig.Proc, begins bool), env ...string) (sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, workerLimit, fmt.Errorf("the round did not end within %s", workerLimit))
	defer cancel()
	srv, err := rig.StartRedis(ctx, b.dir)
	if err != nil {
		return sample{}, err
	}
	defer srv.Stop()
	err = errors.Join(s.queue.stage(ctx, srv.Client, warmKey, 0, warmUp), s.queue.stage(ctx, srv.Client, stagedKey, warmUp, warmUp+s.count))
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", s.name, err)
	}
	addr := srv.Addr
	if s.via != nil {
		if addr, err = s.via(ctx, addr); err != nil {
			return sample{}, err
		}
	}
	p, err := s.start(ctx, addr, env...)
	if err != nil {
		return sample{}, err
	}
	defer p.Stop()
	out, err := feedTwice(ctx, s, srv, p, mark)
	if ended := p.Failure(); ended != nil && err != nil {
		err = ended
	}
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return out, nil
}

func feedTwice(ctx context.Context, s side, srv *rig.Redis, p *rig.Proc, mark func(p *rig.Proc, begins bool)) (sample, error) {
	if _, err := feed(ctx, s, srv, p, warmKey, warmUp); err != nil {
		return sample{}, err
	}
	if mark != nil {
		mark(p, true)
		defer mark(p, false)
	}
	out, err := feed(ctx, s, srv, p, stagedKey, s.count)
	if err != nil {
		return sample{}, err
	}
	found := 0
	err = rig.Until(ctx, 30*time.Second, 20*time.Millisecond, func() (bool, error) {
		found, err = s.queue.results(ctx, srv.Client)
		return found == warmUp+s.count, err
	})
	if err != nil {
		return sample{}, fmt.Errorf("%d results of %d: %w", found, warmUp+s.count, err)
	}
	return out, nil
}

// point is how many were done at a time.
type point struct {
	at   time.Time
	done int64
}

// feed lets count messages appear, under key until now, and waits until they are
// done with.
func feed(ctx context.Context, s side, srv *rig.Redis, p *rig.Proc, key string, count int) (sample, error) {
	base, err := s.queue.done(ctx, srv.Client)
	if err != nil {
		return sample{}, err
	}
	workerBefore, redisBefore, err := used(ctx, srv, p)
	if err != nil {
		return sample{}, err
	}
	points := []point{{time.Now(), 0}} // the first look may find all of them done
	if err := srv.Client.Rename(ctx, key, s.queue.list()).Err(); err != nil {
		return sample{}, err
	}
	err = rig.Until(ctx, workerLimit, 5*time.Millisecond, func() (bool, error) {
		n, err := s.queue.done(ctx, srv.Client)
		points = append(points, point{time.Now(), n - base})
		if err != nil || n-base < int64(count)-few {
			return false, errors.Join(err, p.Failure())
		}
		return s.queue.drained(ctx, srv.Client)
	})
	if err != nil {
		return sample{}, err
	}
	workerAfter, redisAfter, err := used(ctx, srv, p)
	if err != nil {
		return sample{}, err
	}
	n := float64(count)
	return sample{rate: rate(points, count), worker: micros(workerAfter-workerBefore) / n, redis: micros(redisAfter-redisBefore) / n}, nil
}

// few is by how much a count of keys may be off: the lists and hashes come and go.
const few = 6

// rate is taken between the first and the last hundredth, so that neither the
// waking of an idle worker nor its tail counts.
func rate(points []point, count int) float64 {
	low, high := 0.01*float64(count), 0.99*float64(count)-few
	return (high - low) / cross(points, high).Sub(cross(points, low)).Seconds()
}

// cross is when the count reached n, by a straight line between two points.
func cross(points []point, n float64) time.Time {
	for i, p := range points {
		if float64(p.done) < n {
			continue
		}
		if i == 0 || p.done == points[i-1].done {
			return p.at
		}
		before := points[i-1]
		part := (n - float64(before.done)) / float64(p.done-before.done)
		return before.at.Add(time.Duration(part * float64(p.at.Sub(before.at))))
	}
	return points[len(points)-1].at
}

func used(ctx context.Context, srv *rig.Redis, p *rig.Proc) (worker, redis time.Duration, err error) {
	if worker, err = p.CPU(); err != nil {
		return 0, 0, err
	}
	redis, err = srv.Used(ctx)
	return worker, redis, err
}
