// Package scheduler turns the lines of a schedule file into ticks.
//
// A schedule says when a job is due: five cron fields, a fixed period, or one
// instant. [ParseSpec] reads it, [Schedule] enumerates its ticks. The rules of
// time are these:
//
//   - A tick is an instant of whole seconds, and also its civil label in the
//     job's zone with the UTC offset, so that both 02:00 hours of an autumn
//     night have names of their own.
//   - The zone is UTC unless the job names one. The machine's own zone is
//     never used.
//   - An entry whose minute or hour field begins with * follows elapsed time:
//     what the spring gap swallows does not run, and both hours of the autumn
//     fold do. Every other entry runs once for each matching civil time: one that
//     falls into a gap runs at the first instant after it and is flagged as
//     shifted, one that occurs twice runs the first time. A job can choose
//     otherwise with [DST].
//   - Day of month and day of week combine as in cron, see [SpecConfig.Days].
//
// The search is this package's own. robfig/cron v3 only reads the fields,
// after they have been checked and normalised here: its parser panics on a
// zone prefix without fields (robfig/cron#554, robfig/cron#470), and its
// search runs for ever over a missing civil day, fires on the wrong day where
// a gap swallows midnight, and twice where the clocks move by half an hour.
//
// # Claims
//
// Any number of schedulers run side by side; there is no leader. Each wakes for
// each tick and claims it in the store ([State]): one step, by the store's
// clock, that publishes the task's message or says why not. A tick is published
// once and never before its time, however wrong a replica's own clock is, and
// whichever replicas live, die, or stand still. Late ticks are dealt with by
// the job's [Misfire] policy.
//
// Replicas may have different files, as in a roll-out. The file of the live
// replica that loaded its own last is current; a job whose schedule is another
// there is not claimed by the others. A changed schedule is active from when
// its file became current, so that no edit fires retroactively.
package scheduler
