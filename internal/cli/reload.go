package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/internal/reload"
	"github.com/solobeat/solobeat/scheduler"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/worker"
)

// bindTimeout bounds what a reload asks of the broker.
const bindTimeout = 5 * time.Second

// reloader puts the schedule file and tasks: in force anew while the process
// runs. Its fields belong to the goroutine of its watcher.
type reloader struct {
	*replica
	env config.Lookup
	// configFile and scheduleFile are those that were read at the start, "" for
	// none.
	configFile, scheduleFile string
	// began is their content then.
	began reload.Snapshot
	now   <-chan os.Signal

	inForce *config.Config
	listed  int      // jobs of the schedule in force
	queues  []string // that jobs publish to
	told    string   // the failure that was last told
	// replaced are jobs that the scheduler has begun to use.
	replaced chan []*scheduler.Job
}

// next is what the files say, checked, and in force nowhere yet.
type next struct {
	cfg      *config.Config
	jobs     []*scheduler.Job
	registry *tasks.Registry
	tasks    *worker.TaskSet
	set      *scheduler.JobSet
	changed  []string // keys that count from the next start on
	warnings config.Problems
}

// watchFiles reloads until ctx ends; then the channel is closed.
func (r *reloader) watchFiles(ctx context.Context) <-chan struct{} {
	r.inForce, r.listed, r.queues = r.cfg, len(r.jobs), r.jobQueues(r.jobs)
	if len(r.began.Files) > 0 {
		r.metrics.Loaded(r.began.Hash, time.Now())
	}
	w := &reload.Watcher{InForce: r.began, Read: config.ReadFile, Take: r.take, Now: r.now}
	watched, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		w.Run(ctx)
	}()
	go func() {
		defer close(done)
		for {
			select {
			case <-watched:
				return
			case jobs := <-r.replaced:
				r.metrics.SetJobs(jobs)
			}
		}
	}()
	return done
}

// take puts the content of the files in force, of both or of none.
func (r *reloader) take(ctx context.Context, s reload.Snapshot, asked bool) error {
	if len(s.Files) == 0 {
		r.log.Info("there are no files to read again")
		return nil
	}
	n, err := r.prepare(ctx, s)
	if err != nil {
		r.metrics.NotLoaded()
		if told := s.Hash + err.Error(); asked || told != r.told {
			r.told = told
			r.log.Error("configuration not reloaded, the last good files stay in force", "hash", s.Hash, "problems", problemLines(err))
		}
		return err
	}
	r.told = ""
	for _, line := range n.warnings.Lines() {
		r.log.Warn(line)
	}
	if len(n.changed) > 0 {
		r.log.Warn("these keys are not reloaded: restart the process for them", "keys", n.changed)
	}
	if r.listed > 0 && len(n.jobs) == 0 {
		r.log.Warn("the schedule is empty now: none of its jobs has ticks any more", "file", r.scheduleFile, "jobs_gone", r.listed)
	}
	r.use(n)
	r.metrics.Loaded(s.Hash, time.Now())
	r.log.Info("configuration reloaded", "hash", s.Hash, "jobs", len(n.jobs), "tasks", len(n.cfg.Tasks))
	return nil
}

// problemLines are the problems that an error joins, a line each.
func problemLines(err error) []string {
	var ps config.Problems
	if errors.As(err, &ps) {
		return ps.Errors().Lines()
	}
	return []string{message(err)}
}

// prepare checks the files, each by itself, both together, and against what
// this process serves. It changes nothing here; new queues are made known to
// Celery's clients.
func (r *reloader) prepare(ctx context.Context, s reload.Snapshot) (*next, error) {
	n, err := r.parse(s)
	if err != nil {
		return nil, err
	}
	if r.chain != nil {
		if n.registry, err = r.registryOf(n.cfg); err != nil {
			return nil, err
		}
		if n.tasks, err = r.chain.Prepare(n.registry, taskConfigs(n.cfg)); err != nil {
			return nil, err
		}
	}
	if r.sched == nil {
		return n, nil
	}
	if n.set, err = r.sched.Prepare(n.jobs); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	for _, q := range r.jobQueues(n.jobs) {
		if slices.Contains(r.queues, q) {
			continue
		}
		if err := r.stores.sender.Bind(ctx, q); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// parse reads both files. The error is a [config.Problems] of both.
func (r *reloader) parse(s reload.Snapshot) (*next, error) {
	n := &next{cfg: r.inForce}
	var all config.Problems
	for _, f := range s.Files {
		var ps config.Problems
		switch {
		case f.Err != nil:
			ps = config.Unreadable(f.Path, f.Err)
		case f.Path == r.configFile:
			var cfg *config.Config
			var err error
			if cfg, n.changed, ps, err = config.ParseAgain(f.Path, f.Text, r.env, r.inForce); err == nil {
				n.cfg = cfg
			}
		default:
			n.jobs, ps, _ = config.ParseSchedule(f.Path, f.Text) // ps has the errors
		}
		all = append(all, ps...)
	}
	if len(all.Errors()) == 0 {
		ps, _ := config.Together(n.cfg, n.jobs)
		all = append(all, ps...)
	}
	if len(all.Errors()) > 0 {
		return nil, all
	}
	n.warnings = all.Warnings()
	return n, nil
}

// use puts what was prepared in force. The tasks come first: a new job may be
// due at once.
func (r *reloader) use(n *next) {
	if n.tasks != nil {
		r.warnTasks(n.cfg, n.registry)
		r.chain.Replace(n.tasks)
		r.metrics.SetTasks(n.registry.Names(), taskLocks(n.cfg))
	}
	if n.set != nil {
		r.warnUnserved(n.jobs)
		r.queues = r.jobQueues(n.jobs)
		r.sched.Replace(n.set)
	} else {
		r.metrics.SetJobs(n.jobs)
	}
	r.inForce, r.listed = n.cfg, len(n.jobs)
}

// inUse is told by the scheduler's loop which jobs it uses now. Their metrics
// take a moment, for which the loop does not wait.
func (r *reloader) inUse(jobs []*scheduler.Job) {
	select {
	case <-r.replaced: // others that nobody has looked at
	default:
	}
	r.replaced <- jobs
}

// taskConfigs are the entries of tasks: by name.
func taskConfigs(cfg *config.Config) map[string]worker.TaskConfig {
	entries := map[string]worker.TaskConfig{}
	for _, t := range cfg.Tasks {
		entries[t.Name] = t.Config
	}
	return entries
}

// taskLocks are the locks of tasks: entries.
func taskLocks(cfg *config.Config) (locks []metrics.Lock) {
	for _, t := range cfg.Tasks {
		if l := t.Config.Lock; l != nil {
			locks = append(locks, metrics.Lock{Name: l.Key, TTL: l.TTL})
		}
	}
	return locks
}
