package metrics

import (
	"slices"
	"time"
)

// Roles are what a Redis is used for, as the label role has them.
const (
	RoleBroker  = "broker"
	RoleResults = "results"
	RoleLocks   = "locks"
)

// Store is what a look at the Redis of one role has shown.
type Store struct {
	Role string
	// Up is false if it did not answer; the rest is then without meaning.
	Up bool
	// Offset is the local clock minus the store's.
	Offset time.Duration
	// Policy is its maxmemory-policy, "" where it cannot be read.
	Policy string
	// Evicted is the number of keys it has evicted since its start.
	Evicted int64
}

// Watched notes what looks at the stores have shown, one for each role.
func (m *Metrics) Watched(stores ...Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range stores {
		m.Up(s.Role, s.Up)
		if !s.Up {
			continue
		}
		if s.Role == RoleBroker {
			m.clockOffset.Set(s.Offset.Seconds())
		}
		last, known := m.stores[s.Role]
		if known && last.Policy != "" && last.Policy != s.Policy {
			m.memoryPolicy.DeleteLabelValues(s.Role, last.Policy)
		}
		if s.Policy != "" {
			m.memoryPolicy.WithLabelValues(s.Role, s.Policy).Set(1)
			m.evictedKeys.WithLabelValues(s.Role).Add(evicted(last, s, known))
		}
		m.stores[s.Role] = s
	}
}

// evicted is what was evicted since the last look. The first look is the
// base; a number that has fallen is that of a server that was started again.
func evicted(last, now Store, known bool) float64 {
	switch {
	case !known || last.Policy == "":
		return 0
	case now.Evicted < last.Evicted:
		return float64(now.Evicted)
	default:
		return float64(now.Evicted - last.Evicted)
	}
}

// ages tells for how long each list's next message was seen to wait: a message
// carries no time, so its age counts from the first look that met it.
type ages struct {
	seen map[string]time.Time
}

// oldest is the age of the oldest of the messages that digests stand for.
func (a *ages) oldest(queue string, digests []string, now time.Time) time.Duration {
	var oldest time.Duration
	for _, d := range digests {
		if d == "" {
			continue
		}
		key := queue + "\x00" + d
		since, ok := a.seen[key]
		if !ok {
			since = now
			a.seen[key] = now
		}
		oldest = max(oldest, now.Sub(since))
	}
	return oldest
}

// forget drops what waits no more.
func (a *ages) forget(depths []QueueDepth) {
	for key := range a.seen {
		if !slices.ContainsFunc(depths, func(d QueueDepth) bool {
			return slices.ContainsFunc(d.Tails, func(tail string) bool { return d.Queue+"\x00"+tail == key })
		}) {
			delete(a.seen, key)
		}
	}
}
