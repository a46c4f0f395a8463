// Package archtest_test keeps the shape of the code base: who imports whom, how
// long files are, what tests may not do.
package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/internal/testkit"
)

const (
	maxLines  = 800
	maxNolint = 10
)

// file is a text file of the repository.
type file struct {
	name string // relative to the root, with slashes
	text string
}

// files returns all files of the repository with one of these extensions,
// without testdata, hidden folders and what git ignores at the root.
func files(t *testing.T, exts ...string) []file {
	t.Helper()
	root := testkit.RepoRoot(t)
	var all []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); rel != "." && base[0] == '.' && base != ".ci" || base == "testdata" || rel == "out" {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !slices.Contains(exts, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		all = append(all, file{filepath.ToSlash(rel), string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no files with %v found", exts)
	}
	return all
}

func (f file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func (f file) parse(t *testing.T) (*token.FileSet, *ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, f.name, f.text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return fset, tree
}

func TestNoFileIsTooLong(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, ".go", ".lua", ".sql", ".py", ".sh", ".md", ".yaml", ".yml", ".json", "") {
		if n := strings.Count(f.text, "\n"); n > maxLines {
			t.Errorf("%s has %d lines, more than %d", f.name, n, maxLines)
		}
	}
}

// A suppressed finding names its linter and its reason: //nolint:name // reason.
var goodNolint = regexp.MustCompile(`^//nolint:[a-z]+(,[a-z]+)* // \S`)

func TestNolintIsRareAndReasoned(t *testing.T) {
	t.Parallel()
	n := 0
	for _, f := range files(t, ".go") {
		fset, tree := f.parse(t)
		for _, group := range tree.Comments {
			for _, c := range group.List {
				if !strings.HasPrefix(strings.TrimLeft(c.Text, "/ "), "nolint") {
					continue
				}
				n++
				if !goodNolint.MatchString(c.Text) {
					t.Errorf("%s: %q names no linter or no reason", fset.Position(c.Pos()), c.Text)
				}
			}
		}
	}
	if n > maxNolint {
		t.Errorf("%d nolint comments, more than %d", n, maxNolint)
	}
}

// A missing server fails a test and names the cure; nothing skips.
func TestNoTestSkips(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, ".go") {
		fset, tree := f.parse(t)
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && slices.Contains([]string{"t", "tb", "b", "f"}, id.Name) {
				t.Errorf("%s: a test may not skip", fset.Position(call.Pos()))
			}
			return true
		})
	}
}

// time.Sleep is for synctest bubbles, where it costs nothing and is exact.
func TestNoFixedSleepsOutsideBubbles(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, ".go") {
		fset, tree := f.parse(t)
		if !f.isTest() || imports(tree, "testing/synctest") {
			continue
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if ok && sel.Sel.Name == "Sleep" {
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
					t.Errorf("%s: a fixed sleep; poll with a deadline (testkit.Poll)", fset.Position(sel.Pos()))
				}
			}
			return true
		})
	}
}

func imports(tree *ast.File, path string) bool {
	return slices.ContainsFunc(tree.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"`+path+`"` })
}

// Lua lives in .lua files whose header states KEYS, ARGV and return codes.
func TestLuaStandsInItsOwnFiles(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, ".go", ".lua") {
		switch {
		case strings.HasSuffix(f.name, ".lua"):
			checkLuaHeader(t, f)
		case !f.isTest() && strings.Contains(f.text, "redis"+".call("):
			t.Errorf("%s: a Lua script inside Go", f.name)
		}
	}
}

func checkLuaHeader(t *testing.T, f file) {
	t.Helper()
	var header strings.Builder
	for line := range strings.Lines(f.text) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		header.WriteString(line)
	}
	for _, name := range []string{"KEYS", "ARGV"} {
		if strings.Contains(f.text, name+"[") && !strings.Contains(header.String(), name) {
			t.Errorf("%s: its header says nothing of %s", f.name, name)
		}
	}
	if !strings.Contains(strings.ToLower(header.String()), "return") {
		t.Errorf("%s: its header does not say what it returns", f.name)
	}
}
