package scheduler

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// JobError is one mistake in a job. Its text names the mistake and the cure.
type JobError struct {
	// Job is the entry's name, Field the key at fault as in the schedule file,
	// such as "lock.ttl" or "kwargs.day".
	Job, Field string
	// Msg is what is wrong, Cure what to write instead.
	Msg, Cure string
	// Err is the cause, may be nil.
	Err error
}

// Error implements error.
func (e *JobError) Error() string {
	return fmt.Sprintf("scheduler: job %q: %s", e.Job, e.Text())
}

// Text is the message without package and job, for a caller that puts a file
// position before it.
func (e *JobError) Text() string {
	text := e.Field + " " + e.Msg
	if e.Cure != "" {
		text += "; " + e.Cure
	}
	return text
}

// Unwrap returns the cause.
func (e *JobError) Unwrap() error { return e.Err }

// JobErrors returns the mistakes in an error of [Job.Validate] or [New].
func JobErrors(err error) []*JobError {
	var one *JobError
	if !errors.As(err, &one) {
		return nil
	}
	if any(err) == any(one) {
		return []*JobError{one}
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []*JobError{one}
	}
	var all []*JobError
	for _, e := range joined.Unwrap() {
		all = append(all, JobErrors(e)...)
	}
	return all
}

var jobName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// Validate checks the job in full, its templates on sample ticks too. The
// error joins one [*JobError] per mistake.
func (j *Job) Validate() error {
	_, err := j.check()
	return err
}

// check is Validate, and returns the parsed templates.
func (j *Job) check() (*templates, error) {
	v := &validator{job: j}
	v.basics()
	v.times()
	v.misfire()
	v.lock()
	v.record()
	t, err := j.compile()
	if err != nil {
		v.errs = append(v.errs, err)
	}
	if len(v.errs) == 0 {
		v.samples(t)
	}
	return t, errors.Join(v.errs...)
}

type validator struct {
	job  *Job
	errs []error
}

func (v *validator) add(field, cure, msg string, args ...any) {
	v.errs = append(v.errs, &JobError{Job: v.job.Name, Field: field, Msg: fmt.Sprintf(msg, args...), Cure: cure})
}

func (v *validator) basics() {
	j := v.job
	if !jobName.MatchString(j.Name) {
		v.add("name", "use 1 to 100 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit", "%q is no job name", j.Name)
	}
	if !tasks.ValidName(j.Task) {
		v.add("task", "name the task to run, such as reports.hourly", "%q is no task name", j.Task)
	}
	if j.Schedule == nil && !j.Disabled {
		v.add("cron", "give the job one of cron, every and at", "is missing")
	}
	if j.Priority < 0 || j.Priority > 9 {
		v.add("priority", "write 0 (taken first) to 9", "is %d", j.Priority)
	}
	if r := j.Retries; r != nil && (r.Max < 0 || r.BaseMS < 0 || r.MaxDelayMS < 0) {
		v.add("retries", "write 0 or more", "has a negative number")
	}
}

func (v *validator) times() {
	j := v.job
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"jitter", j.Jitter}, {"expires", j.Expires}, {"timeout", j.Timeout}} {
		if d.value < 0 {
			v.add(d.field, "write a positive duration, or leave it out", "is negative (%s)", d.value)
		}
	}
	if j.Expires > 0 && j.Expires <= j.Jitter {
		v.add("expires", "make it longer than jitter", "of %s ends before a jitter of %s", j.Expires, j.Jitter)
	}
	if j.Schedule == nil || j.Jitter <= 0 {
		return
	}
	ticks := Upcoming(j.Schedule, time.Now(), 10)
	for i := 1; i < len(ticks); i++ {
		if gap := ticks[i].At.Sub(ticks[i-1].At); j.Jitter >= gap {
			v.add("jitter", "make it shorter than the distance of two ticks", "of %s is not shorter than %s, the distance of two ticks", j.Jitter, gap)
			return
		}
	}
}

func (v *validator) misfire() {
	m, j := v.job.Misfire, v.job
	switch m.Policy {
	case "", MisfireSkip, MisfireOnce, MisfireAll:
	default:
		v.add("misfire.policy", "write skip, once or all", "%q is not known", m.Policy)
	}
	least := MinDeadline + j.Jitter
	switch {
	case m.Deadline == 0:
	case m.Deadline < least:
		v.add("misfire.deadline", fmt.Sprintf("write at least %s (10s and the job's jitter), or leave it out", least),
			"of %s is too short: the scheduler may need a second to wake and some more after a fault, and ticks would be missed", m.Deadline)
	case m.Deadline > MaxDeadline:
		v.add("misfire.deadline", fmt.Sprintf("write at most %s", MaxDeadline), "of %s is too long", m.Deadline)
	}
	if m.Policy == MisfireAll && j.Lock != nil && j.Lock.OnBusy == tasks.OnBusySkip {
		v.add("lock.on_busy", "write on_busy: retry, or another misfire policy",
			"skip contradicts misfire policy all: ticks that are caught up would skip each other")
	}
}

func (v *validator) lock() {
	l := v.job.Lock
	if l == nil {
		return
	}
	ttl := l.TTL
	if ttl == 0 {
		ttl = lockguard.DefaultTTL
	}
	if ttl < time.Second {
		v.add("lock.ttl", "write at least 1s", "of %s is too short", ttl)
	}
	if l.Renew < 0 || l.Renew > ttl*2/3 {
		v.add("lock.renew", "write at most a third of ttl, or leave it out", "of %s is more than two thirds of ttl (%s)", l.Renew, ttl)
	}
	if l.Expect < 0 {
		v.add("lock.expect", "write a positive duration, or leave it out", "is negative (%s)", l.Expect)
	}
	if l.MaxHold < 0 {
		v.add("lock.max_hold", "write a positive duration, or leave it out", "is negative (%s)", l.MaxHold)
	}
	for key, d := range map[string]time.Duration{"lock.min_hold": l.MinHold, "lock.stall_after": l.StallAfter, "lock.wait": l.Wait} {
		if d < 0 {
			v.add(key, "write a positive duration, or leave it out", "is negative (%s)", d)
		}
	}
	for _, c := range (lockguard.Policies{
		OnBusy: l.OnBusy, OnLost: l.OnLost, OnStoreDown: l.OnStoreDown,
		Wait: l.Wait, StallAfter: l.StallAfter, MaxHold: l.MaxHold, Timeout: v.job.Timeout, Record: v.job.Record != nil,
	}).Conflicts() {
		if !c.Warning {
			v.add(c.Keys[0], c.Cure, "%s", c.Msg)
		}
	}
}

func (v *validator) record() {
	r := v.job.Record
	if r == nil {
		return
	}
	if r.Retention < 0 {
		v.add("idempotency.retention", "write a positive duration, or leave it out", "is negative (%s)", r.Retention)
	}
	if k, err := render.Parse("", r.Key, render.Key); r.Key != "" && err == nil && !k.Uses(".Tick") {
		v.add("idempotency.key", `put the tick into it, such as "{{ .Tick.Local | hour }}"`,
			"%q is the same for all ticks: the job would run once per retention, not once per tick", r.Key)
	}
}

// samples renders the job for a few ticks, so that a template that cannot be
// rendered is found when the file is loaded.
func (v *validator) samples(t *templates) {
	if v.job.Schedule == nil {
		return
	}
	ticks := Upcoming(v.job.Schedule, time.Now(), 2)
	if len(ticks) == 0 {
		if last := v.job.Schedule.Prev(time.Now()); !last.IsZero() {
			ticks = append(ticks, last)
		}
	}
	for _, tick := range ticks {
		if _, err := t.request(v.job, tasks.DefaultNamespace, "", tick); err != nil {
			v.errs = append(v.errs, err)
			return
		}
	}
}
