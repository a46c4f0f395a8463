package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// text reads a string; numbers and booleans must be quoted, since YAML would
// change them (0644, 1_000, 1.10).
func (d *decoder) text(into *string) field {
	return func(_, v *yaml.Node, path string) {
		if d.wantText(v, path) {
			*into = v.Value
		}
	}
}

func (d *decoder) wantText(v *yaml.Node, path string) bool {
	switch {
	case d.tell(textShape()), d.bad[v]:
		return false
	case v.Kind == yaml.ScalarNode && v.ShortTag() == "!!str":
		return true
	case v.Kind != yaml.ScalarNode:
		d.errorf(v, path, "write one text", "want text, got %s", kindName(v))
	case isNull(v):
		d.errorf(v, path, "write a text, or remove the key", "want text, got nothing")
	default:
		d.errorf(v, path, "quote it", "want text, got %s", kindName(v))
	}
	return false
}

// word reads a string that is not empty: what is left out has a default, and
// what is given empty is a variable that was not filled in.
func (d *decoder) word(into *string) field {
	return func(_, v *yaml.Node, path string) {
		if d.tell(wordShape()) || !d.wantText(v, path) {
			return
		}
		if strings.TrimSpace(v.Value) == "" {
			d.errorf(v, path, "write a value, or remove the key", "the text is empty")
			return
		}
		*into = v.Value
	}
}

// scalar reads what looks like a number or an instant to YAML too, for keys
// whose own syntax decides.
func (d *decoder) scalar(into *string, cure string) field {
	return func(_, v *yaml.Node, path string) {
		if d.tell(wordShape()) {
			return
		}
		if v.Kind != yaml.ScalarNode || isNull(v) || v.ShortTag() == "!!bool" {
			d.errorf(v, path, cure, "want text, got %s", kindName(v))
			return
		}
		if v.Value == "" {
			d.errorf(v, path, cure, "the text is empty")
			return
		}
		*into = v.Value
	}
}

// texts reads a list of strings; one string alone is a list of one.
func (d *decoder) texts(into *[]string) field {
	return func(k, v *yaml.Node, path string) {
		if d.tell(textsShape(v)) {
			return
		}
		items := v.Content
		switch {
		case v.Kind == yaml.ScalarNode && !isNull(v):
			items = []*yaml.Node{v}
		case v.Kind != yaml.SequenceNode:
			d.errorf(v, path, "write a list, for example [one, two]", "want a list, got %s", kindName(v))
			return
		}
		for i, item := range items {
			var s string
			d.text(&s)(k, item, fmt.Sprintf("%s[%d]", path, i))
			*into = append(*into, s)
		}
	}
}

// integer reads a whole number within bounds.
func (d *decoder) integer(into *int, low, high int) field {
	return func(_, v *yaml.Node, path string) {
		if d.tell(integerShape(low, high)) {
			return
		}
		n, err := strconv.Atoi(v.Value)
		switch {
		case v.Kind == yaml.ScalarNode && v.ShortTag() == "!!str" && err == nil:
			d.errorf(v, path, "remove the quotes", "want a whole number, got %s", kindName(v))
		case v.Kind != yaml.ScalarNode || v.ShortTag() != "!!int" || strconv.Itoa(n) != v.Value:
			d.errorf(v, path, fmt.Sprintf("write a number from %d to %d, in plain digits", low, high), "want a whole number, got %s", kindName(v))
		case n < low || n > high:
			d.errorf(v, path, fmt.Sprintf("write a number from %d to %d", low, high), "%d is out of range", n)
		default:
			*into = n
		}
	}
}

func (d *decoder) boolean(into *bool) field {
	return func(_, v *yaml.Node, path string) {
		if d.tell(booleanShape()) {
			return
		}
		b, err := strconv.ParseBool(v.Value)
		if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!bool" || err != nil {
			d.errorf(v, path, "write true or false, without quotes", "want true or false, got %s", kindName(v))
			return
		}
		*into = b
	}
}

// oneOf reads one of a few words.
func oneOf[T ~string](d *decoder, into *T, words ...T) field {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return func(_, v *yaml.Node, path string) {
		if d.tell(wordsShape(list)) || !d.wantText(v, path) {
			return
		}
		if !slices.Contains(list, v.Value) {
			d.errorf(v, path, didYouMean(v.Value, list), "%s is not known here", shown(v.Value))
			return
		}
		*into = T(v.Value)
	}
}

// duration reads what [ParseDuration] reads, from low on.
func (d *decoder) duration(into *time.Duration, low time.Duration) field {
	return func(_, v *yaml.Node, path string) {
		if d.tell(durationShape(low)) {
			return
		}
		if v.Kind != yaml.ScalarNode || isNull(v) || v.ShortTag() == "!!bool" {
			d.errorf(v, path, DurationCure(""), "want a duration, got %s", kindName(v))
			return
		}
		dur, err := ParseDuration(v.Value)
		switch {
		case err != nil:
			d.errorf(v, path, DurationCure(v.Value), "%v", err)
		case dur < low:
			d.errorf(v, path, "write at least "+short(low), "%s is too short", v.Value)
		default:
			*into = dur
		}
	}
}

// short is a duration without its zero parts: 1m instead of 1m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// off reads the word off; readers of YAML 1.1 and people take it for false.
func off(v *yaml.Node) bool {
	return v.Kind == yaml.ScalarNode && (v.Value == "off" || v.ShortTag() == "!!bool" && v.Value == "false")
}

// orOff refuses scalars that are neither a block nor off.
func (d *decoder) orOff(v *yaml.Node, path string) bool {
	if v.Kind == yaml.MappingNode {
		return true
	}
	if d.tell(offShape()) {
		return false
	}
	d.errorf(v, path, "write its keys below it, indented, or off", "want keys and values, got %s", kindName(v))
	return false
}
