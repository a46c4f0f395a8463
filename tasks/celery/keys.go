package celery

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// keys names everything on Redis for one deployment.
type keys struct {
	prefix    string // before every key and channel of the broker
	namespace string
	results   string // before result keys, verbatim
}

func (c *Config) keys() keys {
	return keys{prefix: c.KeyPrefix, namespace: c.Namespace, results: c.ResultsKeyPrefix}
}

// own is a key of ours; all are in the namespace.
func (k keys) own(name string) string { return k.prefix + "solobeat:" + k.namespace + ":" + name }

func (k keys) unacked() string { return k.prefix + wire.UnackedKey }
func (k keys) index() string   { return k.prefix + wire.UnackedIndexKey }

// replicas is a zset: instance, score the instant (seconds) until which it
// counts as alive.
func (k keys) replicas() string { return k.own("replicas") }

// buried is a zset: instance, score when it was buried or left (seconds).
func (k keys) buried() string { return k.own("buried") }

// calls is a hash: instance to the number of its last cycle. An instance that
// is missing may not take.
func (k keys) calls() string { return k.own("calls") }

// entry is a hash about one replica: node, lists, suspect, and the instants
// that the beat script decides by.
func (k keys) entry(instance string) string { return k.own("replica:" + instance) }

// inflight is the list between a waiter and the cycle, for one source list.
func (k keys) inflight(instance, list string) string {
	return k.own("inflight:" + instance + ":" + list)
}

// parked is a zset: park tag, score the instant (µs) at which it is due.
func (k keys) parked() string { return k.own("parked") }

// parkInfo is a hash: park tag to what the scripts need to take it out again.
func (k keys) parkInfo() string { return k.own("park") }

// parkedAt are the first keys of the wake script.
func (k keys) parkedAt() []string {
	return []string{k.unacked(), k.index(), k.parked(), k.parkInfo()}
}

// dead is a queue's stream of dead letters, deadQueues the set of queues that
// have one, deadDropped a hash: queue to the number that fell out of bounds.
// deadRaw is a list of messages that the stream could not take, as they came.
func (k keys) dead(queue string) string    { return k.own("dead:" + queue) }
func (k keys) deadRaw(queue string) string { return k.own("dead-raw:" + queue) }
func (k keys) deadQueues() string          { return k.own("dead-queues") }
func (k keys) deadDropped() string         { return k.own("dead-dropped") }

// result is the key of a task's result, and its channel.
func (k keys) result(id string) string { return k.results + wire.ResultKey(id) }

// list is the key of a queue's list for a priority.
func (k keys) list(queue string, priority int) string {
	return k.prefix + wire.QueueKey(queue, priority)
}

// QueueKeys are the keys of all lists of the queues, for instance to refuse a
// lock key that is a queue.
func QueueKeys(keyPrefix string, queues ...string) []string {
	var all []string
	for _, q := range queues {
		for _, l := range wire.PriorityKeys(q) {
			all = append(all, keyPrefix+l)
		}
	}
	return all
}

// Delivery tags in unacked: sb:<instance>:<n>:<step>:<namespace>, where n is
// call·1000 + j; parked ones have "park" for the instance. The step and the
// routing key of the entry name the list it came from. The namespace is part
// of it since all deployments on one database share kombu's unacked hash.
const (
	tagMark    = "sb:"
	parkOwner  = "park"
	callFactor = 1000 // so a call takes at most 999 messages
	callDigits = 3    // of the number
	// numberWidth is how many digits n has, zeros in front included. With it a
	// tag is longer than 64 bytes, for which unacked_index is a skip list from
	// its first member on: in the compact form that Redis has for few and short
	// members the place of each is looked for from the front, 2 µs for one of 100.
	numberWidth = 25
)

func tagPrefix(owner string) string { return tagMark + owner + ":" }

func (k keys) tagSuffix(step int) string { return ":" + strconv.Itoa(step) + ":" + k.namespace }

func (k keys) tag(owner string, n int64, step int) string {
	return string(appendTag(nil, tagPrefix(owner), n, k.tagSuffix(step)))
}

func appendTag(b []byte, prefix string, n int64, suffix string) []byte {
	return append(appendPadded(append(b, prefix...), n, numberWidth), suffix...)
}

// appendPadded appends n, at least 0, with zeros in front.
func appendPadded(b []byte, n int64, width int) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], n, 10)
	for range width - len(text) {
		b = append(b, '0')
	}
	return append(b, text...)
}

// parkTag makes a tag for a parked message; from is unique among them.
func (k keys) parkTag(from string, n int64, step int) string {
	return tagPrefix(parkOwner) + from + "-" + strconv.FormatInt(n, 10) + k.tagSuffix(step)
}

type parsedTag struct {
	owner string
	n     int64 // 0 for parked ones
	step  int
}

// parseTag reads a tag of this namespace; false for all others.
func (k keys) parseTag(tag string) (parsedTag, bool) {
	rest, ok := strings.CutPrefix(tag, tagMark)
	if !ok {
		return parsedTag{}, false
	}
	parts := strings.SplitN(rest, ":", 4)
	if len(parts) != 4 || parts[3] != k.namespace {
		return parsedTag{}, false
	}
	t := parsedTag{owner: parts[0]}
	var err error
	if t.step, err = strconv.Atoi(parts[2]); err != nil {
		return parsedTag{}, false
	}
	if t.owner == parkOwner {
		return t, true
	}
	t.n, err = strconv.ParseInt(parts[1], 10, 64)
	return t, err == nil && validInstance(t.owner)
}

// NewInstance returns a new instance id, for [Config].Instance: 16 random bytes
// as 32 hexadecimal digits.
func NewInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func validInstance(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16
}
