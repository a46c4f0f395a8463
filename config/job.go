package config

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
)

// jobReader reads one job, or defaults: (shared).
type jobReader struct {
	places
	job *scheduler.Job
	// checks look at templates one by one, at their own places. They run only
	// if the job as a whole is not sound, since parsing templates is most of the
	// work of a large file.
	checks []func()
	// err is what [scheduler.Job.Validate] says.
	err error
}

// later runs a check when the job turns out to be unsound; at once for
// defaults:, which are read once.
func (j *jobReader) later(check func()) {
	if j.shared {
		check()
		return
	}
	j.checks = append(j.checks, check)
}

func (j *jobReader) fields() map[string]field {
	job, d := j.job, j.d
	fs := map[string]field{
		"engine":      j.engine,
		"queue":       d.queue(&job.Queue),
		"timezone":    j.timezone,
		"days":        d.word(&job.Spec.Days),
		"dst":         j.dst,
		"jitter":      d.duration(&job.Jitter, 0),
		"timeout":     d.duration(&job.Timeout, time.Second),
		"expires":     d.duration(&job.Expires, time.Second),
		"priority":    d.integer(&job.Priority, 0, 9),
		"retries":     func(k, v *yaml.Node, path string) { job.Retries = readRetries(&j.places, k, v, path, job.Retries) },
		"lock":        j.lock,
		"idempotency": j.record,
		"misfire":     j.misfire,
		"owner":       d.text(&job.Owner),
		"runbook":     d.text(&job.Runbook),
		"labels":      j.labels,
	}
	if j.shared {
		return fs
	}
	fs["task"] = d.text(&job.Task)
	fs["args"] = j.args
	fs["kwargs"] = j.kwargs
	fs["cron"] = d.scalar(&job.Spec.Cron, `write for example "0 * * * *"`)
	fs["every"] = d.scalar(&job.Spec.Every, "write for example 5m")
	fs["at"] = d.scalar(&job.Spec.At, "write for example 2026-12-01T03:00:00")
	fs["enabled"] = func(k, v *yaml.Node, path string) {
		enabled := true
		d.boolean(&enabled)(k, v, path)
		job.Disabled = !enabled
	}
	return fs
}

// engine reads the job's engine; that of Celery is the scheduler's own "".
func (j *jobReader) engine(k, v *yaml.Node, path string) {
	name := ""
	oneOf(j.d, &name, EngineCelery, EngineAsynq)(k, v, path)
	if name == EngineCelery {
		name = ""
	}
	j.job.Engine = name
}

// checkEngine finds what asynq has not got.
func (j *jobReader) checkEngine() {
	if j.job.Engine != EngineAsynq {
		return
	}
	if j.job.Priority != 0 {
		j.errorf([]string{"priority", "engine"}, "remove it, and give the job a queue of its own", "asynq has no priorities")
	}
	if q := j.job.Queue; q != "" && !asynqQueueRE.MatchString(q) {
		j.errorf([]string{"queue", "engine"}, asynqQueueCure, "the queue %s can be none of asynq's", shown(q))
	}
}

func (j *jobReader) timezone(_, v *yaml.Node, path string) {
	zone := ""
	if !isNull(v) {
		if !j.d.wantText(v, path) {
			return
		}
		zone = v.Value
	}
	j.job.Spec.Timezone = &zone
}

func (j *jobReader) dst(k, v *yaml.Node, path string) {
	dst := &j.job.Spec.DST
	if v.Kind == yaml.ScalarNode {
		*dst = scheduler.DST{}
		oneOf(j.d, &dst.Mode, "auto")(k, v, path)
		return
	}
	dst.Mode = ""
	j.block(v, "dst.", path, map[string]field{
		"gap":  oneOf(j.d, &dst.Gap, scheduler.GapRunAfter, scheduler.GapSkip),
		"fold": oneOf(j.d, &dst.Fold, scheduler.FoldFirst, scheduler.FoldLast, scheduler.FoldBoth),
	})
}

func lockKeysOf(l *scheduler.JobLock) lockKeys {
	return lockKeys{
		key: &l.Key, backend: &l.Backend, ttl: &l.TTL, renew: &l.Renew, expect: &l.Expect, maxHold: &l.MaxHold,
		minHold: &l.MinHold, stallAfter: &l.StallAfter, wait: &l.Wait,
		onBusy: &l.OnBusy, onLost: &l.OnLost, onStoreDown: &l.OnStoreDown, fenceBase: &l.FenceBase,
	}
}

func (j *jobReader) lock(_, v *yaml.Node, path string) {
	if off(v) {
		j.job.Lock = nil
		return
	}
	if !j.d.orOff(v, path) {
		return
	}
	l := scheduler.JobLock{}
	if j.job.Lock != nil {
		l = *j.job.Lock
	}
	word := j.d.word(&l.Key)
	j.block(v, "lock.", path, lockKeysOf(&l).fields(j.d, func(k, v *yaml.Node, path string) {
		word(k, v, path)
		if strings.Contains(v.Value, "{{") {
			j.later(func() { j.template(v, path, render.Text) })
		}
	}))
	j.job.Lock = &l
}

func (j *jobReader) record(_, v *yaml.Node, path string) {
	if off(v) {
		j.job.Record = nil
		return
	}
	if !j.d.orOff(v, path) {
		return
	}
	rec := scheduler.JobRecord{}
	if j.job.Record != nil {
		rec = *j.job.Record
	}
	word := j.d.word(&rec.Key)
	j.block(v, "idempotency.", path, map[string]field{
		"key": func(k, v *yaml.Node, path string) {
			word(k, v, path)
			j.later(func() { j.recordKey(v, path) })
		},
		"store":     oneOf(j.d, &rec.Store, "redis"),
		"retention": j.d.duration(&rec.Retention, time.Second),
		"effect":    readEffect(j.d),
	})
	j.job.Record = &rec
}

// recordKey refuses a key that is the same at every tick: with it a job would
// run once per retention.
func (j *jobReader) recordKey(v *yaml.Node, path string) {
	if j.d.bad[v] {
		return
	}
	if t := j.template(v, path, render.Key); t != nil && !t.Uses(".Tick") {
		j.d.errorf(v, path, `put the tick into it, such as "{{ .Tick.Local | hour }}"`,
			"the key is the same for all ticks: the job would run once per retention, not once per tick")
	}
}

// template checks a template at its own place; nil after an error.
func (j *jobReader) template(v *yaml.Node, path string, kind render.Kind) *render.Template {
	if j.d.bad[v] {
		return nil
	}
	t, err := render.Parse(path, v.Value, kind)
	if err == nil {
		err = t.CheckPure(".Tick", ".Job")
	}
	if err != nil {
		msg, cure := templateText(err, `write for example "{{ .Tick.Local | date }}"`)
		j.d.errorf(v, path, cure, "%s", msg)
		return nil
	}
	return t
}

// templateText is a template's error in two parts; the cure is for errors that
// have none of their own.
func templateText(err error, cure string) (string, string) {
	msg := "bad template: " + strings.TrimPrefix(strings.TrimPrefix(err.Error(), "render: "), "1: ")
	for _, sep := range []string{"; use ", "; known are "} {
		if what, known, ok := strings.Cut(msg, sep); ok {
			return what, strings.TrimPrefix(sep, "; ") + known
		}
	}
	return msg, cure
}

// misfire reads a policy's name, which replaces the whole block of defaults:,
// or a block.
func (j *jobReader) misfire(k, v *yaml.Node, path string) {
	m := &j.job.Misfire
	if v.Kind == yaml.ScalarNode {
		*m = scheduler.Misfire{}
		j.own["misfire.policy"] = v
		oneOf(j.d, &m.Policy, scheduler.MisfireSkip, scheduler.MisfireOnce, scheduler.MisfireAll)(k, v, path)
		return
	}
	j.block(v, "misfire.", path, map[string]field{
		"policy": oneOf(j.d, &m.Policy, scheduler.MisfireSkip, scheduler.MisfireOnce, scheduler.MisfireAll),
		"deadline": func(k, v *yaml.Node, path string) {
			j.d.duration(&m.Deadline, scheduler.MinDeadline)(k, v, path)
			if m.Deadline > scheduler.MaxDeadline {
				j.d.errorf(v, path, "write at most 30d", "%s is too long", v.Value)
			}
		},
	})
}

func (j *jobReader) labels(_, v *yaml.Node, path string) {
	labels := map[string]string{}
	maps.Copy(labels, j.job.Labels)
	j.d.entries(v, path, func(k, v *yaml.Node, path string) {
		var s string
		j.d.text(&s)(k, v, path)
		labels[k.Value] = s
	})
	j.job.Labels = labels
}

func (j *jobReader) args(_, v *yaml.Node, path string) {
	if j.d.tell(listShape()) {
		return
	}
	if v.Kind != yaml.SequenceNode {
		j.d.errorf(v, path, `write a list, for example [1, "two"]`, "want a list, got %s", kindName(v))
		return
	}
	for i, item := range v.Content {
		key := fmt.Sprintf("[%d]", i)
		j.job.Args = append(j.job.Args, j.value(item, "args"+key, path+key))
	}
}

func (j *jobReader) kwargs(_, v *yaml.Node, path string) {
	j.job.Kwargs = map[string]any{}
	j.d.entries(v, path, func(k, v *yaml.Node, path string) {
		key := "kwargs." + k.Value
		j.own[key] = v
		j.job.Kwargs[k.Value] = j.value(v, key, path)
	})
}

// value reads one argument; an error anywhere in it settles its key.
func (j *jobReader) value(v *yaml.Node, key, path string) any {
	before := len(j.d.problems)
	value := values{d: j.d, str: func(n *yaml.Node, path string) {
		if !strings.Contains(n.Value, "{{") {
			return
		}
		j.later(func() {
			if j.template(n, path, render.Text) == nil {
				j.told[key] = true
			}
		})
	}}.read(v, path)
	if len(j.d.problems) > before {
		j.told[key] = true
	}
	return value
}

// checkDefaults checks what the keys of defaults: say to each other. What only
// a job's own keys complete is checked there.
func (j *jobReader) checkDefaults(specs *scheduler.SpecParser) {
	spec := j.job.Spec
	spec.Cron = anyCron
	j.parseSpec(specs, spec)
	if l := j.job.Lock; l != nil {
		checkLock(&j.places, lockKeysOf(l), j.job.Timeout, j.job.Record != nil)
		if l.Key != "" && !j.settled("lock.key") && !strings.Contains(l.Key, ".Job") {
			j.warnf([]string{"lock.key"}, "put {{ .Job }} into it, or write it in the jobs that share a lock", "all jobs share this lock, and keep each other out")
		}
	}
	if r := j.job.Record; r != nil && r.Key != "" && !j.settled("idempotency.key") && !strings.Contains(r.Key, ".Job") {
		j.warnf([]string{"idempotency.key"}, "put {{ .Job }} into it", "of the jobs with the same task only one runs at a tick, since they share this key")
	}
	j.checkMisfire()
}

// finish checks what depends on several keys; the rest is [validators]'.
func (j *jobReader) finish(specs *scheduler.SpecParser) {
	j.checkTask()
	j.checkEngine()
	j.spec(specs)
	if l := j.job.Lock; l != nil {
		checkLock(&j.places, lockKeysOf(l), j.job.Timeout, j.job.Record != nil)
		j.checkMinHold(l)
	}
	j.checkMisfire()
	j.checkRetention()
}

// unsound reports what the job's own validation has found.
func (j *jobReader) unsound() {
	if j.err == nil {
		return
	}
	for _, check := range j.checks {
		check()
	}
	for _, e := range scheduler.JobErrors(j.err) {
		j.report(e)
	}
}

// checkMinHold: a lock that is kept to the next tick makes that one stand aside.
func (j *jobReader) checkMinHold(l *scheduler.JobLock) {
	if l.MinHold == 0 || j.job.Schedule == nil || l.OnBusy != "" && l.OnBusy != tasks.OnBusySkip {
		return
	}
	if gap := scheduler.LongestGap(j.job.Schedule, time.Now()); gap > 0 && l.MinHold >= gap {
		j.warnf([]string{"lock.min_hold", "cron", "every"}, "write less than the time between two ticks",
			"min_hold %s keeps the lock beyond the next tick, which is then skipped", short(l.MinHold))
	}
}

func (j *jobReader) checkTask() {
	const cure = "name the task to run, such as reports.hourly: letters, digits and _.:/-"
	switch name := j.job.Task; {
	case j.own["task"] == nil && !j.told["task"]:
		j.errorf([]string{"task"}, cure, "the key is missing")
	case !j.settled("task") && !tasks.ValidName(name):
		j.errorf([]string{"task"}, cure, "%s is no task name", shown(name))
	}
}

// report takes over an error that [scheduler.Job.Validate] has found, unless
// it follows from one that has been reported.
func (j *jobReader) report(e *scheduler.JobError) {
	keys := []string{e.Field}
	switch e.Field {
	case "cron":
		keys = append(keys, "every", "at")
	case "jitter":
		keys = append(keys, "cron", "every", "at")
	case "lock.renew":
		keys = append(keys, "lock.ttl")
	case "lock.on_busy":
		keys = append(keys, "misfire.policy")
	case "lock.wait":
		keys = append(keys, "lock.on_busy")
	case "lock.stall_after":
		keys = append(keys, "lock.on_lost")
	case "lock.on_store_down":
		keys = append(keys, "idempotency")
	case "misfire.deadline", "expires":
		keys = append(keys, "jitter")
	}
	name := e.Field[strings.LastIndexByte(e.Field, '.')+1:]
	j.errorf(keys, e.Cure, "%s %s", name, e.Msg)
}

// anyCron stands for a schedule that is missing or wrong, so that the keys
// beside it are checked too.
const anyCron = "0 0 1 1 *"

func (j *jobReader) spec(specs *scheduler.SpecParser) {
	spec := &j.job.Spec
	kindIsBad := j.settled("cron", "every", "at")
	if j.own["days"] == nil && spec.Cron == "" {
		spec.Days = "" // that of defaults: is for cron
	}
	if j.own["dst"] == nil && spec.Every != "" {
		spec.DST = scheduler.DST{}
	}
	cfg := *spec
	if kindIsBad {
		cfg.Cron, cfg.Every, cfg.At = anyCron, "", ""
	}
	s := j.parseSpec(specs, cfg)
	if kindIsBad {
		j.told["cron"] = true
		return
	}
	j.job.Schedule = s
	if s != nil && cfg.At != "" && !j.job.Disabled && s.Next(time.Now()).IsZero() && !s.Prev(time.Now()).IsZero() {
		j.warnf([]string{"at"}, "remove the job, or write enabled: false", "%s has passed: the job does not run, unless its misfire deadline still lasts", shown(cfg.At))
	}
}

// parseSpec parses a spec without those of its keys that have an error, and
// reports what is wrong with the others.
func (j *jobReader) parseSpec(specs *scheduler.SpecParser, cfg scheduler.SpecConfig) scheduler.Schedule {
	if j.settled("timezone") {
		cfg.Timezone = nil
	}
	if j.settled("days") {
		cfg.Days = ""
	}
	if j.settled("dst", "dst.gap", "dst.fold") {
		cfg.DST = scheduler.DST{}
	}
	s, warnings, err := specs.Parse(cfg)
	for _, w := range warnings {
		if j.mine(w.Field) {
			j.d.warnf(j.inside(w.Field, w.Offset), join(j.path, w.Field), "", "%s", w.Msg)
		}
	}
	if err == nil || errors.Is(err, scheduler.ErrNeverFires) && j.job.Disabled && s != nil {
		return s
	}
	for _, e := range scheduler.SpecErrors(err) {
		if !j.mine(e.Field) {
			continue
		}
		msg := e.Msg
		if e.Field != "" {
			msg = shown(e.Value) + " " + e.Msg
		}
		j.d.errorf(j.inside(e.Field, e.Offset), join(j.path, e.Field), e.Cure, "%s", msg)
		j.told[e.Field], j.told["cron"] = true, true
		if n := j.own[e.Field]; n != nil {
			j.d.bad[n] = true
		}
	}
	return s
}

// mine reports whether a key's mistakes are to be told here: those of defaults:
// have been told there.
func (j *jobReader) mine(key string) bool {
	block, _, _ := strings.Cut(key, ".")
	return key == "" || j.own[key] != nil || j.own[block] != nil || j.inherited[block] == nil
}

// inside is the place in a value that an offset points to.
func (j *jobReader) inside(key string, offset int) *yaml.Node {
	n := j.own[key]
	if n == nil {
		return j.at(key)
	}
	at := *n
	switch {
	case strings.ContainsAny(n.Value, "\\\n\t\"'"), n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		// It does not stand in the file as it is.
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		at.Column += offset + 1
	default:
		at.Column += offset
	}
	return &at
}

func (j *jobReader) checkMisfire() {
	if j.job.Misfire.Policy != scheduler.MisfireAll || j.job.Lock == nil {
		return
	}
	if j.job.Lock.OnBusy == tasks.OnBusySkip {
		j.errorf([]string{"lock.on_busy", "misfire.policy"}, "write on_busy: retry, or another misfire policy",
			"skip beside misfire policy all would drop the ticks that are to be caught up")
		return
	}
	if !j.shared && j.job.Lock.OnBusy == "" {
		lock := *j.job.Lock
		lock.OnBusy = tasks.OnBusyRetry
		j.job.Lock = &lock
	}
}

// checkRetention: a record that is gone while its tick may still begin guards
// nothing.
func (j *jobReader) checkRetention() {
	r, m := j.job.Record, j.job.Misfire
	if r == nil || r.Retention == 0 {
		return
	}
	deadline := m.Deadline
	if deadline == 0 && m.Policy == scheduler.MisfireAll {
		deadline = scheduler.MaxDefaultDeadline
	}
	if r.Retention < deadline {
		j.warnf([]string{"idempotency.retention", "misfire.deadline"}, "write at least "+short(deadline),
			"a record is kept for %s, and a run may begin up to %s after its tick", short(r.Retention), short(deadline))
	}
}
