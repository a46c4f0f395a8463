package config

import (
	"fmt"
	"slices"
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
	// shared: these are defaults:, which jobs complete.
	shared bool
}

func newPlaces(d *decoder, path string, node *yaml.Node) places {
	return places{d: d, path: path, node: node, own: map[string]*yaml.Node{}, told: map[string]bool{}}
}

// block reads a block and notes its keys.
func (p *places) block(v *yaml.Node, prefix, path string, fields map[string]field) bool {
	return p.d.block(v, path, fields, func(name string, v *yaml.Node) { p.own[prefix+name] = v })
}

// at is the place to blame for a conflict of keys: the first one that is the
// job's own, else the first one of defaults:, else the block around them, else
// the job's name.
func (p *places) at(keys ...string) *yaml.Node {
	for _, in := range []map[string]*yaml.Node{p.own, p.inherited} {
		for _, k := range keys {
			if n := in[k]; n != nil {
				return n
			}
		}
	}
	block, _, _ := strings.Cut(keys[0], ".")
	block, _, _ = strings.Cut(block, "[")
	if n := p.own[block]; n != nil {
		return n
	}
	return p.node
}

// alien reports whether none of the keys is the job's own, and one is that of
// defaults:.
func (p *places) alien(keys []string) bool {
	found := false
	for _, k := range keys {
		if p.own[k] != nil {
			return false
		}
		found = found || p.inherited[k] != nil
	}
	return found
}

// open reports whether keys of defaults: are still to be completed by jobs.
func (p *places) open(keys []string) bool {
	return p.shared && slices.ContainsFunc(keys, func(k string) bool { return p.own[k] == nil })
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
	if p.settled(keys...) || p.open(keys) {
		return
	}
	p.told[keys[0]] = true
	p.d.errorf(p.at(keys...), p.key(keys), cure, "%s%s", fmt.Sprintf(format, args...), p.origin(keys))
}

// warnf is errorf for what is legal and rarely meant. What defaults: alone are
// to blame for is told there.
func (p *places) warnf(keys []string, cure, format string, args ...any) {
	if p.settled(keys...) || p.open(keys) || p.alien(keys) {
		return
	}
	p.d.warnf(p.at(keys...), p.key(keys), cure, "%s%s", fmt.Sprintf(format, args...), p.origin(keys))
}

func (p *places) key(keys []string) string {
	if p.alien(keys) {
		return join("defaults", keys[0])
	}
	return join(p.path, keys[0])
}

// origin says where a key comes from that the job does not show.
func (p *places) origin(keys []string) string {
	if p.alien(keys) {
		return ""
	}
	for _, k := range keys {
		if n := p.inherited[k]; n != nil && p.own[k] == nil {
			return fmt.Sprintf("; %s comes from defaults, line %d", k, n.Line)
		}
	}
	return ""
}
