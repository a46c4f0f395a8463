package testkit

import (
	"math/rand/v2"
	"time"
)

// losses draws which replies are lost.
type losses struct {
	rng   *rand.Rand
	oneIn int
}

// draw decides about a chunk of n bytes: whether it is lost, and how many of
// its bytes arrive all the same.
func (l losses) draw(n int) (lost bool, keep int) {
	if l.oneIn < 1 || l.rng.IntN(l.oneIn) > 0 {
		return false, 0
	}
	if l.rng.IntN(2) == 0 {
		return true, 0
	}
	return true, l.rng.IntN(n)
}

// LoseReplies loses about one in n replies until Pass, on all connections: the
// request arrives and is done, its reply never comes, or a random part of it,
// and the connection is closed. The same seed draws the same losses; which
// reply meets which depends on the traffic.
func (p *Proxy) LoseReplies(oneIn int, seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = losses{rand.New(rand.NewPCG(seed, 0)), oneIn}
}

// idleLimit ends connections over which nothing passes.
type idleLimit struct {
	after  time.Duration
	silent bool
	cuts   int
}

// IdleLimit makes the proxy end each connection over which nothing has passed
// for d, as load balancers and NAT gateways do: it closes it, or, with silent,
// forgets it: both ends stay open, and what they send is lost without a word.
// Call it once.
func (p *Proxy) IdleLimit(d time.Duration, silent bool) {
	p.mu.Lock()
	p.idle = idleLimit{after: d, silent: silent}
	p.mu.Unlock()
	p.wg.Go(func() {
		tick := time.NewTicker(d / 20)
		defer tick.Stop()
		for {
			select {
			case <-p.closed:
				return
			case now := <-tick.C:
				p.endIdle(now)
			}
		}
	})
}

func (p *Proxy) endIdle(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.gone || now.Sub(c.used) < p.idle.after {
			continue
		}
		p.idle.cuts++
		if p.idle.silent {
			c.gone = true
		} else {
			c.close()
		}
	}
}

// IdleCuts is the number of connections that IdleLimit has ended.
func (p *Proxy) IdleCuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle.cuts
}

func (p *Proxy) isGone(c *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.gone
}
