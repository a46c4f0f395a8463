package render

import (
	"encoding/json"
	"strings"
	"text/template/parse"
)

// piece is a part of a plain key: a text, or the name of a parameter.
type piece struct{ text, param string }

// plainRow takes a key apart that is a row of text and parameters, as most are:
// a worker renders one for each run, and text/template costs it as much as the
// way to the lock's server. Nil: it is none.
func plainRow(root *parse.ListNode) []piece {
	var row []piece
	for _, n := range root.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			row = append(row, piece{text: string(n.Text)})
		case *parse.ActionNode:
			if len(n.Pipe.Decl) > 0 || len(n.Pipe.Cmds) != 1 || len(n.Pipe.Cmds[0].Args) != 1 {
				return nil
			}
			f, ok := n.Pipe.Cmds[0].Args[0].(*parse.FieldNode)
			if !ok || len(f.Ident) != 2 || f.Ident[0] != "Params" {
				return nil
			}
			row = append(row, piece{param: f.Ident[1]})
		default:
			return nil
		}
	}
	return row
}

// renderPlain is false where a value is missing or is no plain one: then the
// template itself renders, or says what is wrong.
func renderPlain(row []piece, params map[string]any, kind Kind) (string, bool) {
	var b strings.Builder
	for _, p := range row {
		if p.param == "" {
			b.WriteString(p.text)
			continue
		}
		var text string
		switch v := params[p.param].(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		}
		if text == "" {
			return "", false
		}
		if kind == Key {
			text = Escape(text)
		}
		b.WriteString(text)
	}
	return b.String(), b.Len() > 0
}
