package idemtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/solobeat/solobeat/idempotency"
)

// model is one record as the table of transitions says it must be.
type model struct {
	state   idempotency.State // 0: there is none
	owner   idempotency.Owner
	fence   uint64
	attempt int
	over    bool // the lease has passed
	wait    bool // the back-off has not passed
	print   string
	result  string
}

func (m *model) verdict(owner idempotency.Owner, fp string) idempotency.Verdict {
	switch {
	case m.state == 0:
		return idempotency.Run
	case fp != "" && m.print != "" && fp != m.print:
		return idempotency.Mismatch
	case m.state == idempotency.Completed:
		return idempotency.Replay
	case m.state == idempotency.Failed:
		return idempotency.PermanentlyFailed
	case m.state == idempotency.InProgress && m.owner != owner && !m.over:
		return idempotency.Busy
	case m.state == idempotency.Released && m.wait:
		return idempotency.Backoff
	default:
		return idempotency.Run
	}
}

// held says what a holder's call must come to; again is the state in which the
// same holder's repeated call is accepted.
func (m *model) held(c idempotency.Claim, again idempotency.State) error {
	switch {
	case m.state == 0:
		return idempotency.ErrRecordLost
	case m.owner != c.Owner || m.fence != c.Fence:
		return idempotency.ErrStale
	case m.state != idempotency.InProgress && m.state != again:
		return idempotency.ErrStale
	default:
		return nil
	}
}

type walk struct {
	*suite
	rnd    *rand.Rand
	key    idempotency.Key
	m      model
	claims []idempotency.Claim // all that were ever won
	log    []string
}

// testModel walks at random over all operations, by holders old and new, and
// compares each answer and each record with the model's. (A model check found
// powertools-lambda-typescript#5714: a completed result that was overwritten.)
func testModel(s *suite) {
	for seed := range uint64(3) {
		w := &walk{suite: s, rnd: rand.New(rand.NewPCG(seed, 7)), key: key(fmt.Sprint("walk ", seed))}
		for range 150 {
			w.step()
			w.compare()
		}
	}
}

func (w *walk) failf(format string, args ...any) {
	w.Helper()
	w.Fatalf("%s\nafter %s", fmt.Sprintf(format, args...), strings.Join(w.log[max(0, len(w.log)-12):], "; "))
}

func (w *walk) expect(got, want error) bool {
	w.Helper()
	if !errors.Is(got, want) || (want == nil && got != nil) {
		w.failf("got %v, want %v", got, want)
	}
	return want == nil
}

func (w *walk) step() {
	op := w.rnd.IntN(10)
	if op < 4 || len(w.claims) == 0 {
		w.claimStep()
		return
	}
	// Mostly the newest holder, at times an old one.
	c := w.claims[len(w.claims)-1]
	if w.rnd.IntN(3) == 0 {
		c = w.claims[w.rnd.IntN(len(w.claims))]
	}
	switch op {
	case 4, 5:
		w.log = append(w.log, fmt.Sprintf("renew %d", c.Fence))
		if w.expect(w.renew(c), w.m.held(c, 0)) {
			w.leased(c.Options.Lease)
		}
	case 6:
		w.completeStep(c)
	case 7:
		wait := w.rnd.IntN(2) == 0
		w.log = append(w.log, fmt.Sprintf("release %d wait %v", c.Fence, wait))
		backoff := time.Duration(0)
		if wait {
			backoff = long
		}
		was := w.m.state
		if w.expect(w.release(c, backoff), w.m.held(c, idempotency.Released)) && was == idempotency.InProgress {
			w.m.state, w.m.wait = idempotency.Released, wait
		}
	case 8:
		w.log = append(w.log, fmt.Sprintf("fail %d", c.Fence))
		if w.expect(w.fail(c), w.m.held(c, idempotency.Failed)) {
			w.m.state = idempotency.Failed
		}
	case 9:
		w.forgetStep(w.rnd.IntN(2) == 0)
	}
}

func (w *walk) leased(lease time.Duration) {
	w.m.over = lease < long
	if w.m.over {
		w.leaseOver(w.key)
	}
}

func (w *walk) claimStep() {
	o := options(long, "t")
	if w.rnd.IntN(2) == 0 {
		o.Lease = time.Millisecond
	}
	if n := w.rnd.IntN(6); n < 2 {
		o.Fingerprint = strings.Repeat(string("ab"[n]), 64)
	}
	owner := idempotency.NewOwner()
	if n := len(w.claims); n > 0 && w.rnd.IntN(4) == 0 {
		owner = w.claims[n-1].Owner
	}
	same := w.m.state == idempotency.InProgress && w.m.owner == owner
	want := w.m.verdict(owner, o.Fingerprint)
	w.log = append(w.log, fmt.Sprintf("claim lease %v print %.1s same %v", o.Lease, o.Fingerprint, same))
	v, c, _, err := w.Store.Claim(w.ctx, w.key, owner, o)
	w.expect(err, nil)
	if v != want {
		w.failf("verdict %v, want %v", v, want)
	}
	if v != idempotency.Run {
		return
	}
	if !same {
		if c.Fence <= w.m.fence || c.Attempt != w.m.attempt+1 || c.Takeover != (w.m.state == idempotency.InProgress) {
			w.failf("won %+v over %+v", c, w.m)
		}
		w.m = model{state: idempotency.InProgress, owner: owner, fence: c.Fence, attempt: c.Attempt, print: w.m.print}
		if o.Fingerprint != "" {
			w.m.print = o.Fingerprint
		}
		w.claims = append(w.claims, c)
	} else if c.Fence != w.m.fence || c.Attempt != w.m.attempt {
		w.failf("won again %+v over %+v", c, w.m)
	}
	w.leased(o.Lease)
}

func (w *walk) completeStep(c idempotency.Claim) {
	text := strings.Repeat(fmt.Sprint(w.rnd.IntN(9)+1), 1+w.rnd.IntN(120))
	w.log = append(w.log, fmt.Sprintf("complete %d", c.Fence))
	was := w.m.state
	if w.expect(w.complete(c, text), w.m.held(c, idempotency.Completed)) && was == idempotency.InProgress {
		w.m.state, w.m.result = idempotency.Completed, text
	}
}

func (w *walk) forgetStep(force bool) {
	w.log = append(w.log, fmt.Sprintf("forget force %v", force))
	var want error
	switch {
	case w.m.state == 0:
		want = idempotency.ErrNotFound
	case w.m.state == idempotency.InProgress && !force:
		want = idempotency.ErrInProgress
	}
	_, err := w.Store.Forget(w.ctx, w.key, force, "walk")
	if w.expect(err, want) {
		w.m = model{state: idempotency.Released, fence: w.peek(w.key).Fence}
	}
}

func (w *walk) compare() {
	if w.m.state == 0 {
		return
	}
	r := w.peek(w.key)
	if r.State != w.m.state || r.Owner != w.m.owner || r.Fence != w.m.fence || r.Attempt != w.m.attempt ||
		r.Fingerprint != w.m.print || string(r.Result.Data) != w.m.result || r.Key != w.key {
		w.failf("record %+v, want %+v", r, w.m)
	}
	if left := r.LeaseLeft > 0; left != (r.State == idempotency.InProgress && !w.m.over) {
		w.failf("lease left %v, want over %v", r.LeaseLeft, w.m.over)
	}
}
