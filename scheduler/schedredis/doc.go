// Package schedredis keeps the scheduler's state in Redis: one hash per job
// with its newest settled tick, a history per job, and a registry of the
// schedulers with their files. Two scripts do all that must be one step:
// claim.lua settles a tick and publishes its message, registry.lua keeps the
// replicas alive and decides whose file is current.
//
// All keys are <global prefix>solobeat:<namespace>:sched:…
package schedredis
