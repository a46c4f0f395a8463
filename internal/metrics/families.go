package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/scheduler"
)

var (
	acquireResults   = []string{"acquired", "busy", "error", "cancelled"}
	renewOutcomes    = []lockguard.RenewOutcome{lockguard.RenewOK, lockguard.RenewFailed, lockguard.RenewRejected}
	recordOperations = []idempotency.Operation{
		idempotency.OpClaim, idempotency.OpRenew, idempotency.OpComplete, idempotency.OpRelease, idempotency.OpFail,
	}
	recordDecisions = []idempotency.Decision{
		idempotency.DecisionClaimed, idempotency.DecisionCompleted, idempotency.DecisionInProgress,
		idempotency.DecisionTakeover, idempotency.DecisionMismatch, idempotency.DecisionUnavailable,
	}
	tickOutcomes = []scheduler.TickOutcome{
		scheduler.TickEnqueued, scheduler.TickDuplicate, scheduler.TickMissed, scheduler.TickPaused, scheduler.TickStale, scheduler.TickError,
	}

	runBuckets   = []float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600, 14400}
	ratioBuckets = []float64{.05, .1, .25, .5, .75, .9, 1, 1.25, 1.5, 2, 4}
	lagBuckets   = []float64{.01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}
	rttBuckets   = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
)

// families are all metric families. Each line is its name and its help.
type families struct {
	buildInfo *prometheus.GaugeVec

	lockAcquire, lockOutlived, lockExpired, lockLost, lockBypassed, lockRenewals, lockRelease, fenced *prometheus.CounterVec
	lockWait, lockHeld, lockRatio, lockExpectRatio, lockRenewal                                       *prometheus.HistogramVec
	lockTTL, lockHolders, fence                                                                       *prometheus.GaugeVec

	recordOperations, recordDecisions, recordLost, recordStale *prometheus.CounterVec
	recordDuration                                             *prometheus.HistogramVec

	ticks, stoodAside, runTwice          *prometheus.CounterVec
	lag                                  *prometheus.HistogramVec
	lastDue, nextTick, info              *prometheus.GaugeVec
	staleSeconds, quarantined            *prometheus.GaugeVec
	maxGap, grace                        *prometheus.GaugeVec
	heartbeat                            lazyGauge
	processed, retries, failures, parked *prometheus.CounterVec
	deadLettered, deadUnlisted           *prometheus.CounterVec
	runtime, wait                        *prometheus.HistogramVec
	inProgress, overdue                  *prometheus.GaugeVec
	concurrency                          lazyGauge
	takenOver, buried, lateCommits       lazyCounter
	suspects, reconnects                 lazyCounter
	brokerUp, memoryPolicy, orphans      *prometheus.GaugeVec
	evictedKeys                          *prometheus.CounterVec
	clockOffset                          lazyGauge
	configOK, configLoaded               lazyGauge
	configInfo                           *prometheus.GaugeVec

	vectors []vector // all of them
}

func newFamilies(reg prometheus.Registerer) families {
	f := &factory{reg: reg}
	all := families{
		buildInfo: f.gauges("solobeat_build_info", "Always 1; the version is in the labels.", "version", "goversion"),

		lockAcquire:     f.counters("solobeat_lock_acquire_total", "Attempts to take a lock, by result.", "lock", "schedule", "backend", "result"),
		lockOutlived:    f.counters("solobeat_lock_outlived_total", "Runs that passed their lock's expected time, counted at that moment, renewed or not.", "schedule", "lock"),
		lockExpired:     f.counters("solobeat_lock_expired_while_held_total", "Locks that ended in the store while the function under them still ran.", "schedule", "lock"),
		lockLost:        f.counters("solobeat_lock_lost_total", "Locks lost before their release, by reason.", "schedule", "lock", "reason"),
		lockBypassed:    f.counters("solobeat_lock_bypassed_total", "Runs without their lock, since its store was out of reach and on_store_down says run.", "schedule", "lock"),
		lockRenewals:    f.counters("solobeat_lock_renewals_total", "Renewals by the watchdog, by result.", "lock", "backend", "result"),
		lockRelease:     f.counters("solobeat_lock_release_total", "Releases, by result.", "lock", "backend", "result"),
		fenced:          f.counters("solobeat_fenced_total", "Writes that a resource refused for a stale fence.", "schedule", "lock"),
		lockWait:        f.histograms("solobeat_lock_wait_seconds", "Time from the first attempt to the grant.", rttBuckets, "lock", "backend"),
		lockHeld:        f.histograms("solobeat_lock_held_seconds", "Time from the grant to release or loss.", runBuckets, "lock"),
		lockRatio:       f.histograms("solobeat_lock_ttl_ratio", "Time held divided by the lock's TTL.", ratioBuckets, "schedule", "lock"),
		lockExpectRatio: f.histograms("solobeat_lock_expect_ratio", "Time held divided by the lock's expected time; above 1 the run has outlived it.", ratioBuckets, "schedule", "lock"),
		lockRenewal:     f.histograms("solobeat_lock_renewal_duration_seconds", "Round trip of one renewal.", rttBuckets, "backend"),
		lockTTL:         f.gauges("solobeat_lock_ttl_seconds", "The configured TTL.", "lock"),
		lockHolders:     f.gauges("solobeat_lock_holders", "Holds in this process now; a sum above 1 over all replicas is a split brain.", "lock"),
		fence:           f.gauges("solobeat_fence", "The last fence granted to this process.", "lock"),

		recordOperations: f.counters("solobeat_record_operations_total", "Calls to the record store, by result.", "backend", "operation", "result"),
		recordDecisions:  f.counters("solobeat_record_decisions_total", "What claims of records came to.", "schedule", "decision"),
		recordLost:       f.counters("solobeat_record_lost_total", "Records that vanished from the store under a run.", "schedule"),
		recordStale:      f.counters("solobeat_record_stale_total", "Calls that met a record which another run had taken over.", "schedule", "operation"),
		recordDuration:   f.histograms("solobeat_record_operation_duration_seconds", "Latency of the record store.", rttBuckets, "backend", "operation"),

		ticks:        f.counters("solobeat_schedule_ticks_total", "Ticks as this replica met them, by outcome.", "schedule", "outcome"),
		stoodAside:   f.counters("solobeat_stood_aside_total", "Times this replica met a claimed tick, a held lock or a completed record, once per tick.", "schedule", "at"),
		lag:          f.histograms("solobeat_schedule_lag_seconds", "Time from when a tick is due, its jitter included, to its message, by the store's clock.", lagBuckets, "schedule"),
		lastDue:      f.gauges("solobeat_schedule_last_due_tick_timestamp_seconds", "The last tick that was due.", "schedule"),
		nextTick:     f.gauges("solobeat_schedule_next_run_timestamp_seconds", "When the next tick is published: the tick and the job's part of its jitter.", "schedule"),
		info:         f.gauges("solobeat_schedule_info", "Always 1; to join.", "schedule", "task", "queue"),
		staleSeconds: f.gauges("solobeat_schedule_stale_seconds", "For how long claims of this job were refused since another file is newer; 0 below 5 minutes.", "schedule"),
		quarantined:  f.gauges("solobeat_schedule_quarantined", "1 while a job is set aside for an error of its own.", "schedule"),
		maxGap:       f.gauges("solobeat_schedule_max_gap_seconds", "The longest time between two ticks to come.", "schedule"),
		grace:        f.gauges("solobeat_schedule_grace_seconds", "How late after its tick a success may come: the misfire deadline and the expected run time.", "schedule"),
		runTwice:     f.counters("solobeat_schedule_run_twice_total", "Ticks that ran to success a second time. A takeover is none: the first run did not end.", "schedule"),
		heartbeat:    f.gauge("solobeat_scheduler_heartbeat_timestamp_seconds", "When this scheduler's loop last completed; absent where none runs."),

		processed:    f.counters("solobeat_task_processed_total", "Messages dealt with, by outcome.", "task", "queue", "engine", "outcome"),
		retries:      f.counters("solobeat_task_retries_total", "Retries scheduled.", "task", "queue"),
		failures:     f.counters("solobeat_task_failures_total", "Failed tasks, by reason.", "task", "reason"),
		parked:       f.counters("solobeat_task_parked_total", "Messages parked, by what they wait for.", "queue", "reason"),
		deadLettered: f.counters("solobeat_task_dead_total", "Messages put into the dead letters.", "queue"),
		deadUnlisted: f.counters("solobeat_task_dead_unlisted_total", "Messages kept in a list beside the dead letters, whose stream could not be written.", "queue"),
		runtime:      f.histograms("solobeat_task_runtime_seconds", "Run time of handlers, every outcome.", runBuckets, "task", "queue"),
		wait:         f.histograms("solobeat_task_queue_wait_seconds", "Time from a message's ETA to its start; messages without ETA carry no time.", lagBuckets, "task", "queue"),
		inProgress:   f.gauges("solobeat_tasks_in_progress", "Handlers running in this process.", "queue"),
		overdue:      f.gauges("solobeat_tasks_overdue", "Handlers that still run though their context ended over 10 s ago.", "queue"),
		concurrency:  f.gauge("solobeat_worker_concurrency", "Slots of this worker."),
		takenOver:    f.counter("solobeat_taken_over_total", "Messages of dead replicas that this one put back."),
		buried:       f.counter("solobeat_buried_total", "Times peers took this replica for dead."),
		lateCommits:  f.counter("solobeat_late_commits_total", "Results dropped since their message had been taken over."),
		suspects:     f.counter("solobeat_suspects_total", "Runs of messages under which two replicas had died."),
		reconnects:   f.counter("solobeat_broker_reconnects_total", "Times the broker answered again after it had not."),
		orphans:      f.gauges("solobeat_asynq_orphans", "Tasks that stand as active in asynq and that its recoverer cannot see.", "queue"),
		brokerUp:     f.gauges("solobeat_broker_up", "1 if the store of the role answered its last probe.", "role"),
		memoryPolicy: f.gauges("solobeat_redis_maxmemory_policy_info", "Always 1; the policy by which the role's Redis evicts keys is in the label.", "role", "policy"),
		evictedKeys:  f.counters("solobeat_redis_evicted_keys_total", "Keys that the role's Redis evicted since this process has watched it.", "role"),
		clockOffset:  f.gauge("solobeat_clock_offset_seconds", "The local clock minus the broker's, at half of the round trip."),

		configOK:     f.gauge("solobeat_config_last_reload_successful", "1 if the files, as they were last read, are in force; absent without files."),
		configLoaded: f.gauge("solobeat_config_last_reload_success_timestamp_seconds", "Since when the files in force are."),
		configInfo:   f.gauges("solobeat_config_info", "Always 1; the hash of the files in force is in the label.", "hash"),
	}
	all.vectors = f.all
	return all
}

type factory struct {
	reg prometheus.Registerer
	all []vector
}

func (f *factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.reg.MustRegister(c)
	f.all = append(f.all, c)
	return c
}

func (f *factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	f.reg.MustRegister(g)
	f.all = append(f.all, g)
	return g
}

func (f *factory) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	f.reg.MustRegister(h)
	f.all = append(f.all, h)
	return h
}

// counter and gauge make families without labels. They are vectors with none,
// so that a process without the role exports no series.
func (f *factory) counter(name, help string) lazyCounter {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, nil)
	f.reg.MustRegister(v)
	return lazyCounter{v}
}

func (f *factory) gauge(name, help string) lazyGauge {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, nil)
	f.reg.MustRegister(v)
	return lazyGauge{v}
}

type lazyCounter struct{ vec *prometheus.CounterVec }

func (c lazyCounter) Inc()          { c.vec.WithLabelValues().Inc() }
func (c lazyCounter) Add(n float64) { c.vec.WithLabelValues().Add(n) }

type lazyGauge struct{ vec *prometheus.GaugeVec }

func (g lazyGauge) Set(v float64) { g.vec.WithLabelValues().Set(v) }
