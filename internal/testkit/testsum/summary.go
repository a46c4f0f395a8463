package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // import path of what did not build
}

type key struct{ pkg, test string }

type timed struct {
	key
	elapsed float64
}

// summary counts tests and subtests alike, each once.
type summary struct {
	w       io.Writer
	output  map[key]*strings.Builder
	running map[key]bool
	broken  map[string]bool // packages with a failed test
	builds  map[string]*strings.Builder
	times   []timed
	skipped []key
	passed  int
	failed  int
}

func newSummary(w io.Writer) *summary {
	return &summary{
		w: w, output: map[key]*strings.Builder{}, running: map[key]bool{},
		broken: map[string]bool{}, builds: map[string]*strings.Builder{},
	}
}

func (s *summary) add(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		keep(s.builds, e.ImportPath, e.Output)
	case "output":
		keep(s.output, k, e.Output)
	case "run":
		s.running[k] = true
	case "pass", "fail", "skip":
		delete(s.running, k)
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(k, e)
		}
		delete(s.output, k)
	}
}

func keep[K comparable](m map[K]*strings.Builder, k K, text string) {
	b := m[k]
	if b == nil {
		b = new(strings.Builder)
		m[k] = b
	}
	b.WriteString(text)
}

func (s *summary) endTest(k key, e event) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped = append(s.skipped, k)
	case "fail":
		s.fail(k)
	}
	s.times = append(s.times, timed{k, e.Elapsed})
}

func (s *summary) fail(k key) {
	s.failed++
	s.broken[k.pkg] = true
	if b := s.output[k]; b != nil {
		fmt.Fprintf(s.w, "--- %s\n%s", k, b)
	}
}

func (s *summary) endPackage(e event) {
	if e.Action == "skip" { // it has no test files
		return
	}
	if e.Action == "pass" {
		fmt.Fprintf(s.w, "ok    %-60s %6.1f s\n", e.Package, e.Elapsed)
		return
	}
	for k := range s.running { // what a panic or the time limit cut short
		if k.pkg == e.Package {
			delete(s.running, k)
			s.fail(k)
		}
	}
	if !s.broken[e.Package] { // no test of it failed: a build, a leak, an exit
		s.failed++
		if b := s.builds[e.FailedBuild]; b != nil {
			_, _ = io.WriteString(s.w, b.String())
			delete(s.builds, e.FailedBuild) // once, however many packages it breaks
		}
	}
	if b := s.output[key{pkg: e.Package}]; b != nil {
		_, _ = io.WriteString(s.w, b.String())
	}
	fmt.Fprintf(s.w, "FAIL  %-60s %6.1f s\n", e.Package, e.Elapsed)
}

// finish prints the end of the summary and returns the exit code; err is how
// `go test` itself ended.
func (s *summary) finish(err error) int {
	s.slowest(10)
	for _, k := range s.skipped {
		fmt.Fprintf(s.w, "skipped: %s\n", k)
	}
	if len(s.skipped) > 0 {
		fmt.Fprintf(s.w, "%d skipped, and none may be: what a test needs is brought by `make setup`\n", len(s.skipped))
	}
	ran := s.passed + s.failed
	if ran == 0 {
		fmt.Fprintln(s.w, "no test ran")
	}
	if err != nil && s.failed == 0 {
		fmt.Fprintf(s.w, "go test: %v\n", err)
	}
	fmt.Fprintf(s.w, "%d passed, %d failed\n", s.passed, s.failed)
	if err != nil || s.failed > 0 || len(s.skipped) > 0 || ran == 0 {
		return 1
	}
	return 0
}

func (s *summary) slowest(n int) {
	slices.SortFunc(s.times, func(a, b timed) int { return cmp.Compare(b.elapsed, a.elapsed) })
	var lines []string
	for _, t := range s.times {
		if len(lines) == n || t.elapsed < 1 {
			break
		}
		if !strings.Contains(t.test, "/") {
			d := time.Duration(t.elapsed * float64(time.Second)).Round(100 * time.Millisecond)
			lines = append(lines, fmt.Sprintf("  %8v  %s", d, t.key))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(s.w, "slowest:\n%s\n", strings.Join(lines, "\n"))
	}
}

func (k key) String() string { return k.pkg + " " + k.test }
