package alerts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/solobeat/solobeat/internal/alerts"
	"github.com/solobeat/solobeat/internal/testkit"
)

// What lies in deploy/ is what the source says.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	files, err := alerts.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), name))
		if err != nil {
			t.Errorf("%v; run: go generate ./internal/alerts", err)
			continue
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not current; run: go generate ./internal/alerts (-want +got)\n%s", name, diff)
		}
	}
}
