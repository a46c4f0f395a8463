package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
	"time"
)

// walker goes once through a parsed template: it refuses what templates may not
// use, collects the data that is used, and puts the function that turns a value
// into text, escaped for a key, at the end of each action, as html/template does.
type walker struct {
	kind  Kind
	paths []string
}

// unknown is the place of a dot that is no plain path.
const unknown = "?"

func (w *walker) root(list *parse.ListNode) error {
	if w.kind == Key {
		if err := separated(list); err != nil {
			return err
		}
	}
	return w.list(list, "")
}

// list walks through nodes; dot is the path at which the dot stands: "" for all
// the data.
func (w *walker) list(list *parse.ListNode, dot string) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		if err := w.node(n, dot); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) node(n parse.Node, dot string) error {
	switch n := n.(type) {
	case *parse.TextNode, *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		return w.action(n, dot)
	case *parse.IfNode:
		return w.branch(&n.BranchNode, dot, dot)
	case *parse.WithNode:
		return w.branch(&n.BranchNode, dot, target(n.Pipe, dot))
	default:
		return fmt.Errorf("%s is not for these templates", word(n))
	}
}

// word is the first word of a node, as its author wrote it.
func word(n parse.Node) string {
	s, _, _ := strings.Cut(strings.TrimPrefix(n.String(), "{{"), " ")
	return strings.TrimSuffix(s, "}}")
}

func (w *walker) branch(n *parse.BranchNode, dot, inside string) error {
	if w.kind == Key {
		return fmt.Errorf("%s is not for keys: a key is a row of text and values", word(n))
	}
	return errors.Join(w.pipe(n.Pipe, dot), w.list(n.List, inside), w.list(n.ElseList, dot))
}

// target is where the dot stands inside with.
func target(p *parse.PipeNode, dot string) string {
	if len(p.Cmds) != 1 || len(p.Cmds[0].Args) != 1 {
		return unknown
	}
	switch a := p.Cmds[0].Args[0].(type) {
	case *parse.FieldNode:
		return join(dot, a.Ident)
	case *parse.VariableNode:
		if a.Ident[0] == "$" {
			return join("", a.Ident[1:])
		}
	case *parse.DotNode:
		return dot
	}
	return unknown
}

func join(dot string, fields []string) string {
	if dot == unknown {
		return unknown
	}
	return strings.Join(append([]string{dot}, fields...), ".")
}

func (w *walker) action(n *parse.ActionNode, dot string) error {
	source := strings.TrimSuffix(strings.TrimPrefix(n.String(), "{{"), "}}")
	if err := w.pipe(n.Pipe, dot); err != nil {
		return err
	}
	if len(n.Pipe.Decl) > 0 {
		if w.kind == Key {
			return errors.New("variables are not for keys: a key is a row of text and values")
		}
		return nil // it prints nothing
	}
	n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pos, lastFunc(w.kind), quoted(n.Pos, source)))
	return nil
}

func (w *walker) pipe(p *parse.PipeNode, dot string) error {
	if p == nil {
		return nil
	}
	for _, c := range p.Cmds {
		for _, a := range c.Args {
			if err := w.arg(a, dot); err != nil {
				return err
			}
		}
		if err := checkZone(c); err != nil {
			return err
		}
	}
	if dot == "" && slices.ContainsFunc(p.Cmds, func(c *parse.CommandNode) bool { return calls(c, "default") }) {
		optional(p)
	}
	return nil
}

func (w *walker) arg(n parse.Node, dot string) error {
	switch n := n.(type) {
	case *parse.IdentifierNode:
		ours := slices.Contains(listed, n.Ident) || n.Ident == "index"
		if !ours && (w.kind == Key || !slices.Contains(textOnly, n.Ident)) {
			return fmt.Errorf("function %q is not for these templates; known are %s", n.Ident, strings.Join(listed, ", "))
		}
	case *parse.FieldNode:
		w.use(join(dot, n.Ident))
	case *parse.DotNode:
		w.use(dot)
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			w.use(join("", n.Ident[1:]))
		}
	case *parse.PipeNode:
		return w.pipe(n, dot)
	case *parse.ChainNode:
		return w.arg(n.Node, dot)
	}
	return nil
}

func (w *walker) use(path string) {
	switch path {
	case unknown: // what it was made of has been counted
	case "":
		w.paths = append(w.paths, ".")
	default:
		w.paths = append(w.paths, path)
	}
}

func calls(c *parse.CommandNode, name string) bool {
	id, ok := c.Args[0].(*parse.IdentifierNode)
	return ok && id.Ident == name
}

// checkZone finds a wrong zone name before a run does.
func checkZone(c *parse.CommandNode) error {
	if !calls(c, "in") || len(c.Args) < 2 {
		return nil
	}
	if s, ok := c.Args[1].(*parse.StringNode); ok {
		_, err := zone(s.Text)
		return err
	}
	return nil
}

func zone(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("zone %q depends on the machine; name one, such as Europe/Berlin", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("unknown zone %q", name)
	}
	return loc, nil
}

// optional lets default see a parameter that is missing: missingkey=error would
// end the rendering before default is called.
func optional(p *parse.PipeNode) {
	for _, c := range p.Cmds {
		for i, a := range c.Args {
			f, ok := a.(*parse.FieldNode)
			if !ok || f.Ident[0] != "Params" || len(f.Ident) < 2 {
				continue
			}
			args := []parse.Node{&parse.VariableNode{NodeType: parse.NodeVariable, Pos: f.Pos, Ident: []string{"$", "Params"}}}
			for _, name := range f.Ident[1:] {
				args = append(args, quoted(f.Pos, name))
			}
			look := command(f.Pos, optFunc, args...)
			if len(c.Args) == 1 {
				c.Args = look.Args
				break
			}
			c.Args[i] = &parse.PipeNode{NodeType: parse.NodePipe, Pos: f.Pos, Cmds: []*parse.CommandNode{look}}
		}
	}
}

func command(pos parse.Pos, name string, args ...parse.Node) *parse.CommandNode {
	id := parse.NewIdentifier(name).SetTree(nil).SetPos(pos)
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: append([]parse.Node{id}, args...)}
}

func quoted(pos parse.Pos, s string) *parse.StringNode {
	return &parse.StringNode{NodeType: parse.NodeString, Pos: pos, Quoted: fmt.Sprintf("%q", s), Text: s}
}

// separated checks that between two values of a key stands a character that no
// escaped value contains, so that a key can be taken apart in one way only. What
// a time function prints has a fixed form and needs none behind it.
func separated(list *parse.ListNode) error {
	var last *parse.ActionNode
	gap := ""
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			gap += string(n.Text)
		case *parse.ActionNode:
			if last != nil && !prints(last) && !strings.ContainsFunc(gap, separator) {
				return fmt.Errorf("between %s and %s must stand a separator such as : or / that no value can contain", last, n)
			}
			last, gap = n, ""
		}
	}
	return nil
}

func separator(r rune) bool {
	return r > 0x7f || r != '%' && !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._~-", r))
}

// prints reports whether an action's last function prints a fixed form.
func prints(n *parse.ActionNode) bool {
	last := n.Pipe.Cmds[len(n.Pipe.Cmds)-1]
	return calls(last, "date") || calls(last, "hour") || calls(last, "minute") || calls(last, "rfc3339")
}
