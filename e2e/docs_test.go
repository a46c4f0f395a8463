package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/internal/testkit"
)

// text reads a file of the repository.
func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	link     = regexp.MustCompile(`\[([^\]\n]+)\]\(([^)\s]+)\)`)
	testName = regexp.MustCompile(`^Test\w+$`)
)

// Every link leads to a file that is there, and a link that is named as a test
// to the file that has it.
func TestLinksOfPages(t *testing.T) {
	t.Parallel()
	root := testkit.RepoRoot(t)
	adr, err := filepath.Glob(filepath.Join(root, "docs", "adr", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := append(pages(t, root), "CHANGELOG.md")
	for _, path := range adr {
		all = append(all, filepath.Join("docs", "adr", filepath.Base(path)))
	}
	for _, page := range all {
		for _, m := range link.FindAllStringSubmatch(text(t, page), -1) {
			name, target := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			target, _, _ = strings.Cut(target, "#")
			path := filepath.Join(filepath.Dir(page), target)
			b, err := os.ReadFile(filepath.Join(root, path))
			switch info, serr := os.Stat(filepath.Join(root, path)); {
			case serr == nil && info.IsDir():
			case err != nil:
				t.Errorf("%s links to %s: %v", page, target, err)
			case testName.MatchString(name) && !strings.Contains(string(b), "\nfunc "+name+"("):
				t.Errorf("%s says that %s is in %s, and it is not", page, name, path)
			}
		}
	}
}

// Every promise has a test, but for what is not promised.
func TestPromisesHaveTests(t *testing.T) {
	t.Parallel()
	rows := tableRows(text(t, "docs/guarantees.md"))
	if len(rows) < 15 {
		t.Fatalf("%d promises", len(rows))
	}
	for _, row := range rows {
		if last := row[len(row)-1]; !strings.Contains(last, "[Test") && !strings.HasPrefix(row[1], "nothing") {
			t.Errorf("%q has no test: %s", row[0], last)
		}
	}
}

// tableRows are the rows of all tables of a page without their headers; a
// cell's own bars are written \|.
func tableRows(page string) (rows [][]string) {
	body := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			body = false
			continue
		}
		if strings.HasPrefix(line, "|---") {
			body = true
			continue
		}
		if !body {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "\x00"), "|")
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(c), "\x00", "|")
		}
		rows = append(rows, cells)
	}
	return rows
}

// section is the part of a page below a heading, up to the next one of its
// kind or above.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+page, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("no heading %q", heading)
	}
	depth := len(heading) - len(strings.TrimLeft(heading, "#"))
	next := regexp.MustCompile(`(?m)^#{1,` + string(rune('0'+depth)) + `} `)
	if at := next.FindStringIndex(rest); at != nil {
		rest = rest[:at[0]]
	}
	return rest
}

// The README's table has the commands that the help has, with the subcommands.
func TestReadmeNamesAllCommands(t *testing.T) {
	t.Parallel()
	bin := testkit.Binary(t)
	want := map[string]bool{}
	for _, name := range subcommands(t, bin) {
		subs := subcommands(t, bin, name)
		if name != "help" {
			want[strings.TrimSpace(name+" "+strings.Join(subs, "|"))] = true
		}
	}
	got := map[string]bool{}
	word := regexp.MustCompile("^`solobeat ([a-z]+)(?: ([a-z|]+))?[ `]")
	for _, row := range tableRows(section(t, text(t, "README.md"), "## Commands")) {
		m := word.FindStringSubmatch(row[0])
		if m == nil {
			t.Fatalf("%q is no command", row[0])
		}
		got[strings.TrimSpace(m[1]+" "+order(m[2]))] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("README.md has %q, the help %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

func order(names string) string {
	list := strings.Split(names, "|")
	slices.Sort(list)
	return strings.Join(list, "|")
}

// subcommands reads them off the help; they come in alphabetical order.
func subcommands(t *testing.T, bin string, args ...string) (names []string) {
	t.Helper()
	out, err := command(t.TempDir(), nil, append(append([]string{bin}, args...), "--help")...).Output()
	if err != nil {
		t.Fatalf("%v --help: %v", args, err)
	}
	_, list, ok := strings.Cut(string(out), "Available Commands:\n")
	if !ok {
		return nil
	}
	for line := range strings.Lines(list) {
		if strings.TrimSpace(line) == "" {
			break
		}
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

// The tables of keys are those of package config's documentation, which is
// itself compared with the code.
func TestKeysOfPages(t *testing.T) {
	t.Parallel()
	documented := configKeys(t)
	for _, c := range []struct{ page, heading, of string }{
		{"docs/operations.md", "## solobeat.yaml", "solobeat.yaml"},
		{"docs/operations.md", "## tasks", "tasks"},
		{"docs/schedule.md", "## Keys of a job", "jobs"},
	} {
		got := map[string]string{}
		for _, row := range tableRows(section(t, text(t, c.page), c.heading)) {
			got[strings.Trim(row[0], "`")] = strings.ReplaceAll(row[1], "`", "")
		}
		want := documented[c.of]
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if got[key] != want[key] {
				t.Errorf("%s, %s: default of %s is %q, want %q", c.page, c.heading, key, got[key], want[key])
			}
			delete(got, key)
		}
		for key := range got {
			t.Errorf("%s, %s: there is no key %s", c.page, c.heading, key)
		}
	}
}

// configKeys reads the keys and their defaults, by heading, out of config/doc.go.
func configKeys(t *testing.T) map[string]map[string]string {
	t.Helper()
	keys, heading := map[string]map[string]string{}, ""
	row := regexp.MustCompile(`^//\t(\S+)\s{2,}(\S.*?)\s{2,}(\S.*)$`)
	for line := range strings.Lines(text(t, "config/doc.go")) {
		line = strings.TrimRight(line, "\n")
		if h, ok := strings.CutPrefix(line, "// # "); ok {
			heading = h
			keys[heading] = map[string]string{}
			continue
		}
		if m := row.FindStringSubmatch(line); m != nil {
			keys[heading][m[1]] = m[2]
		}
	}
	return keys
}

// docs/operations.md lists the metrics that there are.
func TestMetricsOfPages(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`solobeat_[a-z_]+`)
	is := map[string]bool{}
	for _, file := range []string{"families.go", "holds.go", "observers.go", "jobs.go"} {
		for _, m := range regexp.MustCompile(`"(solobeat_[a-z_]+)"`).FindAllStringSubmatch(text(t, "internal/metrics/"+file), -1) {
			is[m[1]] = true
		}
	}
	said := map[string]bool{}
	for _, row := range tableRows(section(t, text(t, "docs/operations.md"), "## Metrics")) {
		for _, n := range name.FindAllString(row[0], -1) {
			said[n] = true
		}
	}
	if len(is) < 30 || !maps.Equal(is, said) {
		t.Errorf("docs/operations.md has\n%q\nand the code\n%q", slices.Sorted(maps.Keys(said)), slices.Sorted(maps.Keys(is)))
	}
	for _, page := range pages(t, testkit.RepoRoot(t)) {
		for _, n := range name.FindAllString(text(t, page), -1) {
			if !is[n] {
				t.Errorf("%s names %s, which is no metric", page, n)
			}
		}
	}
}
