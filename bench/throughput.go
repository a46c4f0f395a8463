package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/bench/rig"
)

const (
	// asynqConcurrency: more changes nothing for tasks that do nothing, since
	// a server takes one at a time.
	asynqConcurrency = 10
	asynqQueue       = "default"
	// retention is how long results are kept, Celery's default.
	retention = 24 * time.Hour
)

const (
	fullCount = 20_000
	// celeryCount: a rate is a rate, and Python takes its time.
	celeryCount = 3_000
	tinyCount   = 200
	// solobeat names our side.
	solobeat = "solobeat"
)

// throughput measures the rate of tasks that do nothing, and their CPU time.
func throughput(ctx context.Context, b *bench) error {
	full, less := b.of(fullCount, tinyCount), b.of(celeryCount, tinyCount)
	messages, err := b.messages(ctx, "bench.noop", full+warmUp)
	if err != nil {
		return err
	}
	queue := celeryQueue{messages, 1}
	all := []side{
		b.ours(queue, full, ""),
		b.celeryPeer("prefork", queue, less, "-c", "2"),
		b.celeryPeer("threads", queue, less, "-P", "threads", "-c", "2"),
		b.asynqPeer(full),
		b.floor(queue, full),
	}
	var sides []side
	if b.tiny && b.sides == "" {
		all = slices.DeleteFunc(all, func(s side) bool { return s.name == "threads" }) // as prefork, but for an option
	}
	for _, s := range all {
		if b.sides == "" || slices.Contains(strings.Split(b.sides, ","), s.name) {
			sides = append(sides, s)
		}
	}
	measured := map[string]*sideFigures{}
	for round := range b.rounds {
		for _, s := range sides {
			got, err := b.measure(ctx, s, nil)
			if err != nil {
				return err
			}
			b.say("round %d, %-8s %6.0f/s, CPU a message %6.1f µs (worker %.1f, Redis %.1f)", round+1, s.name, got.rate, got.worker+got.redis, got.worker, got.redis)
			if measured[s.name] == nil {
				measured[s.name] = new(sideFigures)
			}
			measured[s.name].add(got)
		}
	}
	b.tellThroughput(sides, measured)
	return b.explain(ctx, all[0], b.judgeThroughput(measured))
}

// sideFigures are the figures of one side, one a round.
type sideFigures struct{ rate, cpu, redis series }

func (f *sideFigures) add(s sample) {
	f.rate = append(f.rate, s.rate)
	f.cpu = append(f.cpu, s.worker+s.redis)
	f.redis = append(f.redis, s.redis)
}

// explain adds a profile of the side to the rows that were not met.
func (b *bench) explain(ctx context.Context, s side, rows []*row) error {
	profile := ""
	for _, r := range rows {
		if r.met && !b.tiny {
			continue
		}
		if b.tiny && b.explained { // one shows that it can be had
			continue
		}
		b.explained = true
		if profile == "" {
			profile = b.profileSide(ctx, s)
		}
		r.profile = profile
	}
	return context.Cause(ctx)
}

func (b *bench) judgeThroughput(of map[string]*sideFigures) (rows []*row) {
	ours, prefork, asynq, floor := of[solobeat], of["prefork"], of["asynq"], of["floor"]
	if ours != nil && prefork != nil {
		r := ours.rate.over(prefork.rate)
		rows = append(rows, b.judge("Celery engine : Celery 5.7.0, prefork `-c 2`", "≥ 40 ×", r.show("%.1f", "×"), r.median() >= 40))
	}
	if ours != nil && asynq != nil {
		r := ours.rate.over(asynq.rate)
		rows = append(rows, b.judge("Celery engine : asynq's one-server rate", "≥ 3.5 ×", r.show("%.1f", "×"), r.median() >= 3.5))
	}
	if ours != nil {
		rows = append(rows, b.judge("CPU per task, worker + Redis, producer excluded", "≤ 60 µs", ours.cpu.show("%.1f", "µs"), ours.cpu.median() <= 60))
	}
	if ours != nil && floor != nil {
		r := ours.cpu.over(floor.cpu)
		rows = append(rows, b.judge("CPU per task : the bare floor that does the same Redis work", "≤ 2.5 ×", r.show("%.2f", "×"), r.median() <= 2.5))
	}
	return rows
}

func (b *bench) tellThroughput(sides []side, of map[string]*sideFigures) {
	for _, s := range sides {
		b.tell(fmt.Sprintf("%s: rate, %d messages a round", s.name, s.count), of[s.name].rate.show("%.0f", "/s"))
		b.tell(s.name+": CPU per task, worker + Redis; of that Redis", of[s.name].cpu.show("%.1f", "µs")+"; "+of[s.name].redis.show("%.1f", "µs"))
	}
	if ours, threads := of[solobeat], of["threads"]; ours != nil && threads != nil {
		b.tell("Celery engine : Celery 5.7.0, `-P threads -c 2`", ours.rate.over(threads.rate).show("%.1f", "×"))
	}
	b.note(fmt.Sprintf("**Throughput and CPU.** %d no-op messages with two arguments, made once by a Celery client (`delay`), put back byte for byte for each round; results on. "+
		"Celery gets %d of them, which gives the same rate in less time. asynq cannot read them: it gets as many tasks from its own client, whose results are kept for 24 h; one server, concurrency %d. "+
		"Each round has a fresh Redis. The worker is started, does %d messages, is idle; then all messages are in the queue at once (RENAME). The rate is that between the first and the last hundredth of the results. "+
		"Solobeat is a program with `solobeat.Main` and one Go handler, all else as by default: concurrency of the CPUs, at least 4, metrics on, no guards. "+
		"CPU is the time of all processes of the worker and of Redis (INFO cpu) from the appearance of the messages to the last ack. "+
		"The floor is a go-redis loop with batches of 100 that takes, registers, writes results, publishes and acks in one script, and decodes nothing.",
		b.of(fullCount, tinyCount), b.of(celeryCount, tinyCount), asynqConcurrency, warmUp))
}

// ours is Solobeat's worker with the defaults of the product; config, if any, is
// its solobeat.yaml.
func (b *bench) ours(queue queue, count int, config string) side {
	return side{name: solobeat, count: count, queue: queue, start: func(ctx context.Context, addr string, env ...string) (*rig.Proc, error) {
		return b.startWorker(ctx, addr, config, env...)
	}}
}

// startWorker starts our worker. Its metrics are on, as by default, at a free
// port: the standard one may be in use.
func (b *bench) startWorker(ctx context.Context, addr, config string, env ...string) (*rig.Proc, error) {
	return b.startOurs(ctx, "worker", "worker", addr, config, env...)
}

// startOurs starts a command of a program of ours.
func (b *bench) startOurs(ctx context.Context, program, command, addr, config string, env ...string) (*rig.Proc, error) {
	env = append(env, "SOLOBEAT_REDIS_URL=redis://"+addr+"/0", "SOLOBEAT_METRICS_LISTEN=127.0.0.1:0")
	argv := []string{b.bin(program), command}
	if config != "" {
		argv = append(argv, "-c", config)
	}
	return rig.Start(ctx, b.dir, "solobeat-"+command, env, argv...)
}

// celeryPeer is the newest Celery.
func (b *bench) celeryPeer(name string, queue queue, count int, args ...string) side {
	return side{name: name, count: count, queue: queue, start: func(ctx context.Context, addr string, _ ...string) (*rig.Proc, error) {
		argv := append([]string{b.python, "-m", "celery", "--workdir", filepath.Join(b.root, "bench", "python"), "-A", "bench_app", "worker"}, args...)
		return rig.Start(ctx, b.dir, "celery", b.pythonEnv("redis://"+addr+"/0"), argv...)
	}}
}

func (b *bench) asynqPeer(count int) side {
	return side{name: "asynq", count: count, queue: asynqTasks{}, start: func(ctx context.Context, addr string, _ ...string) (*rig.Proc, error) {
		return rig.Start(ctx, b.dir, "asynqworker", []string{"BENCH_REDIS=" + addr, fmt.Sprintf("BENCH_CONCURRENCY=%d", asynqConcurrency)}, b.bin("asynqworker"))
	}}
}

func (b *bench) floor(queue queue, count int) side {
	return side{name: "floor", count: count, queue: queue, start: func(ctx context.Context, addr string, _ ...string) (*rig.Proc, error) {
		return rig.Start(ctx, b.dir, "floor", []string{"BENCH_REDIS=" + addr}, b.bin("floor"))
	}}
}

// asynqTasks is a queue of asynq, with tasks that its own client made and whose
// results are kept.
type asynqTasks struct{}

func (asynqTasks) list() string { return "asynq:{" + asynqQueue + "}:pending" }

func (q asynqTasks) stage(ctx context.Context, c *redis.Client, key string, from, to int) error {
	client := asynq.NewClientFromRedisClient(c)
	for i := from; i < to; i++ {
		task := asynq.NewTask("bench.noop", fmt.Appendf(nil, `{"i":%d,"j":2}`, i))
		if _, err := client.EnqueueContext(ctx, task, asynq.Queue(asynqQueue), asynq.MaxRetry(3), asynq.Retention(retention)); err != nil {
			return err
		}
	}
	return c.Rename(ctx, q.list(), key).Err()
}

func (asynqTasks) done(ctx context.Context, c *redis.Client) (int64, error) {
	return c.ZCard(ctx, "asynq:{"+asynqQueue+"}:completed").Result()
}

func (q asynqTasks) drained(ctx context.Context, c *redis.Client) (bool, error) {
	n, err := c.Exists(ctx, q.list(), "asynq:{"+asynqQueue+"}:active").Result()
	return n == 0, err
}

func (q asynqTasks) results(ctx context.Context, c *redis.Client) (int, error) {
	n, err := q.done(ctx, c)
	return int(n), err
}
