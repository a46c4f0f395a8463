package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/internal/testkit"
)

const module = "github.com/solobeat/solobeat"

// rule says what packages of this module the packages below a path may import.
// The rule with the longest matching path decides.
type rule struct {
	path string // relative to the module; with "/..." all below it too
	may  []string
}

var (
	roots = []string{"tasks", "lockguard", "idempotency"}
	// leaves are shared plumbing that imports nothing of ours.
	leaves = []string{"internal/failpoint", "internal/lease", "internal/redisconn", "internal/render", "internal/typo"}
)

// rules are the import direction: the contract imports nothing of ours, roots
// import the contract, a back end imports its parent, config sits on top.
var rules = []rule{
	{"tasks", nil},
	{"tasks/...", slices.Concat(roots, leaves, []string{"tasks/..."})},
	{"tasks/celery/wire/...", []string{"tasks", "tasks/celery/wire/..."}},
	{"lockguard", slices.Concat(leaves, []string{"tasks"})},
	{"lockguard/...", slices.Concat(leaves, []string{"tasks", "lockguard"})},
	// The guards for plain asynq programs: both roots, and no engine of ours.
	{"lockguard/asynqguard", slices.Concat(leaves, roots)},
	{"idempotency", slices.Concat(leaves, []string{"tasks"})},
	{"idempotency/...", slices.Concat(leaves, []string{"tasks", "idempotency"})},
	{"scheduler", slices.Concat(leaves, roots)},
	{"scheduler/...", slices.Concat(leaves, roots, []string{"scheduler"})},
	{"config/...", slices.Concat(leaves, roots, []string{"scheduler", "tasks/...", "config/..."})},
	{"internal/failpoint/...", nil},
	{"internal/lease/...", nil},
	{"internal/redisconn/...", nil},
	{"internal/render/...", nil},
	{"internal/typo/...", nil},
	{"internal/...", []string{"..."}},
	{"internal/testkit/...", []string{"internal/testkit/..."}},
	{"cmd/...", []string{"..."}},
	{"e2e/...", []string{"..."}},
	{"deploy/...", nil}, // tests of what is deployed
	{"docs/...", nil},
	{"", []string{"..."}}, // the front door: the binary with handlers of one's own
}

func matches(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	prefix, tree := strings.CutSuffix(pattern, "/...")
	return path == prefix || tree && strings.HasPrefix(path, prefix+"/")
}

func ruleFor(path string) (rule, bool) {
	var best rule
	found := false
	for _, r := range rules {
		// Of an exact path and a tree of one length the exact path decides.
		if matches(r.path, path) && (!found || r.path == path || len(r.path) > len(best.path) && best.path != path) {
			best, found = r, true
		}
	}
	return best, found
}

func (r rule) allows(path string) bool {
	return slices.ContainsFunc(r.may, func(p string) bool { return matches(p, path) })
}

// onlyForTests are packages that help tests; nothing that ships imports them.
func onlyForTests(path string) bool {
	name := path[strings.LastIndex(path, "/")+1:]
	return matches("internal/testkit/...", path) || matches("e2e/...", path) ||
		strings.HasSuffix(name, "test") && name != "test"
}

// listed is a package as `go list -json` tells it.
type listed struct {
	ImportPath string
	Imports    []string
	GoFiles    []string
}

func (p listed) path() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Imports,GoFiles"}, args...)...)
	cmd.Dir = testkit.RepoRoot(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, &stderr)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// offences lists the imports of p that no rule allows.
func offences(p listed) []string {
	var bad []string
	from := p.path()
	r, known := ruleFor(from)
	if !known {
		return []string{from + " has no import rule; add one to internal/archtest"}
	}
	for _, imp := range p.Imports {
		to, ours := strings.CutPrefix(imp, module+"/")
		switch {
		case !ours:
			if from == "tasks" && strings.Contains(imp, ".") {
				bad = append(bad, from+" imports "+imp+", but keeps to the standard library")
			}
		case onlyForTests(to) && !onlyForTests(from):
			bad = append(bad, from+" ships and imports "+to)
		case !r.allows(to):
			bad = append(bad, from+" may not import "+to)
		}
	}
	return bad
}

func TestImportDirection(t *testing.T) {
	t.Parallel()
	for _, tags := range []string{"", testkit.FailpointsTag} {
		for _, p := range goList(t, "-tags", tags, "./...") {
			for _, bad := range offences(p) {
				t.Error(bad)
			}
		}
	}
}

// The rules themselves: each of these wrong imports is found.
func TestImportRulesFindOffences(t *testing.T) {
	t.Parallel()
	for from, imports := range map[string][]string{
		"tasks":                {module + "/lockguard", "github.com/redis/go-redis/v9"},
		"lockguard":            {module + "/idempotency", module + "/lockguard/lockredis", module + "/config"},
		"lockguard/asynqguard": {module + "/tasks/asynqengine", module + "/lockguard/lockredis", module + "/config"},
		"tasks/asynqengine":    {module + "/config", module + "/scheduler", module + "/lockguard/lockredis"},
		"lockguard/lockredis":  {module + "/lockguard/locktest", module + "/idempotency", module + "/internal/metrics"},
		"idempotency":          {module + "/lockguard"},
		"scheduler":            {module + "/scheduler/schedredis", module + "/tasks/celery", module + "/config"},
		"tasks/celery":         {module + "/config", module + "/lockguard/lockredis", module + "/internal/testkit"},
		"tasks/celery/wire":    {module + "/tasks/celery", module + "/internal/redisconn"},
		"config":               {module + "/lockguard/lockredis", module + "/internal/cli", module + "/scheduler/schedredis"},
		"cmd/solobeat":         {module + "/internal/testkit", module + "/lockguard/locktest"},
		"internal/cli":         {module + "/idempotency/idemtest"},
		"internal/redisconn":   {module + "/config"},
		"idempotency/idemtest": {module + "/internal/testkit"},
		"newfolder":            {"fmt"},
	} {
		for _, imp := range imports {
			if len(offences(listed{ImportPath: module + "/" + from, Imports: []string{imp}})) == 0 {
				t.Errorf("%s may import %s", from, imp)
			}
		}
	}
}

// heavy are dependencies that a program pays for only if it asks for them.
var heavy = []string{
	"go.etcd.io/", "github.com/hibiken/asynq", "github.com/prometheus/", "go.uber.org/zap", "github.com/jackc/",
	"github.com/go-zookeeper/", "github.com/spf13/", "github.com/alicebob/", "go.yaml.in/", "github.com/goccy/",
	"google.golang.org/", "testing",
}

// linked returns the packages linked into a program that imports these packages
// of ours, as far as they exist.
func linked(t *testing.T, paths ...string) []string {
	t.Helper()
	var there []string
	for _, p := range goList(t, "./...") {
		if slices.Contains(paths, p.path()) && len(p.GoFiles) > 0 {
			there = append(there, p.ImportPath)
		}
	}
	if len(there) == 0 {
		return nil
	}
	var deps []string
	for _, p := range goList(t, append([]string{"-deps"}, there...)...) {
		deps = append(deps, p.ImportPath)
	}
	return deps
}

func TestLibrariesLinkNothingHeavy(t *testing.T) {
	t.Parallel()
	for _, program := range [][]string{
		{"lockguard", "lockguard/lockredis"},
		{"idempotency", "idempotency/idemredis"},
		{"tasks"},
		{"tasks/celery", "tasks/celery/wire", "tasks/celery/resultstore"},
		{"scheduler", "scheduler/schedredis"},
	} {
		for _, dep := range linked(t, program...) {
			for _, h := range heavy {
				if dep == h || strings.HasPrefix(dep, h) && strings.ContainsAny(h, "./") {
					t.Errorf("a program that imports %v links %s", program, dep)
				}
			}
		}
	}
}

// Grafana's SDK checks files in tests, and is of no use to a binary.
func TestBinaryLinksNoGrafana(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "-deps", "./cmd/...") {
		if strings.HasPrefix(p.ImportPath, "github.com/grafana/") || p.path() == "internal/alerts" {
			t.Errorf("the binary links %s", p.ImportPath)
		}
	}
}

func TestBinaryLinksNoTestCode(t *testing.T) {
	t.Parallel()
	if !slices.ContainsFunc(goList(t, "./cmd/..."), func(p listed) bool { return len(p.GoFiles) > 0 }) {
		t.Fatal("no command found")
	}
	for _, p := range goList(t, "-deps", "./cmd/...") {
		_, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if p.ImportPath == "go.uber.org/goleak" || strings.HasPrefix(p.ImportPath, "github.com/google/go-cmp") ||
			ours && (onlyForTests(p.path()) || slices.Contains(p.Imports, "testing")) {
			t.Errorf("the binary links %s", p.ImportPath)
		}
	}
}
