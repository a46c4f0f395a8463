package main

import (
	"context"
	"math"
)

func (b *bench) judgeGuards(ctx context.Context, sides []side, rates, cpu, ofRedis, trips map[string]series) error {
	plain := "unguarded"
	lockTrips, bothTrips := trips["lock"].minus(trips[plain]), trips["lock and record"].minus(trips[plain])
	b.judge("lock only: extra round trips per run", "≤ 2", lockTrips.show("%.1f", ""), tenth(lockTrips.median()) <= 2)
	b.judge("lock and record: extra round trips per run", "≤ 4", bothTrips.show("%.1f", ""), tenth(bothTrips.median()) <= 4)
	ratio := rates["lock"].over(rates[plain])
	line := b.judge("guarded (lock) throughput : unguarded", "≥ 0.5", ratio.show("%.2f", ""), ratio.median() >= 0.5)
	b.tell("lock and record: throughput : unguarded", rates["lock and record"].over(rates[plain]).show("%.2f", ""))
	for _, name := range []string{plain, "lock", "lock and record"} {
		b.tell(name+": rate; CPU per task, worker + Redis; of that Redis; round trips per run, one at a time", rates[name].show("%.0f", "/s")+"; "+cpu[name].show("%.1f", "µs")+"; "+ofRedis[name].show("%.1f", "µs")+"; "+trips[name].show("%.2f", ""))
	}
	b.note("**Guards.** The worker's `tasks:` entry gives the task a lock, or a lock and a record, whose keys are made of its first argument, so that none is busy. Throughput as above. " +
		"Round trips are counted by a proxy, for messages that come one at a time, so that no batch hides any: how often, on any connection, a request follows a reply; what the unguarded worker needs is taken off.")
	return b.explain(ctx, sides[1], []*row{line})
}

// tenth rounds to what is shown: the heartbeat falls into one round and not the other.
func tenth(x float64) float64 { return math.Round(10*x) / 10 }

func (s series) minus(other series) series {
	var differences series
	for i := range min(len(s), len(other)) {
		differences = append(differences, s[i]-other[i])
	}
	return differences
}
