package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
)

// table is a list for people: a header and rows.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes value as one JSON value, or the table. An empty table says so
// on stderr, so that a pipe gets nothing.
func (c *program) print(value any, t *table, empty string) error {
	if c.output == "json" {
		return printJSON(c.Out, value)
	}
	if len(t.rows) == 0 {
		c.note("%s", empty)
		return nil
	}
	return t.write(c.Out)
}

func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(t.header) > 0 {
		_, _ = fmt.Fprintln(tw, strings.Join(t.header, "\t"))
	}
	for _, row := range t.rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
		}
		_, _ = fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// printable keeps control characters of foreign data off the terminal.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(printableRune, s)
}

func printableRune(r rune) rune {
	if !unicode.IsPrint(r) {
		return '·'
	}
	return r
}

// printableLines is printable for a text of several lines, such as a traceback.
func printableLines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printableRune(r)
	}, s)
}

// note tells people one line on stderr. It may hold what others wrote.
func (c *program) note(format string, args ...any) {
	_, _ = fmt.Fprintln(c.Err, printable(fmt.Sprintf(format, args...)))
}

// isTerminal reports whether a stream is one.
func isTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// stamp prints an instant for people.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05Z07:00")
}

// short prints a duration without false precision.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// ago prints how long an instant lies back.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return short(time.Since(t)) + " ago"
}

// counted is a number of things whose name takes an s.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
