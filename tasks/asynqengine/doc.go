// Package asynqengine runs tasks that queue in asynq, for Go apps that already
// speak it or want its Inspector and web page. Handlers, guards, results and
// metrics are those of every engine; what asynq keeps in its context reaches
// handlers as a [tasks.Task] only.
//
// asynq fetches one task a round trip per server, whatever its concurrency, so
// that [Config.Servers] of them share the slots where the network is slow. A
// killed process's tasks come back when asynq's own lease decides, after one to
// two minutes.
//
// What a message's past is (first park, attempts, losses) cannot be written
// into it again: asynq's retries keep a message as it is. It stands in keys of
// ours, for 48 h after the last change:
//
//	solobeat:<namespace>:past:<task id>      what earlier deliveries left
//	solobeat:<namespace>:begun:<task id>     a run without a record has begun (24 h)
//	solobeat:<namespace>:asynq:line:<key>    who waits for a lock or a record
//	solobeat:<namespace>:asynq:lines         the lines that there are
package asynqengine
