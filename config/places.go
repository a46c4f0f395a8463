package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// places remember where the keys of a job or task stand, for checks that come
// after reading.
type places struct {
	d    *decoder
	path string
	// node is the job's or task's name.
	node *yaml.Node
	// own are the values by key, such as "lock.ttl"; inherited are those of
	// defaults:, which the job's own replace.
	own, inherited map[string]*yaml.Node
	// told are the keys that a check has reported.
	told map[string]bool
}

func newPlaces(d *decoder, path string, node *yaml.Node) places {
	return places{d: d, path: path, node: node, own: map[string]*yaml.Node{}, told: map[string]bool{}}
}

// block reads a block and notes its keys.
func (p *places) block(v *yaml.Node, prefix, path string, fields map[string]field) bool {
	return p.d.block(v, path, fields, func(name string, v *yaml.Node) { p.own[prefix+name] = v })
}

// at is the place to blame for a conflict of keys: the first one that is the
// job's own, else the block around them, else the job's name.
func (p *places) at(keys ...string) *yaml.Node {
	for _, k := range keys {
		if n := p.own[k]; n != nil {
			return n
		}
	}
	block, _, _ := strings.Cut(keys[0], ".")
	block, _, _ = strings.Cut(block, "[")
	if n := p.own[block]; n != nil {
		return n
	}
	return p.node
}

// settled reports whether one of the keys has an error already.
func (p *places) settled(keys ...string) bool {
	for _, k := range keys {
		n := p.own[k]
		if n == nil {
			n = p.inherited[k]
		}
		if n != nil && p.d.bad[n] || p.told[k] {
			return true
		}
	}
	return false
}

// errorf reports a conflict between keys under the first one's name, unless
// one of them has an error already.
func (p *places) errorf(keys []string, cure, format string, args ...any) {
	if p.settled(keys...) {
		return
	}
	p.told[keys[0]] = true
	p.d.errorf(p.at(keys...), join(p.path, keys[0]), cure, "%s%s", fmt.Sprintf(format, args...), p.origin(keys))
}

// warnf is errorf for what is legal and rarely meant.
func (p *places) warnf(keys []string, cure, format string, args ...any) {
	if !p.settled(keys...) {
		p.d.warnf(p.at(keys...), join(p.path, keys[0]), cure, "%s%s", fmt.Sprintf(format, args...), p.origin(keys))
	}
}

// origin says where a key comes from that the job does not show.
func (p *places) origin(keys []string) string {
	for _, k := range keys {
		if n := p.inherited[k]; n != nil && p.own[k] == nil {
			return fmt.Sprintf("; %s comes from defaults, line %d", k, n.Line)
		}
	}
	return ""
}
