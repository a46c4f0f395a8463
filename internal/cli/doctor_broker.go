package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks/asynqengine"
	"github.com/solobeat/solobeat/tasks/celery"
)

const (
	// answerTime is how long Celery's workers have for their answers.
	answerTime = 1500 * time.Millisecond
	// maxForeign bounds how many entries of unacked are looked at.
	maxForeign = 20_000
	// longQueue is from how many waiting messages on it is worth a word.
	longQueue = 1000
	// nearlyFull is how many tasks of asynq's 10,000 are in the archive before
	// the oldest are dropped without a word.
	nearlyFull = 9000
)

// showGuards tells which jobs and tasks are guarded, and nothing of what they
// are given: that may be secret.
func (d *doctor) showGuards() {
	for _, t := range d.cfg.Tasks {
		v := taskView{Name: t.Name}
		if l := t.Config.Lock; l != nil {
			v.Lock = l.Key
		}
		if r := t.Config.Record; r != nil {
			v.Record = cmp.Or(r.Key, "the task id")
		}
		d.report.Tasks = append(d.report.Tasks, v)
	}
	for _, j := range d.jobs {
		d.report.Jobs = append(d.report.Jobs, jobFacts{
			Name: j.Name, Task: j.Task, Engine: cmp.Or(j.Engine, config.EngineCelery), Queue: cmp.Or(j.Queue, d.cfg.Worker.Queues[0]),
			Lock: j.Lock != nil, Record: j.Record != nil,
		})
	}
}

// guardedQueues are the Celery queues in which guarded tasks may lie: those of
// guarded jobs, and the worker's own if tasks: guards any.
func (d *doctor) guardedQueues() []string {
	var queues []string
	add := func(q string) {
		if !slices.Contains(queues, q) {
			queues = append(queues, q)
		}
	}
	for _, j := range d.report.Jobs {
		if j.Engine == config.EngineCelery && (j.Lock || j.Record) {
			add(j.Queue)
		}
	}
	for _, t := range d.report.Tasks {
		if t.Lock != "" || t.Record != "" {
			for _, q := range d.cfg.Worker.Queues {
				add(q)
			}
			break
		}
	}
	return queues
}

// broker looks at what lies on the broker's server and who is there.
func (d *doctor) broker(ctx context.Context, results bool) {
	type step struct {
		name string
		run  func(context.Context) error
	}
	steps := []step{{"schedulers", d.schedulers}, {"dead letters", d.deadLetters}}
	if d.cfg.Worker.Has(config.EngineCelery) {
		steps = append(steps, step{"workers", d.workers}, step{"queues", d.celeryQueues}, step{"in-flight", d.stranded}, step{"dead letters", d.unlisted}, step{"python", d.python})
		if results {
			steps = append(steps, step{"acl", d.acl})
		}
	}
	if d.cfg.Worker.Has(config.EngineAsynq) {
		steps = append(steps, step{"asynq", d.asynq})
	}
	for _, s := range steps {
		try, cancel := context.WithTimeout(ctx, doctorTry)
		if err := s.run(try); err != nil {
			d.failed(ctx, s.name, err)
		}
		cancel()
	}
}

// acl tries what a worker tries at its start.
func (d *doctor) acl(ctx context.Context) error {
	e, err := celery.New(celery.Config{
		Broker: d.s.broker, Results: d.s.results, Namespace: d.cfg.Namespace, KeyPrefix: d.cfg.Redis.GlobalKeyPrefix,
		ResultsKeyPrefix: d.cfg.Redis.ResultsKeyPrefix, Queues: d.cfg.Worker.Queues, Instance: d.s.instance,
	})
	if err != nil {
		return err
	}
	if err := e.Probe(ctx); err != nil {
		if refusalOf(err) != "" {
			return redisconn.WithCure(err, allRights)
		}
		return err
	}
	d.add("acl", verdictOK, "", "the server allows what a worker needs")
	return nil
}

func (d *doctor) workers(ctx context.Context) error {
	replicas, err := d.s.admin(nil).Replicas(ctx)
	if err != nil {
		return err
	}
	versions, dead := map[string]int{}, []string{}
	live := 0
	for _, r := range replicas {
		d.report.Replicas = append(d.report.Replicas, replicaFacts{Engine: celery.EngineName, Name: r.Node, Version: r.Version, Queues: r.Queues, Live: r.Live})
		if r.Live {
			live++
			versions[cmp.Or(r.Version, "unknown")]++
		} else {
			dead = append(dead, r.Node)
		}
	}
	switch {
	case live == 0:
		d.add("workers", verdictWarn, "start one: solobeat worker", "no worker is registered in the namespace %s", d.cfg.Namespace)
	case len(versions) > 1:
		d.add("workers", verdictWarn, "finish the roll-out", "%d workers of different versions: %s", live, listed(slices.Sorted(maps.Keys(versions))))
	default:
		d.add("workers", verdictOK, "", "%d live, version %s", live, listed(slices.Sorted(maps.Keys(versions))))
	}
	if len(dead) > 0 {
		d.add("workers", verdictWarn, "another worker takes their messages over: start one", "missed since their last heartbeat, and not taken over yet: %s", listed(dead))
	}
	return nil
}

func (d *doctor) celeryQueues(ctx context.Context) error {
	served := map[string]bool{}
	for _, r := range d.report.Replicas {
		for _, q := range r.Queues {
			served[q] = served[q] || r.Live
		}
	}
	queues := slices.Clone(d.cfg.Worker.Queues)
	for _, j := range d.report.Jobs {
		if j.Engine == config.EngineCelery && !slices.Contains(queues, j.Queue) {
			queues = append(queues, j.Queue)
		}
	}
	depths, err := d.s.admin(queues).Depths(ctx)
	if err != nil {
		return err
	}
	for _, q := range depths.Queues {
		switch {
		case !served[q.Queue] && q.Waiting > 0:
			d.add("queues", verdictWarn, "add it to worker.queues of a worker", "%d messages wait in %s, which no live worker of Solobeat takes from", q.Waiting, q.Queue)
		case q.Waiting >= longQueue:
			d.add("queues", verdictWarn, "add workers, or raise worker.concurrency", "%d messages wait in %s", q.Waiting, q.Queue)
		default:
			d.add("queues", verdictOK, "", "%s: %d wait", q.Queue, q.Waiting)
		}
	}
	d.add("queues", verdictOK, "", "%d unacked, %d parked, over all Celery queues", depths.Unacked, depths.Parked)
	if depths.DeadDropped > 0 {
		d.add("dead letters", verdictWarn, "look at them sooner: solobeat dead list", "%d fell out of bounds", depths.DeadDropped)
	}
	return nil
}

func (d *doctor) stranded(ctx context.Context) error {
	found, err := d.s.admin(nil).Stranded(ctx)
	if err != nil {
		return err
	}
	n := int64(0)
	for _, in := range found {
		n += in
	}
	if n == 0 {
		d.add("in-flight", verdictOK, "", "no dead worker's list holds a message")
		return nil
	}
	d.add("in-flight", verdictWarn, "a live worker of this namespace puts them back: start one", "%d messages in the in-flight lists of dead workers: %s", n, listed(slices.Sorted(maps.Keys(found))))
	return nil
}

// unlisted tells of messages that dead list does not know of.
func (d *doctor) unlisted(ctx context.Context) error {
	found, err := d.s.admin(nil).Unlisted(ctx)
	if err != nil {
		return err
	}
	for _, u := range found {
		d.add("dead letters", verdictFail, unlistedCure, "%s", unlistedText(u))
	}
	return nil
}

func (d *doctor) deadLetters(ctx context.Context) error {
	total := 0
	var where []string
	for _, one := range d.s.shelves("") {
		queues, err := one.queues(ctx)
		if err != nil {
			return err
		}
		for _, q := range queues {
			n, err := one.number(ctx, q)
			if err != nil {
				return err
			}
			if n > 0 {
				total += n
				where = append(where, fmt.Sprintf("%s (%d)", q, n))
			}
		}
	}
	if total > 0 {
		d.add("dead letters", verdictWarn, "see solobeat dead list; dead requeue when the cause is gone, or dead drop", "%s in %s", counted(total, "dead letter"), listed(where))
		return nil
	}
	d.add("dead letters", verdictOK, "", "none")
	return nil
}

// schedulers compares the files of the live ones.
func (d *doctor) schedulers(ctx context.Context) error {
	all, err := d.s.state().Replicas(ctx)
	if err != nil {
		return err
	}
	var stale, current []scheduler.ReplicaInfo
	for _, r := range all {
		if r.Current {
			current = append(current, r)
		} else {
			stale = append(stale, r)
		}
	}
	switch {
	case len(all) == 0 && len(d.jobs) > 0:
		d.add("schedulers", verdictWarn, "start one: solobeat worker --with-scheduler", "no scheduler is registered, and the schedule has %d jobs", len(d.jobs))
	case len(all) == 0:
		d.add("schedulers", verdictOK, "", "none, and no schedule.file")
	case len(stale) > 0:
		var names []string
		for _, r := range stale {
			names = append(names, fmt.Sprintf("%s (%s)", cmp.Or(r.Name, r.Replica), cmp.Or(r.Path, r.File)))
		}
		newest := "another file"
		if len(current) > 0 {
			newest = fmt.Sprintf("%s of %s", current[0].Path, current[0].Name)
		}
		d.add("schedulers", verdictWarn, "finish the roll-out; two deployments need a namespace each",
			"STALE: the file of %s is not the current one, which is %s", listed(names), newest)
	default:
		d.add("schedulers", verdictOK, "", "%d with the current file", len(all))
	}
	return nil
}

// python asks Celery's own workers for their queues: they do not know the
// guards.
func (d *doctor) python(ctx context.Context) error {
	guarded := d.guardedQueues()
	admin := d.s.admin(nil)
	held, err := admin.ForeignUnacked(ctx, maxForeign)
	if err != nil {
		return err
	}
	nodes, silent, err := admin.ForeignWorkers(ctx, answerTime)
	if err != nil && !redisconn.Answered(err) {
		return err
	}
	if err != nil { // the user may not use the remote control
		d.add("python", verdictWarn, redisconn.Cure(err), "Celery's workers could not be asked for their queues: %s", err)
	}
	found := false
	for _, q := range guarded {
		var by []string
		for _, node := range slices.Sorted(maps.Keys(nodes)) {
			if slices.Contains(nodes[node], q) {
				by = append(by, node)
			}
		}
		const cure = "keep queues of guarded tasks for Solobeat's workers"
		switch {
		case len(by) > 0:
			found = true
			d.add("python", verdictFail, cure, "the queue %s has guarded tasks, and a worker that does not know the guards takes from it: %s", q, listed(by))
		case held[q] > 0:
			found = true
			d.add("python", verdictWarn, cure, "the queue %s has guarded tasks, and %d of its messages were taken by a worker that does not know the guards", q, held[q])
		}
	}
	switch {
	case silent > 0:
		d.add("python", verdictWarn, "ask again when they are less busy", "%d of Celery's workers did not say in %s which queues they take from", silent, answerTime)
	case !found && err == nil:
		d.add("python", verdictOK, "", "no other worker takes from %s", cmp.Or(strings.Join(guarded, ", "), "a queue of guarded tasks: there is none"))
	}
	if len(nodes) > 0 || len(held) > 0 {
		d.add("visibility", verdictOK, "", "Celery's own workers are there: their visibility_timeout must be longer than their longest task and ETA; it does not matter for what Solobeat runs")
	}
	return nil
}

func (d *doctor) asynq(ctx context.Context) error {
	admin := d.s.asynqAdmin(d.cfg.Worker.Queues)
	workers, err := admin.Workers()
	if err != nil {
		return err
	}
	for _, w := range workers {
		slices.Sort(w.Queues)
		d.report.Replicas = append(d.report.Replicas, replicaFacts{Engine: asynqengine.EngineName, Name: fmt.Sprintf("%s:%d", w.Host, w.PID), Queues: w.Queues, Live: true})
	}
	if len(workers) == 0 {
		d.add("asynq", verdictWarn, "start one: solobeat worker", "no asynq server is there")
	} else {
		d.add("asynq", verdictOK, "", "%d asynq servers", len(workers))
	}
	depths, err := admin.Depths(ctx)
	if err != nil {
		return err
	}
	for _, q := range depths {
		orphans, err := admin.Orphans(ctx, q.Queue)
		if err != nil {
			return err
		}
		if len(orphans) > 0 {
			d.add("asynq", verdictWarn, "see the runbook AsynqOrphans; one that is just ending may be among them",
				"%d tasks of %s stand as active, and asynq's recoverer cannot see them", len(orphans), q.Queue)
		}
		if q.Archived >= nearlyFull {
			d.add("asynq", verdictWarn, "solobeat dead requeue, or dead drop", "the archive of %s has %d tasks; asynq drops the oldest above 10,000", q.Queue, q.Archived)
		}
	}
	probe := d.s.asynqClient().ProbeResults(ctx, d.s.instance)
	if probe != nil && !errors.Is(probe, context.DeadlineExceeded) {
		return probe
	}
	return nil
}
