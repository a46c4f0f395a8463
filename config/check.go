package config

import (
	"errors"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/internal/typo"
	"github.com/solobeat/solobeat/scheduler"
)

const urlCure = "write for example redis://:password@host:6379/0; percent-escape / ? # @ in a password"

// check checks what a single key's reader does not see.
func (r *configReader) check() {
	c := r.c
	if !nameRE.MatchString(c.Namespace) && !r.d.bad[r.at["namespace"]] {
		r.d.errorf(r.at["namespace"], "namespace", nameCure(c.Namespace), "%s is no namespace", shown(c.Namespace))
	}
	r.checkURLs()
	r.checkQueues()
	for _, p := range []struct{ path, value string }{
		{"redis.global_keyprefix", c.Redis.GlobalKeyPrefix}, {"redis.results_keyprefix", c.Redis.ResultsKeyPrefix},
	} {
		if strings.ContainsFunc(p.value, func(c rune) bool { return c <= 0x20 || c == 0x7f }) {
			r.d.errorf(r.at[p.path], p.path, "write for example myapp:", "%s has a blank or a control character", shown(p.value))
		}
	}
	if name, host, ok := strings.Cut(c.Worker.Name, "@"); c.Worker.Name != "" && (!ok || name == "" || host == "" || strings.ContainsAny(c.Worker.Name, " \t\r\n")) {
		r.d.errorf(r.at["worker.name"], "worker.name", "write name@host, or leave it out for solobeat@<host>", "%s is no node name", shown(c.Worker.Name))
	}
	r.checkListen()
	if at := r.at["schedule.file"]; at != nil && !r.d.bad[at] {
		if _, err := os.Stat(c.Schedule.File); os.IsNotExist(err) {
			r.d.errorf(at, "schedule.file", "write its path, relative to this file", "%s: no such file", c.Schedule.File)
		}
	}
}

func (r *configReader) checkURLs() {
	c := r.c
	for _, u := range []struct{ path, url string }{
		{"redis.url", c.Redis.URL}, {"redis.results_url", c.Redis.ResultsURL}, {"redis.locks_url", c.Redis.LocksURL},
	} {
		at := r.at[u.path]
		if at == nil || r.d.bad[at] {
			continue // the default, or wrong already
		}
		client, err := redisconn.Open(redisconn.Options{URL: u.url})
		if err != nil {
			path := u.path
			if at == r.at[path+"_file"] {
				path += "_file"
			}
			r.d.errorf(at, path, urlCure, "%s: %v", redisconn.MaskURL(u.url), errors.Unwrap(err))
			continue
		}
		_ = client.Close()
	}
}

func (r *configReader) checkQueues() {
	at := r.at["worker.queues"]
	seen := map[string]bool{}
	for i, q := range r.c.Worker.Queues {
		n := at
		if at != nil && i < len(at.Content) {
			n = at.Content[i]
		}
		if n != nil && r.d.bad[n] {
			continue
		}
		path := "worker.queues[" + strconv.Itoa(i) + "]"
		if msg := QueueProblem(q); msg != "" {
			r.d.errorf(n, path, queueCure, "%s", msg)
		} else if r.c.Worker.Has(EngineAsynq) && !asynqQueueRE.MatchString(q) {
			r.d.errorf(n, path, asynqQueueCure, "the queue %s can be none of asynq's", shown(q))
		} else if seen[q] {
			r.d.errorf(n, path, "remove one", "the queue %s is listed twice", shown(q))
		}
		seen[q] = true
	}
}

func (r *configReader) checkListen() {
	const cure = "write host:port, such as 127.0.0.1:9464, or off"
	listen, at := r.c.Metrics.Listen, r.at["metrics.listen"]
	if listen == "off" || at == nil || r.d.bad[at] {
		return
	}
	if _, err := strconv.ParseUint(listen, 10, 16); err == nil {
		r.d.errorf(at, "metrics.listen", "write 127.0.0.1:"+listen+", or 0.0.0.0:"+listen+" for all addresses", "%s is a port without a host", listen)
		return
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		r.d.errorf(at, "metrics.listen", cure, "%s is no address", shown(listen))
		return
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		r.d.errorf(at, "metrics.listen", cure, "the port of %s is none", shown(listen))
	}
}

// queueSet are the worker's queues.
func (c *Config) queueSet() map[string]bool {
	queues := make(map[string]bool, len(c.Worker.Queues))
	for _, q := range c.Worker.Queues {
		queues[q] = true
	}
	return queues
}

// LockKeyProblem says why a text cannot be the key of a lock on this broker: it
// is a queue, or a key of Celery's or Solobeat's own. "" means that it can.
func (c *Config) LockKeyProblem(key string) string {
	return keyProblem(key, c.queueSet(), c.Redis.GlobalKeyPrefix)
}

// Together checks what only both files tell: a lock whose key is a queue would
// take the queue's list for a lock, and a job's task that almost has the name
// of an entry of tasks: is probably that. The problems hold the warnings too;
// the error, a [Problems], is nil if there are no others.
func Together(c *Config, jobs []*scheduler.Job) (Problems, error) {
	queues := c.queueSet()
	for _, j := range jobs {
		if j.Queue != "" {
			queues[j.Queue] = true
		}
	}
	var ps Problems
	var file *yaml.Node // parsed once there is something to point at
	add := func(j *scheduler.Job, p Problem, keys ...string) {
		if file == nil {
			file = readTree(c.Schedule.File)
		}
		p.File, p.Path = c.Schedule.File, "jobs."+j.Name+"."+strings.Join(keys, ".")
		p.Line, p.Col = jobPlace(file, j.Name, keys...)
		ps = append(ps, p.masked())
	}
	for _, j := range jobs {
		if q := c.Worker.Queues[0]; j.Engine == EngineAsynq && j.Queue == "" && !asynqQueueRE.MatchString(q) {
			add(j, Problem{
				Message: "the first of worker.queues, " + shown(q) + ", which the job goes to, can be none of asynq's",
				Cure:    "name a queue of its own by queue:; " + asynqQueueCure,
			}, "engine")
		}
		if j.Lock != nil {
			if msg := keyProblem(j.Lock.Key, queues, c.Redis.GlobalKeyPrefix); msg != "" {
				add(j, Problem{Message: msg, Cure: otherKey}, "lock", "key")
			}
		}
		if near := c.nearTask(j.Task); near != "" {
			add(j, Problem{Message: "no entry of tasks: has the name " + j.Task, Cure: "did you mean " + near + "?", Warning: true}, "task")
		}
	}
	for _, t := range c.Tasks {
		l := t.Config.Lock
		if l == nil || keyProblem(l.Key, c.queueSet(), c.Redis.GlobalKeyPrefix) != "" {
			continue // the worker's own queues have been checked
		}
		msg := keyProblem(l.Key, queues, c.Redis.GlobalKeyPrefix)
		if msg == "" {
			continue
		}
		ps = append(ps, Problem{
			File: t.file, Line: t.line, Col: t.col, Path: "tasks." + t.Name + ".lock.key",
			Message: msg, Cure: otherKey,
		}.masked())
	}
	ps.sort()
	return ps, ps.err()
}

// nearTask is the entry of tasks: that a name without one was probably meant to
// be: one letter apart, and not by a number, since sync.eu and sync.us or
// report.v1 and report.v2 may well be two tasks.
func (c *Config) nearTask(name string) string {
	names := make([]string, len(c.Tasks))
	for i, t := range c.Tasks {
		names[i] = t.Name
	}
	if slices.Contains(names, name) {
		return ""
	}
	for _, n := range names {
		if typo.OneEdit(name, n) && digits.ReplaceAllString(name, "") != digits.ReplaceAllString(n, "") {
			return n
		}
	}
	return ""
}

var digits = regexp.MustCompile(`[0-9]+`)

// readTree reads a file again, for the places in it; a file that cannot be
// read has none.
func readTree(path string) *yaml.Node {
	none := &yaml.Node{}
	text, err := ReadFile(path)
	if err != nil {
		return none
	}
	root, _, err := readYAML(text)
	if err != nil || root == nil {
		return none
	}
	return root
}

// jobPlace is where a key of a job stands: in the job, or in defaults:.
func jobPlace(root *yaml.Node, job string, keys ...string) (line, col int) {
	entry := valueOf(valueOf(root, "jobs"), job)
	own, shared := entry, valueOf(root, "defaults")
	for _, k := range keys {
		own, shared = valueOf(own, k), valueOf(shared, k)
	}
	for _, n := range []*yaml.Node{own, shared, entry} {
		if n != nil {
			return n.Line, n.Column
		}
	}
	return 0, 0
}
