package reload

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// disk is files in memory, and what a watcher took of them.
type disk struct {
	mu    sync.Mutex
	texts map[string]string
	taken []string
	now   chan os.Signal
}

func (d *disk) write(name, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.texts[name] = text
}

func (d *disk) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.texts, name)
}

func (d *disk) read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if text, ok := d.texts[name]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

// log is what was taken since the last call.
func (d *disk) log() string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.taken = nil }()
	return strings.Join(d.taken, ", ")
}

func (d *disk) take(_ context.Context, s Snapshot, asked bool) error {
	line := ""
	if asked {
		line = "asked: "
	}
	var err error
	for _, f := range s.Files {
		line += "[" + string(f.Text) + "]"
		if f.Err != nil || strings.Contains(string(f.Text), "bad") {
			err = errors.New("bad")
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken = append(d.taken, line)
	return err
}

func watched(t *testing.T, f func(t *testing.T, d *disk)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{texts: map[string]string{"a": "a1", "b": "b1"}, now: make(chan os.Signal)}
		w := &Watcher{InForce: Read([]string{"a", "b"}, d.read), Read: d.read, Take: d.take, Now: d.now}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		f(t, d)
		cancel()
		<-done
	})
}

func want(t *testing.T, d *disk, what, taken string) {
	t.Helper()
	if got := d.log(); got != taken {
		t.Errorf("%s: took %q, want %q", what, got, taken)
	}
}

func TestContentThatChangesIsTakenOnce(t *testing.T) {
	watched(t, func(t *testing.T, d *disk) {
		<-time.After(time.Minute)
		want(t, d, "unchanged", "")
		d.write("a", "a2")
		<-time.After(Every + Settle)
		want(t, d, "changed", "[a2][b1]")
		<-time.After(time.Minute)
		want(t, d, "unchanged since", "")
		d.write("a", "a3")
		<-time.After(Every - time.Second)
		d.write("a", "a2")
		<-time.After(time.Minute)
		want(t, d, "changed and changed back", "")
	})
}

// What a writer has written so far may well be a valid file with half of its
// jobs. It is not taken while it grows.
func TestFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	watched(t, func(t *testing.T, d *disk) {
		for range 100 {
			a, _ := d.read("a")
			d.write("a", string(a)+".")
			<-time.After(Settle / 2)
		}
		want(t, d, "while it grows", "")
		d.write("a", "whole")
		<-time.After(Every + Settle)
		want(t, d, "when it is whole", "[whole][b1]")
	})
}

// A file that is missing for a moment, between the two halves of a swap, is
// nothing to talk about; one that stays away is.
func TestMissingFile(t *testing.T) {
	watched(t, func(t *testing.T, d *disk) {
		<-time.After(Every - time.Millisecond)
		d.remove("b")
		<-time.After(Settle / 2)
		d.write("b", "b1")
		<-time.After(time.Minute)
		want(t, d, "away for a moment", "")
		d.remove("b")
		<-time.After(Every + Settle)
		want(t, d, "away", "[a1][]")
		d.write("b", "b1")
		<-time.After(Every + Settle)
		if got := d.log(); !strings.HasSuffix(got, "[a1][b1]") {
			t.Errorf("back: %q", got)
		}
		<-time.After(time.Minute)
		want(t, d, "after that", "")
	})
}

// What failed is tried again, since the mistake may be in another place; the
// content that is in force ends that.
func TestFailureIsTriedAgain(t *testing.T) {
	watched(t, func(t *testing.T, d *disk) {
		d.write("a", "bad")
		<-time.After(Every + Settle)
		want(t, d, "bad", "[bad][b1]")
		<-time.After(2 * Every)
		want(t, d, "still bad", "[bad][b1], [bad][b1]")
		d.write("a", "a1")
		<-time.After(Every + Settle)
		if got := d.log(); !strings.HasSuffix(got, "[a1][b1]") {
			t.Errorf("the content before: %q", got)
		}
		<-time.After(time.Minute)
		want(t, d, "after that", "")
	})
}

func TestAskedIsAtOnce(t *testing.T) {
	watched(t, func(t *testing.T, d *disk) {
		d.write("a", "a2")
		d.now <- os.Interrupt
		want(t, d, "asked", "asked: [a2][b1]")
		d.now <- os.Interrupt
		want(t, d, "asked again", "asked: [a2][b1]")
		<-time.After(time.Minute)
		want(t, d, "after that", "")
	})
}

// The ways in which files change on real disks, Kubernetes's included.
func TestWaysOfChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "schedule.yaml")
	for _, v := range []string{"..1", "..2"} {
		must(os.Mkdir(filepath.Join(dir, v), 0o700))
		must(os.WriteFile(filepath.Join(dir, v, "schedule.yaml"), []byte("version "+v), 0o600))
	}
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	must(os.Symlink(filepath.Join("..data", "schedule.yaml"), path))
	hash := func() string { return Read([]string{path}, os.ReadFile).Hash }
	var hashes []string
	note := func() { hashes = append(hashes, hash()) }
	note()
	must(os.Symlink("..2", filepath.Join(dir, "..tmp")))
	must(os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	note()
	must(os.WriteFile(filepath.Join(dir, "new"), []byte("version 3"), 0o600))
	must(os.Rename(filepath.Join(dir, "new"), path))
	note()
	info, err := os.Stat(path)
	must(err)
	must(os.WriteFile(path, []byte("version 4"), 0o600))
	must(os.Chtimes(path, info.ModTime(), info.ModTime())) // same size, same time
	note()
	must(os.Remove(path))
	note()
	seen := map[string]bool{}
	for _, h := range hashes {
		seen[h] = true
	}
	if len(seen) != len(hashes) {
		t.Errorf("not every change shows: %q", hashes)
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	d := &disk{texts: map[string]string{"a": "1", "b": "2"}}
	both := Read([]string{"a", "b"}, d.read)
	joined := Join(Read([]string{"a"}, d.read), Read([]string{"b"}, d.read))
	if diff := cmp.Diff(both, joined); diff != "" {
		t.Error(diff)
	}
}
