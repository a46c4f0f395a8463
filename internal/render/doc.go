// Package render renders the templates of the files people write: keys of
// locks and records, and the arguments of jobs and commands.
//
// A template is Go's text/template with missingkey=error, restricted to what
// keeps it a pure function of its data: actions and if, no range, with,
// define or variables of its own. It sees the tick, the job's name, the
// parameters and the task's name; never the attempt, an id or the time of
// day, since a key made of those matches nothing the second time.
//
// Functions: date (2026-10-25), hour (2026-10-25T02+02:00) and minute, which
// print the UTC offset so that the two equal hours of an autumn night differ,
// rfc3339, unix, addDays N, in "Zone", default X, lower, json.
//
// In a key every inserted value is percent-escaped but for letters, digits
// and ._~-, so that two different calls never render one key; what the time
// functions print stays readable, since it cannot hold foreign text.
package render
