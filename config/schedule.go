package config

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/typo"
	"github.com/solobeat/solobeat/scheduler"
)

// maxJobs bounds a file.
const maxJobs = 200_000

// nameRE admits names that are safe as metric labels and in Redis keys; dots
// and dashes are common in existing files (chatwoot's config/schedule.yml).
var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

// LoadSchedule reads a schedule.yaml. The jobs are in the order of the file,
// and usable if the error is nil; the Problems may then hold warnings. The
// error is a [Problems].
func LoadSchedule(path string) ([]*scheduler.Job, Problems, error) {
	text, err := ReadFile(path)
	if err != nil {
		ps := Problems{Problem{File: path, Message: readError(err), Cure: "check the path, and schedule.file"}.masked()}
		return nil, ps, ps
	}
	return ParseSchedule(path, text)
}

// ParseSchedule reads the text of a schedule.yaml; path is for messages. It
// returns what [LoadSchedule] does.
func ParseSchedule(path string, text []byte) ([]*scheduler.Job, Problems, error) {
	return parseSchedule(newDecoder(path), text)
}

func parseSchedule(d *decoder, text []byte) ([]*scheduler.Job, Problems, error) {
	r := newScheduleReader(d)
	root := d.parse(text)
	switch {
	case root != nil && !isNull(root):
		r.root(root)
	case len(d.problems.Errors()) == 0:
		d.errorf(top(), "", "begin with version: 1 and jobs:", "the file is empty")
	}
	d.problems.sort()
	if err := d.problems.err(); err != nil {
		return nil, d.problems, err
	}
	return r.jobs, d.problems, nil
}

func newScheduleReader(d *decoder) *scheduleReader {
	return &scheduleReader{d: d, specs: scheduler.NewSpecParser(), queues: map[string]bool{DefaultQueue: true}}
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

func isSchedule(root *yaml.Node) bool { return valueOf(root, "jobs") != nil }

var jobsRE = regexp.MustCompile(`(?m)^jobs\s*:`)

type scheduleReader struct {
	d     *decoder
	specs *scheduler.SpecParser
	// defaults is what each job begins with; nil without defaults:.
	defaults *jobReader
	jobs     []*scheduler.Job
	// read are the jobs whose validation may still be going on.
	read       []*jobReader
	validators *validators
	// queues are those that the jobs publish to.
	queues map[string]bool
	// locked are the jobs whose lock has a key without a template.
	locked []*jobReader
	// records is the first job of each task and record key.
	records map[[2]string]string
}

func (r *scheduleReader) root(root *yaml.Node) {
	var jobs, defaults *yaml.Node
	ok := r.d.mapping(root, "", map[string]field{
		"version":  r.version,
		"defaults": r.d.later(&defaults, r.readDefaults),
		"jobs":     r.d.later(&jobs, func(v *yaml.Node) { r.d.entries(v, "jobs", r.job) }),
	})
	if !ok {
		return
	}
	if valueOf(root, "version") == nil {
		r.d.errorf(root, "version", "add version: 1 as the first line", "the key is missing")
	}
	if valueOf(root, "jobs") == nil {
		r.d.errorf(root, "jobs", "add jobs:, and below it the jobs by name", "the key is missing")
	}
	if defaults != nil && !isNull(defaults) {
		r.readDefaults(defaults)
	}
	if jobs == nil || isNull(jobs) {
		return // jobs: with nothing below it is an empty schedule
	}
	if n := len(jobs.Content) / 2; n > maxJobs {
		r.d.errorf(jobs, "jobs", "split the file over namespaces", "%d jobs, at most %d are read", n, maxJobs)
		return
	}
	r.validators = startValidators()
	r.d.entries(jobs, "jobs", r.job)
	r.validators.wait()
	for _, j := range r.read {
		j.unsound()
		r.jobs = append(r.jobs, j.job)
		r.note(j)
	}
	r.checkKeys()
}

// validators run [scheduler.Job.Validate], which is half of the work of a large
// file, on all CPUs while further jobs are being read.
type validators struct {
	jobs chan *jobReader
	done sync.WaitGroup
}

func startValidators() *validators {
	v := &validators{jobs: make(chan *jobReader, 64)}
	for range runtime.GOMAXPROCS(0) {
		v.done.Go(func() {
			for j := range v.jobs {
				j.err = j.job.Validate()
			}
		})
	}
	return v
}

// wait returns when all are done.
func (v *validators) wait() {
	close(v.jobs)
	v.done.Wait()
}

func (r *scheduleReader) version(_, v *yaml.Node, path string) {
	if r.d.tell(shape{"const": 1}) {
		return
	}
	if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!int" || v.Value != "1" {
		r.d.errorf(v, path, "write version: 1", "%s is not known", kindName(v))
	}
}

// readDefaults reads defaults: once; each job begins with a copy of it, so that
// a mistake in it is reported once and not per job.
func (r *scheduleReader) readDefaults(v *yaml.Node) {
	j := &jobReader{places: newPlaces(r.d, "defaults", v), job: newJob()}
	j.shared = true
	if !j.block(v, "", "defaults", j.fields()) {
		return
	}
	j.checkDefaults(r.specs)
	r.defaults = j
}

func newJob() *scheduler.Job {
	return &scheduler.Job{Lock: &scheduler.JobLock{}, Record: &scheduler.JobRecord{}}
}

func (r *scheduleReader) job(k, v *yaml.Node, path string) {
	j := &jobReader{places: newPlaces(r.d, path, k), job: newJob()}
	if r.defaults != nil {
		base := *r.defaults.job
		j.job, j.inherited = &base, r.defaults.own
	}
	j.job.Name = k.Value
	if !nameRE.MatchString(k.Value) {
		r.d.errorf(k, path, nameCure(k.Value), "%s is no job name", shown(k.Value))
		j.told["name"] = true
	}
	fields := j.fields()
	if r.d.bad[v] || !j.block(v, "", path, fields) {
		return
	}
	j.guess(v, fields)
	j.finish(r.specs)
	r.read = append(r.read, j)
	r.validators.jobs <- j
}

// guess notes what keys with wrong names were meant to be, so that they are
// not said to be missing too.
func (j *jobReader) guess(v *yaml.Node, fields map[string]field) {
	for i := 0; i+1 < len(v.Content); i += 2 {
		word := v.Content[i].Value
		if fields[word] != nil {
			continue
		}
		if word == "<<" {
			j.told["task"], j.told["cron"] = true, true
			continue
		}
		key := otherWords(word)
		if key == "" {
			key = typo.Nearest(word, names(fields))
		}
		if key == "every" || key == "at" {
			key = "cron"
		}
		j.told[key] = true
	}
}

// nameCure suggests a name that is near to one that is refused.
func nameCure(name string) string {
	const rule = "small letters, digits, dot, dash and underscore, at most 100, beginning with a letter or digit"
	if len(name) > 100 || strings.Contains(name, "://") || strings.Contains(name, "@") { // it may be a URL with its password
		return "write " + rule
	}
	var b strings.Builder
	for _, c := range strings.ToLower(strings.TrimSpace(name)) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c) {
			b.WriteRune(c)
		} else {
			b.WriteByte('-')
		}
	}
	if near := strings.Trim(b.String(), "._-"); near != name && nameRE.MatchString(near) {
		return fmt.Sprintf("write %s: %s", near, rule)
	}
	return "write " + rule
}

// note keeps what only all jobs together tell.
func (r *scheduleReader) note(j *jobReader) {
	if j.job.Queue != "" {
		r.queues[j.job.Queue] = true
	}
	if l := j.job.Lock; l != nil && l.Key != "" && !strings.Contains(l.Key, "{{") {
		r.locked = append(r.locked, j)
	}
	rec := j.job.Record
	if rec == nil || rec.Key == "" || strings.Contains(rec.Key, ".Job") {
		return
	}
	if r.records == nil {
		r.records = map[[2]string]string{}
	}
	id := [2]string{j.job.Task, rec.Key}
	if first, twice := r.records[id]; twice {
		j.warnf([]string{"idempotency.key", "task"}, "put {{ .Job }} into the key if both are to run",
			"job %s has the same task and key: at one tick only the first of the two runs", first)
		return
	}
	r.records[id] = j.job.Name
}

// checkKeys finds locks whose key is a queue's, or another's.
func (r *scheduleReader) checkKeys() {
	for _, j := range r.locked {
		msg := keyProblem(j.job.Lock.Key, r.queues, "")
		if msg == "" {
			continue
		}
		j.errorf([]string{"lock.key"}, otherKey, "%s", msg)
	}
}
