package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/render"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// errNotConfigured: the guard names a store that this worker does not have.
// Another replica may, so the message waits for it like one whose guard is of
// a later version.
var errNotConfigured = errors.New("not configured in this worker")

// plan is how one delivery is to be run: the message's guard with what the
// configuration replaces.
type plan struct {
	schedule string
	timeout  time.Duration
	retries  tasks.RetryPolicy
	beginBy  time.Time
	lock     *lockPlan
	record   *recordPlan
}

type lockPlan struct {
	guard                       *lockguard.Guard
	key, name                   string
	ttl, renew, expect, maxHold time.Duration
	minHold, stallAfter, wait   time.Duration
	onBusy                      tasks.OnBusy
	onLost                      tasks.OnLost
	onStoreDown                 tasks.OnStoreDown
	fenceBase                   uint64
}

type recordPlan struct {
	guard       *idempotency.Guard
	key         idempotency.Key
	lease       time.Duration
	renew       time.Duration // 0: a third of the lease
	retention   time.Duration
	maxHold     time.Duration
	fingerprint string
}

func (w *Worker) plan(d *tasks.Delivery) (*plan, error) {
	g, own := d.Task.Guard, w.cfg.Tasks[d.Task.Name]
	if g == nil {
		g = &tasks.Guard{}
	}
	p := &plan{schedule: g.Job, timeout: own.Timeout}
	if p.timeout == 0 {
		p.timeout = ms(g.TimeoutMS)
	}
	if g.BeginBy > 0 {
		p.beginBy = time.UnixMilli(g.BeginBy)
	}
	switch {
	case own.Retries != nil:
		p.retries = *own.Retries
	case g.Retries != nil:
		p.retries = *g.Retries
	case g.Job != "":
		p.retries = tasks.DefaultRetries
	}
	if err := w.planLock(p, d.Task, g.Lock, own); err != nil {
		return nil, err
	}
	return p, w.planRecord(p, d.Task, g.Record, own)
}

func (w *Worker) planLock(p *plan, t *tasks.Task, g *tasks.LockGuard, own TaskConfig) error {
	var backend string
	switch {
	case own.Lock != nil:
		key, err := renderKey(w.keys[t.Name].lock, t, own.Params)
		if err != nil {
			return fmt.Errorf("lock key: %w", err)
		}
		l := own.Lock
		backend = l.Backend
		p.lock = &lockPlan{
			key: key, name: l.Key, ttl: l.TTL, renew: l.Renew, expect: l.Expect, maxHold: l.MaxHold,
			minHold: l.MinHold, stallAfter: l.StallAfter, wait: l.Wait,
			onBusy: l.OnBusy, onLost: l.OnLost, onStoreDown: l.OnStoreDown, fenceBase: l.FenceBase,
		}
		if p.lock.onBusy == "" {
			p.lock.onBusy = tasks.OnBusyRetry
		}
	case g != nil:
		backend = g.Backend
		p.lock = &lockPlan{
			key: g.Key, name: g.Name, ttl: ms(g.TTLMS), renew: ms(g.RenewMS), expect: ms(g.ExpectMS),
			maxHold: ms(g.MaxHoldMS), minHold: ms(g.MinHoldMS), stallAfter: ms(g.StallAfterMS), wait: ms(g.WaitMS),
			onBusy: g.OnBusy, onLost: g.OnLost, onStoreDown: g.OnStoreDown, fenceBase: g.FenceBase,
		}
	default:
		return nil
	}
	guard, ok := w.cfg.Locks[backendOr(backend)]
	if !ok {
		return fmt.Errorf("lock back end %q is %w", backendOr(backend), errNotConfigured)
	}
	p.lock.guard = guard
	p.lock.defaults(p.timeout)
	return nil
}

func (l *lockPlan) defaults(timeout time.Duration) {
	if l.name == "" {
		l.name = l.key
	}
	ownTTL := l.ttl > 0
	if !ownTTL {
		l.ttl = lockguard.DefaultTTL
	}
	if l.renew <= 0 {
		l.renew = l.ttl / 3
	}
	if l.expect <= 0 {
		switch {
		case ownTTL:
			l.expect = l.ttl
		case timeout > 0:
			l.expect = timeout
		default:
			l.expect = lockguard.DefaultExpect
		}
	}
	if l.maxHold <= 0 {
		l.maxHold = maxHold(timeout)
	}
	if l.wait <= 0 {
		l.wait = tasks.DefaultWait
	}
}

// options are how the lock is taken for a run of a task.
func (l *lockPlan) options(taskID, schedule string) []lockguard.Option {
	return []lockguard.Option{
		lockguard.WithTTL(l.ttl), lockguard.WithRenewEvery(l.renew), lockguard.WithMaxHold(l.maxHold), lockguard.WithExpect(l.expect),
		lockguard.WithMinHold(l.minHold), lockguard.WithStallAfter(l.stallAfter), lockguard.WithOnLost(l.onLost),
		lockguard.WithTaskID(taskID), lockguard.WithFenceBase(l.fenceBase),
		lockguard.WithLabels(lockguard.Labels{Schedule: schedule, Lock: l.name}),
	}
}

// maxHold is the longest that a run may hold its lock, or its record.
func (p *plan) maxHold() time.Duration {
	if p.lock != nil {
		return p.lock.maxHold
	}
	return maxHold(p.timeout)
}

func maxHold(timeout time.Duration) time.Duration {
	if timeout > 0 {
		return timeout + time.Minute
	}
	return lockguard.DefaultMaxHold
}

func (w *Worker) planRecord(p *plan, t *tasks.Task, g *tasks.RecordGuard, own TaskConfig) error {
	var store string
	r := &recordPlan{lease: idempotency.DefaultLease, maxHold: maxHold(p.timeout)}
	switch {
	case own.Record != nil:
		store, r.retention = own.Record.Store, own.Record.Retention
		if err := r.fromConfig(t, own, w.keys[t.Name].record); err != nil {
			return err
		}
	case g != nil:
		store, r.retention, r.fingerprint = g.Store, ms(g.RetentionMS), g.Fingerprint
		r.key = idempotency.Key{Namespace: t.Name, Text: g.Key}
	default:
		return nil
	}
	if r.retention <= 0 {
		r.retention = idempotency.DefaultRetention
	}
	if p.lock != nil {
		r.lease, r.renew, r.maxHold = p.lock.ttl, p.lock.renew, p.lock.maxHold
	}
	guard, ok := w.cfg.Records[backendOr(store)]
	if !ok {
		return fmt.Errorf("record store %q is %w", backendOr(store), errNotConfigured)
	}
	r.guard = guard
	p.record = r
	return nil
}

func (r *recordPlan) fromConfig(t *tasks.Task, own TaskConfig, key *render.Template) error {
	r.key = idempotency.TaskKey(t.Name, t.ID)
	if key != nil {
		text, err := renderKey(key, t, own.Params)
		if err != nil {
			return fmt.Errorf("record key: %w", err)
		}
		r.key = idempotency.Key{Namespace: t.Name, Text: text}
	}
	if len(own.Record.Fingerprint) == 0 {
		return nil
	}
	texts, err := render.ParamTexts(own.Params, t.Args, t.Kwargs)
	if err != nil {
		return err
	}
	fp, err := idempotency.Fingerprint(own.Record.Fingerprint, texts)
	if err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}
	r.fingerprint = fp
	return nil
}

func renderKey(key *render.Template, t *tasks.Task, names []string) (string, error) {
	params, err := render.Params(names, t.Args, t.Kwargs)
	if err != nil {
		return "", err
	}
	text, err := key.Render(render.Data{Params: params, Task: t.Name})
	if extra := len(t.Args) - len(names); err != nil && extra > 0 {
		return "", fmt.Errorf("%w (%d positional arguments have no names here: list them in params: of the task's entry)", err, extra)
	}
	return text, err
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
