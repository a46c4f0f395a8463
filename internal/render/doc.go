// Package render renders the templates of the schedule and of the task list:
// keys of locks and records, args and kwargs, command lines.
//
// Templates are text/template with missingkey=error. A template is a function of
// job, tick and payload and of nothing else: there is no clock, no random value,
// no attempt and no id to be had, no loop, and no function beyond those listed
// below, so rendering ends and gives the same text on every replica and at every
// retry.
//
//	.Tick.UTC .Tick.Local .Tick.Prev .Tick.Next   instants; Prev and Next in the job's zone
//	.Job                                          the job's name
//	.Params.<name>                                the task's named parameters
//	.Task.Name                                    the task's name
//
//	date hour minute rfc3339 unix   an instant as text; hour and minute with the UTC offset
//	addDays N, in "Zone"            another instant: .Tick.Local | addDays -1 | date
//	default X, lower, json          X for what is missing or empty; lower case; JSON text
//
// Texts may also use if, with, and, or, not, eq, ne, lt, le, gt, ge, len, index.
//
// # Keys
//
// A [Key] is a plain row of text and values. Every value is percent-escaped but
// for letters, digits and ._~- so it cannot pass for a separator, and between
// two values there must be a separator that no escaped value contains, such as
// ":" or "/". So two different rows of values never render one key. What date,
// hour, minute and rfc3339 print has a fixed form and stays readable:
//
//	report:{{ .Tick.Local | hour }}          report:2026-10-25T02+02:00
//	{{ .Params.shop }}:{{ .Params.order }}   eu%3A1:7
//
// A value that is missing, null or empty is an error that names it, never a
// shared constant (powertools-lambda-typescript#1501: all calls without a key
// got the first caller's result). Where an empty value is meant, default gives
// it a name.
package render
