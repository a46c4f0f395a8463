package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// maxFileBytes bounds a file, so that a wrong path does not fill the memory.
	maxFileBytes = 16 << 20
	// maxDepth bounds how deep blocks may lie in each other.
	maxDepth = 50
	// maxRescues bounds how many values are quoted one by one.
	maxRescues = 20
	// maxSearch bounds the files in which a syntax error is searched for line by
	// line, in bytes.
	maxSearch = 256 << 10
)

// parse reads the one document of a file; nil means that it has none, or that
// it cannot be read. A value that lacks its quotes, the commonest mistake in a
// schedule, is reported and then read as if it had them, so that the rest of
// the file is checked in the same run.
func (d *decoder) parse(text []byte) *yaml.Node {
	if len(text) > maxFileBytes {
		d.errorf(top(), "", "split it", "the file has %d bytes, at most %d are read", len(text), maxFileBytes)
		return nil
	}
	if !d.wantCleanText(text) {
		return nil
	}
	var rescued rescues
	root, second, err := readYAML(text)
	if err != nil {
		if root, second, rescued = d.rescue(text, err); root == nil {
			return nil
		}
	}
	if second != nil {
		d.errorf(second, "", "move it into a file of its own", "a second YAML document begins")
	}
	if root == nil {
		return nil
	}
	d.checkTree(root, "", 0, rescued)
	if err != nil && len(d.problems) == 0 {
		line, why := locate(text, err)
		d.syntaxError(text, line, why)
	}
	return root
}

// rescues are the values that were quoted, by line.
type rescues map[int]*unquoted

// rescue quotes what must stand in quotes and reads the file again. If that
// fails it reports why, and returns no root.
func (d *decoder) rescue(text []byte, err error) (root, second *yaml.Node, done rescues) {
	original, done := text, rescues{}
	all := unquotedAll(text)
	for i := len(all) - 1; i >= 0; i-- { // from the end, so that offsets hold
		text = all[i].apply(text)
		done[all[i].line] = all[i]
	}
	if root, second, again := readYAML(text); again == nil && root != nil {
		return root, second, done
	}
	// Something else is wrong too, or a line of a text block was taken for a
	// value: one at a time.
	text, done = original, rescues{}
	for {
		line, why := locate(text, err)
		q := unquotedAt(text, line)
		if q == nil || done[q.line] != nil || len(done) == maxRescues {
			for _, q := range done {
				d.errorf(&yaml.Node{Line: q.line, Column: q.column}, "", q.cure(), "%s", q.problem())
			}
			d.syntaxError(text, line, why)
			return nil, nil, nil
		}
		done[q.line] = q
		text = q.apply(text)
		if root, second, err = readYAML(text); err == nil {
			return root, second, done
		}
	}
}

// readYAML reads the first document, and tells where a second one begins.
func readYAML(text []byte) (root, second *yaml.Node, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, nil, err
	}
	var next yaml.Node
	switch err := dec.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, nil, err
	default:
		second = &next
	}
	if len(doc.Content) == 0 {
		return nil, second, nil
	}
	return doc.Content[0], second, nil
}

// wantCleanText refuses bytes that no YAML has; the parser has no place for
// them in its messages.
func (d *decoder) wantCleanText(text []byte) bool {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		d.errorf(top(), "", "save the file as UTF-8", "the file is in UTF-16")
		return false
	}
	for i := 0; i < len(text); {
		if c := text[i]; c >= 0x20 && c < 0x7f || c == '\n' || c == '\r' || c == '\t' {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			d.errorf(placeOf(text, i), "", "save the file as UTF-8", "the byte 0x%02x is no UTF-8", text[i])
			return false
		case i == 0 && r == '\ufeff':
		case !printable(r):
			d.errorf(placeOf(text, i), "", "remove it", "the control character %U cannot stand in a file", r)
			return false
		}
		i += size
	}
	return true
}

// placeOf is the place of an offset, in lines and characters.
func placeOf(text []byte, offset int) *yaml.Node {
	start := bytes.LastIndexByte(text[:offset], '\n') + 1
	return &yaml.Node{Line: bytes.Count(text[:offset], []byte("\n")) + 1, Column: utf8.RuneCount(text[start:offset]) + 1}
}

func printable(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r == 0x85 || r >= 0x20 && r < 0x7f || r >= 0xa0 && r != '\ufeff' && r != 0xfffe && r != 0xffff
}

// checkTree finds what is legal YAML and no configuration: aliases (a file that
// is read by people says what it means in place, and an alias can grow without
// end), templates without quotes, and depth without end.
func (d *decoder) checkTree(n *yaml.Node, path string, depth int, rescued rescues) {
	switch {
	case n.Kind == yaml.AliasNode:
		d.errorf(n, path, "write the value out, or put it under defaults; a text that begins with a star needs quotes",
			"*%s is a YAML alias, which is not supported", n.Value)
		return
	case n.Kind == yaml.ScalarNode && rescued[n.Line] != nil && rescued[n.Line].column == n.Column:
		q := rescued[n.Line]
		d.errorf(n, path, q.cure(), "%s", q.problem())
	case depth > maxDepth:
		d.errorf(n, path, "write it flatter", "blocks lie more than %d deep in each other", maxDepth)
		return
	case isTemplate(n):
		d.errorf(n, path, `quote the template: "{{ … }}"`, "an unquoted {{ begins a YAML mapping")
		return
	}
	if n.Kind != yaml.MappingNode {
		for _, c := range n.Content {
			d.checkTree(c, path, depth+1, rescued)
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		d.checkTree(k, path, depth+1, rescued)
		d.checkTree(v, join(path, k.Value), depth+1, rescued)
	}
}

// isTemplate knows {{ … }} without quotes: a mapping whose key is a mapping.
func isTemplate(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 && len(n.Content) == 2 &&
		n.Content[0].Kind == yaml.MappingNode && n.Content[0].Style&yaml.FlowStyle != 0
}

var yamlLineRE = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// reason takes the parser's own place off its message.
func reason(err error) (line int, text string) {
	m := yamlLineRE.FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(m[1])
	return max(line, 1), err.Error()[len(m[0]):]
}

// locate finds the line of a syntax error: the first one with which the text
// up to it, and up to any later line, cannot be read. The parser's own number is that of the block
// around it, or one off.
func locate(text []byte, err error) (line int, why string) {
	line, why = reason(err)
	ends := lineEnds(text)
	line = min(line, len(ends))
	if len(text) > maxSearch {
		return line, why
	}
	fails := func(lines int) error {
		_, _, err := readYAML(text[:ends[lines-1]])
		return err
	}
	good, bad := 0, len(ends)
	// A list or a quote over several lines can be read again at its end, so a
	// few lines more are tried before a line counts as bad.
	window := min(64, max(8, maxSearch/len(text)))
	try := func(mid int) {
		for at := mid; at < min(mid+window, bad); at++ {
			switch err := fails(at); {
			case err == nil:
				good = at
				return
			case !unfinished(err):
				bad = mid
				return
			}
		}
		bad = mid
	}
	for _, guess := range []int{line - 1, line, line + 1} {
		if good < guess && guess < bad {
			try(guess)
		}
	}
	for bad-good > 1 {
		try((good + bad) / 2)
	}
	if err := fails(bad); err != nil {
		_, why = reason(err)
	}
	return bad, why
}

// unfinished reports whether a text may have been cut inside a list, a block in
// braces or a quote.
func unfinished(err error) bool {
	for _, words := range []string{"unexpected end of stream", "',' or ']'", "',' or '}'", "node content"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// lineEnds are the offsets behind the lines of a text.
func lineEnds(text []byte) []int {
	var ends []int
	for i, b := range text {
		if b == '\n' {
			ends = append(ends, i+1)
		}
	}
	if len(ends) == 0 || ends[len(ends)-1] < len(text) {
		ends = append(ends, len(text))
	}
	return ends
}

// syntaxError says in plain words what the parser could not read.
func (d *decoder) syntaxError(text []byte, line int, why string) {
	ends := lineEnds(text)
	start := 0
	if line > 1 {
		start = ends[line-2]
	}
	s := strings.TrimRight(string(text[start:ends[line-1]]), "\r\n")
	indent := s[:len(s)-len(strings.TrimLeft(s, " \t"))]
	at := &yaml.Node{Line: line, Column: len(indent) + 1}
	if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
		at.Column = tab + 1
		d.errorf(at, "", "indent with blanks", "the line is indented with a tab")
		return
	}
	msg, cure := plainWords(why)
	d.errorf(at, "", cure, "%s", msg)
}

func plainWords(why string) (msg, cure string) {
	switch {
	case strings.Contains(why, "mapping values are not allowed"):
		return "a colon stands where none can", "quote the text if it holds a colon and a blank; indent the keys of one block alike"
	case strings.Contains(why, "unexpected end of stream"):
		return "a quote is not closed", "close it, on the same line"
	case strings.Contains(why, "',' or ']'"):
		return "a list in [ ] is not closed, or lacks a comma", "write [one, two]"
	case strings.Contains(why, "',' or '}'"):
		return "a block in { } is not closed, or lacks a comma", "write {key: value, key: value}"
	case strings.Contains(why, "expected key"), strings.Contains(why, "expected ':'"):
		return "a key and a colon are expected", "indent the keys of one block alike; close quotes and brackets"
	case strings.Contains(why, "unknown escape character"):
		return "a backslash in double quotes begins an unknown sign", "use single quotes, or write two backslashes"
	default:
		return "this is no YAML: " + why, "look at the quotes, the colons and the indentation of this line and the one before"
	}
}

// unquoted is a value that must stand in quotes.
type unquoted struct {
	line, column int // of the value, from 1
	start, end   int // of the value, in the text
	key, value   string
}

// unquotedRE is a line with a key, dashes or both before a value that begins
// with a sign that YAML keeps for itself.
var unquotedRE = regexp.MustCompile("^(\\s*(?:-\\s+)*(?:([\\w.-]+|\"[^\"]*\"|'[^']*')\\s*:\\s+)?)((?:[*@`%]|\\{\\{).*?)(?:\\s+#.*)?\\s*$")

// unquotedAt looks for such a value on a line and those beside it.
func unquotedAt(text []byte, line int) *unquoted {
	ends := lineEnds(text)
	for _, at := range []int{line, line - 1, line + 1} {
		if at < 1 || at > len(ends) {
			continue
		}
		if q := unquotedIn(text, ends, at); q != nil {
			return q
		}
	}
	return nil
}

// unquotedAll are all lines with such a value, also those of text blocks.
func unquotedAll(text []byte) []*unquoted {
	var all []*unquoted
	ends := lineEnds(text)
	for line := 1; line <= len(ends); line++ {
		if q := unquotedIn(text, ends, line); q != nil {
			all = append(all, q)
		}
	}
	return all
}

func unquotedIn(text []byte, ends []int, line int) *unquoted {
	start := 0
	if line > 1 {
		start = ends[line-2]
	}
	s := text[start:ends[line-1]]
	if !bytes.ContainsAny(s, "*@`%{") {
		return nil
	}
	m := unquotedRE.FindSubmatch(s)
	if m == nil || len(m[1]) == 0 {
		return nil
	}
	from := start + len(m[1])
	return &unquoted{
		line: line, column: utf8.RuneCount(m[1]) + 1, start: from, end: from + len(m[3]),
		key: string(m[2]), value: string(m[3]),
	}
}

func (q *unquoted) problem() string {
	switch q.value[0] {
	case '*':
		return "an unquoted star begins a YAML alias"
	case '{':
		return "an unquoted {{ begins a YAML mapping"
	default:
		return fmt.Sprintf("a text without quotes cannot begin with %c", q.value[0])
	}
}

func (q *unquoted) cure() string {
	if q.key == "" {
		return "quote it: " + q.quoted()
	}
	return fmt.Sprintf("quote it: %s: %s", q.key, q.quoted())
}

func (q *unquoted) quoted() string {
	if strings.ContainsAny(q.value, `"\`) {
		return "'" + strings.ReplaceAll(q.value, "'", "''") + "'"
	}
	return `"` + q.value + `"`
}

func (q *unquoted) apply(text []byte) []byte {
	out := make([]byte, 0, len(text)+8)
	out = append(out, text[:q.start]...)
	out = append(out, q.quoted()...)
	return append(out, text[q.end:]...)
}
