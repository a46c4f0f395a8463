package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/solobeat/solobeat/internal/testkit"
)

var soakPoints = []string{"after-take", "in-run", "after-effect", "after-record", "before-ack"}

// arsenal arms workers with the fail point that has killed least, and counts.
type arsenal struct {
	env []string

	mu     sync.Mutex
	rng    *rand.Rand
	armed  bool
	given  map[string]int // by fail point
	deaths map[string]int // by fail point
	total  int            // of deaths, also at random instants
	known  map[int]bool   // pids
}

// next is the environment of the next worker.
func (a *arsenal) next() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.armed || a.rng.IntN(3) == 0 { // this one is for a random instant
		return a.env
	}
	point := slices.MinFunc(soakPoints, func(x, y string) int { return a.given[x] + a.deaths[x] - a.given[y] - a.deaths[y] })
	a.given[point]++
	if point == "before-ack" { // of tasks with and without a record in turn: what differs shows here
		task := []string{"soak.plain", "soak.guarded"}[a.given[point]%2]
		return append(slices.Clone(a.env), fmt.Sprintf("SOLOBEAT_FAILPOINTS=%s@%s=kill:%d", point, task, 1+a.rng.IntN(3)))
	}
	return append(slices.Clone(a.env), fmt.Sprintf("SOLOBEAT_FAILPOINTS=%s=kill:%d", point, 1+a.rng.IntN(10)))
}

// count looks at those that have died since.
func (a *arsenal) count(all []*worker) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range all {
		if a.known[w.Pid] || !w.killed() {
			continue
		}
		a.known[w.Pid] = true
		a.total++
		if m := pointRE.FindStringSubmatch(w.Stderr()); m != nil {
			a.deaths[m[1]]++
		}
	}
	return a.total
}

func (a *arsenal) enough(form soakForm) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range soakPoints {
		if a.deaths[p] < form.perPoint {
			return false
		}
	}
	return a.total >= form.kills
}

func (a *arsenal) disarm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = false
}

// kills: workers die at random instants and at each place of a run.
func (s *soak) kills() {
	s.server()
	s.killing(0)
}

// killsAndLosses: the same on a bad network, a quarter of it.
func (s *soak) killsAndLosses() {
	p := s.through()
	p.LoseReplies(4*s.form.losses, s.seed)
	f := &s.form
	f.messages, f.kills, f.perPoint, f.sending = f.messages/4, f.kills/4, f.perPoint/4, f.sending/4
	s.killing(f.messages)
	if p.Dropped() == 0 {
		s.t.Error("no reply was lost")
	}
}

// killing is the load under kills; a worker may complain so many times more.
func (s *soak) killing(complaints int) {
	a := &arsenal{env: s.envs, rng: rand.New(rand.NewPCG(s.seed, 7)), armed: true, given: map[string]int{}, deaths: map[string]int{}, known: map[int]bool{}}
	s.workers(1)
	s.fleet = s.stack.fleet(5, a.next, "-c", s.conf)
	s.send(s.mixed("k", s.form.messages, s.form.sending))
	// One kill for each pause, of whoever runs; the fail points do the rest. It
	// does not end with the count of kills: when none that run have a fail point,
	// those that follow them will.
	pause := s.form.sending / time.Duration(s.form.kills)
	extra, told := 0, 0
	for !a.enough(s.form) {
		if time.Since(s.began) > 10*s.form.sending {
			s.t.Fatalf("too few kills: %d, at fail points %v", a.total, a.deaths)
		}
		<-time.After(time.Duration((0.5 + s.rng.Float64()) * float64(pause)))
		alive := s.fleet.workers()
		slices.SortFunc(alive, func(x, y *worker) int { return strings.Compare(x.Name, y.Name) })
		if w := alive[s.rng.IntN(len(alive))]; strings.Contains(w.Stderr(), `"msg":"worker is up"`) && s.rng.IntN(2) == 0 {
			w.Signal(syscall.SIGKILL)
		}
		if n := a.count(s.fleet.everyone()); n >= told+max(s.form.kills/10, 10) {
			told = n
			s.progress("%d kills", n)
		}
		if time.Since(s.began) > s.form.sending && s.broker.LLen(s.t.Context(), "celery").Val() < 20 {
			for range 50 { // more to kill over
				extra++
				s.now(plain(fmt.Sprintf("xp%d", extra), 10))
				s.now(recorded("guarded", fmt.Sprintf("xg%d", extra), 10))
			}
		}
	}
	a.disarm()
	s.sent()
	s.progress("enough kills, at fail points %v", a.deaths)
	account := s.settle()
	s.everyEffect(account)
	s.quiet(50 + 3*s.row.kills + complaints)
	if s.row.kills < s.form.kills {
		s.t.Errorf("%d kills, want %d", s.row.kills, s.form.kills)
	}
	// Without a record a kill behind the effect doubles it: the account would
	// have seen one that is doubled in spite of its record.
	if s.row.plain == 0 {
		s.t.Error("no effect without a record was doubled: the kills show nothing")
	}
}

// everyone is every process that was ever started.
func (f *fleet) everyone() []*worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// loaded starts the load that scenes without kills have.
func (s *soak) loaded() {
	s.workers(3)
	s.send(s.mixed("m", s.form.others, s.form.othersSending))
}

// single is loaded without two messages of one key: a record whose lease ends
// while Redis is away is the other's by right.
func (s *soak) single() {
	s.workers(3)
	s.send(slices.DeleteFunc(s.mixed("m", s.form.others, s.form.othersSending), soakMessage.twin))
}

// once checks what holds where nobody dies: an effect with a record is there
// once without exception, and without one only a message that was sent again
// has another.
func (s *soak) once(a *account, warnings int) {
	s.t.Helper()
	s.everyEffect(a)
	if s.row.recorded != 0 {
		s.t.Errorf("%d extra effects with a record, though nobody died", s.row.recorded)
	}
	if s.row.plain > s.row.again {
		s.t.Errorf("%d extra effects without a record, and %d messages were sent again", s.row.plain, s.row.again)
	}
	if s.row.takeovers != 0 || s.row.kills != 0 {
		s.t.Errorf("%d takeovers, %d kills, though nobody died", s.row.takeovers, s.row.kills)
	}
	for _, w := range s.steady {
		if n := strings.Count(w.Stderr(), `"msg":"peers took this replica for dead`); n > 0 {
			s.t.Errorf("%s was buried %d times, and is alive", w.Name, n)
		}
	}
	s.quiet(warnings)
}

// restarts: Redis is killed, and ended in order, in the middle of the load.
func (s *soak) restarts() {
	s.server(testkit.AOF(s.t)...)
	s.single()
	for round := range s.form.rounds {
		for i, end := range []func(){s.redis.Stop, s.redis.Shutdown} {
			s.at((float64(2*round+i) + 0.5) / float64(2*s.form.rounds+1))
			end()
			down := time.Duration(1+s.rng.IntN(3)) * time.Second
			if round == 1 && i == 0 { // longer than a lock lives, and a replica without a heartbeat
				down = 14 * time.Second
			}
			<-time.After(down)
			s.redis.Restart()
			s.progress("Redis was away for %v (%s)", down, []string{"killed", "ended"}[i])
		}
	}
	s.sent()
	s.once(s.settle(), 30*s.form.rounds)
}

// full: Redis has no memory left for a while.
func (s *soak) full() {
	s.server("--maxmemory-policy", "noeviction")
	s.loaded()
	for round := range s.form.rounds {
		s.at((float64(round) + 0.3) / float64(s.form.rounds+1))
		s.fullRound(strconv.Itoa(round))
	}
	s.sent()
	s.once(s.settle(), 50*s.form.rounds)
}

func (s *soak) fullRound(round string) {
	s.t.Helper()
	ctx := s.t.Context()
	const holds = 4
	var held []string
	for i := range holds { // in mid-run when the memory ends
		id := "held" + round + "-" + strconv.Itoa(i)
		held = append(held, id)
		s.now(recorded("guarded", id, 3000))
	}
	s.begun(held)
	for i := range 60 { // waiting, to be run meanwhile
		s.now(plain("wait"+round+"-"+strconv.Itoa(i), 300))
	}
	for i := range 10 {
		s.now(recorded("guarded", "refused"+round+"-"+strconv.Itoa(i), 10))
	}
	if err := s.broker.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		s.t.Fatal(err)
	}
	full := time.Now()
	s.progress("Redis is full")
	// What the naive way writes a result with is refused.
	if err := s.broker.Set(ctx, "celery-task-meta-naive", "{}", time.Minute).Err(); err == nil || !strings.Contains(err.Error(), "OOM") {
		s.t.Errorf("a plain SET on the full server: %v, want a refusal", err)
	}
	testkit.Poll(s.t, time.Minute, 100*time.Millisecond, func() bool { return time.Since(full) > 6*time.Second && s.haveResults(held) },
		"the runs that had their guards complete on the full server")
	testkit.Poll(s.t, time.Minute, 100*time.Millisecond, func() bool { return s.broker.ZCard(ctx, "solobeat:default:parked").Val() > 0 }, "what is refused is parked")
	over := time.Now()
	if err := s.broker.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		s.t.Fatal(err)
	}
	s.progress("Redis has memory again")
	unguarded := 0
	for _, l := range s.lines("begin") {
		// A claim may have been granted just before.
		if l.at.Before(full.Add(time.Second)) || l.at.After(over) {
			continue
		}
		if l.key != "-" {
			s.t.Errorf("%s began under guards %v after the memory had ended", l.id, l.at.Sub(full))
		} else {
			unguarded++
		}
	}
	if unguarded == 0 {
		s.t.Error("nothing ran while the server was full: what is only moved should go on")
	}
}

// begun waits until runs have begun.
func (s *soak) begun(ids []string) {
	s.t.Helper()
	testkit.Poll(s.t, time.Minute, 20*time.Millisecond, func() bool {
		n := 0
		for _, l := range s.lines("begin") {
			if slices.Contains(ids, l.id) {
				n++
			}
		}
		return n == len(ids)
	}, "%v begin", ids)
}

func (s *soak) haveResults(ids []string) bool {
	for _, id := range ids {
		if s.broker.Exists(s.t.Context(), "celery-task-meta-"+id).Val() == 0 {
			return false
		}
	}
	return true
}

// stall: Redis answers nobody for longer than a replica counts as alive and
// than any lock lives.
func (s *soak) stall() {
	s.server()
	s.single()
	s.at(0.2)
	var held []string
	for i := range 3 {
		id := "held" + strconv.Itoa(i)
		held = append(held, id)
		s.now(recorded("hold", id, 12_000))
	}
	s.begun(held)
	const stall = 40 * time.Second
	paused := time.Now()
	overdue := s.pause(stall)
	s.progress("Redis stands still")
	<-time.After(stall)
	s.progress("Redis goes on")
	// The naive way of finding the dead looks at the age of their heartbeats.
	if n := <-overdue; n < 1 {
		s.t.Errorf("%d living replicas are overdue after the stall: it was too short to show anything", n)
	}
	s.sent()
	a := s.settleCounted(func() {
		for _, w := range s.steady {
			for _, name := range []string{"solobeat_buried_total", "solobeat_taken_over_total", "solobeat_task_failures_total"} {
				if n := w.metric(name); n != 0 {
					s.t.Errorf("%s: %s is %v though all were alive", w.Name, name, n)
				}
			}
		}
	})
	s.once(a, 100)
	told := 0
	for _, l := range s.lines("cancelled") {
		if slices.Contains(held, l.id) && l.at.Sub(paused) < 10*time.Second && strings.Contains(l.rest, "lock") {
			told++
		}
	}
	if told != len(held) {
		s.t.Errorf("%d of %d runs were told in time that their lock is lost: %+v", told, len(held), s.lines("cancelled"))
	}
}

// pause lets Redis answer nobody for a time. What it returns is how many
// replicas count as dead by the age of their heartbeat alone, asked at the
// beginning and answered at the instant at which Redis goes on.
func (s *soak) pause(stall time.Duration) <-chan int64 {
	s.t.Helper()
	const count = "return redis.call('ZCOUNT', KEYS[1], '-inf', redis.call('TIME')[1])"
	opt := *s.broker.Options()
	opt.ReadTimeout, opt.ContextTimeoutEnabled = 2*stall, false
	client := redis.NewClient(&opt)
	s.t.Cleanup(func() { _ = client.Close() })
	ctx := s.t.Context()
	if err := client.Ping(ctx).Err(); err != nil { // a handshake would wait as well
		s.t.Fatal(err)
	}
	if err := s.broker.Do(ctx, "CLIENT", "PAUSE", stall.Milliseconds(), "ALL").Err(); err != nil {
		s.t.Fatal(err)
	}
	n := make(chan int64, 1)
	go func() {
		got, err := client.Eval(ctx, count, []string{"solobeat:default:replicas"}).Int64()
		if err != nil {
			got = -1
		}
		n <- got
	}()
	return n
}

// settleCounted is settle with a look at the metrics before the workers end.
func (s *soak) settleCounted(look func()) *account {
	s.t.Helper()
	s.results()
	look()
	return s.settle()
}

// through lets the workers, and only them, reach Redis by a proxy.
func (s *soak) through() *testkit.Proxy {
	s.server()
	p := testkit.NewProxy(s.t, s.redis.Addr)
	s.envs = append(s.envs, "SOLOBEAT_REDIS_URL="+p.URL(0))
	return p
}

func (s *soak) near() { s.distant(2400 * time.Microsecond) }
func (s *soak) far()  { s.distant(20 * time.Millisecond) }

// distant: each round trip takes longer.
func (s *soak) distant(rtt time.Duration) {
	p := s.through()
	p.Delay(rtt / 2)
	s.loaded()
	s.sent()
	s.results()
	// Whoever takes one message a round trip, as a plain loop of BRPOP does,
	// needs at least as many round trips as there are messages.
	const burst = 1000
	began := time.Now()
	for i := range burst {
		s.now(plain("burst"+strconv.Itoa(i), 0))
	}
	s.results()
	took := time.Since(began)
	s.progress("%d messages at once took %v", burst, took)
	if least := burst * rtt / time.Duration(len(s.steady)); rtt >= 20*time.Millisecond && took > least {
		s.t.Errorf("%d messages took %v; one by one they take %v at least", burst, took, least)
	}
	s.once(s.settle(), 5)
	if s.row.gap > 10*time.Second {
		s.t.Errorf("nothing had its effect for %v", s.row.gap)
	}
}

// repliesLost: requests arrive, and every now and then nobody hears of it.
func (s *soak) repliesLost() {
	p := s.through()
	s.loaded()
	p.LoseReplies(s.form.losses, s.seed)
	s.naivePop(p)
	s.sent()
	s.results()
	lost := p.Dropped()
	p.Pass()
	s.progress("%d replies were lost", lost)
	if lost < s.form.others/20 {
		s.t.Errorf("only %d replies were lost", lost)
	}
	s.once(s.settle(), 100+lost)
}

// naivePop takes messages as a plain consumer does, through the same proxy: what
// was in a lost reply is nowhere any more.
func (s *soak) naivePop(p *testkit.Proxy) {
	s.t.Helper()
	ctx := s.t.Context()
	const n = 400
	for i := range n {
		s.broker.LPush(ctx, "naive", i)
	}
	client, got := p.Client(s.t), 0
	for s.broker.Exists(ctx, "naive").Val() == 1 {
		if client.BRPop(ctx, time.Second, "naive").Err() == nil {
			got++
		}
	}
	if got >= n {
		s.t.Errorf("the naive consumer got all of %d messages: the lost replies show nothing", n)
	}
	s.progress("of %d messages the naive consumer lost %d", n, n-got)
}
