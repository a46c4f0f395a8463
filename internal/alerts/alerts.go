// Package alerts is the one source of what is shipped for Prometheus and
// Grafana: each alert and each panel is written once, here. `go generate
// ./internal/alerts` writes the files below deploy/, and a test compares them.
//
// Every alert is a query, a comparison and a number, since Grafana wants the
// comparison apart from the query: a query that returns nothing when all is
// well counts there as missing data.
package alerts

import (
	"strconv"
	"strings"
	"time"
)

//go:generate go run ./gen

// Severities: critical wakes somebody, warning can wait until the morning,
// none is for machines.
const (
	Critical = "critical"
	Warning  = "warning"
	None     = "none"
)

// Op compares what a query returns with an alert's threshold.
type Op string

// The comparisons that both Prometheus and Grafana have.
const (
	Above Op = ">"
	Below Op = "<"
)

// Alert is one alert. It fires for each series that Query returns and that
// compares so.
type Alert struct {
	// Name is the alert's name; its lower-case form names the runbook.
	Name string
	// Query is PromQL. One that has a comparison or a set operator outside of
	// all parentheses stands in parentheses.
	Query     string
	Op        Op
	Threshold float64
	// For is how long the comparison must hold.
	For      time.Duration
	Severity string
	// Summary says what is wrong, without values. Description says it with
	// values ($value, $labels) and what to look at first.
	Summary, Description string
	// NoDataFires tells Grafana that no answer is as bad as a bad one.
	NoDataFires bool
}

// Expr is the alert as one PromQL expression.
func (a Alert) Expr() string {
	return a.Query + " " + string(a.Op) + " " + strconv.FormatFloat(a.Threshold, 'g', -1, 64)
}

// repository is where links of alerts lead.
const repository = "https://github.com/solobeat/solobeat/blob/main/"

// Runbook is the file of the alert's runbook, relative to the repository.
func (a Alert) Runbook() string { return "deploy/runbooks/" + strings.ToLower(a.Name) + ".md" }

// RunbookURL is where the alert's runbook can be read.
func (a Alert) RunbookURL() string { return repository + a.Runbook() }

// Group is a set of alerts on one matter.
type Group struct {
	Name   string
	Alerts []Alert
}

// Groups returns all alerts.
func Groups() []Group {
	return []Group{
		{"solobeat-locks", lockAlerts()},
		{"solobeat-schedules", scheduleAlerts()},
		{"solobeat-queues", queueAlerts()},
		{"solobeat-stores", storeAlerts()},
	}
}

// All returns the alerts of all groups.
func All() []Alert {
	var all []Alert
	for _, g := range Groups() {
		all = append(all, g.Alerts...)
	}
	return all
}

func lockAlerts() []Alert {
	return []Alert{
		{
			Name: "JobOutlivedLockTTL", Severity: Warning,
			Query: `sum by (schedule, lock) (increase(solobeat_lock_outlived_total[15m]))`, Op: Above,
			Summary:     "A run has outlived its lock's expected time.",
			Description: `{{ $value | printf "%.0f" }} run(s) of {{ $labels.schedule }} passed the expected time of lock {{ $labels.lock }} within 15 minutes. The watchdog renews the lock while the run goes on. Raise ttl or expect, or make the job shorter.`,
		},
		{
			Name: "JobNearLockTTL", Severity: Warning, For: 30 * time.Minute,
			Query: `histogram_quantile(0.99, sum by (schedule, lock, le) (increase(solobeat_lock_expect_ratio_bucket[7d])))`, Op: Above, Threshold: 0.75,
			Summary:     "Runs come close to their lock's expected time.",
			Description: `Over 7 days one of a hundred runs of {{ $labels.schedule }} took {{ $value | humanizePercentage }} of the expected time of lock {{ $labels.lock }}, or more. Raise ttl or expect before a run outlives it.`,
		},
		{
			Name: "LockLost", Severity: Critical,
			Query: `sum by (schedule, lock, reason) (increase(solobeat_lock_lost_total[10m]))`, Op: Above,
			Summary:     "A lock was lost while its run went on.",
			Description: `Lock {{ $labels.lock }} of {{ $labels.schedule }} was lost ({{ $labels.reason }}) {{ $value | printf "%.0f" }} time(s) within 10 minutes. The run was cancelled, unless its on_lost is observe; its record keeps a second run of the same key out. Look for a pause of the process, a failover, or evictions.`,
		},
		{
			Name: "LockExpiredWhileHeld", Severity: Critical,
			Query: `sum by (schedule, lock) (increase(solobeat_lock_expired_while_held_total[10m]))`, Op: Above,
			Summary:     "A lock ended in the store while its run went on.",
			Description: `Lock {{ $labels.lock }} of {{ $labels.schedule }} ended with its run still going on, {{ $value | printf "%.0f" }} time(s) within 10 minutes: another run may have begun. Compare the fences of both runs.`,
		},
		{
			Name: "RunWithoutLock", Severity: Critical,
			Query: `sum by (schedule, lock) (increase(solobeat_lock_bypassed_total[10m]))`, Op: Above,
			Summary:     "A task runs without its lock.",
			Description: `{{ $value | printf "%.0f" }} run(s) of {{ $labels.schedule }} went on without lock {{ $labels.lock }} within 10 minutes: its Redis was out of reach, and on_store_down says run. Several may go on at once until it is back.`,
		},
		{
			Name: "SplitBrain", Severity: Critical,
			Query: `(count by (lock) (solobeat_lock_hold_start_timestamp_seconds{lock!~".*[{][{].*|_other"})` +
				` and on (lock) (max by (lock) (solobeat_lock_hold_start_timestamp_seconds) + 1 < min by (lock) (timestamp(solobeat_lock_hold_start_timestamp_seconds))))`,
			Op: Above, Threshold: 1,
			Summary:     "Several replicas hold one lock at the same time.",
			Description: `{{ $value | printf "%.0f" }} replicas hold lock {{ $labels.lock }}, and their holds overlap. Stop all but the one with the largest fence, and look for a Redis that lost its data or failed over.`,
		},
		{
			Name: "WatchdogFailing", Severity: Warning, For: 2 * time.Minute,
			Query: `sum by (lock) (rate(solobeat_lock_renewals_total{result="failed"}[5m])) / sum by (lock) (rate(solobeat_lock_renewals_total[5m]))`, Op: Above, Threshold: 0.1,
			Summary:     "Renewals of a lock fail.",
			Description: `{{ $value | humanizePercentage }} of the renewals of lock {{ $labels.lock }} got no answer within 5 minutes. They are tried again until the lock's deadline; then the run is cancelled. Look at the latency of Redis and at reconnects.`,
		},
		{
			Name: "FenceRefused", Severity: Critical,
			Query: `sum by (schedule, lock) (increase(solobeat_fenced_total[15m]))`, Op: Above,
			Summary:     "A resource refused a write for its stale fence.",
			Description: `{{ $value | printf "%.0f" }} write(s) of {{ $labels.schedule }} under lock {{ $labels.lock }} came with a stale fence within 15 minutes and were refused. The resource is safe; find out why two runs went on at once.`,
		},
	}
}

// notPaused is a query by schedule, less the jobs that somebody has paused.
func notPaused(query string) string {
	return "(" + query + " unless max by (schedule) (solobeat_schedule_paused) == 1)"
}

func scheduleAlerts() []Alert {
	return []Alert{
		{
			Name: "TickNeverAcquired", Severity: Critical, For: 5 * time.Minute,
			Query: notPaused(`max by (schedule) (solobeat_schedule_last_due_tick_timestamp_seconds)` +
				` - (max by (schedule) (solobeat_schedule_last_acquired_tick_timestamp_seconds) or max by (schedule) (solobeat_schedule_created_timestamp_seconds))`),
			Op:          Above,
			Summary:     "No worker has begun a job's last tick.",
			Description: `The last tick of {{ $labels.schedule }} was due over 5 minutes ago, and no worker has begun to run it. Look whether workers serve its queue, and who holds its lock.`,
		},
		{
			Name: "TickRunTwice", Severity: Critical,
			Query: `sum by (schedule) (increase(solobeat_schedule_run_twice_total[1h]))`, Op: Above,
			Summary:     "A tick has run to its end twice.",
			Description: `{{ $value | printf "%.0f" }} tick(s) of {{ $labels.schedule }} ran to success a second time within an hour. Compare both runs in its history, and put the effect right by hand.`,
		},
		{
			Name: "ScheduleNoSuccess", Severity: Critical,
			Query: notPaused(`time() - max by (schedule) ({__name__=~"solobeat_schedule_created_timestamp_seconds|solobeat_schedule_last_success_timestamp_seconds"})` +
				` - max by (schedule) (solobeat_schedule_max_gap_seconds) - max by (schedule) (solobeat_schedule_grace_seconds)`),
			Op:          Above,
			Summary:     "A job has not succeeded for too long.",
			Description: `{{ $labels.schedule }} has not succeeded for its longest gap between two ticks and its grace, and {{ $value | humanizeDuration }} more. Its history says what its last runs came to.`,
		},
		{
			Name: "ScheduleOverdue", Severity: Critical, For: time.Minute,
			Query: notPaused(`time() - max by (schedule) (solobeat_schedule_next_run_timestamp_seconds)`), Op: Above, Threshold: 60,
			Summary:     "A tick was not published in time.",
			Description: `The next tick of {{ $labels.schedule }} should have been published {{ $value | humanizeDuration }} ago. Look whether the schedulers reach Redis, and whether the job is set aside for an error of its own.`,
		},
		{
			Name: "SchedulerLagHigh", Severity: Warning, For: 10 * time.Minute,
			Query: `histogram_quantile(0.99, sum by (le) (rate(solobeat_schedule_lag_seconds_bucket[15m])))`, Op: Above, Threshold: 10,
			Summary:     "Ticks are published late.",
			Description: `Within 15 minutes one of a hundred ticks was published {{ $value | humanizeDuration }} late, or more. Look at the latency of Redis, at the CPU of the schedulers, and at clocks.`,
		},
		{
			Name: "NoSchedulerAlive", Severity: Critical, For: time.Minute, NoDataFires: true,
			Query: `time() - (max(solobeat_scheduler_heartbeat_timestamp_seconds) or vector(0))`, Op: Above, Threshold: 60,
			Summary:     "No scheduler has completed its loop for over a minute.",
			Description: "No tick is published. Look whether a scheduler runs (solobeat worker --with-scheduler, solobeat scheduler), whether it is ready (/readyz), and whether Redis answers. Late ticks run by their misfire policy when it is back.",
		},
		{
			Name: "RevisionStale", Severity: Warning,
			Query: `max by (schedule) (solobeat_schedule_stale_seconds)`, Op: Above,
			Summary:     "A scheduler's file has not been the current one for over 5 minutes.",
			Description: `A replica's claims of {{ $labels.schedule }} have been answered STALE for {{ $value | humanizeDuration }}: another replica has loaded another file since. Two deployments in one namespace look so; the log of the stale one names both files.`,
		},
		{
			Name: "ClockSkew", Severity: Warning, For: 5 * time.Minute,
			Query: `max(solobeat_clock_offset_seconds) - min(solobeat_clock_offset_seconds)`, Op: Above, Threshold: 1,
			Summary:     "The clocks of replicas differ.",
			Description: `The clocks of two replicas are {{ $value | humanizeDuration }} apart. Ticks go by the clock of Redis and locks by intervals, so nothing is lost; times in logs and of commands mislead. Look at NTP on the outlier.`,
		},
	}
}

func queueAlerts() []Alert {
	return []Alert{
		{
			Name: "QueueOldestTooOld", Severity: Warning, For: 5 * time.Minute,
			Query: `max by (queue) (solobeat_queue_oldest_age_seconds)`, Op: Above, Threshold: 300,
			Summary:     "A message waits in its queue for too long.",
			Description: `The message that queue {{ $labels.queue }} gives out next has waited for {{ $value | humanizeDuration }}. Look whether workers serve the queue, and what they are busy with.`,
		},
		{
			Name: "QueueBacklog", Severity: Warning, For: 15 * time.Minute,
			Query: `(max by (queue) (solobeat_queue_depth{state="pending"}) and (max by (queue) (deriv(solobeat_queue_depth{state="pending"}[15m])) > 0))`, Op: Above, Threshold: 1000,
			Summary:     "A queue is long and grows.",
			Description: `{{ $value | printf "%.0f" }} messages wait in queue {{ $labels.queue }}, and they become more. Add workers or slots, or find what sends so much.`,
		},
		{
			Name: "TaskHighFailRate", Severity: Warning, For: time.Minute,
			Query: `sum by (task, queue) (rate(solobeat_task_processed_total{outcome="failed"}[10m])) / sum by (task, queue) (rate(solobeat_task_processed_total[10m]))`, Op: Above, Threshold: 0.05,
			Summary:     "Many messages of a task fail.",
			Description: `{{ $value | humanizePercentage }} of the messages of task {{ $labels.task }} in queue {{ $labels.queue }} failed within 10 minutes. Results and the log have the reasons.`,
		},
		{
			Name: "RunOverdue", Severity: Warning, For: time.Minute,
			Query: `sum by (queue) (solobeat_tasks_overdue)`, Op: Above,
			Summary:     "A handler goes on though its context has ended.",
			Description: `{{ $value | printf "%.0f" }} handler(s) of queue {{ $labels.queue }} go on, over 10 seconds after a time limit, a lost lock or max_hold ended their context. Each keeps a slot of its worker. Find the call that does not listen to its context.`,
		},
		{
			Name: "AsynqOrphans", Severity: Warning,
			Query: `max by (queue) (solobeat_asynq_orphans)`, Op: Above,
			Summary:     "Tasks of asynq never come back by themselves.",
			Description: `{{ $value | printf "%.0f" }} task(s) of asynq queue {{ $labels.queue }} stand as active without a lease or a message, and asynq's recoverer does not see them. The workers' log has their ids; send them again, and look what evicts or deletes keys.`,
		},
	}
}

func storeAlerts() []Alert {
	return []Alert{
		{
			Name: "RecordStoreUnavailable", Severity: Critical, For: 2 * time.Minute,
			Query: `sum by (backend) (rate(solobeat_record_operations_total{result="error"}[5m])) / sum by (backend) (rate(solobeat_record_operations_total[5m]))`, Op: Above, Threshold: 0.05,
			Summary:     "Calls to the record store fail.",
			Description: `{{ $value | humanizePercentage }} of the calls to the {{ $labels.backend }} record store failed within 5 minutes. Runs with a record are not begun without it; their messages are parked and tried again.`,
		},
		{
			Name: "BrokerDown", Severity: Critical, For: time.Minute,
			Query: `min by (role) (solobeat_broker_up)`, Op: Below, Threshold: 1,
			Summary:     "A Redis does not answer.",
			Description: `At least one replica gets no answer from the Redis of role {{ $labels.role }}. Without the broker nothing is taken or scheduled, without locks no guarded run begins, without results none is acknowledged. Restore it first.`,
		},
		{
			Name: "RedisUnsafeMemoryPolicy", Severity: Critical, For: time.Minute,
			Query: `max by (role, policy) (solobeat_redis_maxmemory_policy_info{policy!="noeviction"})`, Op: Above,
			Summary:     "A Redis may evict keys.",
			Description: `The Redis of role {{ $labels.role }} has maxmemory-policy {{ $labels.policy }}: it may drop a lock, a record or a job's state. Set noeviction.`,
		},
		{
			Name: "RedisEvictingKeys", Severity: Critical,
			Query: `max by (role) (increase(solobeat_redis_evicted_keys_total[10m]))`, Op: Above,
			Summary:     "A Redis evicts keys.",
			Description: `The Redis of role {{ $labels.role }} evicted {{ $value | printf "%.0f" }} key(s) within 10 minutes. Take every lock and record of that time for lost.`,
		},
		{
			Name: "TargetDown", Severity: Warning, For: 5 * time.Minute,
			Query: `min by (job, instance) (up{job="solobeat"})`, Op: Below, Threshold: 1,
			Summary:     "A replica's metrics cannot be read.",
			Description: `Prometheus has not been able to scrape {{ $labels.instance }} for 5 minutes. Alerts on what only this replica exports are silent meanwhile.`,
		},
		{
			Name: "AlwaysFiring", Severity: None, NoDataFires: true,
			Query: `vector(1)`, Op: Above,
			Summary:     "Alerting works.",
			Description: "This alert always fires. Route it to a service outside that tells you when it stops.",
		},
	}
}
