package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
)

// maxJobs bounds a file.
const maxJobs = 200_000

// nameRE admits names that are safe as metric labels and in Redis keys;
// dots and dashes are common in existing files (chatwoot's schedule.yml).
var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// LoadSchedule reads a schedule.yaml. The jobs are in the order of the file.
func LoadSchedule(path string) ([]*scheduler.Job, Problems, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the path is the operator's own
	if err != nil {
		ps := Problems{{File: path, Message: readError(err), Cure: "check schedule.file"}}
		return nil, ps, ps
	}
	return ParseSchedule(path, text)
}

// ParseSchedule reads the text of a schedule.yaml; path is for messages.
func ParseSchedule(path string, text []byte) ([]*scheduler.Job, Problems, error) {
	d := newDecoder(path)
	r := &scheduleReader{d: d, specs: scheduler.NewSpecParser()}
	if root := d.parse(text); root != nil {
		r.root(root)
	} else if len(d.problems) == 0 {
		d.errorf(nil, "", "begin with version: 1 and jobs:", "the file is empty")
	}
	d.problems.sort()
	if err := d.problems.err(); err != nil {
		return nil, d.problems, err
	}
	return r.jobs, d.problems, nil
}

// IsScheduleFile reports whether a file's text looks like a schedule: it has
// a top-level jobs: key.
func IsScheduleFile(text []byte) bool {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) == 0 {
		return jobsRE.Match(text)
	}
	return isSchedule(root.Content[0])
}

var jobsRE = regexp.MustCompile(`(?m)^jobs\s*:`)

type scheduleReader struct {
	d        *decoder
	specs    *scheduler.SpecParser
	defaults *yaml.Node
	jobs     []*scheduler.Job
}

func (r *scheduleReader) root(root *yaml.Node) {
	var jobs *yaml.Node
	version := 0
	ok := r.d.mapping(root, "", map[string]field{
		"version": r.d.integer(&version, 1, 1),
		"defaults": func(_, v *yaml.Node, path string) {
			if r.d.wantMapping(v, path) {
				r.defaults = v
			}
		},
		"jobs": func(_, v *yaml.Node, _ string) { jobs = v },
	})
	if !ok {
		return
	}
	if version == 0 && !r.hasKey(root, "version") {
		r.d.errorf(root, "version", "add version: 1 as the first line", "the key is missing")
	}
	if jobs == nil {
		if !r.hasKey(root, "jobs") {
			r.d.errorf(root, "jobs", "add jobs:", "the key is missing")
		}
		return
	}
	r.checkDefaults()
	if n := len(jobs.Content) / 2; n > maxJobs {
		r.d.errorf(jobs, "jobs", "split the file over namespaces", "%d jobs, at most %d are read", n, maxJobs)
		return
	}
	if jobs.Kind == yaml.ScalarNode && jobs.Tag == "!!null" {
		return // jobs: with nothing below it is an empty schedule
	}
	r.d.entries(jobs, "jobs", r.job)
}

func (r *scheduleReader) hasKey(m *yaml.Node, key string) bool { return valueOf(m, key) != nil }

func valueOf(m *yaml.Node, key string) *yaml.Node {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

// checkDefaults reads defaults: once for its own errors, so that a mistake in
// it is reported once and not per job.
func (r *scheduleReader) checkDefaults() {
	if r.defaults == nil {
		return
	}
	j := r.newJob()
	r.d.mapping(r.defaults, "defaults", j.fields(true))
}

func (r *scheduleReader) newJob() *jobReader {
	return &jobReader{d: r.d, at: map[string]*yaml.Node{}, job: &scheduler.Job{Lock: &scheduler.JobLock{}, Record: &scheduler.JobRecord{}}}
}

func (r *scheduleReader) job(k, v *yaml.Node, path string) {
	if !nameRE.MatchString(k.Value) {
		r.d.errorf(k, path, "small letters, digits, dot, dash and underscore, at most 100", "%q is no job name", k.Value)
		return
	}
	j := r.newJob()
	j.job.Name, j.path, j.node = k.Value, path, k
	if r.defaults != nil {
		silent := newDecoder(r.d.file)
		j.d = silent
		silent.mapping(r.defaults, "defaults", j.fields(true))
		j.d = r.d
	}
	before := len(r.d.problems)
	if !r.d.mapping(v, path, j.fields(false)) {
		return
	}
	j.finish(r.specs)
	if len(r.d.problems[before:].Errors()) == 0 {
		r.jobs = append(r.jobs, j.job)
	}
}

// jobReader reads one job; at remembers where its keys stand.
type jobReader struct {
	d    *decoder
	path string
	node *yaml.Node
	job  *scheduler.Job
	at   map[string]*yaml.Node
}

func (j *jobReader) fields(defaults bool) map[string]field {
	job, d := j.job, j.d
	fs := map[string]field{
		"engine":      d.oneOf(new(string), "celery"),
		"queue":       d.text(&job.Queue),
		"timezone":    j.timezone,
		"days":        d.text(&job.Spec.Days),
		"dst":         j.dst,
		"timeout":     d.duration(&job.Timeout, time.Second),
		"expires":     d.duration(&job.Expires, time.Second),
		"priority":    d.integer(&job.Priority, 0, 9),
		"retries":     j.retries,
		"lock":        j.lock,
		"idempotency": j.record,
		"misfire":     j.misfire,
		"owner":       d.text(&job.Owner),
		"runbook":     d.text(&job.Runbook),
		"labels":      j.labels,
	}
	if !defaults {
		fs["task"] = d.text(&job.Task)
		fs["args"] = j.args
		fs["kwargs"] = j.kwargs
		fs["cron"] = d.text(&job.Spec.Cron)
		fs["every"] = d.text(&job.Spec.Every)
		fs["at"] = d.text(&job.Spec.At)
		fs["enabled"] = func(k, v *yaml.Node, path string) {
			enabled := true
			d.boolean(&enabled)(k, v, path)
			job.Disabled = !enabled
		}
	}
	for name, read := range fs {
		fs[name] = func(k, v *yaml.Node, path string) {
			j.at[name] = v
			read(k, v, path)
		}
	}
	return fs
}

// where is the node of a key, or the job's own.
func (j *jobReader) where(keys ...string) *yaml.Node {
	for _, k := range keys {
		if n := j.at[k]; n != nil {
			return n
		}
	}
	return j.node
}

func (j *jobReader) timezone(k, v *yaml.Node, path string) {
	var zone string
	if v.Kind == yaml.ScalarNode && v.Tag == "!!null" {
		j.job.Spec.Timezone = &zone
		return
	}
	j.d.text(&zone)(k, v, path)
	j.job.Spec.Timezone = &zone
}

func (j *jobReader) dst(k, v *yaml.Node, path string) {
	j.job.Spec.DST = scheduler.DST{}
	if v.Kind == yaml.ScalarNode {
		j.d.oneOf(&j.job.Spec.DST.Mode, "auto")(k, v, path)
		return
	}
	j.d.mapping(v, path, map[string]field{
		"gap": func(k, v *yaml.Node, path string) {
			j.at["dst.gap"] = v
			j.d.oneOf((*string)(&j.job.Spec.DST.Gap), string(scheduler.GapRunAfter), string(scheduler.GapSkip))(k, v, path)
		},
		"fold": func(k, v *yaml.Node, path string) {
			j.at["dst.fold"] = v
			j.d.oneOf((*string)(&j.job.Spec.DST.Fold), string(scheduler.FoldFirst), string(scheduler.FoldLast), string(scheduler.FoldBoth))(k, v, path)
		},
	})
}

func (j *jobReader) retries(k, v *yaml.Node, path string) {
	j.job.Retries = readRetries(j.d, k, v, path)
}

// readRetries reads a number, or {max, base, max_delay}.
func readRetries(d *decoder, k, v *yaml.Node, path string) *tasks.RetryPolicy {
	p := tasks.DefaultRetries
	if v.Kind == yaml.ScalarNode {
		d.integer(&p.Max, 0, 1000)(k, v, path)
		return &p
	}
	base, limit := ms(p.BaseMS), ms(p.MaxDelayMS)
	d.mapping(v, path, map[string]field{
		"max":       d.integer(&p.Max, 0, 1000),
		"base":      d.duration(&base, time.Millisecond),
		"max_delay": d.duration(&limit, time.Millisecond),
	})
	p.BaseMS, p.MaxDelayMS = base.Milliseconds(), limit.Milliseconds()
	if limit < base {
		d.errorf(v, path, "raise max_delay", "max_delay %s is shorter than base %s", limit, base)
	}
	return &p
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// off reads the word off; YAML 1.1 readers take it for false.
func off(v *yaml.Node) bool {
	return v.Kind == yaml.ScalarNode && (v.Value == "off" || v.Tag == "!!bool" && v.Value == "false")
}

func (j *jobReader) lock(_, v *yaml.Node, path string) {
	if off(v) {
		j.job.Lock = nil
		return
	}
	l := scheduler.JobLock{}
	if j.job.Lock != nil {
		l = *j.job.Lock
	}
	j.d.mapping(v, path, j.noting("lock.", map[string]field{
		"key":        j.d.text(&l.Key),
		"backend":    j.d.oneOf(&l.Backend, "redis"),
		"ttl":        j.d.duration(&l.TTL, time.Second),
		"renew":      j.d.duration(&l.Renew, time.Millisecond),
		"expect":     j.d.duration(&l.Expect, time.Millisecond),
		"max_hold":   j.d.duration(&l.MaxHold, time.Second),
		"on_busy":    j.d.oneOf((*string)(&l.OnBusy), string(tasks.OnBusySkip), string(tasks.OnBusyRetry)),
		"fence_base": fenceBase(j.d, &l.FenceBase),
	}))
	j.job.Lock = &l
}

func fenceBase(d *decoder, into *uint64) field {
	return func(k, v *yaml.Node, path string) {
		n, err := strconv.ParseUint(v.Value, 10, 53)
		if v.Kind != yaml.ScalarNode || v.Tag != "!!int" || err != nil {
			d.errorf(v, path, "", "want a whole number below 2^53, got %s", kindName(v))
			return
		}
		*into = n
	}
}

func (j *jobReader) noting(prefix string, fs map[string]field) map[string]field {
	for name, read := range fs {
		fs[name] = func(k, v *yaml.Node, path string) {
			j.at[prefix+name] = v
			read(k, v, path)
		}
	}
	return fs
}

func (j *jobReader) record(_, v *yaml.Node, path string) {
	if off(v) {
		j.job.Record = nil
		return
	}
	rec := scheduler.JobRecord{}
	if j.job.Record != nil {
		rec = *j.job.Record
	}
	j.d.mapping(v, path, j.noting("idempotency.", map[string]field{
		"key":       j.d.text(&rec.Key),
		"store":     j.d.oneOf(&rec.Store, "redis"),
		"retention": j.d.duration(&rec.Retention, time.Second),
		"effect":    readEffect(j.d),
	}))
	j.job.Record = &rec
}

// readEffect refuses effect: once as long as no durable store exists.
func readEffect(d *decoder) field {
	return func(k, v *yaml.Node, path string) {
		var effect string
		d.oneOf(&effect, "repeatable", "once")(k, v, path)
		if effect == "once" {
			d.errorf(v, path, "make the effect repeatable, and check the fence where it is written",
				"an effect that must happen once needs a durable store, and redis is best effort: it may lose records in a failover or restart")
		}
	}
}

func (j *jobReader) misfire(k, v *yaml.Node, path string) {
	m := &j.job.Misfire
	policy := j.d.oneOf((*string)(&m.Policy), string(scheduler.MisfireSkip), string(scheduler.MisfireOnce), string(scheduler.MisfireAll))
	if v.Kind == yaml.ScalarNode {
		j.at["misfire.policy"] = v
		policy(k, v, path)
		return
	}
	j.d.mapping(v, path, j.noting("misfire.", map[string]field{
		"policy":   policy,
		"deadline": j.d.duration(&m.Deadline, time.Second),
	}))
}

func (j *jobReader) labels(_, v *yaml.Node, path string) {
	labels := map[string]string{}
	j.d.entries(v, path, func(k, v *yaml.Node, path string) {
		var s string
		j.d.text(&s)(k, v, path)
		labels[k.Value] = s
	})
	j.job.Labels = labels
}

func (j *jobReader) args(_, v *yaml.Node, path string) {
	if v.Kind != yaml.SequenceNode {
		j.d.errorf(v, path, "for example [1, \"two\"]", "want a list, got %s", kindName(v))
		return
	}
	for i, item := range v.Content {
		j.job.Args = append(j.job.Args, jsonValue(j.d, item, fmt.Sprintf("%s[%d]", path, i)))
	}
}

func (j *jobReader) kwargs(_, v *yaml.Node, path string) {
	j.job.Kwargs = map[string]any{}
	j.d.entries(v, path, func(k, v *yaml.Node, path string) {
		j.job.Kwargs[k.Value] = jsonValue(j.d, v, path)
	})
}

// finish checks what depends on several keys.
func (j *jobReader) finish(specs *scheduler.SpecParser) {
	job := j.job
	if job.Task == "" && j.at["task"] == nil {
		j.d.errorf(j.node, j.path+".task", "name the task that the job enqueues", "the key is missing")
	} else if job.Task != "" && !tasks.ValidName(job.Task) {
		j.d.errorf(j.where("task"), j.path+".task", "", "%q is no task name", job.Task)
	}
	j.spec(specs)
	j.checkLock()
	j.checkMisfire()
	if j.d.problems.hasUnder(j.path) {
		return
	}
	for _, e := range scheduler.JobErrors(job.Validate()) {
		j.d.errorf(j.where(e.Field, firstPart(e.Field)), join(j.path, e.Field), e.Cure, "%s", e.Msg)
	}
}

// hasUnder reports whether an error lies below a path.
func (ps Problems) hasUnder(path string) bool {
	for _, p := range ps {
		if !p.Warning && (p.Path == path || strings.HasPrefix(p.Path, path+".")) {
			return true
		}
	}
	return false
}

func firstPart(field string) string {
	head, _, _ := strings.Cut(field, ".")
	return head
}

func (j *jobReader) spec(specs *scheduler.SpecParser) {
	for _, key := range []string{"cron", "every", "at", "timezone", "days", "dst"} {
		if n := j.at[key]; n != nil && j.d.bad[n] {
			return // the value itself has an error already
		}
	}
	s, warnings, err := specs.Parse(j.job.Spec)
	j.job.Schedule = s
	for _, w := range warnings {
		j.d.warnf(j.inside(w.Field, w.Offset), join(j.path, w.Field), "", "%s", w.Msg)
	}
	if err == nil || errors.Is(err, scheduler.ErrNeverFires) && j.job.Disabled && s != nil {
		return
	}
	for _, e := range scheduler.SpecErrors(err) {
		j.d.errorf(j.inside(e.Field, e.Offset), join(j.path, e.Field), e.Cure, "%s", specText(e))
	}
}

func specText(e *scheduler.SpecError) string {
	if e.Value == "" && e.Field == "" {
		return e.Msg
	}
	return fmt.Sprintf("%q %s", e.Value, e.Msg)
}

// inside is the place in a value that an offset points to.
func (j *jobReader) inside(key string, offset int) *yaml.Node {
	n := j.at[key]
	if n == nil {
		return j.where(firstPart(key))
	}
	at := *n
	if n.Style == yaml.DoubleQuotedStyle || n.Style == yaml.SingleQuotedStyle {
		offset++
	}
	at.Column += offset
	return &at
}

func (j *jobReader) checkLock() {
	l := j.job.Lock
	if l == nil {
		return
	}
	checkRenew(j.d, j.where("lock.renew", "lock.ttl", "lock"), j.path+".lock", l.TTL, l.Renew)
	if q := j.job.Queue; l.Key != "" && l.Key == q || l.Key == DefaultQueue && q == "" {
		j.d.errorf(j.where("lock.key", "lock"), j.path+".lock.key", "choose another key", "%q is the job's queue: its list would be taken for a lock", l.Key)
	}
}

// checkRenew: above two thirds of the ttl one late renewal loses the lock;
// above a third only one renewal may fail.
func checkRenew(d *decoder, n *yaml.Node, path string, ttl, renew time.Duration) {
	if ttl == 0 {
		ttl = scheduler.DefaultLockTTL
	}
	switch {
	case renew > ttl*2/3:
		d.errorf(n, path+".renew", fmt.Sprintf("at most %s, better %s", ttl*2/3, ttl/3), "renew %s is above two thirds of ttl %s", renew, ttl)
	case renew > ttl/3:
		d.warnf(n, path+".renew", fmt.Sprintf("%s lets two renewals fail", ttl/3), "renew %s is above a third of ttl %s", renew, ttl)
	}
}

func (j *jobReader) checkMisfire() {
	if j.job.Misfire.Policy != scheduler.MisfireAll || j.job.Lock == nil {
		return
	}
	switch j.job.Lock.OnBusy {
	case tasks.OnBusySkip:
		j.d.errorf(j.where("lock.on_busy", "lock"), j.path+".lock.on_busy", "on_busy: retry", "skip beside misfire policy all would drop the ticks that are to be caught up")
	case "":
		j.job.Lock.OnBusy = tasks.OnBusyRetry
	}
}
