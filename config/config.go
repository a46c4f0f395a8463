package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/scheduler"
)

// Defaults of solobeat.yaml.
const (
	DefaultRedisURL      = "redis://localhost:6379/0"
	DefaultNamespace     = "default"
	DefaultQueue         = "celery"
	DefaultMetricsListen = "127.0.0.1:9464"
	DefaultGrace         = 20 * time.Second
	DefaultPoisonAfter   = 3
	DefaultResultExpires = 24 * time.Hour
)

// Config is solobeat.yaml with its defaults filled in.
type Config struct {
	// Namespace keeps deployments on one Redis apart: all keys of ours are
	// solobeat:<namespace>:….
	Namespace string
	Redis     Redis
	Worker    Worker
	Schedule  Schedule
	Results   Results
	Metrics   Metrics
	Log       Log
	// Tasks are the tasks: entries by name, in the order of the file.
	Tasks []Task
	// Dir is the folder of the file; relative paths in it start there.
	Dir string
}

// Redis says where the three roles live; results and locks default to URL.
type Redis struct {
	// URL is the broker's and the schedule's.
	URL        string
	ResultsURL string
	// LocksURL is the locks' and the records'.
	LocksURL string
	// GlobalKeyPrefix stands before kombu's keys and channels and before
	// ours; it is kombu's global_keyprefix.
	GlobalKeyPrefix string
	// ResultsKeyPrefix stands verbatim before results and their channels.
	ResultsKeyPrefix string
}

// Worker is the worker: block.
type Worker struct {
	Queues      []string
	Concurrency int
	// Grace is how long running tasks may go on after a stop signal.
	Grace       time.Duration
	PoisonAfter int
	// Name is the Celery node name; "" means solobeat@<host>.
	Name string
}

// Schedule is the schedule: block.
type Schedule struct {
	// File is the path of schedule.yaml, "" for none.
	File string
}

// Results is the results: block.
type Results struct {
	// Expires is the time to live of a result.
	Expires time.Duration
}

// Metrics is the metrics: block.
type Metrics struct {
	// Listen is the address of /metrics, /healthz and /readyz; "off" serves
	// none.
	Listen string
	// Explicit is false if Listen is the default: then a taken port is no
	// error.
	Explicit bool
}

// Log is the log: block.
type Log struct {
	// Level is debug, info, warn or error.
	Level string
	// Format is text or json; "" means text on a terminal, else json.
	Format string
}

// Lookup returns an environment variable; os.LookupEnv is one.
type Lookup func(name string) (string, bool)

// Load reads solobeat.yaml and the environment. An empty path means that
// there is no file. The Config is usable if the error is nil; the Problems
// may then hold warnings.
func Load(path string, env Lookup) (*Config, Problems, error) {
	var text []byte
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil { //nolint:gosec // the path is the operator's own
			ps := Problems{{File: path, Message: readError(err), Cure: "check the path given by -c"}}
			return nil, ps, ps
		}
	}
	return parseConfig(path, text, env)
}

func readError(err error) string {
	if os.IsNotExist(err) {
		return "no such file"
	}
	return err.Error()
}

// leaf is one key of solobeat.yaml outside tasks:.
type leaf struct {
	read field
	tag  string // the YAML type that an environment variable's text stands for
}

func parseConfig(path string, text []byte, env Lookup) (*Config, Problems, error) {
	c := &Config{Namespace: DefaultNamespace, Dir: filepath.Dir(path)}
	if path == "" {
		c.Dir = "."
	}
	d := newDecoder(path)
	urlFiles := map[string]*string{}
	leaves := c.leaves(d, urlFiles)
	var taskEntries *yaml.Node
	if root := d.parse(text); root != nil {
		if isSchedule(root) {
			d.errorf(root, "", "give it to schedule.file, or to solobeat validate", "this is a schedule file (it has jobs:), not solobeat.yaml")
		} else {
			fields := nest(d, leaves, "")
			fields["tasks"] = func(_, v *yaml.Node, _ string) { taskEntries = v }
			d.mapping(root, "", fields)
		}
	}
	readEnv(d, leaves, env)
	if taskEntries != nil { // after all else, since their defaults use the namespace
		c.readTasks(d, taskEntries)
	}
	c.readURLFiles(d, urlFiles)
	c.defaults()
	c.check(d)
	d.problems.sort()
	if err := d.problems.err(); err != nil {
		return nil, d.problems, err
	}
	return c, d.problems, nil
}

func isSchedule(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value == "jobs" {
			return true
		}
	}
	return false
}

func (c *Config) leaves(d *decoder, urlFiles map[string]*string) map[string]leaf {
	str := func(p *string) leaf { return leaf{d.text(p), "!!str"} }
	ls := map[string]leaf{
		"namespace":               str(&c.Namespace),
		"redis.url":               str(&c.Redis.URL),
		"redis.results_url":       str(&c.Redis.ResultsURL),
		"redis.locks_url":         str(&c.Redis.LocksURL),
		"redis.global_keyprefix":  str(&c.Redis.GlobalKeyPrefix),
		"redis.results_keyprefix": str(&c.Redis.ResultsKeyPrefix),
		"worker.queues":           {c.once(d, &c.Worker.Queues), "!!seq"},
		"worker.concurrency":      {d.integer(&c.Worker.Concurrency, 1, 10_000), "!!int"},
		"worker.grace":            {d.duration(&c.Worker.Grace, 0), "!!str"},
		"worker.poison_after":     {d.integer(&c.Worker.PoisonAfter, 3, 1000), "!!int"},
		"worker.name":             str(&c.Worker.Name),
		"schedule.file":           str(&c.Schedule.File),
		"results.expires":         {d.duration(&c.Results.Expires, time.Second), "!!str"},
		"metrics.listen":          str(&c.Metrics.Listen),
		"log.level":               {d.oneOf(&c.Log.Level, "debug", "info", "warn", "error"), "!!str"},
		"log.format":              {d.oneOf(&c.Log.Format, "text", "json"), "!!str"},
	}
	for _, key := range []string{"redis.url", "redis.results_url", "redis.locks_url"} {
		urlFiles[key] = new(string)
		ls[key+"_file"] = str(urlFiles[key])
	}
	return ls
}

// once reads a list that replaces what was read before: the environment wins
// over the file as a whole.
func (c *Config) once(d *decoder, into *[]string) field {
	return func(k, v *yaml.Node, path string) {
		*into = nil
		d.texts(into)(k, v, path)
	}
}

// nest turns dotted paths into nested mappings.
func nest(d *decoder, leaves map[string]leaf, prefix string) map[string]field {
	fields := map[string]field{}
	for path, l := range leaves {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		head, _, deeper := strings.Cut(rest, ".")
		if !deeper {
			fields[head] = l.read
			continue
		}
		if _, done := fields[head]; done {
			continue
		}
		fields[head] = func(_, v *yaml.Node, path string) {
			d.mapping(v, path, nest(d, leaves, prefix+head+"."))
		}
	}
	return fields
}

// envName is the variable of a key: SOLOBEAT_REDIS_URL for redis.url.
func envName(path string) string {
	return "SOLOBEAT_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func readEnv(d *decoder, leaves map[string]leaf, env Lookup) {
	if env == nil {
		return
	}
	paths := make([]string, 0, len(leaves))
	for p := range leaves {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	file := d.file
	defer func() { d.file = file }()
	for _, p := range paths {
		value, set := env(envName(p))
		if !set || value == "" {
			continue
		}
		d.file = "environment variable " + envName(p)
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: leaves[p].tag, Value: value}
		if n.Tag == "!!seq" {
			n.Kind = yaml.SequenceNode
			for item := range strings.SplitSeq(value, ",") {
				n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(item)})
			}
		}
		leaves[p].read(n, n, "")
	}
}

// readURLFiles fills URLs from the files that url_file keys name.
func (c *Config) readURLFiles(d *decoder, files map[string]*string) {
	into := map[string]*string{"redis.url": &c.Redis.URL, "redis.results_url": &c.Redis.ResultsURL, "redis.locks_url": &c.Redis.LocksURL}
	for key, file := range files {
		if *file == "" {
			continue
		}
		if *into[key] != "" {
			d.errorf(nil, key+"_file", "keep one of the two", "%s is set as well", key)
			continue
		}
		b, err := os.ReadFile(c.path(*file)) //nolint:gosec // the path is the operator's own
		if err != nil {
			d.errorf(nil, key+"_file", "", "%s: %s", *file, readError(err))
			continue
		}
		*into[key] = strings.TrimSpace(string(b))
	}
}

// path resolves a path of the file relative to the file's folder.
func (c *Config) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(c.Dir, p)
}

func (c *Config) defaults() {
	setDefault(&c.Redis.URL, DefaultRedisURL)
	setDefault(&c.Redis.ResultsURL, c.Redis.URL)
	setDefault(&c.Redis.LocksURL, c.Redis.URL)
	setDefault(&c.Worker.Grace, DefaultGrace)
	setDefault(&c.Worker.PoisonAfter, DefaultPoisonAfter)
	setDefault(&c.Worker.Concurrency, max(4, runtime.GOMAXPROCS(0)))
	setDefault(&c.Results.Expires, DefaultResultExpires)
	setDefault(&c.Log.Level, "info")
	c.Metrics.Explicit = c.Metrics.Listen != ""
	setDefault(&c.Metrics.Listen, DefaultMetricsListen)
	if len(c.Worker.Queues) == 0 {
		c.Worker.Queues = []string{DefaultQueue}
	}
	if c.Schedule.File != "" {
		c.Schedule.File = c.path(c.Schedule.File)
	}
}

func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

func (c *Config) check(d *decoder) {
	if !nameRE.MatchString(c.Namespace) {
		d.errorf(nil, "namespace", "small letters, digits, dot, dash, underscore", "%q is no namespace", c.Namespace)
	}
	for _, u := range []struct{ path, url string }{
		{"redis.url", c.Redis.URL}, {"redis.results_url", c.Redis.ResultsURL}, {"redis.locks_url", c.Redis.LocksURL},
	} {
		client, err := redisconn.Open(redisconn.Options{URL: u.url})
		if err != nil {
			d.errorf(nil, u.path, "for example redis://:password@host:6379/0", "%v", err)
			continue
		}
		_ = client.Close()
	}
	seen := map[string]bool{}
	for _, q := range c.Worker.Queues {
		switch {
		case q == "" || strings.ContainsAny(q, "\x06\x16\r\n"):
			d.errorf(nil, "worker.queues", "", "%q is no queue name", q)
		case seen[q]:
			d.errorf(nil, "worker.queues", "remove one", "queue %q is listed twice", q)
		}
		seen[q] = true
	}
	for _, t := range c.Tasks {
		if t.Config.Lock != nil && seen[t.Config.Lock.Name] {
			d.errorf(nil, fmt.Sprintf("tasks.%s.lock.key", t.Name), "choose another key", "%q is a queue of this worker: its list would be taken for a lock", t.Config.Lock.Name)
		}
	}
}

// Together checks what only both files tell: a lock whose key is a queue
// would take the queue's list for a lock.
func Together(c *Config, jobs []*scheduler.Job) error {
	queues := map[string]bool{}
	for _, q := range c.Worker.Queues {
		queues[q] = true
	}
	for _, j := range jobs {
		if j.Queue != "" {
			queues[j.Queue] = true
		}
	}
	var ps Problems
	for _, j := range jobs {
		if j.Lock != nil && queues[j.Lock.Key] {
			ps = append(ps, Problem{
				File: c.Schedule.File, Path: "jobs." + j.Name + ".lock.key",
				Message: fmt.Sprintf("%q is a queue: its list would be taken for a lock", j.Lock.Key), Cure: "choose another key",
			})
		}
	}
	return ps.err()
}
