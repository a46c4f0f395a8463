package celery

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// janitorLoop finds what nobody else can: entries under tags of replicas that
// no registry knows, and parked messages that no index holds, because those
// lost their data. One replica at a time does it.
func (e *Engine) janitorLoop(ctx context.Context) {
	for {
		wait := time.Duration(float64(e.tune.janitor) * (0.9 + 0.2*rand.Float64()))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := e.clean(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("janitor did not finish", "error", err)
		}
	}
}

func (e *Engine) clean(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	won, err := e.rdb.SetNX(call, e.keys.own("janitor"), e.Instance(), e.tune.janitor*8/10).Result()
	if err != nil || !won {
		return err
	}
	owners, parked, err := e.scanTags(ctx)
	if err != nil {
		return err
	}
	if err := e.adopt(ctx, owners); err != nil {
		return err
	}
	if err := e.unpark(ctx, parked); err != nil {
		return err
	}
	return e.trimDead(ctx)
}

// scanTags lists the replicas that have entries in unacked, and the parked
// tags that the index of parked messages does not hold.
func (e *Engine) scanTags(ctx context.Context) (owners, parked []string, err error) {
	known := map[string]bool{e.Instance(): true}
	var cursor uint64
	for {
		page, cancel := context.WithTimeout(ctx, e.tune.call)
		kv, next, err := e.rdb.ZScan(page, e.keys.index(), cursor, tagMark+"*", scanCount).Result()
		cancel()
		if err != nil {
			return nil, nil, err
		}
		var tags []string
		for i := 0; i+1 < len(kv); i += 2 {
			t, ok := e.keys.parseTag(kv[i])
			switch {
			case !ok:
			case t.owner == parkOwner:
				tags = append(tags, kv[i])
			case !known[t.owner]:
				known[t.owner] = true
				owners = append(owners, t.owner)
			}
		}
		lost, err := e.notParked(ctx, tags)
		if err != nil {
			return nil, nil, err
		}
		parked = append(parked, lost...)
		if cursor = next; cursor == 0 {
			return owners, parked, nil
		}
	}
}

func (e *Engine) notParked(ctx context.Context, tags []string) ([]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	cmds := make([]*redis.FloatCmd, len(tags))
	_, err := e.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range tags {
			cmds[i] = p.ZScore(ctx, e.keys.parked(), t)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	var lost []string
	for i, c := range cmds {
		if errors.Is(c.Err(), redis.Nil) {
			lost = append(lost, tags[i])
		}
	}
	return lost, nil
}

// adopt buries replicas that no registry knows. A replica registers before it
// takes, so one that is met here and not registered is none.
func (e *Engine) adopt(ctx context.Context, owners []string) error {
	if len(owners) == 0 {
		return nil
	}
	args := []any{e.keys.entry(""), e.listNames()}
	for _, o := range owners {
		args = append(args, o)
	}
	n, err := e.run(ctx, e.scripts.adopt, []string{e.keys.replicas(), e.keys.buried()}, args...).Int()
	if n > 0 {
		e.log.Warn("entries of unknown replicas were found; they are taken over", "replicas", n)
	}
	return err
}

// unpark puts parked messages back that no index holds: whoever takes them
// parks them again if their time has not come.
func (e *Engine) unpark(ctx context.Context, tags []string) error {
	for _, tag := range tags {
		call, cancel := context.WithTimeout(ctx, e.tune.call)
		value, err := e.rdb.HGet(call, e.keys.unacked(), tag).Bytes()
		cancel()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		if err := e.unparkOne(ctx, tag, value); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) unparkOne(ctx context.Context, tag string, value []byte) error {
	it := e.recovered(tag, value, &replica{id: parkOwner}, e.clock.now(), time.Now())
	o := settleOp{tag: tag, op: &op{Act: actPush, List: it.src.key, Side: "R", raw: []byte(it.raw)}}
	if it.err != nil {
		o = e.undecodable(it).settleOp()
	}
	mine, err := e.settle(ctx, "", []settleOp{o})
	switch {
	case err != nil || !mine[0]:
	case o.op.Dead != nil:
		e.died(e.log.Warn, it, o.op.Dead, "a parked message that no index held")
	default:
		e.log.Warn("a parked message that no index held was put back", "task", it.taskName(), "task_id", it.taskID())
	}
	return err
}

// trimDead drops dead letters past their age and counts them.
func (e *Engine) trimDead(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, e.tune.call)
	defer cancel()
	queues, err := e.rdb.SMembers(call, e.keys.deadQueues()).Result()
	if err != nil {
		return err
	}
	oldest := strconv.FormatInt(e.clock.now().Add(-maxDeadAge).UnixMilli(), 10)
	for _, q := range queues {
		n, err := e.rdb.XTrimMinID(call, e.keys.dead(q), oldest).Result()
		if err != nil {
			return err
		}
		if n > 0 {
			if err := e.rdb.HIncrBy(call, e.keys.deadDropped(), q, n).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
