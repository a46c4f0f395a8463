package config

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/testkit"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
)

// schemas are those of both files, compiled.
type schemas struct{ schedule, config *testkit.Schema }

func compileSchemas(t testing.TB) schemas {
	t.Helper()
	return schemas{testkit.CompileSchema(t, ScheduleSchema()), testkit.CompileSchema(t, ConfigSchema())}
}

func (s schemas) of(path string) *testkit.Schema {
	if strings.HasPrefix(filepath.Base(path), "schedule") {
		return s.schedule
	}
	return s.config
}

// The files that editors load are those that the readers tell.
func TestSchemaFilesAreCurrent(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]byte{"schedule": ScheduleSchema(), "solobeat": ConfigSchema()} {
		path := filepath.Join("schema", name+".schema.json")
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the readers take, run: go generate ./config (%v)", path, err)
		}
	}
}

// Every key has a shape and says what it means. A reader that is no combination
// of those in read.go has to tell its shape by itself.
func TestEveryKeyIsDescribed(t *testing.T) {
	t.Parallel()
	var walk func(path string, s shape) int
	walk = func(path string, s shape) int {
		n := 0
		for _, form := range s.forms() {
			properties, _ := form["properties"].(shape)
			for name, p := range properties {
				n++
				sub := join(path, name)
				p, _ := p.(shape)
				if p["type"] == nil && p["enum"] == nil && p["anyOf"] == nil && p["const"] == nil {
					t.Errorf("%s: its reader tells no shape: begin it with if d.tell(…) { return }, as those in read.go do", sub)
				}
				blocks := regexp.MustCompile(`^(redis|worker|asynq|schedule|results|metrics|log|tasks\.\*\.webhook\..*)$`)
				if p["description"] == nil && !blocks.MatchString(sub) {
					t.Errorf("%s has no description: add its row to doc.go", sub)
				}
				n += walk(sub, p)
			}
			if values, ok := form["additionalProperties"].(shape); ok {
				n += walk(join(path, "*"), values)
			}
		}
		return n
	}
	d := newDecoder("")
	n := walk("", rootShape(d, newScheduleReader(d).root, "schedule.yaml", map[string]string{"jobs": "jobs", "defaults": "jobs"}))
	d = newDecoder("")
	n += walk("", rootShape(d, newConfigReader(d, nil).root, "solobeat.yaml", map[string]string{"tasks": "tasks"}))
	if n < 130 {
		t.Errorf("%d keys: the walk misses some", n)
	}
}

// What a file may say is what a guard may carry and a lock takes.
func TestFenceBaseHasOneBound(t *testing.T) {
	t.Parallel()
	if tasks.MaxFenceBase != lockguard.MaxFenceBase {
		t.Errorf("guards: %d, locks: %d", uint64(tasks.MaxFenceBase), uint64(lockguard.MaxFenceBase))
	}
}

// The pattern of tasks' names is that of package tasks.
func TestTaskNamePattern(t *testing.T) {
	t.Parallel()
	re := regexp.MustCompile(taskName)
	for _, name := range []string{"", "a", "_", "-a", ".a", "a.b:c/d-e", "a b", "ä", "a\n", strings.Repeat("a", 200), strings.Repeat("a", 201)} {
		if re.MatchString(name) != tasks.ValidName(name) {
			t.Errorf("%q", name)
		}
	}
}

// What is loaded fits.
func TestSchemasAdmitWhatIsLoaded(t *testing.T) {
	t.Parallel()
	s := compileSchemas(t)
	for _, folder := range []string{"good", "warn"} {
		eachFile(t, folder, func(t *testing.T, path string, text []byte) {
			if err := s.of(path).CheckYAML(text); err != nil {
				t.Error(err)
			}
		})
	}
	n := 0
	for name, text := range examples(t) {
		var err error
		if IsScheduleFile([]byte(text)) {
			err = s.schedule.CheckYAML([]byte(text))
		} else {
			err = s.config.CheckYAML([]byte(text))
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n++
	}
	if n < 10 {
		t.Errorf("%d examples in the pages: some are missed", n)
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml (\\S+)\n(.*?)^```")

// examples are the files in the pages for people; a test in e2e runs them.
func examples(t *testing.T) map[string]string {
	t.Helper()
	root := os.DirFS(testkit.RepoRoot(t))
	pages, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, page := range append(pages, "README.md") {
		text, err := fs.ReadFile(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range yamlBlock.FindAllSubmatch(text, -1) {
			found[page+" "+string(m[1])] = string(m[2])
		}
	}
	return found
}

// blind are the mistakes that a schema cannot tell, by the reason.
var blind = map[string]*regexp.Regexp{
	"what keys mean to each other":  regexp.MustCompile(`F02-|F14-|lock-(wait|stall|store)|store-down|asynq-priority|asynq-queue|days|jitter|misfire-all-skip|retries-delays|max-delay|results-elsewhere`),
	"times, zones and cron lines":   regexp.MustCompile(`D14-|D17-|D22-|F01-|F06-|F08-|at-date|at-word`),
	"templates":                     regexp.MustCompile(`I04-|template|constant|key-tick|url-tick|command-(tick|program|script)`),
	"YAML, not its values":          regexp.MustCompile(`alias|twice|tab$|two-documents|unquoted|merge-key|kwargs-(octal|tag|time|nan)|octal|deep|latin1|star|crlf`),
	"names of other things":         regexp.MustCompile(`lock-key-|queue|schedule-file|in-lock|keyprefix|listen|-name$|env-reserved|namespace`),
	"URLs":                          regexp.MustCompile(`-url-|webhook-(header-(name|ours|twice)|body-(get|json))`),
	"what an older reader wrote":    regexp.MustCompile(`X08-`),
	"a schema has no negative time": regexp.MustCompile(`duration-(negative|signed|overflow|zero|short)`),
}

// What a schema offers, a word or an off, the reader takes where it stands.
func TestSchemasOfferWhatIsTaken(t *testing.T) {
	t.Parallel()
	n := 0
	// each is called with the words that stand at a path, which ends in the key.
	var walk func(path []string, s shape, each func(path []string, word any))
	walk = func(path []string, s shape, each func(path []string, word any)) {
		for _, form := range s.forms() {
			switch words := form["enum"].(type) {
			case []string:
				for _, w := range words {
					each(path, w)
				}
			case []any:
				for _, w := range words {
					each(path, w)
				}
			}
			properties, _ := form["properties"].(shape)
			for name, p := range properties {
				if p, ok := p.(shape); ok {
					walk(append(slices.Clone(path), name), p, each)
				}
			}
			if values, ok := form["additionalProperties"].(shape); ok {
				walk(append(slices.Clone(path), "name"), values, each)
			}
		}
	}
	file := func(path []string, word any, beside map[string]any) []byte {
		n++
		root := map[string]any{}
		at := root
		for _, key := range path[:len(path)-1] {
			sub := map[string]any{}
			at[key], at = sub, sub
		}
		at[path[len(path)-1]] = word
		for key, v := range beside {
			if _, is := root[key]; !is {
				root[key] = v
			}
		}
		if jobs, ok := root["jobs"].(map[string]any); ok && beside != nil {
			for _, j := range jobs {
				if j, ok := j.(map[string]any); ok {
					j["task"], j["every"] = "t", "1h"
					if path[len(path)-1] == "on_store_down" {
						j["idempotency"] = "off" // a record has no other server to lie on
					}
				}
			}
		}
		text, err := yaml.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	told := func(path []string, text []byte, ps Problems) {
		for _, p := range ps.Errors() {
			if p.Path == strings.Join(path, ".") {
				t.Errorf("the schema offers what is refused: %s\n%s", p, text)
			}
		}
	}
	d := newDecoder("")
	walk(nil, rootShape(d, newScheduleReader(d).root, "schedule.yaml", nil), func(path []string, word any) {
		text := file(path, word, map[string]any{"version": 1, "jobs": map[string]any{}})
		_, ps, _ := ParseSchedule("schedule.yaml", text)
		told(path, text, ps)
	})
	d = newDecoder("")
	walk(nil, rootShape(d, newConfigReader(d, nil).root, "solobeat.yaml", nil), func(path []string, word any) {
		text := file(path, word, nil)
		_, ps, _ := parseConfig(newDecoder("solobeat.yaml"), text, nil)
		told(path, text, ps)
	})
	if n < 50 {
		t.Errorf("%d words: the walk misses some", n)
	}
}

// What a schema can know of the bad files it refuses.
func TestSchemasRefuseBadFiles(t *testing.T) {
	t.Parallel()
	s := compileSchemas(t)
	paths, err := filepath.Glob(filepath.Join("testdata", "bad", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if s.of(path).CheckYAML(text) != nil {
			refused++
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(blind)), func(r *regexp.Regexp) bool { return r.MatchString(name) }) {
			t.Errorf("%s: the schema admits it; if it cannot know better, add the name to blind, with the reason", name)
		}
	}
	t.Logf("%d of %d bad files are refused", refused, len(paths))
	if refused < 100 {
		t.Errorf("%d of %d bad files are refused: the schemas are too lax", refused, len(paths))
	}
}
