package command

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"

	"github.com/solobeat/solobeat/tasks/command/guardian"
)

const (
	// maxStderr and maxStderrLines bound what a failed run tells of standard
	// error.
	maxStderr      = 4 << 10
	maxStderrLines = 20
	// maxLine is where a line that is too long for the log is cut in two.
	maxLine = 8 << 10
)

// errorLog takes standard error: line by line to the log, its end for the
// error of a failed run.
type errorLog struct {
	log  *slog.Logger
	tail *guardian.Tail

	mu   sync.Mutex
	line []byte
}

func newErrorLog(log *slog.Logger) *errorLog {
	return &errorLog{log: log, tail: guardian.NewTail(maxStderr)}
}

// Write never fails.
func (l *errorLog) Write(p []byte) (int, error) {
	n := len(p)
	_, _ = l.tail.Write(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 {
		cut, end := len(p), 0
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			cut, end = i, 1
		}
		if room := maxLine - len(l.line); cut > room {
			cut, end = room, 0
		}
		l.line = append(l.line, p[:cut]...)
		p = p[cut+end:]
		if end == 1 || len(l.line) >= maxLine {
			l.emit()
		}
	}
	return n, nil
}

func (l *errorLog) emit() {
	if line := strings.ToValidUTF8(strings.TrimRight(string(l.line), "\r"), "�"); line != "" {
		l.log.Info("standard error of a command", "line", line)
	}
	l.line = l.line[:0]
}

// flush writes a last line that has no end.
func (l *errorLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit()
}

// lastLines returns the end of what was written.
func (l *errorLog) lastLines() string {
	text := string(l.tail.Bytes())
	if l.tail.Truncated() {
		if _, rest, ok := strings.Cut(text, "\n"); ok {
			text = rest
		}
	}
	return strings.ToValidUTF8(trimLines(text, maxStderrLines), "�")
}
