package scheduler

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/solobeat/solobeat/tasks"
)

// templates are a job's templates, parsed.
type templates struct {
	args   []node
	kwargs map[string]node
	lock   *templateShim // nil: the default key
	record *templateShim
}

// node is a JSON value in which strings may be templates.
type node struct {
	raw    json.RawMessage // a value without templates
	text   *templateShim
	list   []node
	object map[string]node
}

// compile parses the job's templates. The error joins one [*JobError] per
// mistake.
func (j *Job) compile() (*templates, error) {
	t := &templates{kwargs: map[string]node{}}
	var errs []error
	parse := func(field string, value any) node {
		n, err := parseNode(field, value)
		errs = append(errs, j.fieldErrors(err)...)
		return n
	}
	for i, v := range j.Args {
		t.args = append(t.args, parse(fmt.Sprintf("args[%d]", i), v))
	}
	for _, k := range slices.Sorted(maps.Keys(j.Kwargs)) {
		t.kwargs[k] = parse("kwargs."+k, j.Kwargs[k])
	}
	var err error
	if j.Lock != nil && j.Lock.Key != "" {
		t.lock, err = parseTemplate("lock.key", j.Lock.Key, lockKey)
		errs = append(errs, j.fieldErrors(err)...)
	}
	if j.Record != nil && j.Record.Key != "" {
		t.record, err = parseTemplate("idempotency.key", j.Record.Key, recordKey)
		errs = append(errs, j.fieldErrors(err)...)
	}
	return t, errors.Join(errs...)
}

// fieldErrors makes job errors of a field's errors.
func (j *Job) fieldErrors(err error) []error {
	if err == nil {
		return nil
	}
	var f *fieldError
	if !errors.As(err, &f) {
		f = &fieldError{err: err}
	}
	return []error{&JobError{Job: j.Name, Field: f.field, Msg: f.err.Error(), Cure: f.cure, Err: f.err}}
}

// fieldError says in which field of a job an error is.
type fieldError struct {
	field, cure string
	err         error
}

// Error implements error.
func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *fieldError) Unwrap() error { return e.err }

// parseNode parses the templates in a JSON value.
func parseNode(field string, value any) (node, error) {
	switch v := value.(type) {
	case string:
		if !hasTemplate(v) {
			break
		}
		t, err := parseTemplate(field, v, argument)
		return node{text: t}, err
	case []any:
		n := node{list: make([]node, len(v))}
		for i := range v {
			var err error
			if n.list[i], err = parseNode(fmt.Sprintf("%s[%d]", field, i), v[i]); err != nil {
				return n, err
			}
		}
		return n, nil
	case map[string]any:
		n := node{object: make(map[string]node, len(v))}
		for k := range v {
			var err error
			if n.object[k], err = parseNode(field+"."+k, v[k]); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	raw, err := marshal(value)
	if err != nil {
		return node{}, &fieldError{field: field, err: err, cure: "write a JSON value"}
	}
	return node{raw: raw}, nil
}

// render returns the value as JSON.
func (n node) render(data *tickData) (json.RawMessage, error) {
	switch {
	case n.text != nil:
		text, err := n.text.render(data)
		if err != nil {
			return nil, err
		}
		return marshal(text)
	case n.list != nil:
		parts := make([]json.RawMessage, len(n.list))
		for i := range n.list {
			var err error
			if parts[i], err = n.list[i].render(data); err != nil {
				return nil, err
			}
		}
		return marshal(parts)
	case n.object != nil:
		parts := make(map[string]json.RawMessage, len(n.object))
		for k := range n.object {
			var err error
			if parts[k], err = n.object[k].render(data); err != nil {
				return nil, err
			}
		}
		return marshal(parts)
	default:
		return n.raw, nil
	}
}

// marshal is json.Marshal without escapes for HTML.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// TaskID is the id of a job's tick: the same at each replica, and each time
// the tick is rendered.
func TaskID(namespace, job, label string) string {
	ns := uuid.NewSHA1(uuid.NameSpaceURL, []byte("solobeat:"+namespace))
	return uuid.NewSHA1(ns, []byte(job+"@"+label)).String()
}

// Request is the task of one tick: its arguments and keys are rendered from
// the tick, never from the clock. The error is a [*JobError].
func (j *Job) Request(namespace string, tick Occurrence) (*tasks.Request, error) {
	t, err := j.compile()
	if err != nil {
		return nil, err
	}
	return t.request(j, cmp.Or(namespace, "default"), tick)
}

func (s *Scheduler) request(e *entry, tick Occurrence) (*tasks.Request, error) {
	return e.tmpl.request(e.job, s.cfg.Namespace, tick)
}

func (t *templates) request(j *Job, namespace string, tick Occurrence) (*tasks.Request, error) {
	data := newTickData(j, tick)
	r := &tasks.Request{
		Name: j.Task, ID: TaskID(namespace, j.Name, tick.Label), Queue: j.Queue, Priority: j.Priority,
		Args: make([]json.RawMessage, len(t.args)), Kwargs: make(map[string]json.RawMessage, len(t.kwargs)),
	}
	var err error
	for i, n := range t.args {
		if r.Args[i], err = n.render(data); err != nil {
			return nil, errors.Join(j.fieldErrors(err)...)
		}
	}
	for k, n := range t.kwargs {
		if r.Kwargs[k], err = n.render(data); err != nil {
			return nil, errors.Join(j.fieldErrors(err)...)
		}
	}
	if j.Expires > 0 {
		r.Expires = tick.At.Add(j.Expires)
	}
	if r.Guard, err = t.guard(j, namespace, tick, data); err != nil {
		return nil, errors.Join(j.fieldErrors(err)...)
	}
	if _, err := r.Guard.Encode(); err != nil {
		return nil, &JobError{Job: j.Name, Field: "lock.key", Msg: err.Error(), Cure: "shorten lock.key and idempotency.key", Err: err}
	}
	return r, nil
}

// guard spells the job's guards out for one tick.
func (t *templates) guard(j *Job, namespace string, tick Occurrence, data *tickData) (*tasks.Guard, error) {
	retries := tasks.DefaultRetries
	if j.Retries != nil {
		retries = *j.Retries
	}
	g := &tasks.Guard{
		Version: tasks.GuardVersion, Job: j.Name, Tick: tick.At.UnixMilli(), Label: tick.Label,
		BeginBy: tick.At.Add(j.DeadlineOf(tick.At)).UnixMilli(), TimeoutMS: j.Timeout.Milliseconds(), Retries: &retries,
	}
	var err error
	if l := j.Lock; l != nil {
		key := "solobeat:" + namespace + ":lock:" + j.Name
		if t.lock != nil {
			if key, err = t.lock.render(data); err != nil {
				return nil, err
			}
		}
		g.Lock = l.guard(j, key)
	}
	if r := j.Record; r != nil {
		key := j.Name + "@" + tick.Label
		if t.record != nil {
			if key, err = t.record.render(data); err != nil {
				return nil, err
			}
		}
		g.Record = &tasks.RecordGuard{
			Key: key, Store: cmp.Or(r.Store, "redis"), RetentionMS: cmp.Or(r.Retention, DefaultRetention).Milliseconds(),
		}
	}
	return g, nil
}

// guard fills in the lock's defaults.
func (l *JobLock) guard(j *Job, key string) *tasks.LockGuard {
	busy := l.OnBusy
	if busy == "" {
		busy = tasks.OnBusySkip
		if j.Misfire.policy() == MisfireAll {
			busy = tasks.OnBusyRetry // ticks that are caught up must not skip each other
		}
	}
	return &tasks.LockGuard{
		Key: key, Backend: cmp.Or(l.Backend, "redis"), TTLMS: cmp.Or(l.TTL, DefaultLockTTL).Milliseconds(),
		RenewMS: l.Renew.Milliseconds(), MaxHoldMS: l.MaxHold.Milliseconds(), OnBusy: busy, FenceBase: l.FenceBase,
		ExpectMS: cmp.Or(l.Expect, l.TTL, j.Timeout, DefaultExpect).Milliseconds(),
	}
}

// neighbours are the ticks before and after one.
func neighbours(j *Job, tick Occurrence) (prev, next time.Time) {
	return j.Schedule.Prev(tick.At.Add(-time.Second)).Local, j.Schedule.Next(tick.At).Local
}
