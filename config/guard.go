package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/tasks"
	"github.com/solobeat/solobeat/tasks/celery/wire"
)

// longTTL is a time to live above which a crash blocks a job for longer than
// anybody waits. The watchdog renews, so that a short one is enough.
const longTTL = time.Hour

// lockKeys are the keys of a lock: block, of jobs and of tasks.
type lockKeys struct {
	key, backend                *string
	ttl, renew, expect, maxHold *time.Duration
	minHold, stallAfter, wait   *time.Duration
	onBusy                      *tasks.OnBusy
	onLost                      *tasks.OnLost
	onStoreDown                 *tasks.OnStoreDown
	fenceBase                   *uint64
}

func (l lockKeys) fields(d *decoder, key field) map[string]field {
	return map[string]field{
		"key":           key,
		"backend":       oneOf(d, l.backend, "redis"),
		"ttl":           d.duration(l.ttl, time.Second),
		"renew":         d.duration(l.renew, 100*time.Millisecond),
		"expect":        d.duration(l.expect, time.Millisecond),
		"max_hold":      d.duration(l.maxHold, time.Second),
		"min_hold":      d.duration(l.minHold, time.Millisecond),
		"stall_after":   d.duration(l.stallAfter, lockguard.MinStallAfter),
		"on_busy":       oneOf(d, l.onBusy, tasks.OnBusySkip, tasks.OnBusyRetry, tasks.OnBusyWait),
		"wait":          d.duration(l.wait, time.Millisecond),
		"on_lost":       oneOf(d, l.onLost, tasks.OnLostCancel, tasks.OnLostObserve),
		"on_store_down": oneOf(d, l.onStoreDown, tasks.OnStoreDownRetry, tasks.OnStoreDownRun),
		"fence_base":    fenceBase(d, l.fenceBase),
	}
}

func fenceBase(d *decoder, into *uint64) field {
	return func(_, v *yaml.Node, path string) {
		if d.tell(fenceBaseShape()) {
			return
		}
		n, err := strconv.ParseUint(v.Value, 10, 64)
		if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!int" || err != nil {
			d.errorf(v, path, "write a number up to 2^52, in plain digits", "want a whole number, got %s", kindName(v))
			return
		}
		if n > lockguard.MaxFenceBase {
			d.errorf(v, path, "write a number up to 2^52", "%d and the store's clock together are above what stores count exactly", n)
			return
		}
		*into = n
	}
}

// checkLock checks what the keys of a lock mean to each other; timeout is that of
// the run, and record says whether it has one.
func checkLock(p *places, l lockKeys, timeout time.Duration, record bool) {
	for _, c := range (lockguard.Policies{
		OnBusy: *l.onBusy, OnLost: *l.onLost, OnStoreDown: *l.onStoreDown,
		Wait: *l.wait, StallAfter: *l.stallAfter, MaxHold: *l.maxHold, Timeout: timeout, Record: record,
	}).Conflicts() {
		tell := p.errorf
		if c.Warning {
			tell = p.warnf
		}
		tell(c.Keys, c.Cure, "%s", c.Msg)
	}
	ttl := *l.ttl
	if ttl == 0 {
		ttl = lockguard.DefaultTTL
	}
	renew := *l.renew
	switch keys := []string{"lock.renew", "lock.ttl"}; {
	case renew > ttl*2/3:
		// One late renewal would lose the lock.
		p.errorf(keys, "write at most "+short(ttl*2/3)+", better "+short(ttl/3), "renew %s is above two thirds of ttl %s", short(renew), short(ttl))
	case renew > ttl/3:
		p.warnf(keys, short(ttl/3)+" lets two renewals fail", "renew %s is above a third of ttl %s", short(renew), short(ttl))
	}
	if ttl > longTTL {
		p.warnf([]string{"lock.ttl"}, "a short one is enough, since the lock is renewed while its run goes on",
			"after a crash nobody gets the lock for up to %s", short(ttl))
	}
	checkHold(p, l, ttl, timeout)
}

func checkHold(p *places, l lockKeys, ttl, timeout time.Duration) {
	expect, hold := *l.expect, *l.maxHold
	switch {
	case hold == 0:
	case timeout > 0 && hold < timeout:
		p.warnf([]string{"lock.max_hold", "timeout"}, "write more than the timeout, or leave it out",
			"max_hold %s ends a run before its timeout %s does", short(hold), short(timeout))
	case hold < ttl:
		p.warnf([]string{"lock.max_hold", "lock.ttl"}, "write more than the ttl, or leave it out",
			"max_hold %s is below ttl %s: the lock is never renewed", short(hold), short(ttl))
	}
	switch {
	case expect == 0:
	case timeout > 0 && expect > timeout:
		p.warnf([]string{"lock.expect", "timeout"}, "write less than the timeout",
			"expect %s is above timeout %s: no run gets so far, and the alert stays silent", short(expect), short(timeout))
	case hold > 0 && expect > hold:
		p.warnf([]string{"lock.expect", "lock.max_hold"}, "write less than max_hold",
			"expect %s is above max_hold %s: no run gets so far, and the alert stays silent", short(expect), short(hold))
	}
}

// keyProblem says why a text cannot be a lock's key: it is the name of
// something else in the same Redis, which the broker's prefix stands before.
// "" means that it can.
func keyProblem(whole string, queues map[string]bool, prefix string) string {
	key := strings.TrimPrefix(whole, prefix)
	list, _, _ := strings.Cut(key, "\x06\x16") // a queue's lists for other priorities
	switch {
	case queues[list] || queues[whole]:
		return shown(key) + " is a queue: its list would be taken for a lock"
	case slices.Contains([]string{"unacked", "unacked_index", "unacked_mutex"}, key),
		strings.HasPrefix(key, "_kombu.binding."), strings.HasPrefix(key, "celery-task-meta-"):
		return shown(key) + " is a key of Celery's own"
	case strings.HasPrefix(whole, "asynq:"): // asynq knows no prefix
		return shown(whole) + " is a key of asynq's own"
	case strings.HasPrefix(key, "solobeat:") && !strings.Contains(key, ":lock:"):
		return shown(key) + " is a key of Solobeat's own"
	}
	return ""
}

const otherKey = "choose another key, for example report:lock"

// asynqQueueRE is what asynq queues may be named: a brace would end the cluster
// hash tag of its keys.
var asynqQueueRE = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

const asynqQueueCure = "use letters, digits and _.:- only, at most 100"

// queueProblem says why a text cannot be a queue's name; "" means that it can.
// QueueProblem says why a text cannot be the name of a queue, "" that it can.
func QueueProblem(q string) string {
	switch {
	case strings.TrimSpace(q) == "":
		return "the queue's name is empty"
	case strings.TrimSpace(q) != q:
		return "the queue " + shown(q) + " begins or ends with a blank"
	case strings.ContainsFunc(q, func(r rune) bool { return r < 0x20 || r == 0x7f || r == ',' }):
		return "the queue " + shown(q) + " has a comma or a control character in its name"
	case len(q) > 200:
		return "the queue's name is longer than 200 bytes"
	case wire.ReservedQueue(q):
		return "the queue " + shown(q) + " would be a key of Celery's or Solobeat's own"
	case strings.Contains(q, "{{"):
		return "the queue " + shown(q) + " looks like a template, and queues have none"
	}
	return ""
}

const queueCure = "write one name, such as celery; several as a list"

func (d *decoder) queue(into *string) field {
	return func(_, v *yaml.Node, path string) {
		if !d.wantText(v, path) {
			return
		}
		if msg := QueueProblem(v.Value); msg != "" {
			d.errorf(v, path, "write one name, or remove the key for the default", "%s", msg)
			return
		}
		*into = v.Value
	}
}

// readEffect refuses effect: once as long as no durable store exists, and does
// not offer it.
func readEffect(d *decoder) field {
	return func(k, v *yaml.Node, path string) {
		if v.Kind == yaml.ScalarNode && v.Value == "once" {
			d.errorf(v, path, "make the effect repeatable: let the resource refuse a smaller fence, or know the key",
				"an effect that must happen once needs a durable store, and there is none: redis may lose records in a failover or a restart")
			return
		}
		var effect string
		oneOf(d, &effect, "repeatable")(k, v, path)
	}
}

// readRetries reads a number, which leaves the delays at their defaults, or a
// block with some of {max, base, max_delay}, which changes what was there.
func readRetries(p *places, k, v *yaml.Node, path string, was *tasks.RetryPolicy) *tasks.RetryPolicy {
	d, policy := p.d, tasks.DefaultRetries
	if v.Kind == yaml.ScalarNode {
		d.integer(&policy.Max, 0, 1000)(k, v, path)
		return &policy
	}
	if was != nil {
		policy = *was
	}
	base, limit := ms(policy.BaseMS), ms(policy.MaxDelayMS)
	p.block(v, "retries.", path, map[string]field{
		"max":       d.integer(&policy.Max, 0, 1000),
		"base":      d.duration(&base, time.Millisecond),
		"max_delay": d.duration(&limit, time.Millisecond),
	})
	policy.BaseMS, policy.MaxDelayMS = base.Milliseconds(), limit.Milliseconds()
	if limit < base {
		p.errorf([]string{"retries.max_delay", "retries.base"}, "write at least "+short(base), "max_delay %s is shorter than base %s", short(limit), short(base))
	}
	return &policy
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
