package lockredis

import (
	"strconv"
	"strings"
)

// Companion keys, one form per kind of lock key, so that no two locks share one
// and the lock's key can be read off it:
//
//	…held:{KEY}        the usual one
//	…held-tagged:KEY   KEY has a hash tag of its own
//	…held-slot:{N}KEY  KEY cannot be put into braces; N hashes to KEY's slot
const (
	plainMark  = "held:{"
	taggedMark = "held-tagged:"
	slotMark   = "held-slot:{"
)

// companion returns the companion key of a lock, in the lock's cluster slot.
func (b *Backend) companion(key string) string {
	switch {
	case hashTag(key) != key:
		return b.prefix + taggedMark + key
	case !strings.Contains(key, "}"):
		return b.prefix + plainMark + key + "}"
	}
	// The first "}" would end the tag, so another text must hash to the slot.
	want := slot(key)
	for n := 0; ; n++ {
		if s := strconv.Itoa(n); slot(s) == want {
			return b.prefix + slotMark + s + "}" + key
		}
	}
}

// lockOf is the inverse of companion.
func (b *Backend) lockOf(companion string) (string, bool) {
	rest, ok := strings.CutPrefix(companion, b.prefix)
	if !ok {
		return "", false
	}
	if key, ok := strings.CutPrefix(rest, taggedMark); ok {
		return key, true
	}
	if key, ok := strings.CutPrefix(rest, slotMark); ok {
		_, key, ok = strings.Cut(key, "}")
		return key, ok
	}
	if key, ok := strings.CutPrefix(rest, plainMark); ok {
		return strings.CutSuffix(key, "}")
	}
	return "", false
}

// hashTag is the part of a key that Redis Cluster hashes: what stands between
// the first "{" and the next "}", or the whole key where that is empty.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	tag, _, ok := strings.Cut(rest, "}")
	if !ok || tag == "" {
		return key
	}
	return tag
}

// slot is the cluster slot of a text without a hash tag: CRC16/XMODEM mod 16384.
func slot(s string) int {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
