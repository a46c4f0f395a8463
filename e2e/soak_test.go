package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/solobeat/solobeat/internal/testkit"
)

// soakForm is how much the soak does. This is the only place that knows the two
// forms apart.
type soakForm struct {
	name string
	// Of the scene of kills: messages and for how long they are sent, kills, and
	// how many of these at least at each fail point.
	messages, kills, perPoint int
	sending                   time.Duration
	// Of each other scene: the same.
	others        int
	othersSending time.Duration
	rounds        int // of restarts, and of a full server
	losses        int // one reply in so many is lost
	beside        bool
}

// soakOf reads SOLOBEAT_SOAK: "long" is what `make soak` does; without it the
// short form is one test among the others.
func soakOf(t *testing.T) soakForm {
	switch v := os.Getenv("SOLOBEAT_SOAK"); v {
	case "":
		return soakForm{name: "short", messages: 400, kills: 20, perPoint: 2, sending: 20 * time.Second, others: 200, othersSending: 15 * time.Second, rounds: 1, losses: 40, beside: true}
	case "long":
		return soakForm{name: "long", messages: 5000, kills: 200, perPoint: 20, sending: 150 * time.Second, others: 1000, othersSending: 45 * time.Second, rounds: 3, losses: 10}
	default:
		t.Fatalf("SOLOBEAT_SOAK is %q: want long, or nothing for the short form", v)
		return soakForm{}
	}
}

// soakSeed is SOLOBEAT_SOAK_SEED, or a random one.
func soakSeed(t *testing.T) uint64 {
	v := os.Getenv("SOLOBEAT_SOAK_SEED")
	if v == "" {
		return rand.Uint64N(1e9)
	}
	seed, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("SOLOBEAT_SOAK_SEED: %v", err)
	}
	return seed
}

// Load under faults, counted by a witness outside: every message has its
// effect, an effect with a record has it once, every result is there, and in
// the end nothing is left in Redis, in the processes or in the logs.
func TestSoak(t *testing.T) {
	t.Parallel()
	form, seed := soakOf(t), soakSeed(t)
	t.Logf("%s form, SOLOBEAT_SOAK_SEED=%d", form.name, seed)
	testkit.Build(t, workerPkg, testkit.FailpointsTag)
	table := &soakTable{}
	scene := func(name string, run func(*soak)) subtest {
		return subtest{name, func(t *testing.T) { runScene(t, table, name, form, seed, run) }}
	}
	groups := [][]subtest{
		{scene("kills", (*soak).kills)},
		{scene("stall of 40 s", (*soak).stall), scene("restarts of Redis", (*soak).restarts)},
		{scene("full Redis", (*soak).full), scene("replies lost", (*soak).repliesLost)},
		{scene("2.4 ms of round trip", (*soak).near), scene("20 ms of round trip", (*soak).far)},
	}
	if form.beside { // most of them wait most of the time
		var all []subtest
		for _, g := range groups {
			all = append(all, g...)
		}
		groups = [][]subtest{all}
	}
	for _, g := range groups {
		together(t, g...)
	}
	t.Log(table.String())
}

// soakRow is what one scene came to.
type soakRow struct {
	scene           string
	messages, kills int
	again           int // sends whose answer did not come, and that were repeated
	plain, recorded int // extra effects without and with a record
	takeovers, lost int // of messages; of locks in mid-run
	gap, took       time.Duration
	rss             int64 // the largest of a worker, in MiB
	warnings, lines int   // of the noisiest worker's log
}

type soakTable struct {
	mu   sync.Mutex
	rows []*soakRow
}

func (t *soakTable) add(r *soakRow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

func (t *soakTable) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nscene\tmessages\tkills\tsent again\textra, no record\textra, record\ttakeovers\tlocks lost\tlongest gap\tMiB\twarnings\ttook")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1fs\t%d\t%d\t%.0fs\n", r.scene, r.messages, r.kills, r.again, r.plain, r.recorded,
			r.takeovers, r.lost, r.gap.Seconds(), r.rss, r.warnings, r.took.Seconds())
	}
	_ = w.Flush()
	return b.String()
}

func runScene(t *testing.T, table *soakTable, name string, form soakForm, seed uint64, run func(*soak)) {
	began := time.Now()
	s := &soak{form: form, seed: seed, rng: rand.New(rand.NewPCG(seed, uint64(len(name)))), row: &soakRow{scene: name}}
	defer func() {
		s.row.took = time.Since(began)
		table.add(s.row)
	}()
	run(s.on(t))
}
