package scheduler

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// templates are a job's templates, parsed.
type templates struct {
	args         []*render.Tree
	kwargs       map[string]*render.Tree
	lock, record *render.Template // nil: the default key
}

// compile parses the job's templates. The error joins one [*JobError] per
// mistake.
func (j *Job) compile() (*templates, error) {
	t := &templates{kwargs: make(map[string]*render.Tree, len(j.Kwargs))}
	var errs []error
	tree := func(field string, value any) *render.Tree {
		n, err := render.ParseTree(field, value)
		if err == nil {
			err = n.CheckPure(".Tick", ".Job")
		}
		errs = appendErr(errs, j.templateError(field, err))
		return n
	}
	key := func(field, text string, kind render.Kind) *render.Template {
		if text == "" {
			return nil
		}
		k, err := render.Parse(field, text, kind)
		if err == nil {
			err = k.CheckPure(".Tick", ".Job")
		}
		errs = appendErr(errs, j.templateError(field, err))
		return k
	}
	for i, v := range j.Args {
		t.args = append(t.args, tree(fmt.Sprintf("args[%d]", i), v))
	}
	for _, k := range slices.Sorted(maps.Keys(j.Kwargs)) {
		t.kwargs[k] = tree("kwargs."+k, j.Kwargs[k])
	}
	if j.Lock != nil {
		t.lock = key("lock.key", j.Lock.Key, render.Text)
	}
	if j.Record != nil {
		t.record = key("idempotency.key", j.Record.Key, render.Key)
	}
	return t, errors.Join(errs...)
}

// templateError says in which field of the job a template's error is.
func (j *Job) templateError(field string, err error) error {
	if err == nil {
		return nil
	}
	msg := strings.NewReplacer("render: bad template: ", "", "render: ", "", field+": ", "").Replace(err.Error())
	return &JobError{
		Job: j.Name, Field: field, Msg: "cannot be rendered: " + msg, Err: err,
		Cure: "a job's templates know .Tick.UTC, .Tick.Local, .Tick.Prev, .Tick.Next and .Job",
	}
}

func appendErr(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
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
	return t.request(j, cmp.Or(namespace, tasks.DefaultNamespace), "", tick)
}

func (s *Scheduler) request(e *entry, tick Occurrence) (*tasks.Request, error) {
	return e.tmpl.request(e.job, s.cfg.Namespace, s.cfg.KeyPrefix, tick)
}

func (t *templates) request(j *Job, namespace, prefix string, tick Occurrence) (*tasks.Request, error) {
	data := render.Data{Job: j.Name, Tick: &render.Tick{
		Local: tick.Local,
		Prev:  j.Schedule.Prev(tick.At.Add(-time.Second)).Local, Next: j.Schedule.Next(tick.At).Local,
	}}
	r := &tasks.Request{
		Name: j.Task, ID: TaskID(namespace, j.Name, tick.Label), Queue: j.Queue, Priority: j.Priority,
		Args: make([]json.RawMessage, len(t.args)), Kwargs: make(map[string]json.RawMessage, len(t.kwargs)),
	}
	var err error
	for i, n := range t.args {
		if r.Args[i], err = n.JSON(data); err != nil {
			return nil, j.templateError(fmt.Sprintf("args[%d]", i), err)
		}
	}
	for k, n := range t.kwargs {
		if r.Kwargs[k], err = n.JSON(data); err != nil {
			return nil, j.templateError("kwargs."+k, err)
		}
	}
	if j.Expires > 0 {
		r.Expires = tick.At.Add(j.Expires)
	}
	if r.Guard, err = t.guard(j, prefix+"solobeat:"+namespace+":lock:"+j.Name, tick, data); err != nil {
		return nil, err
	}
	if _, err := r.Guard.Encode(); err != nil {
		return nil, &JobError{Job: j.Name, Field: "lock.key", Msg: "makes the guard too long: " + err.Error(), Cure: "shorten lock.key and idempotency.key", Err: err}
	}
	return r, nil
}

// guard spells the job's guards out for one tick. lockKey is the default one.
func (t *templates) guard(j *Job, lockKey string, tick Occurrence, data render.Data) (*tasks.Guard, error) {
	retries := tasks.DefaultRetries
	if j.Retries != nil {
		retries = *j.Retries
	}
	g := &tasks.Guard{
		Job: j.Name, Tick: tick.At.UnixMilli(), Label: tick.Label,
		BeginBy: tick.At.Add(j.DeadlineOf(tick.At)).UnixMilli(), TimeoutMS: j.Timeout.Milliseconds(), Retries: &retries,
	}
	var err error
	if l := j.Lock; l != nil {
		name := cmp.Or(l.Key, lockKey)
		key := name
		if t.lock != nil {
			if key, err = t.lock.Render(data); err != nil {
				return nil, j.templateError("lock.key", err)
			}
		}
		g.Lock = l.guard(j, key)
		if name != key {
			g.Lock.Name = name // metrics show the template, whose series are bounded
		}
	}
	if r := j.Record; r != nil {
		key := idempotency.JobKey(j.Task, j.Name, tick.Label).Text
		if t.record != nil {
			if key, err = t.record.Render(data); err != nil {
				return nil, j.templateError("idempotency.key", err)
			}
		}
		g.Record = &tasks.RecordGuard{
			Key: key, Store: cmp.Or(r.Store, "redis"), RetentionMS: cmp.Or(r.Retention, idempotency.DefaultRetention).Milliseconds(),
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
		Key: key, Backend: cmp.Or(l.Backend, "redis"), TTLMS: cmp.Or(l.TTL, lockguard.DefaultTTL).Milliseconds(),
		RenewMS: l.Renew.Milliseconds(), MaxHoldMS: l.MaxHold.Milliseconds(), OnBusy: busy, FenceBase: l.FenceBase,
		ExpectMS: j.ExpectedRun().Milliseconds(), MinHoldMS: l.MinHold.Milliseconds(), StallAfterMS: l.StallAfter.Milliseconds(),
		WaitMS: l.Wait.Milliseconds(), OnLost: l.OnLost, OnStoreDown: l.OnStoreDown,
	}
}
