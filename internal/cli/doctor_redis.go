package cli

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/idempotency"
	"github.com/solobeat/solobeat/internal/metrics"
	"github.com/solobeat/solobeat/internal/redisconn"
	"github.com/solobeat/solobeat/lockguard"
)

const (
	// doctorTry bounds one question.
	doctorTry = 5 * time.Second
	// maxOffset is from which difference of clocks on there is a warning: logs
	// and metrics of several machines no longer fit together. Nothing is decided
	// by local clocks.
	maxOffset = time.Second
	// fullAt is how full a server may be.
	fullAt = 0.9
)

// servers asks each server for what it is, and returns which of them answered.
func (d *doctor) servers(ctx context.Context) map[*redis.Client]bool {
	up := map[*redis.Client]bool{}
	for _, one := range d.s.all() {
		facts := redisFacts{URL: redisconn.MaskURL(one.url)}
		for role, client := range map[string]*redis.Client{metrics.RoleBroker: d.s.broker, metrics.RoleResults: d.s.results, metrics.RoleLocks: d.s.locks} {
			if client == one.client {
				facts.Roles = append(facts.Roles, role)
			}
		}
		slices.Sort(facts.Roles)
		check := "redis"
		if err := d.ask(ctx, one, &facts); err != nil {
			d.add(check, verdictFail, redisconn.Cure(err), "%s", redisconn.ReachError(one.url, one.setting(), err))
		} else {
			up[one.client] = true
			d.judge(ctx, one, &facts)
		}
		d.report.Redis = append(d.report.Redis, facts)
	}
	return up
}

// ask measures the round trip and the offset of the clocks: the shortest of
// three tries says most.
func (d *doctor) ask(ctx context.Context, one server, facts *redisFacts) error {
	ctx, cancel := context.WithTimeout(ctx, doctorTry)
	defer cancel()
	best := time.Hour
	for range 3 {
		began := time.Now()
		at, err := one.client.Time(ctx).Result()
		if err != nil {
			return err
		}
		if took := time.Since(began); took < best {
			best = took
			facts.RoundTrip, facts.Offset = took.Seconds(), began.Add(took/2).Sub(at).Seconds()
		}
	}
	if one.client == d.s.broker {
		d.report.ClockOffset = &facts.Offset
	}
	return nil
}

func (d *doctor) judge(ctx context.Context, one server, facts *redisFacts) {
	ctx, cancel := context.WithTimeout(ctx, doctorTry)
	defer cancel()
	roles := strings.Join(facts.Roles, ", ")
	d.add("redis", verdictOK, "", "%s (%s) answers in %s", facts.URL, roles, roundTrip(facts.RoundTrip))
	verdict := verdictOK
	if off := time.Duration(facts.Offset * 1e9).Abs(); off > maxOffset {
		verdict = verdictWarn
	}
	d.add("clock", verdict, "keep the clocks of all machines right, by NTP", "the local clock is %+.3f s off that of %s", facts.Offset, facts.URL)
	info, err := infoOf(ctx, one.client)
	if err != nil {
		d.add("redis", verdictWarn, "give the user the ACL rule +info", "%s does not tell what it is: %s", facts.URL, err)
		return
	}
	facts.Server, facts.Version = "redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		facts.Server, facts.Version = "valkey", v
	}
	facts.Mode, facts.Policy, facts.AOF = info["redis_mode"], info["maxmemory_policy"], info["aof_enabled"] == "1"
	d.version(facts)
	d.memory(facts, info, roles)
	d.persistence(ctx, one, facts, roles)
}

func infoOf(ctx context.Context, c *redis.Client) (map[string]string, error) {
	text, err := c.Info(ctx).Result()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info, nil
}

func (d *doctor) version(facts *redisFacts) {
	major, rest, _ := strings.Cut(facts.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	switch {
	case errA != nil || errB != nil:
		d.add("version", verdictWarn, "use Redis 6.2 or newer, or Valkey", "%s says that its version is %q", facts.URL, facts.Version)
	case facts.Server == "redis" && (a < 6 || a == 6 && b < 2):
		d.add("version", verdictFail, "use Redis 6.2 or newer, or Valkey", "%s is Redis %s", facts.URL, facts.Version)
	case facts.Mode == "cluster":
		d.add("version", verdictFail, "use one server, not a cluster", "%s is a node of a cluster", facts.URL)
	default:
		d.add("version", verdictOK, "", "%s is %s %s", facts.URL, facts.Server, facts.Version)
	}
}

func (d *doctor) memory(facts *redisFacts, info map[string]string, roles string) {
	const cure = "set maxmemory-policy to noeviction"
	switch {
	case facts.Policy == "":
		d.add("memory", verdictWarn, cure, "%s does not tell its maxmemory-policy", facts.URL)
	case facts.Policy == "noeviction":
		d.add("memory", verdictOK, "", "%s has maxmemory-policy noeviction", facts.URL)
	case roles == metrics.RoleResults:
		d.add("memory", verdictWarn, cure, "%s has maxmemory-policy %s and may drop results before they are read", facts.URL, facts.Policy)
	default:
		d.add("memory", verdictFail, cure, "%s has maxmemory-policy %s and may drop messages, locks, records and the state of jobs", facts.URL, facts.Policy)
	}
	used, _ := strconv.ParseFloat(info["used_memory"], 64)
	limit, _ := strconv.ParseFloat(info["maxmemory"], 64)
	if limit > 0 && used > fullAt*limit {
		d.add("memory", verdictWarn, "raise its maxmemory, or remove what is not needed", "%s has used %.0f %% of its memory", facts.URL, 100*used/limit)
	}
	if n := info["evicted_keys"]; n != "" && n != "0" {
		d.add("memory", verdictWarn, cure, "%s has evicted %s keys since its start", facts.URL, n)
	}
}

func (d *doctor) persistence(ctx context.Context, one server, facts *redisFacts, roles string) {
	save, err := one.client.ConfigGet(ctx, "save").Result()
	facts.Snapshots = save["save"]
	what := "messages and the state of jobs"
	if one.client == d.s.locks && one.client != d.s.broker {
		what = "records"
	} else if one.client == d.s.locks {
		what = "messages, records and the state of jobs"
	}
	switch {
	case roles == metrics.RoleResults:
		return
	case facts.AOF:
		d.add("persistence", verdictOK, "", "%s keeps an append-only file", facts.URL)
	case err != nil:
		d.add("persistence", verdictWarn, "switch the append-only file on: appendonly yes", "%s keeps no append-only file; whether it takes snapshots it does not tell", facts.URL)
	case facts.Snapshots == "":
		d.add("persistence", verdictWarn, "switch the append-only file on: appendonly yes", "%s keeps nothing: a restart loses %s", facts.URL, what)
	default:
		d.add("persistence", verdictWarn, "switch the append-only file on: appendonly yes", "%s keeps snapshots only: a restart loses what came after the last one, %s too", facts.URL, what)
	}
}

// lockServer tries locks and records as a worker does.
func (d *doctor) lockServer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, doctorTry)
	defer cancel()
	d.report.LockBackend.URL = redisconn.MaskURL(d.s.lockServer().url)
	b, err := d.s.lockBackend()
	if err != nil {
		d.failed(ctx, "locks", err)
		return
	}
	d.report.LockBackend.Name = b.Name()
	caps, err := b.Probe(ctx)
	if err != nil {
		d.failed(ctx, "locks", err)
		return
	}
	d.report.LockBackend.Fence = string(caps.Fence)
	key := d.cfg.Redis.GlobalKeyPrefix + "solobeat:" + d.cfg.Namespace + ":lock:doctor"
	_, err = b.TryAcquire(ctx, lockguard.Attempt{Key: key, Token: d.s.instance, TTL: lockguard.MinTTL, MaxHold: time.Second, Instance: d.s.instance})
	var busy *lockguard.BusyError
	switch {
	case errors.As(err, &busy): // another doctor's
		err = nil
	case err == nil:
		_, err = b.Release(ctx, lockguard.Ref{Key: key, Token: d.s.instance}, 0)
	}
	if err != nil {
		d.failed(ctx, "locks", err)
		return
	}
	d.add("locks", verdictOK, "", "%s on %s: a lock was taken and released; its fences are %s", b.Name(), d.report.LockBackend.URL, caps.Fence)
	st, err := d.s.recordStore()
	if err == nil {
		err = st.Check(ctx)
	}
	switch {
	case errors.Is(err, idempotency.ErrUnsafeEviction): // told by the memory check
	case err != nil:
		d.failed(ctx, "records", err)
	default:
		d.add("records", verdictOK, "", "on %s", d.report.LockBackend.URL)
	}
	d.guards()
}

// guards looks at the numbers of the locks beside the way to their server.
func (d *doctor) guards() {
	rtt := 0.0
	for _, f := range d.report.Redis {
		if slices.Contains(f.Roles, metrics.RoleLocks) {
			rtt = f.RoundTrip
		}
	}
	tight := []string{}
	note := func(name string, ttl, renew time.Duration) {
		if ttl == 0 {
			ttl = lockguard.DefaultTTL
		}
		if renew == 0 {
			renew = ttl / 3
		}
		if rtt > 0.1*min(renew, ttl-renew).Seconds() {
			tight = append(tight, name)
		}
	}
	guarded := 0
	for _, j := range d.jobs {
		if j.Lock != nil {
			guarded++
			note(j.Name, j.Lock.TTL, j.Lock.Renew)
		}
	}
	for _, t := range d.cfg.Tasks {
		if l := t.Config.Lock; l != nil {
			guarded++
			note(t.Name, l.TTL, l.Renew)
		}
	}
	if len(tight) > 0 {
		d.add("guards", verdictWarn, "give them a longer ttl, or a nearer server", "a round trip of %s takes over a tenth of the time to renew in: %s", roundTrip(rtt), listed(tight))
		return
	}
	d.add("guards", verdictOK, "", "%d of %d jobs and tasks have a lock; a round trip of %s leaves time to renew", guarded, len(d.jobs)+len(d.cfg.Tasks), roundTrip(rtt))
}

// roundTrip prints seconds that may be less than a thousandth.
func roundTrip(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(10 * time.Microsecond).String()
}

// listed names a few.
func listed(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
	}
	return strings.Join(names, ", ")
}
