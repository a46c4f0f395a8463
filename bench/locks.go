package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/solobeat/solobeat/lockguard"
	"github.com/solobeat/solobeat/lockguard/lockredis"
	"golang.org/x/sync/errgroup"

	"github.com/solobeat/solobeat/bench/rig"
)

const (
	lockTTL = 30 * time.Second
	many    = 64
	// turn is how long a library goes on before the next one, and manyTurns how
	// often each is on in a round: a virtual machine changes its pace within
	// tens of milliseconds.
	turn      = 10 * time.Millisecond
	manyTurns = 72
	// bareScripts is what the lock scripts cost by themselves.
	bareScripts = "our scripts, sent by go-redis alone"
)

// locker is a library that takes a free lock and gives it back.
type locker struct {
	name string
	once func(ctx context.Context, key string) error
}

// newClient is the go-redis client that all libraries on it get.
func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: many + 16, MaxRetries: -1, ContextTimeoutEnabled: true})
}

func newGuard(client *redis.Client, o lockguard.Observer) (*lockguard.Guard, error) {
	backend, err := lockredis.New(client, lockredis.Options{})
	if err != nil {
		return nil, err
	}
	return lockguard.New(lockguard.Config{Backend: backend, Observer: o})
}

func guardLocker(g *lockguard.Guard) locker {
	return locker{solobeat, func(ctx context.Context, key string) error {
		h, err := g.TryAcquire(ctx, key, lockguard.WithTTL(lockTTL))
		if err != nil {
			return err
		}
		_, err = h.Release(ctx)
		return err
	}}
}

// scriptsLocker sends the two scripts with texts that are made once, and does
// nothing else: no token, no watchdog, no context. What it needs more than a
// library that has neither fence nor holder nor wakes is what these cost.
func (b *bench) scriptsLocker(ctx context.Context, client *redis.Client) (locker, error) {
	var hashes [2]string
	for i, files := range [][]string{
		{"lockguard/lockredis/acquire.lua"}, {"internal/redisconn/unlock.lua", "lockguard/lockredis/release.lua"},
	} {
		var script []byte
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(b.root, filepath.FromSlash(file)))
			if err != nil {
				return locker{}, err
			}
			script = append(script, text...)
		}
		var err error
		if hashes[i], err = client.ScriptLoad(ctx, string(script)).Result(); err != nil {
			return locker{}, err
		}
	}
	const token = "0123456789abcdef0123456789abcdef"
	ttl := strconv.FormatInt(lockTTL.Milliseconds(), 10)
	return locker{bareScripts, func(ctx context.Context, key string) error {
		if err := client.EvalSha(ctx, hashes[0], []string{key, "solobeat:" + key}, token, ttl, "90000000", "0 0  "+token).Err(); err != nil {
			return err
		}
		n, err := client.EvalSha(ctx, hashes[1], []string{key}, token, "solobeat:released").Int()
		if err == nil && n != 1 {
			err = fmt.Errorf("release of %s gave %d", key, n)
		}
		return err
	}}, nil
}

func redislockLocker(client *redis.Client) locker {
	l := redislock.New(client)
	return locker{"bsm/redislock", func(ctx context.Context, key string) error {
		lock, err := l.Obtain(ctx, key, lockTTL, nil)
		if err != nil {
			return err
		}
		return lock.Release(ctx)
	}}
}

func redsyncLocker(client *redis.Client) locker {
	rs := redsync.New(goredis.NewPool(client))
	return locker{"go-redsync", func(ctx context.Context, key string) error {
		m := rs.NewMutex(key, redsync.WithExpiry(lockTTL))
		if err := m.TryLockContext(ctx); err != nil {
			return err
		}
		_, err := m.UnlockContext(ctx)
		return err
	}}
}

// rueidisLocker holds one key a lock, as the others do; by default it holds two
// of three.
func rueidisLocker(addr string) (locker, func(), error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyValidity: lockTTL, KeyMajority: 1, TryNextAfter: time.Second,
	})
	if err != nil {
		return locker{}, nil, err
	}
	return locker{"rueidislock", func(ctx context.Context, key string) error {
		_, release, err := l.TryWithContext(ctx, key)
		if err != nil {
			return err
		}
		release()
		return nil
	}}, l.Close, nil
}

// pairs is how many locks so many goroutines, each with a key of its own, take
// and give back within span, and the time that it took.
func (l locker) pairs(ctx context.Context, goroutines int, span time.Duration) (int64, time.Duration, error) {
	var n atomic.Int64
	var g errgroup.Group
	began := time.Now()
	for i := range goroutines {
		key := "bench:" + l.name + ":" + strconv.Itoa(i)
		g.Go(func() error {
			for time.Since(began) < span {
				if err := l.once(ctx, key); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
				n.Add(1)
			}
			return nil
		})
	}
	err := g.Wait()
	return n.Load(), time.Since(began), err
}

// turns is one round: all lockers in turn, many times for a short while, so that
// a change of the machine's load meets all. It returns pairs a second and the
// CPU time of Redis a pair.
func turns(ctx context.Context, srv *rig.Redis, lockers []locker, goroutines, n int) (rates, redisCPU map[string]float64, err error) {
	count, spent, cpu := map[string]int64{}, map[string]time.Duration{}, map[string]time.Duration{}
	for range n {
		for _, l := range lockers {
			before, err := srv.Used(ctx)
			if err != nil {
				return nil, nil, err
			}
			pairs, took, err := l.pairs(ctx, goroutines, turn)
			if err != nil {
				return nil, nil, err
			}
			after, err := srv.Used(ctx)
			if err != nil {
				return nil, nil, err
			}
			count[l.name] += pairs
			spent[l.name] += took
			cpu[l.name] += after - before
		}
	}
	rates, redisCPU = map[string]float64{}, map[string]float64{}
	for name, pairs := range count {
		rates[name] = float64(pairs) / spent[name].Seconds()
		redisCPU[name] = micros(cpu[name]) / float64(pairs)
	}
	return rates, redisCPU, nil
}

// locks measures acquire and release beside other libraries.
func locks(ctx context.Context, b *bench) error {
	srv, err := rig.StartRedis(ctx, b.dir)
	if err != nil {
		return err
	}
	defer srv.Stop()
	client := newClient(srv.Addr)
	defer client.Close()
	guard, err := newGuard(client, lockguard.Observer{})
	if err != nil {
		return err
	}
	defer func() { _ = guard.Close(ctx) }()
	rueidisOne, closeRueidis, err := rueidisLocker(srv.Addr)
	if err != nil {
		return err
	}
	defer closeRueidis()
	ours := guardLocker(guard)
	scripts, err := b.scriptsLocker(ctx, client)
	if err != nil {
		return err
	}
	lockers := []locker{ours, redislockLocker(client), redsyncLocker(client), rueidisOne, scripts}
	if _, _, err := turns(ctx, srv, lockers, many, 1); err != nil { // opens the connections
		return err
	}
	rates, cpu := map[int]map[string]series{1: {}, many: {}}, map[int]map[string]series{1: {}, many: {}}
	for round := range b.rounds {
		for _, goroutines := range []int{1, many} {
			rate, used, err := turns(ctx, srv, lockers, goroutines, b.of(manyTurns, 1))
			if err != nil {
				return err
			}
			if rate["redis-py"], err = b.redisPy(ctx, srv, goroutines); err != nil {
				return err
			}
			for name := range rate {
				rates[goroutines][name] = append(rates[goroutines][name], rate[name])
				cpu[goroutines][name] = append(cpu[goroutines][name], used[name])
			}
			b.say("round %d, %2d goroutines: %.0f/s; bsm/redislock %.0f, go-redsync %.0f, rueidislock %.0f, redis-py %.0f", round+1, goroutines,
				rate[solobeat], rate["bsm/redislock"], rate["go-redsync"], rate["rueidislock"], rate["redis-py"])
		}
	}
	return b.judgeLocks(ctx, ours, rates, cpu)
}

func (b *bench) judgeLocks(ctx context.Context, ours locker, rates, cpu map[int]map[string]series) error {
	for _, line := range []struct {
		peer       string
		goroutines int
		bar        float64
	}{
		{"bsm/redislock", 1, 0.9},
		{"go-redsync", 1, 0.9},
		{"bsm/redislock", many, 1.2},
		{"go-redsync", many, 1.2},
	} {
		r := rates[line.goroutines][solobeat].over(rates[line.goroutines][line.peer])
		row := b.judge(fmt.Sprintf("acquire + release : %s, %s", line.peer, goroutinesText(line.goroutines)), fmt.Sprintf("≥ %.1f ×", line.bar), r.show("%.2f", "×"), r.median() >= line.bar)
		if b.missed(row) {
			row.profile = b.profileHere(ctx, func() error {
				_, _, err := ours.pairs(ctx, line.goroutines, 2*time.Second)
				return err
			})
		}
	}
	for _, goroutines := range []int{1, many} {
		for _, name := range []string{solobeat, bareScripts, "bsm/redislock", "go-redsync", "rueidislock", "redis-py"} {
			text := rates[goroutines][name].show("%.0f", "/s")
			if used := cpu[goroutines][name]; used.median() > 0 {
				text += "; " + used.show("%.1f", "µs") + " of Redis a pair"
			}
			b.tell(fmt.Sprintf("acquire + release: %s, %s", name, goroutinesText(goroutines)), text)
		}
	}
	b.tell("acquire + release: "+bareScripts+" : bsm/redislock, 1 goroutine", rates[1][bareScripts].over(rates[1]["bsm/redislock"]).show("%.2f", "×"))
	b.note(fmt.Sprintf("**Acquire + release.** Free locks with a TTL of %s, each goroutine with a key of its own, the libraries in turn for %s each, %d times a round. "+
		"Solobeat is `Guard.TryAcquire` and `Handle.Release`: fence, holder's data and watchdog included, which bsm/redislock and go-redsync do not have. All three share one go-redis client. "+
		"rueidislock holds one key here (two of three by default); it and redis-py (a process of its own; 64 threads instead of goroutines) are no equals and have no bar. "+
		"To tell what fence, holder's data and wakes cost on Redis, the same two scripts are sent by go-redis alone, with fixed texts.", lockTTL, turn, manyTurns))
	return nil
}

func goroutinesText(n int) string {
	if n == 1 {
		return "1 goroutine"
	}
	return fmt.Sprintf("%d goroutines", n)
}

func (b *bench) redisPy(ctx context.Context, srv *rig.Redis, threads int) (float64, error) {
	p, err := rig.Start(ctx, b.dir, "redis-py", b.pythonEnv(srv.URL()), b.python, filepath.Join(b.root, "bench", "python", "locks.py"),
		strconv.Itoa(threads), "0.5")
	if err != nil {
		return 0, err
	}
	if err := p.Wait(ctx); err != nil {
		return 0, err
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(p.Output()), 64)
	if err != nil {
		return 0, fmt.Errorf("redis-py: %w", err)
	}
	return rate, nil
}

// waiter measures how soon a waiter has the lock after its release, from another
// process's view: two guards with clients of their own.
func waiter(ctx context.Context, b *bench) error {
	srv, err := rig.StartRedis(ctx, b.dir)
	if err != nil {
		return err
	}
	defer srv.Stop()
	var refused atomic.Int64
	var guards [2]*lockguard.Guard
	for i := range guards {
		client := newClient(srv.Addr)
		defer client.Close()
		guards[i], err = newGuard(client, lockguard.Observer{Busy: func(lockguard.Labels, string) { refused.Add(1) }})
		if err != nil {
			return err
		}
	}
	var p50, p99 series
	for round := range b.rounds {
		var woken []float64
		for range b.of(100, 5) {
			d, err := wokenAfter(ctx, guards[0], guards[1], &refused)
			if err != nil {
				return err
			}
			woken = append(woken, millis(d))
		}
		p50, p99 = append(p50, percentile(woken, 0.5)), append(p99, percentile(woken, 0.99))
		b.say("round %d, woken after p50 %.2f ms, p99 %.2f ms", round+1, p50[round], p99[round])
	}
	b.judge("waiter woken after release, p50", "≤ 2 ms", p50.show("%.2f", "ms"), p50.median() <= 2)
	b.tell("waiter woken after release, p99", p99.show("%.2f", "ms"))
	b.note("**Waiter.** Two guards with a client each; one holds the lock, the other waits in `Acquire` and has subscribed. From the call of `Release` until `Acquire` has returned; 100 times a round.")
	return errors.Join(guards[0].Close(ctx), guards[1].Close(ctx))
}

// wokenAfter is one release with somebody waiting. refused counts the attempts
// that met a held lock.
func wokenAfter(ctx context.Context, holder, waiting *lockguard.Guard, refused *atomic.Int64) (time.Duration, error) {
	const key = "bench:waiter"
	held, err := holder.Acquire(ctx, key, lockguard.WithWait(10*time.Second))
	if err != nil {
		return 0, err
	}
	before := refused.Load()
	var got time.Time
	var g errgroup.Group
	g.Go(func() error {
		h, err := waiting.Acquire(ctx, key, lockguard.WithWait(10*time.Second))
		got = time.Now()
		if err == nil {
			_, err = h.Release(ctx)
		}
		return err
	})
	// It is refused, subscribes, and is refused once more: now it waits.
	err = rig.Until(ctx, 10*time.Second, time.Millisecond, func() (bool, error) { return refused.Load() >= before+2, nil })
	if err != nil {
		return 0, errors.Join(err, g.Wait())
	}
	if err := pause(ctx, 2*time.Millisecond); err != nil {
		return 0, err
	}
	began := time.Now()
	_, err = held.Release(ctx)
	err = errors.Join(err, g.Wait())
	return got.Sub(began), err
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

const (
	heldLocks = 1000
	// renewTTL makes a round of renewals a second. What a round costs does not
	// depend on it.
	renewTTL = 3 * time.Second
)

// renewals measures what holding many locks costs Redis.
func renewals(ctx context.Context, b *bench) error {
	srv, err := rig.StartRedis(ctx, b.dir)
	if err != nil {
		return err
	}
	defer srv.Stop()
	client := newClient(srv.Addr)
	defer client.Close()
	var renewed, failed atomic.Int64
	guard, err := newGuard(client, lockguard.Observer{Renewed: func(_ lockguard.Labels, _ string, o lockguard.RenewOutcome, _ time.Duration) {
		if o == lockguard.RenewOK {
			renewed.Add(1)
		} else {
			failed.Add(1)
		}
	}})
	if err != nil {
		return err
	}
	defer func() { // the locks are left to their TTL
		closing, cancel := context.WithCancel(ctx)
		cancel()
		_ = guard.Close(closing)
	}()
	span := time.Duration(b.of(4000, 1500)) * time.Millisecond
	idle, err := usedIn(ctx, srv, span)
	if err != nil {
		return err
	}
	if err := holdMany(ctx, guard); err != nil {
		return err
	}
	var cost series
	for round := range b.rounds {
		before := renewed.Load()
		spent, err := usedIn(ctx, srv, span)
		if err != nil {
			return err
		}
		n := renewed.Load() - before
		if n == 0 {
			return errors.New("no lock was renewed")
		}
		cost = append(cost, millis(spent-idle)/float64(n)*heldLocks)
		b.say("round %d, %d renewals in %s, Redis CPU %.2f ms a 1,000 (idle: %.2f ms in that time)", round+1, n, span, cost[round], millis(idle))
	}
	if n := failed.Load(); n > 0 {
		b.say("%d renewals failed", n)
	}
	b.judge("1,000 held locks, one renewal round, Redis CPU", "≤ 6 ms", cost.show("%.2f", "ms"), cost.median() <= 6)
	b.note(fmt.Sprintf("**Renewals.** One guard holds 1,000 locks with a TTL of %s, so that its watchdog renews all of them each second. Redis CPU by INFO cpu over some seconds, less that of the same time before the locks were taken, divided by the renewals counted, times 1,000.", renewTTL))
	return nil
}

func holdMany(ctx context.Context, guard *lockguard.Guard) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(many)
	for i := range heldLocks {
		g.Go(func() error {
			_, err := guard.TryAcquire(context.WithoutCancel(gctx), "bench:held:"+strconv.Itoa(i), lockguard.WithTTL(renewTTL))
			return err
		})
	}
	return g.Wait()
}

// usedIn is the CPU time that a server uses within span.
func usedIn(ctx context.Context, srv *rig.Redis, span time.Duration) (time.Duration, error) {
	before, err := srv.Used(ctx)
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	after, err := srv.Used(ctx)
	return after - before, err
}
