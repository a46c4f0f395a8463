// Package config reads the two files that people write: solobeat.yaml (the
// process) and schedule.yaml (the jobs; told apart by its top-level jobs:).
//
// Reading is strict. Unknown and repeated keys, wrong types and values that
// cannot work are errors with file:line:col, the key's path and a cure, all
// found in one run ([Problems]); only where the text is no YAML the rest of the
// file stays unread. What is legal but probably not meant is a warning. A
// password in a URL never shows in a message.
//
// Durations are Go's, and may begin with days: 90s, 1h30m, 2d, 1d12h. A number
// without unit is an error. Text that looks like a number, a time or a truth
// value to YAML is quoted. Aliases are refused. The package sits on top:
// nothing but commands imports it.
//
// # solobeat.yaml
//
// Every key has an environment variable made of its path, SOLOBEAT_REDIS_URL
// for redis.url, which wins over the file; lists are written with commas; empty
// counts as not set. The variables are enough to run without a file. A url_file
// names a file to read the URL from, for secrets. [CheckEnv] finds variables
// that mean nothing.
//
//	namespace                default                   keeps deployments on one Redis apart: keys are solobeat:<namespace>:…
//	redis.url                redis://localhost:6379/0  the broker and the schedule's state
//	redis.url_file           -                         a file that holds redis.url
//	redis.results_url        redis.url                 results: another database, or another server
//	redis.results_url_file   -                         a file that holds redis.results_url
//	redis.locks_url          redis.url                 locks and records
//	redis.locks_url_file     -                         a file that holds redis.locks_url
//	redis.global_keyprefix   -                         stands before kombu's keys and channels, and ours
//	redis.results_keyprefix  -                         stands before results and their channels
//	worker.engines           celery                    celery, asynq, or both as a list
//	worker.queues            celery                    the queues to take from; jobs without a queue go to the first
//	worker.concurrency       CPUs, at least 4          runs at once of each engine, 1 to 10,000
//	worker.grace             20s                       how long runs may go on after a stop signal
//	worker.poison_after      3                         deaths under a message, or losses of its lock, that make it fail; 3 to 1,000
//	worker.name              solobeat@<host>           Celery node name, name@host
//	asynq.servers            1                         asynq servers in one worker, 1 to 100; each takes one task a round trip
//	schedule.file            -                         schedule.yaml; relative to this file
//	results.expires          24h                       how long a result is kept
//	metrics.listen           127.0.0.1:9464            host:port of /metrics, /healthz and /readyz, or off
//	log.level                info                      debug, info, warn or error
//	log.format               text on terminals, else json  text or json
//	tasks                    -                         what this worker says of tasks, by name
//
// # tasks
//
// An entry's lock and idempotency replace those of a job's message whole; its
// timeout and retries win over the job's. Without an entry a task of an app has
// neither lock nor record. Keys, commands and webhooks may be templates over
// .Params.<name> and .Task.Name. The url of a webhook and the value of a header
// may also be a block, {file: PATH} or {env: NAME}: a secret, which is read at the
// start, has no templates and is shown nowhere; prefix: "Bearer " is put before it.
//
//	command                  -                         the program and its arguments, as a list
//	webhook                  -                         the HTTP request that the task is, a block of those below; not beside command
//	webhook.url              -                         http or https; templates in path and query only
//	webhook.method           POST                      POST, GET, PUT, PATCH or DELETE
//	webhook.headers          -                         headers by name
//	webhook.body             args and kwargs as JSON   a text, or keys and values or a list, which become JSON
//	env                      -                         variables of the program
//	dir                      the file's folder         working directory of the program
//	params                   -                         names of positional arguments, for templates
//	timeout                  the job's, else none      bound of a run, at least 1s
//	retries                  the job's, else 0         a number, or a block of the three below
//	retries.max              3                         how often a failed run is tried again
//	retries.base             10s                       the first delay; it doubles each time
//	retries.max_delay        10m                       the longest delay
//	ack                      late                      late or early (a kill then loses the run)
//	lock                     the job's, else none      a block of those below
//	lock.key                 solobeat:<namespace>:lock:task:<name>  verbatim; whoever uses it is kept out
//	lock.backend             redis                     redis
//	lock.ttl                 30s                       time to live without renewal, at least 1s
//	lock.renew               a third of ttl            renewal period; above a third warns, above two thirds fails
//	lock.expect              ttl if set, else timeout, else 5m  alert when a run outlives this
//	lock.max_hold            timeout + 1m, else 24h    how long a lock is renewed at most
//	lock.min_hold            -                         how long the lock is kept at least, also if its run ends sooner
//	lock.stall_after         -                         no heartbeat for so long, no renewal; at least 1s
//	lock.on_busy             retry                     skip, retry or wait
//	lock.wait                30s                       how long a slot waits with on_busy: wait, at most 1h
//	lock.on_lost             cancel                    cancel or observe: what a lost lock does to its run
//	lock.on_store_down       retry                     retry or run (without the lock) while its store is out of reach
//	lock.fence_base          0                         added to the store's fence
//	idempotency              the job's, else none      a block of those below
//	idempotency.key          the task id               a template over parameters
//	idempotency.store        redis                     redis
//	idempotency.retention    7d                        how long a completed record is kept
//	idempotency.effect       repeatable                repeatable
//	idempotency.fingerprint  -                         parameters that must be the same for one key
//
// # schedule.yaml
//
//	version                  -                         1
//	defaults                 -                         keys that all jobs begin with
//	jobs                     -                         the jobs, by name
//
// # jobs
//
// A job begins with the keys of defaults: (all but task, args, kwargs, cron,
// every, at and enabled), as if they stood in each job. Where both have a block
// (lock, idempotency, misfire, retries, dst, labels), the job's keys are laid
// over the block key by key; anything else in the job, such as lock: off,
// retries: 5 or misfire: skip, replaces it whole. Keys and arguments may be
// templates over .Tick.UTC, .Tick.Local, .Tick.Prev, .Tick.Next and .Job.
//
//	task                     -                         the task to enqueue
//	args                     []                        positional arguments
//	kwargs                   {}                        named arguments
//	cron                     -                         five fields, or @daily and the like; one of cron, every and at
//	every                    -                         a period of whole seconds, counted from 1970
//	at                       -                         one instant
//	timezone                 UTC                       an IANA name
//	days                     cron's rule               and, or: how day of month and day of week combine
//	dst                      auto                      auto, or a block of the two below
//	dst.gap                  by the spec               run_after or skip
//	dst.fold                 by the spec               first, last or both
//	engine                   celery                    celery or asynq, where the task queues
//	queue                    the first of worker.queues  where the task goes
//	enabled                  true                      false keeps the state and has no ticks
//	jitter                   0s                        spreads jobs: a fixed part of it, by the job's name
//	timeout                  none                      bound of a run, at least 1s
//	expires                  none                      the message's expires, counted from the tick
//	priority                 0                         0 (taken first) to 9
//	retries                  3                         a number, or a block of the three below
//	retries.max              3                         how often a failed run is tried again
//	retries.base             10s                       the first delay; it doubles each time
//	retries.max_delay        10m                       the longest delay
//	lock                     on                        off, or a block of those below
//	lock.key                 solobeat:<namespace>:lock:<job>  verbatim; whoever uses it is kept out
//	lock.backend             redis                     redis
//	lock.ttl                 30s                       time to live without renewal, at least 1s
//	lock.renew               a third of ttl            renewal period; above a third warns, above two thirds fails
//	lock.expect              ttl if set, else timeout, else 5m  alert when a run outlives this
//	lock.max_hold            timeout + 1m, else 24h    how long a lock is renewed at most
//	lock.min_hold            -                         how long the lock is kept at least, also if its run ends sooner
//	lock.stall_after         -                         no heartbeat for so long, no renewal; at least 1s
//	lock.on_busy             skip; retry with misfire all  skip, retry or wait
//	lock.wait                30s                       how long a slot waits with on_busy: wait, at most 1h
//	lock.on_lost             cancel                    cancel or observe: what a lost lock does to its run
//	lock.on_store_down       retry                     retry or run (without the lock) while its store is out of reach
//	lock.fence_base          0                         added to the store's fence
//	idempotency              on                        off, or a block of those below
//	idempotency.key          job and tick              a template over the tick
//	idempotency.store        redis                     redis
//	idempotency.retention    7d                        how long a completed record is kept
//	idempotency.effect       repeatable                repeatable
//	misfire                  once                      a policy, or a block of the two below
//	misfire.policy           once                      skip, once or all
//	misfire.deadline         until the next tick, 1m to 24h; 24h with all  how late a run may begin, at least 10s
//	owner                    -                         for people
//	runbook                  -                         for people
//	labels                   -                         for people
package config
