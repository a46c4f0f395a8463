package metrics_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/scheduler"
)

// Evictions count from the first look on, over a restart of the server too; a
// policy that was changed has one series, not two.
func TestStoresAreWatched(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Config{})
	look := func(up bool, policy string, evicted int64) {
		m.Watched(metrics.Store{Role: metrics.RoleLocks, Up: up, Policy: policy, Evicted: evicted})
	}
	for i, step := range []struct {
		up      bool
		policy  string
		evicted int64
		want    float64
	}{
		{true, "noeviction", 700, 0},
		{true, "allkeys-lru", 703, 3},
		{false, "", 0, 3},
		{true, "allkeys-lru", 704, 4},
		{true, "allkeys-lru", 2, 6}, // started again
	} {
		look(step.up, step.policy, step.evicted)
		if got := value(t, m, "solobeat_redis_evicted_keys_total", "role=locks"); got != step.want {
			t.Errorf("look %d: %v evicted, want %v", i, got, step.want)
		}
		if up := value(t, m, "solobeat_broker_up", "role=locks"); (up == 1) != step.up {
			t.Errorf("look %d: up is %v", i, up)
		}
	}
	if got := series(t, m, "solobeat_redis_maxmemory_policy_info"); !slices.Equal(got, []string{"policy=allkeys-lru role=locks"}) {
		t.Errorf("policies: %q", got)
	}
	look(true, "", 0) // INFO is not allowed any more
	if got := series(t, m, "solobeat_redis_maxmemory_policy_info"); len(got) != 0 {
		t.Errorf("a policy that cannot be read: %q", got)
	}
}

// A message's age counts from the look that met it, whichever of the queue's
// lists it is in; the next message's age begins anew.
func TestAgeOfTheOldest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(metrics.Config{})
		var tails atomic.Pointer[[]string]
		m.CollectDepths(func(context.Context) ([]metrics.QueueDepth, error) {
			if tails.Load() == nil {
				return nil, errors.New("away")
			}
			return []metrics.QueueDepth{
				{Queue: "celery", State: "pending", Tails: *tails.Load()}, {Queue: "_all", State: "unacked"},
			}, nil
		})
		for i, step := range []struct {
			tails []string
			want  float64
		}{
			{[]string{"", ""}, 0},
			{[]string{"a", ""}, 0},
			{[]string{"a", "x"}, 10},
			{[]string{"b", "x"}, 10},
			{[]string{"b", ""}, 10},
			{[]string{"a", ""}, 0},
		} {
			tails.Store(&step.tails)
			if got := value(t, m, "solobeat_queue_oldest_age_seconds", "queue=celery"); got != step.want {
				t.Errorf("look %d: %v s, want %v", i, got, step.want)
			}
			<-time.After(10 * time.Second)
		}
		if got := series(t, m, "solobeat_queue_oldest_age_seconds"); len(got) != 1 {
			t.Errorf("ages: %q", got)
		}
		tails.Store(nil)
		<-time.After(10 * time.Second)
		if got := series(t, m, "solobeat_queue_oldest_age_seconds"); len(got) != 0 {
			t.Errorf("ages while the broker is away: %q", got)
		}
	})
}

// What the store keeps of jobs is exported for those that have series, read at
// most every few seconds.
func TestInstantsOfJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		off := job(t, "off", "")
		off.Disabled = true
		m := metrics.New(metrics.Config{Scheduler: true, Jobs: []*scheduler.Job{job(t, "a", ""), job(t, "b", ""), off}})
		reads, down := 0, false
		m.CollectJobs(func(_ context.Context, names []string) ([]scheduler.JobState, error) {
			reads++
			if down {
				return nil, errors.New("away")
			}
			if !slices.Equal(names, []string{"a", "b"}) {
				t.Errorf("asked for %q", names)
			}
			return []scheduler.JobState{
				{Job: "a", Since: time.Unix(1000, 0), LastBegun: time.Unix(3600, 0), LastSuccess: time.Unix(3605, 0)},
				{Job: "b", Since: time.Unix(2000, 0), Paused: &scheduler.Pause{}},
			}, nil
		})
		for _, want := range []struct {
			n           float64
			family, job string
		}{
			{3605, "solobeat_schedule_last_success_timestamp_seconds", "a"},
			{-1, "solobeat_schedule_last_success_timestamp_seconds", "b"},
			{1000, "solobeat_schedule_created_timestamp_seconds", "a"},
			{2000, "solobeat_schedule_created_timestamp_seconds", "b"},
			{3600, "solobeat_schedule_last_acquired_tick_timestamp_seconds", "a"},
			{-1, "solobeat_schedule_last_acquired_tick_timestamp_seconds", "b"},
			{0, "solobeat_schedule_paused", "a"},
			{1, "solobeat_schedule_paused", "b"},
			{3600, "solobeat_schedule_max_gap_seconds", "a"},
			{-1, "solobeat_schedule_max_gap_seconds", "off"},
		} {
			if got := value(t, m, want.family, "schedule="+want.job); got != want.n {
				t.Errorf("%s of %s: %v, want %v", want.family, want.job, got, want.n)
			}
		}
		if reads != 1 {
			t.Errorf("%d reads", reads)
		}
		down = true
		<-time.After(11 * time.Second)
		if got := series(t, m, "solobeat_schedule_created_timestamp_seconds"); len(got) != 0 {
			t.Errorf("while the store is away: %q", got)
		}
	})
}
