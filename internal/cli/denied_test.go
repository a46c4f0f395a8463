package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/config"
	"github.com/solobeat/solobeat/internal/testkit"
)

// Each command that a script uses is one that is looked for, in a form that the
// server takes, and the looking does nothing.
func TestScriptCommandsAreTried(t *testing.T) {
	t.Parallel()
	known := scriptCommands()
	calls := regexp.MustCompile(`call(?:_redis)?\(\s*'([A-Z]+)'`)
	scripts := 0
	root := testkit.RepoRoot(t)
	for _, folder := range []string{"tasks", "scheduler", "lockguard", "idempotency"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".lua" {
				return err
			}
			scripts++
			text, err := os.ReadFile(path)
			for _, m := range calls.FindAllStringSubmatch(string(text), -1) {
				name := strings.ToLower(m[1])
				if _, ok := known[name]; !ok && name != "time" && name != "select" { // select: a worker's probe tells
					t.Errorf("%s uses %s, which is not looked for", path, name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if scripts < 25 {
		t.Errorf("%d scripts: some are missed", scripts)
	}
	srv := testkit.Redis(t)
	c := srv.Client(t)
	if err := c.Do(t.Context(), "acl", "setuser", "default", "-@all", "+@connection", "+@transaction", "+dbsize", "+acl").Err(); err != nil {
		t.Fatal(err)
	}
	names := refused(t.Context(), c, &config.Config{Namespace: "default"})
	if len(names) != len(known)+1 {
		t.Errorf("%d of %d commands were looked at: %v", len(names), len(known)+1, names)
	}
	if err := c.Do(t.Context(), "acl", "setuser", "default", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	if names := refused(t.Context(), c, &config.Config{Namespace: "default"}); len(names) > 0 {
		t.Errorf("refused: %v", names)
	}
	if n := c.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("it has left %d keys", n)
	}
}
