package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// The pages for people are programs: their fenced blocks are run in the order
// in which they stand, in a copy of the tree that holds what a fresh clone
// would. Behind the language of a block its info string says how:
//
//	python|go|yaml NAME   the file NAME, written to the working folder; yaml is validated
//	sh                    commands; cd lasts, the exit code is 0
//	sh exit N             commands whose exit code is N
//	sh eventually         commands that are repeated until the output fits
//	sh background [N]     a command that runs, N times, until the text or the end of the page
//	                      calls for Ctrl-C, which ends it with 0
//	sh demo               the demo, which Ctrl-C ends after its summary
//	sh test               make test: not run here, since this is part of it
//	sh venv               makes a virtual environment; here it is one that make setup has made
//	crontab               lines of a crontab; their commands are run
//	redis                 commands to the Redis server
//	text output           what the block before it prints on standard output
//	text errors           what the block before it prints on standard error
//
// In expected text … stands for anything, and blanks count as one. A block
// with another info string fails the test.
//
// One thing is changed: localhost:6379 becomes the address of the test's own
// Redis, in the blocks and by SOLOBEAT_REDIS_URL.
type block struct {
	page string // relative to the root
	line int    // of its first fence
	stop bool   // whether the text between the last block and this one says Ctrl-C
	info []string
	text string
}

func (b *block) String() string {
	return fmt.Sprintf("%s:%d (%s)", b.page, b.line, strings.Join(b.info, " "))
}

func (b *block) is(info ...string) bool { return slices.Equal(b.info, info) }

// blocksOf reads the fenced blocks of a page.
func blocksOf(t *testing.T, root, page string) (blocks []*block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	var in *block
	n, stop := 0, false
	for line := range strings.Lines(string(text)) {
		n++
		info, fence := strings.CutPrefix(strings.TrimRight(line, "\n"), "```")
		switch {
		case fence && in == nil:
			in = &block{page: page, line: n, stop: stop, info: strings.Fields(info)}
		case fence:
			blocks, in, stop = append(blocks, in), nil, false
		case in != nil:
			in.text += line
		default:
			stop = stop || strings.Contains(line, "Ctrl-C")
		}
	}
	if in != nil {
		t.Fatalf("%s is not closed", in)
	}
	return blocks
}

// pages are the texts for people, README.md first.
func pages(t *testing.T, root string) []string {
	t.Helper()
	docs, err := fs.Glob(os.DirFS(root), "docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("no pages in docs: %v", err)
	}
	return append([]string{"README.md"}, docs...)
}

// freshClone copies what git has, and would have, of the tree.
func freshClone(t *testing.T) string {
	t.Helper()
	root, clone := testkit.RepoRoot(t), t.TempDir()
	cmd := command(root, nil, "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		to := filepath.Join(clone, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, text, mode(t, filepath.Join(root, name)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return clone
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// reader follows a page: a person with a shell.
type reader struct {
	t      *testing.T
	redis  *testkit.RedisServer
	celery testkit.Celery
	dir    string // the working folder
	env    []string
	back   []*testkit.Proc
	// stdout and stderr are of the last commands.
	stdout, stderr string
	// again repeats the last commands, nil if they are not to be.
	again func()
}

// goCache lets Go find in its cache what was built from the same files in
// another folder.
const goCache = "GOFLAGS=-trimpath"

// newReader gives the reader a Redis and, as solobeat on PATH, the stock binary.
func newReader(t *testing.T, celery testkit.Celery, dir string) *reader {
	t.Helper()
	r := &reader{t: t, redis: testkit.Redis(t), celery: celery, dir: dir}
	bin := t.TempDir()
	if err := os.Symlink(testkit.Binary(t), filepath.Join(bin, "solobeat")); err != nil {
		t.Fatal(err)
	}
	r.env = []string{
		goCache, "PATH=" + bin + ":" + os.Getenv("PATH"),
		"SOLOBEAT_REDIS_URL=" + r.redis.URL(0), "SOLOBEAT_METRICS_LISTEN=127.0.0.1:0",
	}
	return r
}

// own puts the test's Redis in the place of the reader's.
func (r *reader) own(text string) string {
	return strings.ReplaceAll(text, "localhost:6379", r.redis.Addr)
}

func (r *reader) follow(blocks []*block) {
	r.t.Helper()
	for _, b := range blocks {
		if b.stop {
			r.stopBackground()
		}
		r.t.Log(b)
		r.do(b)
	}
	r.stopBackground()
}

func (r *reader) do(b *block) {
	r.t.Helper()
	kind := strings.Join(b.info, " ")
	if b.info == nil {
		kind = "(no info string)"
	}
	again := r.again
	r.again = nil
	switch {
	case len(b.info) == 2 && slices.Contains([]string{"python", "go", "yaml"}, b.info[0]):
		r.write(b)
	case b.is("sh"):
		r.expect(b, 0)
	case len(b.info) == 3 && b.info[1] == "exit":
		r.expect(b, number(r.t, b, 2))
	case b.is("sh", "eventually"):
		r.again = func() { r.sh(b) }
		r.again()
	case b.is("sh", "background"):
		r.start(b)
	case len(b.info) == 3 && b.info[1] == "background":
		for range number(r.t, b, 2) {
			r.start(b)
		}
	case b.is("sh", "venv"):
		r.venv(b)
	case b.is("crontab"):
		r.crontab(b)
	case b.is("redis"):
		r.redisCommands(b)
	case b.is("text", "output"):
		r.compare(b, again, &r.stdout)
	case b.is("text", "errors"):
		r.compare(b, again, &r.stderr)
	default:
		r.t.Fatalf("%s:%d: nobody knows how to run a block with %q", b.page, b.line, kind)
	}
}

func number(t *testing.T, b *block, i int) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(b.info[i], &n); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return n
}

// write makes a file; yaml must validate without a warning.
func (r *reader) write(b *block) {
	r.t.Helper()
	path := filepath.Join(r.dir, b.info[1])
	if err := os.WriteFile(path, []byte(r.own(b.text)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if b.info[0] != "yaml" {
		return
	}
	if out, err := command(r.dir, r.env, testkit.Binary(r.t), "validate", "--strict", path).CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", b, err, out)
	}
}

// sh runs commands and keeps the folder they end in.
func (r *reader) sh(b *block) int {
	r.t.Helper()
	pwd := filepath.Join(r.t.TempDir(), "pwd")
	script := "set -euo pipefail\ntrap 'pwd >\"" + pwd + "\"' EXIT\n" + r.own(b.text)
	cmd := command(r.dir, r.env, "bash", "-c", script)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r.stdout, r.stderr = out.String(), errs.String()
	if dir, rerr := os.ReadFile(pwd); rerr == nil {
		r.dir = strings.TrimSpace(string(dir))
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("%s: %v", b, err)
	}
	return cmd.ProcessState.ExitCode()
}

func (r *reader) expect(b *block, code int) {
	r.t.Helper()
	if got := r.sh(b); got != code {
		r.t.Fatalf("%s: exit code %d, want %d\n%s%s", b, got, code, r.stdout, r.stderr)
	}
}

// start starts what runs on in another terminal.
func (r *reader) start(b *block) {
	r.t.Helper()
	r.back = append(r.back, testkit.StartCmd(r.t, b.String(), command(r.dir, r.env, "bash", "-c", r.own(b.text))))
}

// stopBackground presses Ctrl-C in the other terminals.
func (r *reader) stopBackground() {
	r.t.Helper()
	for _, p := range r.back {
		r.interrupt(p, 0)
	}
	r.back = nil
}

// interrupt sends SIGINT to the whole process group, as a terminal does, and
// checks the exit code.
func (r *reader) interrupt(p *testkit.Proc, code int) {
	r.t.Helper()
	if !p.Alive() {
		r.t.Fatalf("%s ended by itself: %v", p.Name, p.State())
	}
	if err := syscall.Kill(-p.Pid, syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	if got := p.Wait(patience); got != code {
		r.t.Fatalf("%s: exit code %d after Ctrl-C, want %d", p.Name, got, code)
	}
}

// venv links an environment of make setup's to where the page makes one.
func (r *reader) venv(b *block) {
	r.t.Helper()
	for _, want := range []string{"python3 -m venv venv\n", `pip install "celery[redis]"`} {
		if !strings.Contains(b.text, want) {
			r.t.Fatalf("%s does not say %q", b, want)
		}
	}
	env := filepath.Dir(filepath.Dir(testkit.Python(r.t, r.celery)))
	if err := os.Symlink(env, filepath.Join(r.dir, "venv")); err != nil {
		r.t.Fatal(err)
	}
}

// crontab runs the command of each line as cron would: \% is a percent sign.
func (r *reader) crontab(b *block) {
	r.t.Helper()
	fields := regexp.MustCompile(`^(\S+\s+){5}`)
	for line := range strings.Lines(b.text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if !fields.MatchString(line) {
			r.t.Fatalf("%s: %q has no five fields and a command", b, line)
		}
		one := *b
		one.text = strings.ReplaceAll(fields.ReplaceAllString(line, ""), `\%`, "%")
		r.expect(&one, 0)
	}
}

// redisCommands sends commands to the server; words are parted by blanks.
func (r *reader) redisCommands(b *block) {
	r.t.Helper()
	for line := range strings.Lines(b.text) {
		var args []any
		for _, word := range strings.Fields(line) {
			args = append(args, word)
		}
		if err := r.redis.Client(r.t).Do(r.t.Context(), args...).Err(); err != nil {
			r.t.Fatalf("%s: %s: %v", b, strings.TrimSpace(line), err)
		}
	}
}

// compare checks what the last commands printed.
func (r *reader) compare(b *block, again func(), got *string) {
	r.t.Helper()
	fits := pattern(b.text)
	testkit.Eventually(r.t, patience, func() error {
		if fits.MatchString(squeeze(*got)) {
			return nil
		}
		err := fmt.Errorf("%s: the page says\n%s\nand what comes out is\n%s\n%s", b, b.text, *got, r.stderr)
		if again == nil {
			r.t.Fatal(err)
		}
		again()
		return err
	})
}

// pattern makes a regular expression of expected text.
func pattern(text string) *regexp.Regexp {
	anything := strings.NewReplacer(" … ", "(?: .*)? ", "…", ".*")
	return regexp.MustCompile(`(?s)^` + anything.Replace(regexp.QuoteMeta(squeeze(text))) + `$`)
}

var blanks = regexp.MustCompile(`[ \t]+`)

// squeeze makes runs of blanks one, and takes them off the ends of lines.
func squeeze(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.TrimSpace(blanks.ReplaceAllString(line, " ")))
	}
	return strings.Join(lines, "\n")
}

// TestReadme follows the README with each Celery, the demo apart.
func TestReadme(t *testing.T) {
	t.Parallel()
	root := testkit.RepoRoot(t)
	blocks := blocksOf(t, root, "README.md")
	at := slices.IndexFunc(blocks, func(b *block) bool { return b.is("sh", "demo") })
	if at < 0 || at+2 >= len(blocks) || !blocks[at+1].is("text", "output") || !blocks[at+2].is("sh", "test") {
		t.Fatal("README.md does not begin with the demo, its output, and make test")
	}
	if b := blocks[at+2]; b.text != "make test\n" {
		t.Errorf("%s: %q", b, b.text)
	}
	clone := freshClone(t)
	build := command(clone, []string{goCache}, "go", "build", "-o", os.DevNull, "./cmd/solobeat")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	follow := func(celery testkit.Celery) func(t *testing.T) {
		return func(t *testing.T) {
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(clone, "out")) })
			newReader(t, celery, clone).follow(blocks[at+3:])
		}
	}
	together(
		t,
		subtest{"demo", func(t *testing.T) { readDemo(t, clone, blocks[at], blocks[at+1]) }},
		subtest{"all else", func(t *testing.T) {
			t.Run("Celery 5.7", follow(testkit.Celery57))
			t.Run("Celery 5.2", follow(testkit.Celery52))
		}},
	)
}

// readDemo runs the demo until its summary, then presses Ctrl-C.
func readDemo(t *testing.T, clone string, cmd, says *block) {
	t.Helper()
	r := &reader{t: t, dir: clone, env: []string{goCache}, redis: &testkit.RedisServer{Addr: "localhost:6379"}}
	p := testkit.StartCmd(t, cmd.String(), command(r.dir, r.env, "bash", "-c", cmd.text))
	p.WaitOutput(10*time.Minute, `(?m)^Solobeat demo`) // it is built first
	p.WaitOutput(3*time.Minute, `(?m)^Summary: .*\n(.*\n)*.*Ctrl-C`)
	r.interrupt(p, 1) // go run's own code after Ctrl-C, whatever its program's is
	if r.stdout = p.Stdout(); !strings.HasSuffix(r.stdout, "\nStopping.\n") {
		t.Errorf("the demo did not end in order:\n%s", r.stdout)
	}
	r.compare(says, nil, &r.stdout)
}

// TestPages follows every other page, each in a folder of its own.
func TestPages(t *testing.T) {
	t.Parallel()
	root := testkit.RepoRoot(t)
	var subtests []subtest
	for _, page := range pages(t, root)[1:] {
		subtests = append(subtests, subtest{page, func(t *testing.T) {
			if blocks := blocksOf(t, root, page); len(blocks) > 0 {
				newReader(t, testkit.Celery57, t.TempDir()).follow(blocks)
			}
		}})
	}
	together(t, subtests...)
}

func TestBlocksOfAPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const page = "# A\n\n```sh exit 3\nfalse\n```\n\nPress Ctrl-C.\n\n```text output\na\n\n```\n\n```yaml b.yaml\n# Ctrl-C\n```\n"
	if err := os.WriteFile(filepath.Join(dir, "p.md"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range blocksOf(t, dir, "p.md") {
		got = append(got, fmt.Sprintf("%s %q %v", b, b.text, b.stop))
	}
	want := []string{
		`p.md:3 (sh exit 3) "false\n" false`, `p.md:9 (text output) "a\n\n" true`, `p.md:14 (yaml b.yaml) "# Ctrl-C\n" false`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// pattern decides about output.
func TestPatternOfExpectedText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got string
		fits      bool
	}{
		{"a  b\n", "a b", true},
		{"a b", "a  b   \n\n", true},
		{"a … c", "a b\nb c", true},
		{"a … c", "a c", true},
		{"a … c", "ac", false},
		{"…\nsum: 1\n…", "x\nsum: 1\ny", true},
		{"…\nsum: 1\n…", "x\nsum: 11\ny", false},
		{"a", "b", false},
		{"a", "a\nb", false},
		{"a.c", "abc", false},
	} {
		if got := pattern(c.want).MatchString(squeeze(c.got)); got != c.fits {
			t.Errorf("%q against %q: %v, want %v", c.got, c.want, got, c.fits)
		}
	}
}
