package archtest_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/solobeat/solobeat/internal/testkit"
)

var (
	caseID  = regexp.MustCompile(`^(?:Test)?([WRSDLIMFPXA]\d\d)(?:\W|_|$)`)
	caseRow = regexp.MustCompile(`^\| *([WRSDLIMFPXA]\d\d) *\|(?:.*\|)? *([^|]*?) *\|$`)
	// suite are the files of conformance suites, which tests of back ends run.
	suite  = regexp.MustCompile(`/(locktest|idemtest)/`)
	quoted = regexp.MustCompile("`([^`]+)`")
)

// caseTests finds the tests that are named by a field case: functions such as
// TestL05_WhatItShows and names of subtests such as "L05 what it shows".
func caseTests(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, f := range files(t, ".go") {
		if !f.isTest() && !suite.MatchString(f.name) || strings.HasPrefix(f.name, "internal/archtest/") {
			continue
		}
		_, tree := f.parse(t)
		ast.Inspect(tree, func(n ast.Node) bool {
			name := ""
			switch n := n.(type) {
			case *ast.FuncDecl:
				name = n.Name.Name
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					name, _ = strconv.Unquote(n.Value)
				}
			}
			if m := caseID.FindStringSubmatch(name); m != nil {
				found[m[1]] = append(found[m[1]], name)
			}
			return true
		})
	}
	return found
}

// docs/cases.md has a row per field case: its id first, its tests in back quotes
// or the word "later" last. What it says and what there is must agree.
func TestCasesAgreeWithTheirTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), "docs", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range compareCases(string(text), caseTests(t)) {
		t.Error(bad)
	}
}

func compareCases(doc string, tests map[string][]string) []string {
	var bad []string
	rows := map[string]bool{}
	for line := range strings.Lines(doc) {
		m := caseRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		id, last := m[1], m[2]
		if rows[id] {
			bad = append(bad, id+" has two rows")
		}
		rows[id] = true
		names := quoted.FindAllStringSubmatch(last, -1)
		for _, n := range names {
			if !slices.Contains(tests[id], n[1]) {
				bad = append(bad, id+" names "+n[1]+", which is no test of that id")
			}
		}
		switch {
		case last == "later" && len(tests[id]) > 0:
			bad = append(bad, id+" is said to come later, and has "+strings.Join(tests[id], ", "))
		case last != "later" && len(names) == 0:
			bad = append(bad, id+" names no test")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(tests)) {
		if !rows[id] {
			bad = append(bad, id+" has no row in docs/cases.md; its tests: "+strings.Join(tests[id], ", "))
		}
	}
	return bad
}

func TestCompareCasesFindsDifferences(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{"L05": {"TestL05_Start"}, "L13": {"L13 release"}, "S01": {"TestS01_Start"}}
	const good = "| id | case | tests |\n|---|---|---|\n" +
		"| L05 | a lock | `TestL05_Start` |\n| L13 | release | `L13 release` |\n| S01 | start | `TestS01_Start` |\n| W99 | x | later |\n"
	if bad := compareCases(good, tests); len(bad) > 0 {
		t.Errorf("a good page: %q", bad)
	}
	for what, change := range map[string][2]string{
		"a test without a row":    {"| S01 | start | `TestS01_Start` |\n", ""},
		"a row without a test":    {"`TestL05_Start`", ""},
		"a name of no test":       {"`TestL05_Start`", "`TestL05_Other`"},
		"a test of another id":    {"`TestL05_Start`", "`TestS01_Start`"},
		"later, though it exists": {"`L13 release`", "later"},
		"two rows":                {"| W99 |", "| L05 |"},
	} {
		if bad := compareCases(strings.Replace(good, change[0], change[1], 1), tests); len(bad) == 0 {
			t.Errorf("%s was not found", what)
		}
	}
}
