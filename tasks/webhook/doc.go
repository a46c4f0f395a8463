// Package webhook is the ready-made handler that makes one HTTP request for a
// task, declared in the worker's configuration:
//
//	tasks:
//	  reports.hourly:
//	    webhook:
//	      url: https://reports.internal/shops/{{ .Params.shop }}/report
//	      headers: {Authorization: {file: /run/secrets/token, prefix: "Bearer "}}
//	    timeout: 30s
//
// The request is a POST with the task's arguments as JSON, unless method and
// body say otherwise:
//
//	{"args": [], "kwargs": {"shop": "eu"}}
//
// Values that templates insert are percent-escaped in the path and the query of
// the URL, and refused with a control character in a header; scheme and host
// are never templates, since whoever sends a task would choose where it goes.
//
// Each request carries Solobeat-Task, Solobeat-Task-Id and Solobeat-Attempt,
// for a tick Solobeat-Tick, the fence as Solobeat-Fence, the trace of the
// message, and an Idempotency-Key: the key of the run's record, else the task
// id. Attempts of one task have the same key, and the receiver that keeps keys
// has the effect once.
//
// An answer 2xx is success, and its body, up to 1 MiB, the result: JSON as it is,
// anything else as text. 408, 409, 425, 429, 5xx and all errors of the network
// are failed runs, tried again by the task's policy, after Retry-After where the
// answer has it. Any other answer is permanent. Redirects are not followed,
// since the target would get a request, with its secrets, that was meant for
// another. The errors are exceptions WebhookError.
//
// No request is repeated below the run: one attempt of a task is one request at
// most. An error that proves that nothing of it was sent matches
// tasks.ErrNotExecuted.
package webhook
