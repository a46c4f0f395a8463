package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// documented are the tables of the package's documentation: the keys below each
// heading, with their defaults.
func documented(t *testing.T) map[string]map[string]string {
	t.Helper()
	tables, rows := map[string]map[string]string{}, 0
	for heading, table := range docTables(documentation) {
		tables[heading] = map[string]string{}
		for key, row := range table {
			tables[heading][key] = row.value
			rows++
		}
	}
	if lines := strings.Count(documentation, "\n//\t"); rows != lines {
		t.Errorf("%d lines of tables, %d rows: each is a key of its own, its default and its meaning, parted by two blanks", lines, rows)
	}
	return tables
}

// accepted are the keys that the readers take, by the heading they belong to.
func accepted(t *testing.T) map[string][]string {
	t.Helper()
	keys := map[string][]string{}
	note := func(heading, under string) func(string, []string) {
		return func(path string, names []string) {
			rest, ok := strings.CutPrefix(path, under)
			if !ok {
				return
			}
			for _, n := range names {
				keys[heading] = append(keys[heading], strings.TrimPrefix(rest+"."+n, "."))
			}
		}
	}
	blocks := "{lock: {}, idempotency: {}, retries: {}, misfire: {}, dst: {}}"
	d := newDecoder("")
	jobs, shared, root := note("jobs", "jobs.j"), note("defaults", "defaults"), note("schedule.yaml", "")
	d.known = func(path string, names []string) {
		switch {
		case path == "":
			root(path, names)
		case strings.HasPrefix(path, "jobs"):
			jobs(path, names)
		default:
			shared(path, names)
		}
	}
	_, _, _ = parseSchedule(d, []byte("version: 1\ndefaults: "+blocks+"\njobs: {j: "+blocks+"}\n"))

	d = newDecoder("")
	entries, rest := note("tasks", "tasks.t"), note("solobeat.yaml", "")
	d.known = func(path string, names []string) {
		if strings.HasPrefix(path, "tasks.") {
			entries(path, names)
			return
		}
		rest(path, names)
	}
	_, _, _ = parseConfig(d, []byte("redis: {}\nworker: {}\nasynq: {}\nschedule: {}\nresults: {}\nmetrics: {}\nlog: {}\ntasks: {t: "+
		"{lock: {}, idempotency: {}, retries: {}, webhook: {}}}\n"), nil)
	for h, list := range keys {
		slices.Sort(list)
		keys[h] = slices.Compact(list)
	}
	return keys
}

// The documentation lists the keys that are read, all of them, and no others.
func TestDocumentedKeys(t *testing.T) {
	t.Parallel()
	tables, keys := documented(t), accepted(t)
	// The blocks of solobeat.yaml have no line of their own.
	keys["solobeat.yaml"] = slices.DeleteFunc(keys["solobeat.yaml"], func(k string) bool {
		return slices.Contains([]string{"redis", "worker", "asynq", "schedule", "results", "metrics", "log"}, k)
	})
	for _, heading := range []string{"solobeat.yaml", "tasks", "schedule.yaml", "jobs"} {
		var rows []string
		for k := range tables[heading] {
			rows = append(rows, k)
		}
		slices.Sort(rows)
		if diff := cmp.Diff(keys[heading], rows); diff != "" || len(rows) < 3 {
			t.Errorf("%s: read - documented +\n%s", heading, diff)
		}
	}
	own := []string{"task", "args", "kwargs", "cron", "every", "at", "enabled"}
	want := slices.DeleteFunc(slices.Clone(keys["jobs"]), func(k string) bool { return slices.Contains(own, k) })
	if diff := cmp.Diff(want, keys["defaults"]); diff != "" {
		t.Errorf("keys of defaults: want - got +\n%s", diff)
	}
	// The lists from which unknown keys are told where they belong.
	for _, block := range []string{"lock", "idempotency", "misfire", "retries", "dst", "webhook"} {
		for _, k := range keysOf(block) {
			if !slices.Contains(keys["jobs"], block+"."+k) && !slices.Contains(keys["tasks"], block+"."+k) {
				t.Errorf("%s.%s is no key", block, k)
			}
		}
	}
	for _, k := range keysOf("defaults") {
		if !slices.Contains(keys["defaults"], k) {
			t.Errorf("defaults.%s is no key", k)
		}
	}
}

// The documented defaults are those of a Config without file.
func TestDocumentedDefaults(t *testing.T) {
	t.Parallel()
	c, _, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	table := documented(t)["solobeat.yaml"]
	for key, got := range map[string]string{
		"namespace": c.Namespace, "redis.url": c.Redis.URL, "worker.queues": strings.Join(c.Worker.Queues, ","), "worker.grace": c.Worker.Grace.String(),
		"metrics.listen": c.Metrics.Listen, "log.level": c.Log.Level, "results.expires": short(c.Results.Expires), "worker.poison_after": "3",
	} {
		if table[key] != got {
			t.Errorf("%s: documented %q, is %q", key, table[key], got)
		}
	}
}
