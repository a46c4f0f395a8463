package config

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/tasks"
)

// Defaults of solobeat.yaml.
const (
	DefaultRedisURL      = "redis://localhost:6379/0"
	DefaultNamespace     = tasks.DefaultNamespace
	DefaultQueue         = "celery"
	DefaultMetricsListen = "127.0.0.1:9464"
	DefaultGrace         = 20 * time.Second
	DefaultPoisonAfter   = 3
	DefaultResultExpires = 24 * time.Hour
	DefaultLogLevel      = "info"
)

// Config is solobeat.yaml with its defaults filled in.
type Config struct {
	// Namespace keeps deployments on one Redis apart: all keys of ours are
	// solobeat:<namespace>:….
	Namespace string
	Redis     Redis
	Worker    Worker
	Asynq     Asynq
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
	URL string
	// ResultsURL is the results': another database of the broker's server, or
	// the same one.
	ResultsURL string
	// LocksURL is the locks' and the records'.
	LocksURL string
	// GlobalKeyPrefix stands before kombu's keys and channels and before
	// ours; it is kombu's global_keyprefix.
	GlobalKeyPrefix string
	// ResultsKeyPrefix stands verbatim before results and their channels.
	ResultsKeyPrefix string
}

// The engines that a worker may take from.
const (
	EngineCelery = "celery"
	EngineAsynq  = "asynq"
)

// Worker is the worker: block.
type Worker struct {
	// Engines are those whose queues are taken from, at least one; both engines
	// have the same queue names, and slots of their own.
	Engines []string
	// Queues are the lists to take from, at least one; the first is also where
	// jobs without a queue of their own go.
	Queues []string
	// Concurrency is how many runs go on at once, 1 to 10,000.
	Concurrency int
	// Grace is how long running tasks may go on after a stop signal.
	Grace time.Duration
	// PoisonAfter is how many deaths a message may cause, 3 to 1,000.
	PoisonAfter int
	// Name is the Celery node name; "" means solobeat@<host>.
	Name string
}

// Has tells whether the worker takes from an engine.
func (w *Worker) Has(engine string) bool { return slices.Contains(w.Engines, engine) }

// Asynq is the asynq: block.
type Asynq struct {
	// Servers is how many asynq servers one worker runs, 1 to 100: each takes
	// one task a round trip to Redis.
	Servers int
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

// Load reads solobeat.yaml and the environment, which wins over the file; a
// variable that is set and empty counts as not set. An empty path means that
// there is no file. The Config is usable if the error is nil; the Problems may
// then hold warnings. The error is a [Problems].
func Load(path string, env Lookup) (*Config, Problems, error) {
	var text []byte
	if path != "" {
		var err error
		if text, err = ReadFile(path); err != nil {
			ps := Problems{Problem{File: path, Message: readError(err), Cure: "check -c and SOLOBEAT_CONFIG"}.masked()}
			return nil, ps, ps
		}
	}
	return parseConfig(newDecoder(path), text, env)
}

func readError(err error) string {
	switch {
	case os.IsNotExist(err):
		return "no such file"
	case os.IsPermission(err):
		return "the file may not be read by this user"
	default:
		return err.Error()
	}
}

func parseConfig(d *decoder, text []byte, env Lookup) (*Config, Problems, error) {
	return parseUnder(nil, d, text, env)
}

// parseUnder reads a text; tasks are read under the settings of inForce, if
// they are not the text's own.
func parseUnder(inForce *Config, d *decoder, text []byte, env Lookup) (*Config, Problems, error) {
	r := readConfig(inForce, d, text, env)
	if err := d.problems.err(); err != nil {
		return nil, d.problems, err
	}
	return r.c, d.problems, nil
}

// NamedSchedule is the schedule file that a solobeat.yaml and the environment
// name, also where [Load] finds errors elsewhere in them: a schedule is read by
// itself, so that its errors can be told beside those. It is "" where none is
// named, or where that cannot be read.
func NamedSchedule(path string, env Lookup) string {
	var text []byte
	if path != "" {
		text, _ = ReadFile(path) // the environment may name one all the same
	}
	r := readConfig(nil, newDecoder(path), text, env)
	if at := r.at["schedule.file"]; at == nil || r.d.bad[at] {
		return ""
	}
	return r.c.Schedule.File
}

func readConfig(inForce *Config, d *decoder, text []byte, env Lookup) *configReader {
	r := newConfigReader(d, env)
	r.inForce = inForce
	if root := d.parse(text); root != nil && !isNull(root) {
		r.root(root)
	}
	r.readEnv(env)
	r.readURLFiles()
	r.c.defaults()
	if r.tasks != nil { // after all else, since their defaults use the namespace
		r.readTasks(r.tasks)
	}
	r.check()
	d.problems.sort()
	return r
}

func newConfigReader(d *decoder, env Lookup) *configReader {
	r := &configReader{d: d, env: env, c: &Config{Namespace: DefaultNamespace, Dir: filepath.Dir(d.file)}, at: map[string]*yaml.Node{}}
	r.leaves = r.allLeaves()
	return r
}

// configReader reads solobeat.yaml.
type configReader struct {
	d      *decoder
	env    Lookup
	c      *Config
	leaves map[string]leaf
	// at are the values by key, from the file or the environment.
	at    map[string]*yaml.Node
	tasks *yaml.Node
	// inForce has the settings that tasks are read under, nil for c itself.
	inForce *Config
	// urlFiles are the files that url_file keys name, by the key of the URL.
	urlFiles map[string]*string
}

// leaf is one key of solobeat.yaml outside tasks:.
type leaf struct {
	read field
	tag  string // the YAML type that an environment variable's text stands for
}

func (r *configReader) root(root *yaml.Node) {
	if isSchedule(root) {
		r.d.errorf(root, "", "name it as schedule.file, or check it with solobeat validate", "this is a schedule file (it has jobs:), not solobeat.yaml")
		return
	}
	fields := r.nest("")
	fields["tasks"] = r.d.later(&r.tasks, r.readTasks)
	r.d.mapping(root, "", fields)
}

func (r *configReader) allLeaves() map[string]leaf {
	c, d := r.c, r.d
	str := func(p *string) leaf { return leaf{d.word(p), "!!str"} }
	ls := map[string]leaf{
		"namespace":               str(&c.Namespace),
		"redis.url":               str(&c.Redis.URL),
		"redis.results_url":       str(&c.Redis.ResultsURL),
		"redis.locks_url":         str(&c.Redis.LocksURL),
		"redis.global_keyprefix":  {d.text(&c.Redis.GlobalKeyPrefix), "!!str"},
		"redis.results_keyprefix": {d.text(&c.Redis.ResultsKeyPrefix), "!!str"},
		"worker.engines":          {r.engines, "!!seq"},
		"worker.queues":           {r.queues, "!!seq"},
		"worker.concurrency":      {d.integer(&c.Worker.Concurrency, 1, 10_000), "!!int"},
		"worker.grace":            {d.duration(&c.Worker.Grace, time.Millisecond), "!!str"},
		"worker.poison_after":     {d.integer(&c.Worker.PoisonAfter, 3, 1000), "!!int"},
		"worker.name":             str(&c.Worker.Name),
		"asynq.servers":           {d.integer(&c.Asynq.Servers, 1, 100), "!!int"},
		"schedule.file":           str(&c.Schedule.File),
		"results.expires":         {d.duration(&c.Results.Expires, time.Second), "!!str"},
		"metrics.listen":          {d.scalar(&c.Metrics.Listen, "write host:port, such as 0.0.0.0:9464, or off"), "!!str"},
		"log.level":               {oneOf(d, &c.Log.Level, "debug", "info", "warn", "error"), "!!str"},
		"log.format":              {oneOf(d, &c.Log.Format, "text", "json"), "!!str"},
	}
	r.urlFiles = map[string]*string{}
	for _, key := range []string{"redis.url", "redis.results_url", "redis.locks_url"} {
		r.urlFiles[key] = new(string)
		ls[key+"_file"] = str(r.urlFiles[key])
	}
	return ls
}

// queues reads a list that replaces what was read before: the environment wins
// over the file as a whole.
func (r *configReader) queues(k, v *yaml.Node, path string) {
	r.c.Worker.Queues = nil
	r.d.texts(&r.c.Worker.Queues)(k, v, path)
	if v.Kind == yaml.SequenceNode && len(v.Content) == 0 {
		r.d.errorf(v, path, "name a queue, or remove the key for "+DefaultQueue, "the list is empty")
	}
}

// engines reads the list of engines, which replaces what was read before.
func (r *configReader) engines(k, v *yaml.Node, path string) {
	if r.d.tell(wordListShape(v, EngineCelery, EngineAsynq)) {
		return
	}
	const cure = "write " + EngineCelery + ", " + EngineAsynq + ", or a list of both"
	r.c.Worker.Engines = nil
	r.d.texts(&r.c.Worker.Engines)(k, v, path)
	if v.Kind == yaml.SequenceNode && len(v.Content) == 0 {
		r.d.errorf(v, path, cure, "the list is empty")
	}
	for i, e := range r.c.Worker.Engines {
		n := v
		if i < len(v.Content) {
			n = v.Content[i]
		}
		switch {
		case r.d.bad[n]:
		case e != EngineCelery && e != EngineAsynq:
			r.d.errorf(n, path, cure, "%s is no engine", shown(e))
		case slices.Contains(r.c.Worker.Engines[:i], e):
			r.d.errorf(n, path, "remove one", "the engine %s is listed twice", e)
		}
	}
}

// nest turns dotted paths into nested mappings.
func (r *configReader) nest(prefix string) map[string]field {
	fields := map[string]field{}
	for path, l := range r.leaves {
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
		below := prefix + head + "."
		fields[head] = func(_, v *yaml.Node, path string) {
			r.d.block(v, path, r.nest(below), func(name string, v *yaml.Node) { r.at[below+name] = v })
		}
	}
	if prefix == "" {
		read := fields["namespace"]
		fields["namespace"] = func(k, v *yaml.Node, path string) {
			r.at["namespace"] = v
			read(k, v, path)
		}
	}
	return fields
}

// readURLFiles fills URLs from the files that url_file keys name.
func (r *configReader) readURLFiles() {
	c := r.c
	into := map[string]*string{"redis.url": &c.Redis.URL, "redis.results_url": &c.Redis.ResultsURL, "redis.locks_url": &c.Redis.LocksURL}
	for key, file := range r.urlFiles {
		at, path := r.at[key+"_file"], key+"_file"
		if *file == "" {
			continue
		}
		if *into[key] != "" {
			r.d.errorf(at, path, "keep one of the two", "%s is set as well", key)
			continue
		}
		if text := r.d.secretFile(at, path, *file, c.path(*file), "the URL"); text != "" {
			*into[key] = text
			r.at[key] = at // whose file the URL is
		}
	}
}

// secretFile reads a file that holds one value and nothing else; "" after an
// error. The name is the path as it was written.
func (d *decoder) secretFile(at *yaml.Node, key, name, path, what string) string {
	b, err := ReadFile(path)
	text := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		d.errorf(at, key, "name a file that holds "+what+" alone", "%s: %s", name, readError(err))
	case text == "":
		d.errorf(at, key, "write "+what+" into it", "%s is empty", name)
	case strings.ContainsAny(text, "\r\n"):
		d.errorf(at, key, "leave "+what+" alone in it", "%s has more than one line", name)
	default:
		return text
	}
	return ""
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
	setDefault(&c.Asynq.Servers, 1)
	setDefault(&c.Results.Expires, DefaultResultExpires)
	setDefault(&c.Log.Level, DefaultLogLevel)
	c.Metrics.Explicit = c.Metrics.Listen != ""
	setDefault(&c.Metrics.Listen, DefaultMetricsListen)
	if len(c.Worker.Queues) == 0 {
		c.Worker.Queues = []string{DefaultQueue}
	}
	if len(c.Worker.Engines) == 0 {
		c.Worker.Engines = []string{EngineCelery}
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
