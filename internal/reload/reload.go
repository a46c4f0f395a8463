// Package reload watches a few files by their content and hands over what they
// hold when it has changed. It looks at the content, not at times or events, so
// that it does not matter how a file is changed: written in place, renamed
// over, or behind symbolic links that are swapped as Kubernetes does it with a
// ConfigMap.
package reload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"
)

// The defaults of a [Watcher].
const (
	// Every is the time between two looks.
	Every = 5 * time.Second
	// Settle is for how long new content must stay the same before it is taken: a
	// file that somebody is writing at is not finished.
	Settle = time.Second
)

// File is one file as it was read.
type File struct {
	Path string
	Text []byte
	// Err is why it could not be read; Text is then nil.
	Err error
}

// Snapshot are all files as one look found them.
type Snapshot struct {
	Files []File
	// Hash names the content: 12 hexadecimal digits.
	Hash string
}

// Read reads the files one after the other.
func Read(paths []string, read func(path string) ([]byte, error)) Snapshot {
	s := Snapshot{Files: make([]File, len(paths))}
	for i, path := range paths {
		text, err := read(path)
		if err != nil {
			text = nil
		}
		s.Files[i] = File{Path: path, Text: text, Err: err}
	}
	return s.hashed()
}

func (s Snapshot) hashed() Snapshot {
	h := sha256.New()
	for _, f := range s.Files {
		if f.Err != nil {
			fmt.Fprintf(h, "error %s\n", f.Err)
			continue
		}
		fmt.Fprintf(h, "text %d\n", len(f.Text))
		h.Write(f.Text)
	}
	s.Hash = hex.EncodeToString(h.Sum(nil)[:6])
	return s
}

// Join is two snapshots, of files read at different times, as one.
func Join(a, b Snapshot) Snapshot {
	return Snapshot{Files: append(append([]File(nil), a.Files...), b.Files...)}.hashed()
}

// Watcher watches files. All fields without a default are needed.
type Watcher struct {
	// InForce is the content that is in force at the start; its files are those
	// that are watched.
	InForce Snapshot
	// Read reads a file.
	Read func(path string) ([]byte, error)
	// Take puts new content in force, all of it or nothing; an error leaves in
	// force what was. What failed is tried again at every look, since a mistake
	// may be mended elsewhere: Take is to complain once about one thing. Asked
	// tells that somebody asked for it.
	Take func(ctx context.Context, s Snapshot, asked bool) error
	// Now asks for a look at once, at files that count as finished. May be nil.
	Now <-chan os.Signal
	// Every and Settle are 0 for the defaults.
	Every, Settle time.Duration
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	every, settle := w.Every, w.Settle
	if every <= 0 {
		every = Every
	}
	if settle <= 0 {
		settle = Settle
	}
	timer := time.NewTimer(every)
	defer timer.Stop()
	inForce, failed, fresh := w.InForce.Hash, false, ""
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.Now:
			asked = true
		}
		s := w.look()
		wait := every
		switch {
		case !asked && s.Hash == inForce && !failed:
			fresh = ""
		case !asked && s.Hash != inForce && s.Hash != fresh:
			fresh, wait = s.Hash, settle
		default:
			err := w.Take(ctx, s, asked)
			if failed = err != nil; !failed {
				inForce = s.Hash
			}
		}
		timer.Reset(wait)
	}
}

func (w *Watcher) look() Snapshot {
	paths := make([]string, len(w.InForce.Files))
	for i, f := range w.InForce.Files {
		paths[i] = f.Path
	}
	return Read(paths, w.Read)
}
