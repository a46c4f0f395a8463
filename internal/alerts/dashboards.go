package alerts

// Kind is the type of a panel.
type Kind string

// The kinds of panels that are used, by Grafana's names.
const (
	TimeSeries Kind = "timeseries"
	Stat       Kind = "stat"
	Table      Kind = "table"
)

// Units that panels have, by Grafana's names.
const (
	count   = "short"
	rate    = "ops"
	seconds = "s"
	ratio   = "percentunit"
	since   = "dateTimeFromNow"
)

// Target is one query of a panel.
type Target struct {
	// Expr is PromQL, with Grafana's variables.
	Expr string
	// Legend names its series, from their labels in braces.
	Legend string
}

// Panel is one panel.
type Panel struct {
	Title, Description string
	Kind               Kind
	Unit               string
	// Width and Height are in Grafana's grid of 24 columns.
	Width, Height int
	Targets       []Target
	// Bad is the value from which a number is shown in red; 0 is none.
	Bad float64
}

// Section is a row of panels below a heading.
type Section struct {
	Title  string
	Panels []Panel
}

// Dashboard is one dashboard.
type Dashboard struct {
	UID, Title, Description string
	// ByJob gives it the variable $schedule.
	ByJob    bool
	Sections []Section
}

// Dashboards returns both dashboards.
func Dashboards() []Dashboard {
	return []Dashboard{
		{
			UID: "solobeat-operations", Title: "Solobeat: operations",
			Description: "All replicas of a deployment: schedulers, queues, tasks, locks, records, and the Redis servers below.",
			Sections:    []Section{overview(), queues(), schedules(), locks(), records(), stores()},
		},
		{
			UID: "solobeat-job", Title: "Solobeat: one job", ByJob: true,
			Description: "One job of the schedule: when it ran, how long, under which lock, and what became of its ticks.",
			Sections:    []Section{jobNow(), jobTicks(), jobRuns()},
		},
	}
}

func q(expr, legend string) Target { return Target{expr, legend} }

// series is a panel of lines, half as wide as the page.
func series(title, unit, description string, targets ...Target) Panel {
	return Panel{Title: title, Description: description, Kind: TimeSeries, Unit: unit, Width: 12, Height: 8, Targets: targets}
}

// number is a panel of one number, red from bad on.
func number(title, unit, description string, bad float64, target Target) Panel {
	return Panel{Title: title, Description: description, Kind: Stat, Unit: unit, Width: 4, Height: 4, Targets: []Target{target}, Bad: bad}
}

// quantile is the p-quantile of a histogram by labels.
func quantile(p, histogram, selector, by string) string {
	return "histogram_quantile(" + p + ", sum by (" + by + ", le) (rate(" + histogram + "_bucket" + selector + "[$__rate_interval])))"
}

// perSecond is the rate of a counter by labels.
func perSecond(counter, by string) string {
	return "sum by (" + by + ") (rate(" + counter + "[$__rate_interval]))"
}

func overview() Section {
	return Section{"Overview", []Panel{
		number("Schedulers' heartbeat", seconds, "Age of the newest heartbeat of any scheduler.", 60, q(`time() - max(solobeat_scheduler_heartbeat_timestamp_seconds)`, "")),
		number("Runs now", count, "Handlers running on all replicas.", 0, q(`sum(solobeat_tasks_in_progress)`, "")),
		number("Slots", count, "Slots of all workers.", 0, q(`sum(solobeat_worker_concurrency)`, "")),
		number("Locks held", count, "Locks that are held now.", 0, q(`sum(solobeat_lock_holders)`, "")),
		number("Outlived, 1 h", count, "Runs that passed their lock's expected time.", 1, q(`sum(increase(solobeat_lock_outlived_total[1h]))`, "")),
		number("Overdue handlers", count, "Handlers that go on though their context has ended.", 1, q(`sum(solobeat_tasks_overdue)`, "")),
	}}
}

func queues() Section {
	return Section{"Queues and tasks", []Panel{
		series("Messages by state", count, "All replicas read the same numbers. What is unacked or parked is told for all Celery queues together.",
			q(`max by (queue, state) (solobeat_queue_depth)`, "{{queue}} {{state}}")),
		series("Age of the next message", seconds, "For how long the message that comes next was seen to wait: a lower bound.",
			q(`max by (queue) (solobeat_queue_oldest_age_seconds)`, "{{queue}}")),
		series("Messages by outcome", rate, "", q(perSecond("solobeat_task_processed_total", "outcome"), "{{outcome}}")),
		series("Messages by task", rate, "", q(perSecond("solobeat_task_processed_total", "task"), "{{task}}")),
		series("Failures by reason", rate, "", q(perSecond("solobeat_task_failures_total", "task, reason"), "{{task}} {{reason}}")),
		series("Retries, parked, dead letters", rate, "",
			q(perSecond("solobeat_task_retries_total", "queue"), "{{queue}} retries"),
			q(perSecond("solobeat_task_parked_total", "queue, reason"), "{{queue}} parked: {{reason}}"),
			q(perSecond("solobeat_task_dead_total", "queue"), "{{queue}} dead letters"),
			q(perSecond("solobeat_task_dead_unlisted_total", "queue"), "{{queue}} beside the dead letters")),
		series("Run time, 95 %", seconds, "", q(quantile("0.95", "solobeat_task_runtime_seconds", "", "task"), "{{task}}")),
		series("Wait after ETA, 95 %", seconds, "Messages without ETA carry no time.", q(quantile("0.95", "solobeat_task_queue_wait_seconds", "", "queue"), "{{queue}}")),
		series("Takeovers and losses", rate, "",
			q(`sum(rate(solobeat_taken_over_total[$__rate_interval]))`, "messages taken over"),
			q(`sum(rate(solobeat_buried_total[$__rate_interval]))`, "replicas taken for dead"),
			q(`sum(rate(solobeat_late_commits_total[$__rate_interval]))`, "late results dropped"),
			q(`sum(rate(solobeat_suspects_total[$__rate_interval]))`, "suspects run")),
		series("Runs and slots by replica", count, "",
			q(`sum by (instance) (solobeat_tasks_in_progress)`, "{{instance}} runs"),
			q(`sum by (instance) (solobeat_worker_concurrency)`, "{{instance}} slots")),
		series("asynq's orphans", count, "Tasks that stand as active in asynq and never come back by themselves. All replicas read the same numbers.",
			q(`max by (queue) (solobeat_asynq_orphans)`, "{{queue}}")),
	}}
}

func schedules() Section {
	return Section{"Schedules", []Panel{
		series("Ticks by outcome", rate, "As replicas met them: one publishes, the others find it claimed.", q(perSecond("solobeat_schedule_ticks_total", "outcome"), "{{outcome}}")),
		series("Stood aside", rate, "Replicas that met a claimed tick, a held lock or a completed record.", q(perSecond("solobeat_stood_aside_total", "at"), "{{at}}")),
		series("Lag of ticks, 99 %", seconds, "From when a tick is due, its jitter included, to its message, by the clock of Redis.", q(quantile("0.99", "solobeat_schedule_lag_seconds", "", "schedule"), "{{schedule}}")),
		series("Since the last success", seconds, "", q(`time() - max by (schedule) (solobeat_schedule_last_success_timestamp_seconds)`, "{{schedule}}")),
		{
			Title: "Jobs", Description: "The jobs of the schedule file, and where their messages go.", Kind: Table, Unit: count, Width: 12, Height: 8,
			Targets: []Target{q(`max by (schedule, task, queue) (solobeat_schedule_info)`, "")},
		},
		series("Stale, set aside and paused", count, "Seconds for which a replica's file is not the current one; 1 for a job that is set aside for an error of its own, or that somebody has paused.",
			q(`max by (schedule) (solobeat_schedule_stale_seconds)`, "{{schedule}} stale"),
			q(`max by (schedule) (solobeat_schedule_quarantined)`, "{{schedule}} set aside"),
			q(`max by (schedule) (solobeat_schedule_paused)`, "{{schedule}} paused")),
		series("Files in force", count, "1 if every replica has put its files in force as they are now.",
			q(`min(solobeat_config_last_reload_successful)`, "in force")),
		series("Age of the files in force", seconds, "Since each replica has its files in force.",
			q(`time() - max by (instance) (solobeat_config_last_reload_success_timestamp_seconds)`, "{{instance}}")),
		{
			Title: "Configurations", Description: "Replicas by the hash of the files that they have in force.", Kind: Table, Unit: count, Width: 12, Height: 8,
			Targets: []Target{q(`count by (hash) (solobeat_config_info)`, "")},
		},
	}}
}

func locks() Section {
	return Section{"Locks", []Panel{
		series("Attempts by result", rate, "", q(perSecond("solobeat_lock_acquire_total", "result"), "{{result}}")),
		series("Losses", count, "Within 5 minutes.",
			q(`sum by (reason) (increase(solobeat_lock_lost_total[5m]))`, "lost: {{reason}}"),
			q(`sum(increase(solobeat_lock_expired_while_held_total[5m]))`, "ended under a run"),
			q(`sum(increase(solobeat_lock_bypassed_total[5m]))`, "run without"),
			q(`sum(increase(solobeat_fenced_total[5m]))`, "writes refused")),
		series("Renewals", rate, "", q(perSecond("solobeat_lock_renewals_total", "result"), "{{result}}")),
		series("Renewal round trip, 99 %", seconds, "", q(quantile("0.99", "solobeat_lock_renewal_duration_seconds", "", "backend"), "{{backend}}")),
		series("Wait for a lock, 95 %", seconds, "From the first attempt to the grant.", q(quantile("0.95", "solobeat_lock_wait_seconds", "", "lock"), "{{lock}}")),
		series("Releases by result", rate, "", q(perSecond("solobeat_lock_release_total", "result"), "{{result}}")),
	}}
}

func records() Section {
	return Section{"Records", []Panel{
		series("Decisions", rate, "What claims of records came to.", q(perSecond("solobeat_record_decisions_total", "decision"), "{{decision}}")),
		series("Calls to the store", rate, "", q(perSecond("solobeat_record_operations_total", "operation, result"), "{{operation}} {{result}}")),
		series("Latency of the store, 99 %", seconds, "", q(quantile("0.99", "solobeat_record_operation_duration_seconds", "", "operation"), "{{operation}}")),
		series("Lost and stale", count, "Within 5 minutes: records that vanished under a run, and calls that met a record which another run had taken over.",
			q(`sum(increase(solobeat_record_lost_total[5m]))`, "lost"),
			q(`sum by (operation) (increase(solobeat_record_stale_total[5m]))`, "stale: {{operation}}")),
	}}
}

func stores() Section {
	return Section{"Redis and replicas", []Panel{
		series("Redis answers", count, "1 if every replica gets an answer.", q(`min by (role) (solobeat_broker_up)`, "{{role}}")),
		series("Evicted keys and reconnects", count, "Within 5 minutes.",
			q(`max by (role) (increase(solobeat_redis_evicted_keys_total[5m]))`, "{{role}} evicted"),
			q(`sum(increase(solobeat_broker_reconnects_total[5m]))`, "reconnects")),
		series("Clocks against Redis", seconds, "", q(`max by (instance) (solobeat_clock_offset_seconds)`, "{{instance}}")),
		{
			Title: "Memory policy", Description: "To be noeviction.", Kind: Table, Unit: count, Width: 6, Height: 8,
			Targets: []Target{q(`max by (role, policy) (solobeat_redis_maxmemory_policy_info)`, "")},
		},
		{
			Title: "Versions", Description: "Replicas by version.", Kind: Table, Unit: count, Width: 6, Height: 8,
			Targets: []Target{q(`count by (version, goversion) (solobeat_build_info)`, "")},
		},
	}}
}

// job selects the series of the job that is looked at.
const job = `{schedule=~"$schedule"}`

// ofJob keeps what belongs to a lock of the job.
const ofJob = ` and on (lock) sum by (lock) (solobeat_lock_acquire_total` + job + `)`

func jobNow() Section {
	panels := []Panel{
		number("Last success", since, "When a run last succeeded, on any replica.", 0, q(`max by (schedule) (solobeat_schedule_last_success_timestamp_seconds`+job+`) * 1000`, "")),
		number("Next tick", since, "When the next tick is published.", 0, q(`max by (schedule) (solobeat_schedule_next_run_timestamp_seconds`+job+`) * 1000`, "")),
		number("Last tick", since, "The newest tick that was due.", 0, q(`max by (schedule) (solobeat_schedule_last_due_tick_timestamp_seconds`+job+`) * 1000`, "")),
		number("Last tick begun", since, "The newest tick that a worker has begun to run, or settled without a run.", 0, q(`max by (schedule) (solobeat_schedule_last_acquired_tick_timestamp_seconds`+job+`) * 1000`, "")),
		number("Outlived, 24 h", count, "Runs that passed their lock's expected time.", 1, q(`sum(increase(solobeat_lock_outlived_total`+job+`[24h]))`, "")),
		number("Paused", count, "1 while somebody has paused the job: its ticks are not published.", 1, q(`max by (schedule) (solobeat_schedule_paused`+job+`)`, "")),
		number("Set aside", count, "1 while the job is set aside for an error of its own.", 1, q(`max by (schedule) (solobeat_schedule_quarantined`+job+`)`, "")),
		number("Run twice, 24 h", count, "Ticks that ran to success twice.", 1, q(`sum(increase(solobeat_schedule_run_twice_total`+job+`[24h]))`, "")),
	}
	for i := range panels {
		panels[i].Width = 3 // eight in a row
	}
	return Section{"Now", panels}
}

func jobTicks() Section {
	return Section{"Ticks", []Panel{
		series("Ticks by outcome", count, "Within 5 minutes, as replicas met them.", q(`sum by (outcome) (increase(solobeat_schedule_ticks_total`+job+`[5m]))`, "{{outcome}}")),
		series("Lag", seconds, "From when a tick is due, its jitter included, to its message, by the clock of Redis.",
			q(quantile("0.5", "solobeat_schedule_lag_seconds", job, "schedule"), "half"),
			q(quantile("0.99", "solobeat_schedule_lag_seconds", job, "schedule"), "99 %")),
		series("Stood aside", count, "Within 5 minutes: replicas that met a claimed tick, a held lock or a completed record.", q(`sum by (at) (increase(solobeat_stood_aside_total`+job+`[5m]))`, "{{at}}")),
		series("Age of the last success", seconds, "ScheduleNoSuccess fires where it crosses the limit.",
			q(`time() - max by (schedule) (solobeat_schedule_last_success_timestamp_seconds`+job+`)`, "last success"),
			q(`time() - max by (schedule) (solobeat_schedule_created_timestamp_seconds`+job+`)`, "since it has these ticks"),
			q(`max by (schedule) (solobeat_schedule_max_gap_seconds`+job+`) + max by (schedule) (solobeat_schedule_grace_seconds`+job+`)`, "limit")),
	}}
}

func jobRuns() Section {
	return Section{"Runs, lock and record", []Panel{
		series("Held ÷ expected", ratio, "Above 1 a run has outlived its lock's expected time.",
			q(quantile("0.5", "solobeat_lock_expect_ratio", job, "schedule"), "half"),
			q(quantile("0.99", "solobeat_lock_expect_ratio", job, "schedule"), "99 %")),
		series("Held ÷ TTL", ratio, "Above 1 the lock was kept by its renewals.",
			q(quantile("0.5", "solobeat_lock_ttl_ratio", job, "schedule"), "half"),
			q(quantile("0.99", "solobeat_lock_ttl_ratio", job, "schedule"), "99 %")),
		series("Time held, 95 %", seconds, "", q(quantile("0.95", "solobeat_lock_held_seconds", "", "lock")+ofJob, "{{lock}}")),
		series("TTL", seconds, "The configured time to live.", q(`max by (lock) (solobeat_lock_ttl_seconds)`+ofJob, "{{lock}}")),
		series("Attempts at the lock", count, "Within 5 minutes.", q(`sum by (result) (increase(solobeat_lock_acquire_total`+job+`[5m]))`, "{{result}}")),
		series("Fence", count, "The last fence that was granted; it only grows.", q(`max by (lock) (solobeat_fence)`+ofJob, "{{lock}}")),
		series("Losses", count, "Within 5 minutes.",
			q(`sum by (reason) (increase(solobeat_lock_lost_total`+job+`[5m]))`, "lost: {{reason}}"),
			q(`sum(increase(solobeat_lock_expired_while_held_total`+job+`[5m]))`, "ended under a run"),
			q(`sum(increase(solobeat_lock_bypassed_total`+job+`[5m]))`, "run without"),
			q(`sum(increase(solobeat_fenced_total`+job+`[5m]))`, "writes refused")),
		series("Record's decisions", count, "Within 5 minutes.", q(`sum by (decision) (increase(solobeat_record_decisions_total`+job+`[5m]))`, "{{decision}}")),
	}}
}
