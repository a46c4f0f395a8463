package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/solobeat/solobeat/bench/rig"
)

// delay measures the rate over a longer wire.
func delay(ctx context.Context, b *bench) error {
	const added = 2400 * time.Microsecond
	full := b.of(fullCount, tinyCount)
	messages, err := b.messages(ctx, "bench.noop", full+warmUp)
	if err != nil {
		return err
	}
	var rates [2]series
	var trips [2]series
	behind := func(extra time.Duration, trip *series) side {
		s := b.ours(celeryQueue{messages, 1}, full, "")
		s.via = func(ctx context.Context, addr string) (string, error) {
			proxy, err := rig.StartProxy(ctx, addr, extra)
			if err != nil {
				return "", err
			}
			took, err := pingThrough(ctx, proxy.Addr)
			*trip = append(*trip, millis(took))
			return proxy.Addr, err
		}
		return s
	}
	sides := []side{behind(0, &trips[0]), behind(added, &trips[1])}
	for round := range b.rounds {
		for i, s := range sides {
			got, err := b.measure(ctx, s, nil)
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], got.rate)
			b.say("round %d, round trip %.2f ms: %.0f/s, CPU a message %.1f µs", round+1, trips[i][len(trips[i])-1], got.rate, got.worker+got.redis)
		}
	}
	r := rates[1].over(rates[0])
	line := b.judge("rate at +2.4 ms round trip : rate without", "≥ 0.8", r.show("%.2f", ""), r.median() >= 0.8)
	b.tell("rate through the proxy, without and with the delay", rates[0].show("%.0f", "/s")+"; "+rates[1].show("%.0f", "/s"))
	b.tell("PING through the proxy, without and with the delay, p50", trips[0].show("%.2f", "ms")+"; "+trips[1].show("%.2f", "ms"))
	b.note("**Round trip.** As throughput, but between worker and Redis stands a TCP proxy that delivers each byte 0 or 1.2 ms after it came, in both directions. The proxy shares the machine's cores both times.")
	return b.explain(ctx, sides[1], []*row{line})
}

// pingThrough is the median of some PINGs.
func pingThrough(ctx context.Context, addr string) (time.Duration, error) {
	client := newClient(addr)
	defer client.Close()
	var took []float64
	for range 30 {
		began := time.Now()
		if err := client.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(began)))
	}
	return time.Duration(percentile(took, 0.5)), nil
}

// single is what one worker did with messages that came one at a time.
type single struct {
	latency []float64 // from before the message was sent to the start of its handler, in milliseconds
	trips   float64   // round trips a message, the waiting ones included
}

// singly sends messages of bench.clock one by one, some 20 ms apart, to an idle
// worker of ours. With counted, a proxy stands in between.
func (b *bench) singly(ctx context.Context, messages []string, config string, counted bool) (out single, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, workerLimit, fmt.Errorf("the round did not end within %s", workerLimit))
	defer cancel()
	srv, err := rig.StartRedis(ctx, b.dir)
	if err != nil {
		return out, err
	}
	defer srv.Stop()
	addr, trips := srv.Addr, func() int64 { return 0 }
	if counted {
		proxy, err := rig.StartProxy(ctx, srv.Addr, 0)
		if err != nil {
			return out, err
		}
		addr, trips = proxy.Addr, proxy.Trips
	}
	p, err := b.startWorker(ctx, addr, config)
	if err != nil {
		return out, err
	}
	defer p.Stop()
	const first = 20 // the worker starts, opens its connections, loads its scripts
	if _, err := sendSingly(ctx, srv, p, messages[:first], 0); err != nil {
		return out, err
	}
	before := trips()
	sent, err := sendSingly(ctx, srv, p, messages[first:], first)
	if err != nil {
		return out, err
	}
	out.trips = float64(trips()-before) / float64(len(sent))
	out.latency, err = latencies(ctx, srv, sent)
	return out, err
}

var taskID = regexp.MustCompile(`"id": "([^"]+)"`)

// sendSingly sends the messages and returns when each was sent, by task id. It
// waits until all have a result, those of before included.
func sendSingly(ctx context.Context, srv *rig.Redis, p *rig.Proc, messages []string, before int) (map[string]time.Time, error) {
	sent := map[string]time.Time{}
	for _, m := range messages {
		id := taskID.FindStringSubmatch(m)
		if id == nil {
			return nil, fmt.Errorf("no task id in %q", m)
		}
		if err := pause(ctx, 15*time.Millisecond+rand.N(10*time.Millisecond)); err != nil {
			return nil, err
		}
		sent[id[1]] = time.Now()
		if err := srv.Client.LPush(ctx, queueKey, m).Err(); err != nil {
			return nil, err
		}
	}
	done := 0
	err := rig.Until(ctx, time.Minute, 20*time.Millisecond, func() (bool, error) {
		all, err := resultsOf(ctx, srv.Client)
		done = len(all)
		return done >= before+len(messages), errors.Join(err, p.Failure())
	})
	if err != nil {
		return nil, fmt.Errorf("%d results of %d: %w", done, before+len(messages), err)
	}
	return sent, nil
}

func latencies(ctx context.Context, srv *rig.Redis, sent map[string]time.Time) ([]float64, error) {
	var took []float64
	for id, at := range sent {
		text, err := srv.Client.Get(ctx, resultKey+id).Result()
		if err != nil {
			return nil, err
		}
		var result struct {
			Status string `json:"status"`
			Result int64  `json:"result"`
		}
		if err := json.Unmarshal([]byte(text), &result); err != nil || result.Status != "SUCCESS" {
			return nil, fmt.Errorf("result %s: %w", text, err)
		}
		took = append(took, millis(time.Unix(0, result.Result).Sub(at)))
	}
	return took, nil
}

// latency measures how soon a handler starts on an idle queue.
func latency(ctx context.Context, b *bench) error {
	messages, err := b.messages(ctx, "bench.clock", b.of(320, 40))
	if err != nil {
		return err
	}
	var p50, p99 series
	for round := range b.rounds {
		got, err := b.singly(ctx, messages, "", false)
		if err != nil {
			return err
		}
		p50, p99 = append(p50, percentile(got.latency, 0.5)), append(p99, percentile(got.latency, 0.99))
		b.say("round %d, message to handler: p50 %.2f ms, p99 %.2f ms", round+1, p50[round], p99[round])
	}
	b.judge("idle queue, message to handler start, p50", "≤ 1.5 ms", p50.show("%.2f", "ms"), p50.median() <= 1.5)
	b.judge("idle queue, message to handler start, p99", "≤ 5 ms", p99.show("%.2f", "ms"), p99.median() <= 5)
	b.note(fmt.Sprintf("**Latency.** %d messages a round, one each 15 to 25 ms, to a worker with the defaults. From before the LPUSH until the handler is called; both read the same clock.", len(messages)-20))
	return nil
}

// idle measures what a worker with nothing to do asks of Redis.
func idle(ctx context.Context, b *bench) error {
	span := time.Duration(b.of(30, 1)) * time.Second
	perSecond, cpu := make(series, b.rounds), make(series, b.rounds)
	what := make([]map[string]int64, b.rounds)
	b.say("%d idle workers for %s, each with a Redis of its own", b.rounds, span)
	g, ctx := errgroup.WithContext(ctx)
	for i := range b.rounds {
		g.Go(func() error {
			srv, err := rig.StartRedis(ctx, b.dir)
			if err != nil {
				return err
			}
			defer srv.Stop()
			p, err := b.startWorker(ctx, srv.Addr, "")
			if err != nil {
				return err
			}
			defer p.Stop()
			if err := pause(ctx, time.Duration(b.of(5, 2))*time.Second); err != nil { // it has started
				return err
			}
			perSecond[i], cpu[i], what[i], err = idleOne(ctx, srv, p, span)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.say("commands a second %.2f: %v", perSecond, what[0])
	b.judge("idle worker, one queue, defaults: Redis commands a second", "≤ 5", perSecond.show("%.2f", "/s"), perSecond.median() <= 5)
	b.tell("idle worker: CPU", cpu.show("%.2f", "% of a core"))
	b.note(fmt.Sprintf("**Idle.** As many workers as rounds, at the same time, each with a Redis of its own, over %s from 5 s after the start: the difference of INFO commandstats, in which commands inside of scripts count too.", span))
	return nil
}

func idleOne(ctx context.Context, srv *rig.Redis, p *rig.Proc, span time.Duration) (perSecond, cpu float64, what map[string]int64, err error) {
	before, err := srv.Calls(ctx)
	if err != nil {
		return 0, 0, nil, err
	}
	usedBefore, err := p.CPU()
	if err != nil {
		return 0, 0, nil, errors.Join(err, p.Failure())
	}
	began := time.Now()
	if err := pause(ctx, span); err != nil {
		return 0, 0, nil, err
	}
	after, err := srv.Calls(ctx)
	if err != nil {
		return 0, 0, nil, err
	}
	took := time.Since(began).Seconds()
	usedAfter, err := p.CPU()
	if err != nil {
		return 0, 0, nil, errors.Join(err, p.Failure())
	}
	what = map[string]int64{}
	sum := int64(0)
	for name, n := range after {
		if n -= before[name]; n > 0 {
			what[name] = n
			sum += n
		}
	}
	return float64(sum) / took, 100 * (usedAfter - usedBefore).Seconds() / took, what, nil
}

const (
	lockOnly = `tasks:
  %s:
    params: [i, j]
    lock:
      key: "bench:lock:{{ .Params.i }}"
`
	lockAndRecord = lockOnly + `    idempotency:
      key: "{{ .Params.i }}"
`
)

// guardFile writes a solobeat.yaml that guards a task.
func (b *bench) guardFile(name, format, task string) (string, error) {
	path := filepath.Join(b.dir, name+"-"+task+".yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, format, task), 0o600)
}

// guards measures what a lock and a record add to a run.
func guards(ctx context.Context, b *bench) error {
	kinds := []struct {
		name, format string
		leaves       int
	}{{"unguarded", "", 1}, {"lock", lockOnly, 2}, {"lock and record", lockAndRecord, 3}}
	full := b.of(fullCount, tinyCount)
	noops, err := b.messages(ctx, "bench.noop", full+warmUp)
	if err != nil {
		return err
	}
	clocks, err := b.messages(ctx, "bench.clock", b.of(120, 40))
	if err != nil {
		return err
	}
	var sides []side
	rates, cpu, ofRedis, trips := map[string]series{}, map[string]series{}, map[string]series{}, map[string]series{}
	configs := map[string]string{}
	for _, k := range kinds {
		s := b.ours(celeryQueue{noops, k.leaves}, full, "")
		if k.format != "" {
			file, err := b.guardFile(k.name, k.format, "bench.noop")
			if err != nil {
				return err
			}
			s = b.ours(celeryQueue{noops, k.leaves}, full, file)
			if configs[k.name], err = b.guardFile(k.name, k.format, "bench.clock"); err != nil {
				return err
			}
		}
		sides = append(sides, s)
	}
	for round := range b.rounds {
		for i, k := range kinds {
			got, err := b.measure(ctx, sides[i], nil)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			one, err := b.singly(ctx, clocks, configs[k.name], true)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			rates[k.name] = append(rates[k.name], got.rate)
			cpu[k.name] = append(cpu[k.name], got.worker+got.redis)
			ofRedis[k.name] = append(ofRedis[k.name], got.redis)
			trips[k.name] = append(trips[k.name], one.trips)
			b.say("round %d, %-15s %6.0f/s, CPU a message %5.1f µs (Redis %.1f); one at a time %.2f round trips", round+1, k.name, got.rate, got.worker+got.redis, got.redis, one.trips)
		}
	}
	return b.judgeGuards(ctx, sides, rates, cpu, ofRedis, trips)
}
